"""Reads a broker's disk from outside the process: the records, and how much of a file is durable.

For testers. The broker may run meanwhile. The records of a damaged log are read up to the damage.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from assay.system_under_test import broker_rpc
from assay.system_under_test.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, parse_lines
from assay.system_under_test.log.compaction_note import COMPACTION_NOTE
from assay.system_under_test.log.directory import format_directory_name
from assay.system_under_test.log.epochs import EPOCHS
from assay.system_under_test.log.files import LOG_SUFFIX
from assay.system_under_test.log.index import MAX_RELATIVE
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import CODEC_MASK, CRC_START, ENTRY_HEADER, encode

DATA = "/var/lib/assay/data"

REJOIN_TIMEOUT = 10.0
"""Seconds for replicas to be in sync again once a run is over."""


@dataclass(frozen=True)
class StoredRecord:
    """A record of a replica's log.

    - ``value``: the workload's number, None for anything else
    - ``crc``: the CRC of the uncompressed message. A compressed set is not compared, because compaction rebuilds it
    - ``epoch``: the record's leader epoch by the replica's own epoch history
    - ``epoch_start``: the first offset of that epoch
    - ``below_hw``: whether it is below the high watermark: the leader's if the replica is in sync, else the stored one
    - ``in_isr``: whether the replica is in sync, according to the leader

    The last row of each replica is no record. Its ``position`` is the log end, and it has ``log_start`` and the
    checkpointed ``high_watermark``.
    """

    node: str
    key: str
    position: int
    value: int | None
    crc: int | None
    epoch: int | None
    below_hw: bool
    in_isr: bool
    epoch_start: int | None = None
    high_watermark: int | None = None
    log_start: int | None = None


@dataclass(frozen=True)
class StoredReplica:
    """A replica's files as they were read. Iteration parses them and yields the replica's records.

    - ``watermark``: a record below it is committed
    - ``checkpointed``: the high watermark in the replica's own checkpoint
    - ``epochs``: first offset and number of each leader epoch, in their order
    - ``compacted``: whether offsets may have gaps
    - ``segments``: base offset and content of each segment
    """

    node: str
    key: str
    watermark: int
    in_isr: bool
    checkpointed: int
    epochs: Sequence[tuple[int, int]]
    compacted: bool
    segments: Sequence[tuple[int, bytes]]

    def __iter__(self) -> Iterator[StoredRecord]:
        starts = [start for start, _ in self.epochs]
        first = self.segments[0][0] if self.segments else 0
        end: int | None = None
        for base, data in self.segments:
            following = base if end is None else end
            if base < following and not data:
                continue  # a failed roll left this file, and the segment before was continued
            if base < following or (base > following and not self.compacted):
                break
            for position, value, crc in _parse_records(data, base, self.compacted):
                place = bisect_right(starts, position)
                start, epoch = self.epochs[place - 1] if place else (None, None)
                committed = position < self.watermark
                yield StoredRecord(self.node, self.key, position, value, crc, epoch, committed, self.in_isr, start)
                end = position + 1
        yield StoredRecord(
            self.node,
            self.key,
            position=first if end is None else end,
            value=None,
            crc=None,
            epoch=None,
            below_hw=False,
            in_isr=self.in_isr,
            high_watermark=self.checkpointed,
            log_start=None if self.compacted else first,
        )


@dataclass(frozen=True)
class LedPartition:
    """A partition as its leader reports it. If no leader answers, ``in_sync`` is empty and ``high_watermark`` -1."""

    assigned: Sequence[int]
    in_sync: Sequence[int] = ()
    high_watermark: int = -1


async def read_stored_replicas(nodes: Sequence[Any], port: int) -> list[StoredReplica]:
    """Returns all replicas of every topic that any of these brokers knows.

    Waits for full in-sync sets, for ``REJOIN_TIMEOUT`` at most.

    The offsets topic is included. Its records have no ``value``, because they hold no number of the workload. Its
    replicas have no ``log_start``, because records of a compacted log may be missing anywhere.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + REJOIN_TIMEOUT
    while True:
        partitions = await read_led_partitions(nodes, port)
        all_in_sync = all(len(one.in_sync) == len(one.assigned) for one in partitions.values())
        if loop.time() > deadline or (partitions and all_in_sync):
            break
        await asyncio.sleep(0.2)
    by_node = await asyncio.gather(*(_read_node(node, partitions) for node in nodes))
    return [replica for replicas in by_node for replica in replicas]


