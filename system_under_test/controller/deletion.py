"""Deletes topics. A deletion is requested by a znode of the topic's name in /admin/delete_topics.

1. Until every broker with a replica is alive, the topic is served as any other.
2. The controller writes into that znode that the deletion has begun, before it sends requests to the replicas. From
   now on no controller serves the topic. Otherwise a replica without its files could become leader with an empty log.
3. The replicas delete their files.
4. All brokers learn that the topic is deleted. Coordinators delete the offsets that groups have committed in it.
5. The topic's znodes are removed. From now on, a new topic may have that name.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import NodeExistsError
from kazoo.protocol.serialization import Delete, SetData

from assay.system_under_test.config import INTERNAL_TOPICS
from assay.system_under_test.controller import topics
from assay.system_under_test.controller.active_term import Action, ActiveTerm
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.tasks import BACK_OFF, BackgroundTasks
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.controller")


@dataclass
class TopicDeletions:
    """The deletions of one controller.

    - ``perform``: runs an action between two triggers
    - ``trigger``: causes a call of ``begin_due``
    - ``plan_endings``: returns the writes that end the topic's reassignments
    """

    zookeeper: ZooKeeper
    background: BackgroundTasks
    perform: Callable[[Action[None]], Awaitable[None]]
    trigger: Callable[[], None]
    plan_endings: Callable[[ActiveTerm, str], Awaitable[list[Any]]]

    async def request(self, name: str) -> None:
        """Requests the deletion; returns when every replica and the topic itself are gone. Raises ``TopicError``.

        If the caller stops waiting, the deletion continues.
        """
        gone = asyncio.get_running_loop().create_future()

        async def act(active: ActiveTerm) -> None:
            if name not in active.cluster.topics:
                raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
            if name not in active.cluster.begun_deletions:
                with contextlib.suppress(NodeExistsError):  # an earlier request waits for a dead replica
                    await active.writer.write([znodes.make_create(paths.delete_topic(name))])
            active.cluster.notify_when_forgotten(name, gone)
            self.trigger()

        await self.perform(act)
        await gone

    async def begin_due(self, active: ActiveTerm, watch: Watch) -> None:
        """Begins all deletions that can begin; removes requests for missing and internal topics."""
        cluster = active.cluster
        for name in await self.zookeeper.get_children(paths.DELETE_TOPICS, watch):
            if name not in cluster.topics or (name in INTERNAL_TOPICS and name not in cluster.begun_deletions):
                if name in cluster.topics:
                    _log.error("znode %s: topic %s is internal and cannot be deleted", paths.delete_topic(name), name)
                await active.writer.write([Delete(paths.delete_topic(name), -1)])
                continue
            if name not in cluster.running_deletions and active.broadcast.has_channels(
                cluster.list_brokers_with_files(name)
            ):
                if name not in cluster.begun_deletions:
                    begun = znodes.encode(znodes.TopicDeletion(cluster.topics[name].czxid))
                    await active.writer.write([SetData(paths.delete_topic(name), begun, -1)])
                    cluster.begun_deletions[name] = None
                cluster.running_deletions[name] = None
                active.machines.record_topic_deletion_start(name)
                self.background.spawn(self._delete(active, name), f"deleting {name}")

    async def _delete(self, active: ActiveTerm, name: str) -> None:
        """Tries the deletion once. The return of a failed broker triggers the next try."""
        topic = active.cluster.topics[name]
        partitions = [p for p in active.cluster.all_partitions() if p[0] == name]
        deleted = await active.broadcast.delete_replicas(name, active.cluster.list_brokers_with_files(name))
        if deleted:
            await active.broadcast.announce_deletion(name)

        def is_same_topic() -> bool:
            now = active.cluster.topics.get(name)
            return now is not None and now.czxid == topic.czxid

        async def finish(current: ActiveTerm) -> None:
            if current is not active:
                return
            try:
                endings = await self.plan_endings(active, name) if deleted else []
                if deleted and is_same_topic():
                    await active.writer.write([*await topics.plan_removal(self.zookeeper, name, partitions), *endings])
                    moves = active.cluster.moves.items()
                    active.cluster.moves = {partition: move for partition, move in moves if partition[0] != name}
                    active.forget(name, deleted=True)
                    active.broadcast.send()
            finally:
                if is_same_topic():
                    active.cluster.running_deletions.pop(name, None)
                    for partition in partitions:
                        active.machines.record_deletion_failure(partition)

        try:
            await self.perform(finish)
        except TopicError as error:
            _log.info("deleting topic %s: %s; it is tried again", name, error)
            deleted = False
        if not deleted:
            await asyncio.sleep(BACK_OFF)
            self.trigger()
