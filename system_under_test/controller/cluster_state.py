"""Cluster state as the active controller last read it: live brokers, topics, and the state of each partition."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from assay.system_under_test.controller.leaders import BrokerIncarnation
from assay.system_under_test.controller.topic_settings import VersionedSettings, read_settings
from assay.system_under_test.protocol import internal
from assay.system_under_test.protocol.topics import is_topic_name
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.controller")

PartitionId = tuple[str, int]


@dataclass(frozen=True)
class Topic:
    """A topic's assignment and settings. ``czxid`` distinguishes it from a later topic of the same name."""

    czxid: int
    assignment: dict[int, list[int]]
    settings: VersionedSettings


@dataclass(frozen=True)
class DamagedMember:
    """A broker, under one registration, whose replica was damaged in this leader epoch. It may be repaired later."""

    broker_id: int
    czxid: int
    leader_epoch: int


@dataclass
class ClusterState:
    """The state, by broker id, topic name and partition.

    Dicts whose values are None serve as ordered sets, so that runs are deterministic.
    """

    brokers: dict[int, BrokerIncarnation] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    states: dict[PartitionId, znodes.Versioned[znodes.PartitionState]] = field(default_factory=dict)
    """The stored state of each partition, with the version of its znode."""
    undecided: dict[PartitionId, None] = field(default_factory=dict)
    """Partitions whose election waits for a replica's answer."""
    begun_deletions: dict[str, None] = field(default_factory=dict)
    """Topics whose deletion has begun. Some replicas may be gone, so they are never served again."""
    leaving: dict[int, int] = field(default_factory=dict)
    """Brokers that announced a shutdown, with their registration (czxid)."""
    damaged: dict[PartitionId, DamagedMember] = field(default_factory=dict)
    """Partitions that no replica can lead, because the last in-sync member has a damaged log; with that member."""
    moves: dict[PartitionId, znodes.ReassignmentEntry] = field(default_factory=dict)
    """Reassignments, as last read."""
    moves_known: bool = False
    """Whether the reassignments have been read."""
    running_removals: dict[PartitionId, None] = field(default_factory=dict)
    """Partitions whose old replicas are being deleted right now."""
    running_deletions: dict[str, None] = field(default_factory=dict)
    """Topics whose replicas are being deleted right now."""
    _forget_waiters: dict[str, list[asyncio.Future[None]]] = field(default_factory=dict)
    """By topic: the futures to complete when the topic is forgotten."""

    def all_partitions(self) -> list[PartitionId]:
        return [(name, index) for name, topic in self.topics.items() for index in topic.assignment]

    def list_brokers_with_files(self, name: str) -> list[int]:
        """Returns all brokers that may have files of the topic."""
        groups = [*self.topics[name].assignment.values()]
        groups += [move.removing for move in self.moves.values() if move.topic == name]
        return sorted({replica for group in groups for replica in group})

    def brokers_not_leaving(self) -> dict[int, BrokerIncarnation]:
        """Returns live brokers that have not announced a shutdown."""
        return {b: broker for b, broker in self.brokers.items() if self.leaving.get(b) != broker.czxid}

    def find_electable(self, partition: PartitionId) -> dict[int, BrokerIncarnation]:
        """Returns live brokers that have not announced a shutdown, and whose replica is not known to be damaged."""
        intact = self.brokers_with_intact_replica(partition)
        return {b: broker for b, broker in self.brokers_not_leaving().items() if b in intact}

    def brokers_with_intact_replica(self, partition: PartitionId) -> dict[int, BrokerIncarnation]:
        """Returns live brokers whose replica is not known to be damaged."""
        known, state = self.damaged.get(partition), self.states.get(partition)
        if known is None or state is None or state.value.leader_epoch != known.leader_epoch:
            return self.brokers
        return {b: broker for b, broker in self.brokers.items() if (b, broker.czxid) != (known.broker_id, known.czxid)}

    def forget(self, name: str) -> None:
        for index in self.topics.pop(name).assignment:
            self.states.pop((name, index), None)
            self.undecided.pop((name, index), None)
            self.damaged.pop((name, index), None)
        self.begun_deletions.pop(name, None)
        self.running_deletions.pop(name, None)
        for waiting in self._forget_waiters.pop(name, []):
            if not waiting.done():
                waiting.set_result(None)

    def notify_when_forgotten(self, name: str, done: asyncio.Future[None]) -> None:
        """Completes ``done`` when the topic is forgotten."""
        self._forget_waiters.setdefault(name, []).append(done)

    def configure(self, name: str, settings: VersionedSettings) -> bool:
        """Sets a topic's settings if the topic exists and has no newer settings. Returns whether they were set."""
        topic = self.topics.get(name)
        if topic is None or settings.zxid <= topic.settings.zxid:
            return False
        self.topics[name] = replace(topic, settings=settings)
        return True

    def to_live_brokers(self) -> list[internal.LiveBroker]:
        """Returns the live brokers in the form sent to brokers."""
        return [
            internal.LiveBroker(broker_id=b.broker_id, host=b.host, port=b.port, broker_epoch=b.czxid)
            for b in self.brokers.values()
        ]

    def to_updates(self, partitions: Iterable[PartitionId]) -> list[internal.PartitionStateUpdate]:
        """Returns states in the form sent to brokers; skips partitions without a state."""
        result = []
        for name, index in partitions:
            known = self.states.get((name, index))
            if known is None or name in self.begun_deletions:
                continue
            topic, state = self.topics[name], known.value
            result.append(
                internal.PartitionStateUpdate(
                    topic=name,
                    topic_czxid=topic.czxid,
                    partition=index,
                    controller_epoch=state.controller_epoch,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=state.isr,
                    member_epochs=[
                        internal.MemberEpoch(broker_id=int(member), broker_epoch=epoch)
                        for member, epoch in state.isr_epochs.items()
                    ],
                    elr=state.elr,
                    zk_version=known.version,
                    replicas=topic.assignment[index],
                )
            )
        return result

    def to_settings_updates(self, names: Collection[str]) -> list[internal.TopicSettingsUpdate]:
        return [
            internal.TopicSettingsUpdate(
                topic=name,
                zxid=self.topics[name].settings.zxid,
                settings=[
                    internal.TopicSetting(name=key, value=value)
                    for key, value in self.topics[name].settings.values.items()
                ],
            )
            for name in sorted(names)
        ]