async def read_led_partitions(
    nodes: Sequence[Any], port: int, *, high_watermarks: bool = True
) -> dict[str, LedPartition]:
    """Returns each partition that any of these brokers knows.

    ``high_watermarks``: whether to include them; a leader may need ZooKeeper for its answer.
    """
    known: dict[str, LedPartition] = {}
    for node in nodes:
        answer = await broker_rpc.ask_metadata(node.address, port)
        found = {
            (topic.topic, one.partition): one for topic in (answer.topics if answer else ()) for one in topic.partitions
        }
        mine = [name for name, one in found.items() if one.leader == node.index]
        watermarks = await broker_rpc.ask_high_watermarks(node.address, port, mine) if high_watermarks else {}
        for name, one in found.items():
            key = format_directory_name(*name)
            if one.leader == node.index:
                known[key] = LedPartition(one.replicas, one.isr, watermarks.get(name, -1))
            else:
                known.setdefault(key, LedPartition(one.replicas))
    return known


async def _read_node(node: Any, partitions: Mapping[str, LedPartition]) -> list[StoredReplica]:
    checkpointed = await _read_checkpoint(node, HIGH_WATERMARKS)
    held = {key: one for key, one in partitions.items() if node.index in one.assigned}
    return [await read_replica(node, key, one, checkpointed.get(key, 0)) for key, one in held.items()]


async def compute_durable_size(node: Any, path: str) -> int:
    """Returns the bytes of this log file below the recovery point that the broker has stored for its partition."""
    folder, _, name = path.rpartition("/")
    points = await _read_checkpoint(node, RECOVERY_POINTS)
    point = points.get(folder.rpartition("/")[2], 0)
    offset = int(name.removesuffix(LOG_SUFFIX))
    data = await node.read_file(path)
    position = 0
    while offset < point and position + ENTRY_HEADER.size <= len(data):
        found, size = ENTRY_HEADER.unpack_from(data, position)
        if found >= point or size <= 0:
            break
        position += ENTRY_HEADER.size + size
    return min(position, len(data))


async def read_replica(node: Any, key: str, partition: LedPartition, checkpointed: int) -> StoredReplica:
    """Returns a replica's files. Passes on errors of reading them.

    A record of an in-sync replica is committed if it lies below the leader's high watermark. For any other replica, its
    own ``checkpointed`` high watermark counts.
    """
    in_isr = node.index in partition.in_sync
    folder = f"{DATA}/{key}"
    epochs = sorted((int(start), int(epoch)) for epoch, start, *_ in await _read_rows(node, f"{folder}/{EPOCHS}"))
    return StoredReplica(
        node.name,
        key,
        partition.high_watermark if in_isr else checkpointed,
        in_isr,
        checkpointed,
        epochs,
        bool(await node.find_files(f"{folder}/{COMPACTION_NOTE}")),  # the file exists once a log may have gaps
        await _read_segments(node, folder),
    )


async def _read_segments(node: Any, folder: str) -> list[tuple[int, bytes]]:
    """Returns base offset and content of each segment. Repeats the read if a running broker has removed a file."""
    while True:
        paths = sorted(await node.find_files(f"{folder}/*{LOG_SUFFIX}"))
        try:
            return [
                (int(path.rpartition("/")[2].removesuffix(LOG_SUFFIX)), await node.read_file(path)) for path in paths
            ]
        except FileNotFoundError:
            continue


def _parse_records(data: bytes, base: int, compacted: bool) -> Iterator[tuple[int, int | None, int]]:
    """Yields offset, value and CRC of each record in the good prefix of a segment."""
    good = data[: message_set.check(data, base, gaps=compacted, highest=base + MAX_RELATIVE).size]
    for message in message_set.iterate_messages(good):
        crc = crc32(memoryview(encode(message._replace(attributes=message.attributes & ~CODEC_MASK)))[CRC_START:])
        yield message.offset, _parse_number(message.value), crc


def _parse_number(value: bytes | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


async def _read_checkpoint(node: Any, name: str) -> Mapping[str, int]:
    """Returns ``topic-partition`` to offset; empty if the broker has written no checkpoint yet."""
    return {f"{topic}-{index}": int(offset) for topic, index, offset in await _read_rows(node, f"{DATA}/{name}")}


async def _read_rows(node: Any, path: str) -> list[list[str]]:
    try:
        data = await node.read_file(path)
    except FileNotFoundError:
        return []
    return parse_lines(path, data)
