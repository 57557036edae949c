"""What lies on a broker's disk, read from outside the process: how much of a file counts as durable, and the records.

For testers. Files are read as they are, while the broker runs or is dead; a damaged log counts up to its damage.
"""

import asyncio
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from assay.system_under_test import broker_rpc
from assay.system_under_test.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, parse_lines
from assay.system_under_test.log.directory import directory_name
from assay.system_under_test.log.epochs import EPOCHS
from assay.system_under_test.log.index import MAXIMUM
from assay.system_under_test.log.tombstones import TOMBSTONES
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import CODEC_MASK, CRC_START, encode

DATA = "/var/lib/assay/data"
LOG_SUFFIX = ".log"
ENTRY_HEADER = struct.Struct(">qi")
"""Offset and size of an entry of a log file."""
REJOIN_TIMEOUT = 10.0
"""Seconds for replicas to be in sync again once a run is over."""


@dataclass(frozen=True)
class StoredRecord:
    """One record of a replica's log. ``value``: the workload's number, None for anything else; ``crc``: as stored, or
    what it would be outside of the compressed set that holds it, since each replica rebuilds such sets in compaction;
    ``epoch``: the leader's, by the replica's own history, and ``epoch_start``, where that begins.

    The last of each replica is no record but its log's end, with ``log_start`` and the ``high_watermark`` that it had
    noted.
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
class Led:
    """A partition as its leader has it; no in-sync set and -1 where there is none that answers."""

    assigned: Sequence[int]
    in_sync: Sequence[int] = ()
    high_watermark: int = -1


async def replicas(nodes: Sequence[Any], port: int) -> list[StoredRecord]:
    """All records of all replicas of every topic that any of these brokers knows.

    Waits for full in-sync sets, but not for ever: a replica that stays out is compared as one that is out. The topic of
    the groups' offsets is one of them: that its replicas hold the same is judged like that of any other. What its
    records say is not, since none is a number of the workload's; clients ask for that. Nor has a compacted log, which
    it is, a start from which on nothing may be missing.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + REJOIN_TIMEOUT
    while True:
        partitions = await led(nodes, port)
        whole = all(len(one.in_sync) == len(one.assigned) for one in partitions.values())
        if loop.time() > deadline or (partitions and whole):
            break
        await asyncio.sleep(0.2)
    held = await asyncio.gather(*(_of_node(node, partitions) for node in nodes))
    return [record for records in held for record in records]


async def led(nodes: Sequence[Any], port: int, *, marks: bool = True) -> dict[str, Led]:
    """Each partition that any of these brokers knows. ``marks``: with its high watermark, for which a leader may need
    ZooKeeper.
    """
    known: dict[str, Led] = {}
    for node in nodes:
        answer = await broker_rpc.metadata(node.address, port)
        found = {
            (topic.topic, one.partition): one for topic in (answer.topics if answer else ()) for one in topic.partitions
        }
        mine = [name for name, one in found.items() if one.leader == node.index]
        known_marks = await broker_rpc.high_watermarks(node.address, port, mine) if marks else {}
        for name, one in found.items():
            key = directory_name(*name)
            if one.leader == node.index:
                known[key] = Led(one.replicas, one.isr, known_marks.get(name, -1))
            else:
                known.setdefault(key, Led(one.replicas))
    return known


async def _of_node(node: Any, partitions: Mapping[str, Led]) -> list[StoredRecord]:
    noted = await _checkpoint(node, HIGH_WATERMARKS)
    held = {key: one for key, one in partitions.items() if node.index in one.assigned}
    return [record for key, one in held.items() for record in await replica(node, key, one, noted.get(key, 0))]


async def durable_size(node: Any, path: str) -> int:
    """The bytes below the recovery point that the broker has noted for the partition of this log file."""
    folder, _, name = path.rpartition("/")
    points = await _checkpoint(node, RECOVERY_POINTS)
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


async def replica(node: Any, key: str, partition: Led, noted: int) -> list[StoredRecord]:
    """A replica's records, and the end of its log. What counts of them ends at the leader's high watermark for a member
    of the in-sync set, and at the last one that it has ``noted`` itself for any other replica. Raises what reading the
    node's files raises.
    """
    in_isr = node.index in partition.in_sync
    mark = partition.high_watermark if in_isr else noted
    folder = f"{DATA}/{key}"
    epochs = [(int(words[1]), int(words[0])) for words in await _rows(node, f"{folder}/{EPOCHS}")]
    compacted = bool(await node.find_files(f"{folder}/{TOMBSTONES}"))
    segments = await _segments(node, folder)
    records: list[StoredRecord] = []
    for base, data in segments:
        following = records[-1].position + 1 if records else base
        if base < following and not data:
            continue  # left by a roll that failed, after which the segment before went on
        if base < following or (base > following and not compacted):
            break
        for position, value, crc in _records(data, base, compacted):
            begun = ((start, epoch) for start, epoch in epochs if start <= position)
            start, epoch = max(begun, default=(None, None))
            records.append(StoredRecord(node.name, key, position, value, crc, epoch, position < mark, in_isr, start))
    first = segments[0][0] if segments else 0
    end = records[-1].position + 1 if records else first
    log_start = None if compacted else first
    return [*records, StoredRecord(node.name, key, end, None, None, None, False, in_isr, None, noted, log_start)]


async def _segments(node: Any, folder: str) -> list[tuple[int, bytes]]:
    """Base offset and content of each segment. A broker that runs may merge some while they are read; then they are
    read again.
    """
    while True:
        paths = sorted(await node.find_files(f"{folder}/*{LOG_SUFFIX}"))
        try:
            return [
                (int(path.rpartition("/")[2].removesuffix(LOG_SUFFIX)), await node.read_file(path)) for path in paths
            ]
        except FileNotFoundError:
            continue


def _records(data: bytes, base: int, compacted: bool) -> Iterator[tuple[int, int | None, int]]:
    """Offset, value and CRC of each record of a segment, as far as it is good."""
    good = data[: message_set.check(data, base, gaps=compacted, highest=base + MAXIMUM).size]
    for message in message_set.messages(good):
        crc = crc32(memoryview(encode(message._replace(attributes=message.attributes & ~CODEC_MASK)))[CRC_START:])
        yield message.offset, _number(message.value), crc


def _number(value: bytes | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


async def _checkpoint(node: Any, name: str) -> Mapping[str, int]:
    """``topic-partition`` to offset; empty when the broker has written none yet."""
    return {f"{topic}-{index}": int(offset) for topic, index, offset in await _rows(node, f"{DATA}/{name}")}


async def _rows(node: Any, path: str) -> list[list[str]]:
    try:
        data = await node.read_file(path)
    except FileNotFoundError:
        return []
    return parse_lines(path, data)
