"""Snapshot of a cluster, taken from outside: the state in ZooKeeper, on the brokers' disks, and in their answers.

A tester takes it after all faults were healed and all clients have stopped. The cluster must then settle: all its
background work must end. The caller decides how long that may take.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kazoo.exceptions import KazooException, NoNodeError

from assay.system_under_test.broker_rpc import try_ask
from assay.system_under_test.config import BrokerConfig, parse_config
from assay.system_under_test.controller import cluster_state
from assay.system_under_test.controller.cluster_state import Topic
from assay.system_under_test.log import directory
from assay.system_under_test.log.files import LOG_SUFFIX
from assay.system_under_test.log.preallocation import PREALLOCATED, strip_preallocated
from assay.system_under_test.network.connection import CallError, ask
from assay.system_under_test.protocol.internal import RolesRequest
from assay.system_under_test.protocol.metadata import MetadataRequest
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import NO_TIMESTAMP
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import PartitionState, ReassignmentList

ANSWER_TIMEOUT: Final = 2.0
"""Seconds to wait for an answer."""
SESSION_TIMEOUT: Final = 3.0
LONG_MS: Final = 3_600_000
"""More than any run lasts. With a longer retention, the ages of segments do not matter."""

UNLIMITED: Final = -1
NO_STATE: Final = PartitionState(controller_epoch=-1, leader=znodes.NO_LEADER, leader_epoch=-1, isr=[])


class SnapshotFailed(OSError):
    """The snapshot failed; the message says where."""


@dataclass(frozen=True)
class SnapshotRow:
    """A row of a snapshot. ``what`` is the kind of the row, which determines the other columns:

    - ``broker``, registered: ``node``, ``broker`` id, ``zxid`` of its registration
    - ``answer``: ``node`` answered. An unregistered node may have this row, but no other
    - ``topic``: ``key``, ``zxid`` of its creation, a fingerprint of its ``settings``, and its effective
      ``retention_...``
    - ``partition``: ``key``, its topic's ``zxid``, leader ``epoch``, ``leader`` id (-1: none), assigned ``replicas``,
      in-sync ``members``
    - ``move``, a reassignment in progress: ``key``, target ``replicas``, replicas it is ``removing``
    - ``deletion``: the deletion of topic ``key`` was requested
    - ``settings``: topic ``key`` has settings in ZooKeeper
    - ``known``: ``node`` has metadata of topic ``key``
    - ``routed``, the metadata of ``node`` about ``key``: ``leader`` id, ``replicas``, in-sync ``members``
    - ``role``, a replica's own answer: ``node``, ``key``, leader ``epoch``, ``high_watermark``, ``log_end``, a
      fingerprint of the effective ``settings``
    - ``flushed``, an undamaged replica's own answer: ``node``, ``key``, ``flushed`` offset, ``log_end``, effective
      ``flush_ms``; ``unsynced``: bytes of its segments that a power loss could take, if the node's disk can tell
    - ``folder``, a replica's folder on a disk: ``node``, ``key``, ``zxid`` of the topic for which it was created
    - ``segment``: ``node``, ``key``, ``base_offset``, ``end_offset`` (the next segment's base), greatest ``timestamp``,
      ``size`` in bytes. No timestamp if a message has none, because only the broker knows how old that message is
    - ``lacking``, ``undurable`` and ``inspected`` are no part of a snapshot: an inspection of acknowledgements reports
      them, with ``position`` and ``acknowledgements`` (``inspection``)
    """

    what: str
    key: str | None = None
    node: str | None = None
    broker: int | None = None
    zxid: int | None = None
    settings: int | None = None
    epoch: int | None = None
    leader: int | None = None
    replicas: str | None = None
    members: str | None = None
    removing: str | None = None
    high_watermark: int | None = None
    log_end: int | None = None
    position: int | None = None
    acknowledgements: int | None = None
    base_offset: int | None = None
    end_offset: int | None = None
    timestamp: int | None = None
    size: int | None = None
    flushed: int | None = None
    flush_ms: int | None = None
    unsynced: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    retention_check_ms: int | None = None


@dataclass(frozen=True)
class SnapshotSource:
    """The parts of a cluster to read. ``nodes``: the brokers' nodes; ``data``: the folder of their logs."""

    nodes: Sequence[Any]
    zookeepers: str
    port: int
    config_file: str
    data: str


async def take_snapshot(source: SnapshotSource, runtime: Any) -> list[SnapshotRow]:
    """Takes a snapshot. Raises ``SnapshotFailed``."""
    try:
        configs = {
            node.name: parse_config(await node.read_file(source.config_file), node.name) for node in source.nodes
        }
        zookeeper: ZooKeeper = runtime.zookeeper(source.zookeepers, SESSION_TIMEOUT)
        await zookeeper.connect(ANSWER_TIMEOUT)
        try:
            found = await _read_zookeeper(zookeeper, source, configs[source.nodes[0].name])
        finally:
            await zookeeper.close()
        registered = {one.node for one in found if one.what == "broker"}
        expiring = {one.key for one in found if one.what == "topic" and _may_expire(one)}
        for node in source.nodes:
            if node.name in registered:
                found += await _ask_node(node, source.port, await _read_unsynced(node, source.data))
                found += await _read_disk(node, source.data, expiring)
            elif await try_ask(node.address, source.port, RolesRequest(), 0, ANSWER_TIMEOUT) is not None:
                found.append(SnapshotRow("answer", node=node.name))
    except (KazooException, znodes.ZnodeError, OSError) as error:
        raise SnapshotFailed(f"no snapshot of the cluster: {error!r}") from error
    return found


def _may_expire(topic: SnapshotRow) -> bool:
    """Returns whether the topic's retention may expire within a run."""
    return topic.retention_bytes != UNLIMITED or 0 <= _or_minus_one(topic.retention_ms) < LONG_MS


async def _read_zookeeper(zookeeper: ZooKeeper, source: SnapshotSource, config: BrokerConfig) -> list[SnapshotRow]:
    names = {node.index: node.name for node in source.nodes}
    brokers = await cluster_state.read_brokers(zookeeper)
    found = [SnapshotRow("broker", node=names[b], broker=b, zxid=one.czxid) for b, one in brokers.items() if b in names]
    for name in await zookeeper.get_children(paths.TOPICS):
        try:
            topic = await cluster_state.read_topic(zookeeper, name)
        except NoNodeError:
            continue  # deleted meanwhile
        found.append(_make_topic_row(name, topic, config))
        for index, replicas in topic.assignment.items():
            key = directory.format_directory_name(name, index)
            read = await znodes.read(zookeeper, PartitionState, paths.partition_state(name, index))
            state = NO_STATE if read is None else read[0]
            found.append(
                SnapshotRow(
                    "partition",
                    key=key,
                    zxid=topic.czxid,
                    epoch=state.leader_epoch,
                    leader=state.leader,
                    replicas=_join_ids(replicas),
                    members=_join_ids(state.isr),
                )
            )
    moves = await znodes.read(zookeeper, ReassignmentList, paths.REASSIGNMENTS)
    for move in () if moves is None else moves[0].partitions:
        key = directory.format_directory_name(move.topic, move.partition)
        found.append(SnapshotRow("move", key=key, replicas=_join_ids(move.replicas), removing=_join_ids(move.removing)))
    found += [SnapshotRow("settings", key=name) for name in await zookeeper.get_children(paths.TOPIC_CONFIGS)]
    return found + [SnapshotRow("deletion", key=name) for name in await zookeeper.get_children(paths.DELETE_TOPICS)]


def _make_topic_row(name: str, topic: Topic, config: BrokerConfig) -> SnapshotRow:
    settings = config.topic.override(topic.settings.values)
    return SnapshotRow(
        "topic",
        key=name,
        zxid=topic.czxid,
        settings=settings.fingerprint,
        retention_ms=settings.retention_ms if settings.deletes else UNLIMITED,
        retention_bytes=settings.retention_bytes if settings.deletes else UNLIMITED,
        retention_check_ms=config.retention_check_interval_ms,
    )


async def _read_unsynced(node: Any, data: str) -> Mapping[str, int] | None:
    """Returns, for each folder, the unsynced bytes of its segments; None if the node cannot tell."""
    if not hasattr(node, "unsynced"):
        return None
    found: dict[str, int] = defaultdict(int)
    for path, size in (await node.unsynced(f"{data}/*/*{LOG_SUFFIX}")).items():
        found[path.split("/")[-2]] += size
    return found


async def _ask_node(node: Any, port: int, unsynced: Mapping[str, int] | None) -> list[SnapshotRow]:
    """Returns the rows of a node's own answers; none if it does not answer.

    ``unsynced``: for each folder, the unsynced bytes on the node's disk; None if unknown.
    """
    try:
        roles = await ask(node.address, port, RolesRequest(), 0, ANSWER_TIMEOUT)
        metadata = await ask(node.address, port, MetadataRequest(topics=None), 1, ANSWER_TIMEOUT)
    except CallError:
        return []
    found = [SnapshotRow("answer", node=node.name)]
    found += [SnapshotRow("known", key=topic.topic, node=node.name) for topic in metadata.topics]
    found += [
        SnapshotRow(
            "routed",
            key=directory.format_directory_name(topic.topic, one.partition),
            node=node.name,
            leader=one.leader,
            replicas=_join_ids(one.replicas),
            members=_join_ids(one.isr),
        )
        for topic in metadata.topics
        for one in topic.partitions
    ]
    for role in roles.partitions:
        key = directory.format_directory_name(role.topic, role.partition)
        common: dict[str, Any] = {"key": key, "node": node.name, "log_end": role.log_end}
        watermark = role.high_watermark
        found.append(
            SnapshotRow("role", **common, epoch=role.leader_epoch, high_watermark=watermark, settings=role.settings)
        )
        if watermark >= 0:  # a damaged log has none
            size = None if unsynced is None else unsynced.get(key, 0)
            found.append(SnapshotRow("flushed", **common, flushed=role.flushed, flush_ms=role.flush_ms, unsynced=size))
    return found


async def _read_disk(node: Any, data: str, expiring: Collection[str | None]) -> list[SnapshotRow]:
    """Returns the rows of a node's log folders, and the rows of their segments for ``expiring`` topics."""
    found = []
    for path in await node.find_files(f"{data}/*/{directory.INCARNATION}"):
        key = path.split("/")[-2]
        partition = directory.parse_directory_name(key)
        if partition is None:
            continue
        try:
            topic_zxid = directory.parse_incarnation(path, await node.read_file(path))
            segments = await _read_segment_rows(node, f"{data}/{key}", key) if partition[0] in expiring else []
        except FileNotFoundError:
            continue  # deleted meanwhile
        found += [SnapshotRow("folder", key=key, node=node.name, zxid=topic_zxid), *segments]
    return found


async def _read_segment_rows(node: Any, folder: str, key: str) -> list[SnapshotRow]:
    """Returns the rows of a log's segments.

    The last segment may be preallocated, so only its entries count. An empty file is ignored if its base offset lies
    below the end of the last segment with entries: a failed roll left it, and the earlier segment was continued.
    """
    files = await node.find_files(f"{folder}/*")
    sizes = {path: size for path, size in files.items() if path.endswith(LOG_SUFFIX)}
    paths_by_base = {int(path.rpartition("/")[2].removesuffix(LOG_SUFFIX)): path for path in sizes}
    bases = sorted(paths_by_base)
    if len(filled := [base for base in bases if sizes[paths_by_base[base]]]) not in (0, len(bases)):
        ends = [offset + 1 for _, offset, _ in await _read_entries(node, paths_by_base[filled[-1]])]
        bases = [base for base in bases if base in filled or base >= max(ends, default=filled[-1])]
    if bases and f"{folder}/{PREALLOCATED}" in files:
        last = paths_by_base[bases[-1]]
        sizes[last] = len(strip_preallocated(await node.read_file(last)))
    found = []
    for base, following in itertools.pairwise(bases):
        times = [time for time, _, _ in await _read_entries(node, paths_by_base[base])]
        found.append(
            SnapshotRow(
                "segment",
                key=key,
                node=node.name,
                base_offset=base,
                end_offset=following,
                timestamp=NO_TIMESTAMP if NO_TIMESTAMP in times else max(times, default=NO_TIMESTAMP),
                size=sizes[paths_by_base[base]],
            )
        )
    return found + [
        SnapshotRow("segment", key=key, node=node.name, base_offset=base, size=sizes[paths_by_base[base]])
        for base in bases[-1:]
    ]


async def _read_entries(node: Any, path: str) -> list[tuple[int, int, int]]:
    """Returns, for each entry, its newest timestamp, its last offset, and its end position in the file."""
    return list(message_set.iterate_timestamps(strip_preallocated(await node.read_file(path))))


def count_unsettled(seen: Sequence[SnapshotRow], wall_ms: int) -> int:
    """Counts everything in one snapshot that has not settled."""
    by_kind: dict[str, list[SnapshotRow]] = defaultdict(list)
    for one in seen:
        by_kind[one.what].append(one)
    ids = {one.node: one.broker for one in by_kind["broker"]}
    topics = {one.key: one for one in by_kind["topic"]}
    roles = {(one.node, one.key): one.epoch for one in by_kind["role"]}
    assigned = {one.key: _parse_ids(one.replicas) for one in by_kind["partition"]}
    count = len(by_kind["move"]) + len(by_kind["deletion"])
    count += sum(one.key not in topics for one in [*by_kind["known"], *by_kind["settings"]])
    states = {one.key: (one.leader, one.replicas, one.members) for one in by_kind["partition"]}
    routed = {(one.node, one.key): (one.leader, one.replicas, one.members) for one in by_kind["routed"]}
    for answer in by_kind["answer"]:
        if answer.node not in ids:
            count += 1
            continue
        count += sum(routed.get((answer.node, key)) != state for key, state in states.items())
    for partition in by_kind["partition"]:
        replicas = assigned[partition.key]
        count += set(replicas) != set(_parse_ids(partition.members))
        count += sum(roles.get((name, partition.key)) != partition.epoch for name in ids if ids[name] in replicas)
    leaders = {(one.leader, one.key) for one in by_kind["partition"]}
    for role in by_kind["role"]:
        is_leader = (ids.get(role.node), role.key) in leaders
        count += is_leader and 0 <= _or_minus_one(role.high_watermark) < _or_minus_one(role.log_end)
        topic = topics.get(_parse_topic(role.key))
        count += topic is not None and topic.settings != role.settings
    count += sum(_is_unflushed(one) for one in by_kind["flushed"] if _or_minus_one(one.flush_ms) < LONG_MS)
    for folder in by_kind["folder"]:
        topic = topics.get(_parse_topic(folder.key))
        count += topic is None or topic.zxid != folder.zxid or ids[folder.node] not in assigned.get(folder.key, ())
    return count + _count_expired(by_kind["segment"], topics, wall_ms)


def _is_unflushed(replica: SnapshotRow) -> bool:
    return _or_minus_one(replica.flushed) < _or_minus_one(replica.log_end) or _or_minus_one(replica.unsynced) > 0


def _count_expired(segments: Sequence[SnapshotRow], topics: Mapping[str | None, SnapshotRow], wall_ms: int) -> int:
    """Counts the logs whose oldest segment has outlived its retention."""
    logs: dict[tuple[str | None, str | None], list[SnapshotRow]] = defaultdict(list)
    for segment in segments:
        logs[segment.node, segment.key].append(segment)
    count = 0
    for (_, key), (oldest, *others) in logs.items():
        topic = topics.get(_parse_topic(key))
        if topic is None or not others:
            continue
        retention_ms, retention_bytes = _or_minus_one(topic.retention_ms), _or_minus_one(topic.retention_bytes)
        expired_before = wall_ms - retention_ms - _or_minus_one(topic.retention_check_ms)
        count += (retention_ms >= 0 and 0 <= _or_minus_one(oldest.timestamp) < expired_before) or (
            0 <= retention_bytes <= sum(_or_minus_one(one.size) for one in others)
        )
    return count


def _or_minus_one(value: int | None) -> int:
    return -1 if value is None else value


def _parse_topic(key: str | None) -> str:
    return (key or "").rpartition("-")[0]


def _parse_ids(text: str | None) -> list[int]:
    return [int(word) for word in text.split(",")] if text else []


def _join_ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
