"""Checkpoints: offsets per partition in one small text file, in Kafka's format with a checksum::

    1                     version
    2                     number of rows that follow
    orders 0 1042         topic, partition, offset
    orders 1 77
    crc 2a0cdaee          CRC-32 of all bytes before

Version 0 is Kafka's own, and has no checksum. It can be read, but a wrong digit in it goes unnoticed.

- ``replication-offset-checkpoint``: high watermarks
- ``recovery-point-offset-checkpoint``: offsets below which everything is fsynced
- ``cleaner-offset-checkpoint``: offsets below which logs are compacted

A write changes the entries of some partitions and keeps all others. A broker that stored only the partitions that it
leads would forget the high watermarks of the partitions that it follows (KAFKA-1647).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from zlib import crc32

from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.atomic import write_atomic

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
VERSION = 1
VERSION_WITHOUT_CHECKSUM = 0
"""Kafka's version."""

PartitionId = tuple[str, int]
"""Topic and partition."""


class CheckpointError(Exception):
    """A checkpoint cannot be parsed; the message names file and line, and says what to do."""


class OffsetCheckpoint:
    """A checkpoint file. A partition without an entry has offset 0.

    ``require_in_place`` is called before each write. It raises ``OSError`` if the path leads to another directory.
    """

    def __init__(self, storage: Storage, path: str, require_in_place: Callable[[], None] = lambda: None) -> None:
        self._storage = storage
        self._path = path
        self._require_in_place = require_in_place
        self._entries: dict[PartitionId, int] | None = None
        self._writing = asyncio.Lock()

    def load(self) -> dict[PartitionId, int]:
        """Returns the entries; none if the file does not exist. Raises :class:`CheckpointError`."""
        if self._entries is None:
            if self._storage.exists(self._path):
                self._entries = _parse(self._path, self._storage.read_bytes(self._path))
            else:
                self._entries = {}
        return dict(self._entries)

    def recover(self, *, expected: bool = False) -> str | None:
        """Loads the entries; treats an unreadable file as empty, until the next write replaces it.

        Returns the problem of an unreadable file, or of a missing file that is ``expected``; else None.
        """
        try:
            self.load()
        except CheckpointError as error:
            self._entries = {}
            return str(error)
        return f"{self._path} is not there" if expected and not self._storage.exists(self._path) else None

    async def write(self, entries: Mapping[PartitionId, int]) -> None:
        """Durably sets these entries, and keeps all other entries. Concurrent calls are serialized."""
        async with self._writing:
            await self._replace({**self.load(), **entries})

    async def remove(self, partition: PartitionId) -> None:
        """Durably removes the partition's entry, if there is one. Waits for earlier calls."""
        async with self._writing:
            entries = self.load()
            if entries.pop(partition, None) is not None:
                await self._replace(entries)

    async def _replace(self, entries: dict[PartitionId, int]) -> None:
        self._require_in_place()
        await write_atomic(self._storage, self._path, _format(entries))
        self._entries = entries


def format_lines(rows: Iterable[str]) -> bytes:
    """Returns the content of a file in the checkpoint format with these rows."""
    lines = list(rows)
    body = "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()
    return body + format_crc_line(body)


def format_crc_line(data: bytes) -> bytes:
    """Returns the checksum line of ``data``."""
    return b"crc %08x\n" % crc32(data)


def parse_lines(path: str, data: bytes) -> list[list[str]]:
    """Returns the rows of a file in the checkpoint format, split into words.

    Raises :class:`CheckpointError` if the version, the count or the checksum is wrong.
    """
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0] not in (str(VERSION), str(VERSION_WITHOUT_CHECKSUM)):
        raise CheckpointError(f"{path}: line 1 should be version {VERSION} and line 2 a count; {_REMEDY}")
    rows = lines[2:]
    if lines[0] == str(VERSION):
        body = data[: -len(format_crc_line(b""))]
        if data != body + format_crc_line(body):
            raise CheckpointError(f"{path}: the last line is not the checksum of those before; {_REMEDY}")
        rows.pop()
    if lines[1] != str(len(rows)):
        raise CheckpointError(f"{path}: line 2 announces {lines[1]!r} entries, there are {len(rows)}; {_REMEDY}")
    return [row.split() for row in rows]


_REMEDY = "the file is damaged: restore it, or remove it to have the logs checked in full"


def _format(entries: Mapping[PartitionId, int]) -> bytes:
    return format_lines(f"{topic} {partition} {entries[topic, partition]}" for topic, partition in sorted(entries))


def _parse(path: str, data: bytes) -> dict[PartitionId, int]:
    entries: dict[PartitionId, int] = {}
    for number, words in enumerate(parse_lines(path, data), 3):
        try:
            topic, partition, offset = words
            entries[topic, int(partition)] = int(offset)
        except ValueError as error:
            raise CheckpointError(f"{path}: line {number} is not an offset: {words}; {_REMEDY}") from error
    return entries
