"""What the active controller knows: who lives, which topics there are, and each partition's state as last read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kazoo.exceptions import NoNodeError

from system_under_test.config import ConfigError, TopicConfig
from system_under_test.controller.leaders import LiveBroker
from system_under_test.protocol.internal import (
    MemberEpoch,
    PartitionStateUpdate,
    TopicSetting,
    TopicSettingsUpdate,
)
from system_under_test.runtime import Watch, ZooKeeper
from system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.controller")

PartitionId = tuple[str, int]


@dataclass(frozen=True)
class Topic:
    """``czxid`` tells one topic from a later one of the same name."""

    czxid: int
    assignment: dict[int, list[int]]
    settings: dict[str, str]


@dataclass
class ClusterState:
    brokers: dict[int, LiveBroker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    states: dict[PartitionId, znodes.Versioned[znodes.PartitionState]] = field(default_factory=dict)
    deleting: dict[str, None] = field(default_factory=dict)
    _forgotten: dict[str, list[asyncio.Future[None]]] = field(default_factory=dict)

    def all_partitions(self) -> list[PartitionId]:
        return [(name, index) for name, topic in self.topics.items() for index in topic.assignment]

    def replicas_of(self, name: str) -> list[int]:
        assignment = self.topics[name].assignment
        return sorted({replica for replicas in assignment.values() for replica in replicas})

    def forget(self, name: str) -> None:
        for index in self.topics.pop(name).assignment:
            self.states.pop((name, index), None)
        self.deleting.pop(name, None)
        for waiting in self._forgotten.pop(name, []):
            if not waiting.done():
                waiting.set_result(None)

    def when_forgotten(self, name: str, done: asyncio.Future[None]) -> None:
        """``done`` is set once the topic is no more."""
        self._forgotten.setdefault(name, []).append(done)

    def updates(self, partitions: Iterable[PartitionId]) -> list[PartitionStateUpdate]:
        """As the brokers are told; partitions without a state yet are left out."""
        result = []
        for name, index in partitions:
            known = self.states.get((name, index))
            if known is None or name in self.deleting:
                continue
            topic, state = self.topics[name], known.value
            result.append(
                PartitionStateUpdate(
                    topic=name,
                    topic_czxid=topic.czxid,
                    partition=index,
                    controller_epoch=state.controller_epoch,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=state.isr,
                    member_epochs=[
                        MemberEpoch(broker_id=int(member), broker_epoch=epoch)
                        for member, epoch in state.isr_epochs.items()
                    ],
                    elr=state.elr,
                    zk_version=known.version,
                    replicas=topic.assignment[index],
                )
            )
        return result

    def settings(self, names: Collection[str]) -> list[TopicSettingsUpdate]:
        return [
            TopicSettingsUpdate(
                topic=name,
                settings=[TopicSetting(name=key, value=value) for key, value in self.topics[name].settings.items()],
            )
            for name in sorted(names)
        ]


async def read_brokers(zookeeper: ZooKeeper, watch: Watch) -> dict[int, LiveBroker]:
    """Everybody registered now, by id; the children are watched."""
    brokers = {}
    for name in await zookeeper.get_children(paths.BROKER_IDS, watch):
        path = f"{paths.BROKER_IDS}/{name}"
        try:
            data, stat = await zookeeper.get(path)
        except NoNodeError:
            continue  # gone in between, and the watch has fired
        try:
            registration, broker_id = znodes.decode(znodes.BrokerRegistration, path, data), int(name)
        except (znodes.ZnodeError, ValueError) as error:
            _log.error("%s: %s; no broker is seen there", path, error)
            continue
        brokers[broker_id] = LiveBroker(
            broker_id, registration.host, registration.port, stat.czxid, registration.clean_since
        )
    return dict(sorted(brokers.items()))


async def read_topic(zookeeper: ZooKeeper, cluster: ClusterState, name: str) -> None:
    """Its assignment, settings and states, into ``cluster``."""
    path = paths.topic(name)
    data, stat = await zookeeper.get(path)
    assignment = znodes.decode(znodes.TopicAssignment, path, data).partitions
    settings: dict[str, str] = {}
    with contextlib.suppress(NoNodeError):  # a topic need not have settings
        data, _ = await zookeeper.get(paths.topic_config(name))
        settings = _usable(name, znodes.decode(znodes.TopicSettings, paths.topic_config(name), data).config)
    if not all(index.isdecimal() for index in assignment):
        raise znodes.ZnodeError(f"znode {path} names partitions {sorted(assignment)}")
    cluster.topics[name] = Topic(
        stat.czxid, {int(index): list(replicas) for index, replicas in sorted(assignment.items())}, settings
    )


def _usable(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Without those that this broker does not know or cannot take: tools of others may write what they like there."""
    usable = {}
    for key, value in settings.items():
        try:
            TopicConfig().override({key: value})
        except ConfigError as error:
            _log.error("topic %s: %s; it is ignored", name, error)
        else:
            usable[key] = value
    return usable
