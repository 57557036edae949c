"""What lies on a broker's disk, read from outside the process: how much of a file counts as durable, and the records.

For testers. Files are read as they are, while the broker runs or is dead; a damaged log counts up to its damage.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from assay.system_under_test.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS
from assay.system_under_test.log.epochs import EPOCHS
from assay.system_under_test.log.tombstones import TOMBSTONES
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import CODEC_MASK, CRC_START, encode

DATA = "/var/lib/assay/data"
LOG_SUFFIX = ".log"
ENTRY_HEADER = struct.Struct(">qi")
"""Offset and size of an entry of a log file."""
CHECKPOINT_HEADER_LINES = 2


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
        if found >= point or size < 0:
            break
        position += ENTRY_HEADER.size + size
    return min(position, len(data))


async def replica(node: Any, key: str, leaders_mark: int, in_sync: Sequence[int]) -> list[StoredRecord]:
    """A replica's records, and the end of its log. What counts of them ends at the leader's high watermark for a member
    of the in-sync set, and at its own last noted one for any other replica. Raises what reading the node's files
    raises.
    """
    in_isr = node.index in in_sync
    noted = (await _checkpoint(node, HIGH_WATERMARKS)).get(key, 0)
    mark = leaders_mark if in_isr else noted
    folder = f"{DATA}/{key}"
    epochs = [(int(words[1]), int(words[0])) for words in await _lines(node, f"{folder}/{EPOCHS}")]
    compacted = bool(await node.find_files(f"{folder}/{TOMBSTONES}"))
    segments = await _segments(node, folder)
    records: list[StoredRecord] = []
    for base, data in segments:
        following = records[-1].position + 1 if records else base
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
    good = data[: message_set.check(data, base, gaps=compacted).size]
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
    return {f"{words[0]}-{words[1]}": int(words[2]) for words in await _lines(node, f"{DATA}/{name}") if len(words) > 2}


async def _lines(node: Any, path: str) -> list[list[str]]:
    try:
        text = (await node.read_file(path)).decode()
    except FileNotFoundError:
        return []
    return [line.split() for line in text.splitlines()[CHECKPOINT_HEADER_LINES:]]
