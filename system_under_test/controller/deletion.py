"""Topics that are marked in /admin/delete_topics go, once every replica lives and has deleted its files.

Until every broker with a replica lives, a marked topic is in service as any other. Then the mark notes that its
deletion has begun, before any replica is asked; from there on it is out of service, under each later controller too,
until it is gone: a replica that has deleted its files and was asked to lead would begin with an empty log.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import NodeExistsError

from assay.system_under_test.config import INTERNAL_TOPICS
from assay.system_under_test.controller import topics
from assay.system_under_test.controller.active_term import Action, ActiveTerm
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.tasks import BACK_OFF, Background
from assay.system_under_test.zookeeper import paths

_log = logging.getLogger("assay.controller")


@dataclass
class Deletions:
    """``perform`` runs an action between two triggers of the controller; ``look_again`` has ``look`` called;
    ``endings`` gives the writes that end everything else that was under way with a topic.
    """

    zookeeper: ZooKeeper
    background: Background
    perform: Callable[[Action[None]], Awaitable[None]]
    look_again: Callable[[], None]
    endings: Callable[[ActiveTerm, str], Awaitable[list[Any]]]

    async def request(self, name: str) -> None:
        """Marks the topic; returns once every replica and the topic itself are gone. Raises ``TopicError``.

        A caller that stops waiting stops nothing: the topic goes when all its replicas can.
        """
        gone = asyncio.get_running_loop().create_future()

        async def act(active: ActiveTerm) -> None:
            if name not in active.cluster.topics:
                raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
            if name not in active.cluster.deleting:
                with contextlib.suppress(NodeExistsError):  # it waits for a dead replica since an earlier request
                    await active.fence.write(topics.deletion_mark(name))
            active.cluster.when_forgotten(name, gone)
            self.look_again()

        await self.perform(act)
        await gone

    async def look(self, active: ActiveTerm, watch: Watch) -> None:
        """Begins what can be begun; marks of topics that are not there go at once."""
        cluster = active.cluster
        for name in await self.zookeeper.get_children(paths.DELETE_TOPICS, watch):
            if name not in cluster.topics or (name in INTERNAL_TOPICS and name not in cluster.deleting):
                if name in cluster.topics:
                    _log.error("znode %s: topic %s is the brokers' own; it stays", paths.delete_topic(name), name)
                await active.fence.write(topics.forget_mark(name))
                continue
            if name not in cluster.emptying and active.brokers.reaches(cluster.replicas_of(name)):
                if name not in cluster.deleting:
                    await active.fence.write(topics.deletion_begins(name, cluster.topics[name].czxid))
                    cluster.deleting[name] = None
                cluster.emptying[name] = None
                active.machines.topic_deletion_begins(name)
                self.background.spawn(self._delete(active, name), f"deleting {name}")

    async def _delete(self, active: ActiveTerm, name: str) -> None:
        """One try; a replica that goes away during it brings the next one when it is back."""
        topic = active.cluster.topics[name]
        parts = [p for p in active.cluster.all_partitions() if p[0] == name]
        deleted = await active.brokers.delete_replicas(name, active.cluster.replicas_of(name))

        def is_the_one() -> bool:
            now = active.cluster.topics.get(name)
            return now is not None and now.czxid == topic.czxid

        async def finish(current: ActiveTerm) -> None:
            if current is not active:
                return
            try:
                endings = await self.endings(active, name) if deleted else []
                if deleted and is_the_one():
                    await active.fence.write([*await topics.removal(self.zookeeper, name, parts), *endings])
                    moves = active.cluster.moves.items()
                    active.cluster.moves = {partition: move for partition, move in moves if partition[0] != name}
                    active.forget(name, deleted=True)
                    active.brokers.send()
            finally:
                if is_the_one():
                    active.cluster.emptying.pop(name, None)
                    for partition in parts:
                        active.machines.deletion_failed(partition)

        try:
            await self.perform(finish)
        except TopicError as error:
            _log.info("deleting topic %s: %s; again", name, error)
            deleted = False
        if not deleted:
            await asyncio.sleep(BACK_OFF)
            self.look_again()