async def read_brokers(zookeeper: ZooKeeper, watch: Watch | None = None) -> dict[int, BrokerIncarnation]:
    """Returns all registered brokers, by id; watches the list of them."""
    brokers = {}
    for name in await zookeeper.get_children(paths.BROKER_IDS, watch):
        path = f"{paths.BROKER_IDS}/{name}"
        try:
            found = await znodes.read(zookeeper, znodes.BrokerRegistration, path)
            broker_id = int(name)
        except (znodes.ZnodeError, ValueError) as error:
            _log.error("%s: %s; the registration is ignored", path, error)
            continue
        if found is not None:  # otherwise the registration ended meanwhile, and the watch has fired
            broker, stat = found
            brokers[broker_id] = BrokerIncarnation(
                broker_id, broker.host, broker.port, stat.czxid, tuple(broker.clean_registrations)
            )
    return dict(sorted(brokers.items()))


async def read_topic(zookeeper: ZooKeeper, name: str, watch: Watch | None = None) -> Topic:
    """Reads a topic's assignment, which is watched, and its settings.

    Raises ``ZnodeError`` for an invalid assignment.
    """
    path = paths.topic(name)
    data, stat = await zookeeper.get(path, watch)
    if not is_topic_name(name):
        raise znodes.ZnodeError(f"znode {path} has a name that no topic can have")
    assignment = parse_assignment(path, data)
    settings = await read_settings(zookeeper, name, stat.czxid)
    return Topic(stat.czxid, assignment, settings or VersionedSettings({}, stat.czxid))


def parse_assignment(path: str, data: bytes) -> dict[int, list[int]]:
    """Parses a topic's assignment: replicas by partition. Raises ``ZnodeError`` if it is invalid."""
    found = znodes.decode(znodes.TopicAssignment, path, data).partitions
    if not found:
        raise znodes.ZnodeError(f"znode {path} names no partition")
    for index, replicas in found.items():
        if not (index.isascii() and index.isdecimal() and int(index) <= znodes.MAX_ID):
            raise znodes.ZnodeError(f"znode {path} names an invalid partition {index!r}")
        if not replicas or len(set(replicas)) != len(replicas) or not all(0 <= r <= znodes.MAX_ID for r in replicas):
            raise znodes.ZnodeError(f"znode {path} gives partition {index} the replicas {replicas}")
    return dict(sorted((int(index), list(replicas)) for index, replicas in found.items()))
