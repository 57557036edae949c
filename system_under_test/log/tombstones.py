"""Since when readers could see a compacted log's null values without the values that they erase.

Compaction takes the values before a null value (a tombstone) at once, and the tombstone itself ``delete.retention.ms``
after it was first cleaned over, so that a reader that began before has had the time to see it. The file
``compaction-checkpoint`` in the log's folder holds, a line each and rising, an offset and when (milliseconds of the
node's clock) all tombstones below it had been cleaned over. Kafka 0.10.2 takes the times of the segments' files for
that, which a copy of the disk loses.

That the file is there says, too, that the log's offsets may have gaps, for good: they do not close again when the topic
ceases to be compacted.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from system_under_test.log.checkpoints import CheckpointError, format_lines, parse_lines
from system_under_test.runtime import Storage
from system_under_test.storage.atomic import write_atomic

TOMBSTONES = "compaction-checkpoint"


class CleanedOver(NamedTuple):
    """All tombstones below ``offset`` have been cleaned over since ``time`` (ms)."""

    offset: int
    time: int


class Tombstones:
    """Changes are durable when their call returns."""

    def __init__(self, storage: Storage, directory: str) -> None:
        """Raises ``CheckpointError`` for a file that makes no sense."""
        self._storage = storage
        self._path = f"{directory}/{TOMBSTONES}"
        self._writing = asyncio.Lock()
        self._known = storage.exists(self._path)
        self._rows = _parse(self._path, storage.read_bytes(self._path)) if self._known else ()

    @property
    def known(self) -> bool:
        """May the log's offsets have gaps?"""
        return self._known

    def rows(self) -> tuple[CleanedOver, ...]:
        """Rising in offset and time."""
        return self._rows

    def horizon(self, now_ms: int, retention_ms: int, limit: int) -> int:
        """The tombstones below this offset, which is at most ``limit``, have had their time; 0 when none have."""
        expired = (row.offset for row in self._rows if now_ms - row.time >= retention_ms and row.offset <= limit)
        return max(expired, default=0)

    async def begin(self) -> None:
        """From now on the log may have gaps."""
        if not self._known:
            await self._replace(self._rows)

    async def cleaned(self, horizon: int, offset: int, now_ms: int) -> None:
        """Those below ``horizon`` are gone; those from there to ``offset`` are noted, unless they had been before."""
        rows = tuple(row for row in self._rows if row.offset > horizon)
        if offset > max((row.offset for row in rows), default=horizon):
            # A clock that went back must not make what comes later look older.
            rows += (CleanedOver(offset, max([now_ms, *(row.time for row in rows)])),)
        if rows != self._rows:
            await self._replace(rows)

    async def truncate(self, offset: int) -> None:
        """What will stand at ``offset`` and beyond is new."""
        rows = {min(row.offset, offset): row.time for row in reversed(self._rows)}
        clipped = tuple(CleanedOver(at, rows[at]) for at in sorted(rows) if at > 0)
        if clipped != self._rows:
            await self._replace(clipped)

    async def _replace(self, rows: tuple[CleanedOver, ...]) -> None:
        async with self._writing:
            await write_atomic(self._storage, self._path, format_lines(f"{offset} {time}" for offset, time in rows))
            self._rows, self._known = rows, True


def _parse(path: str, data: bytes) -> tuple[CleanedOver, ...]:
    rows: list[CleanedOver] = []
    for number, words in enumerate(parse_lines(path, data), 3):
        try:
            offset, time = words
            row = CleanedOver(int(offset), int(time))
        except ValueError as error:
            raise CheckpointError(f"{path}: line {number} is no 'offset time': {words}") from error
        if rows and (row.offset <= rows[-1].offset or row.time < rows[-1].time):
            raise CheckpointError(f"{path}: line {number} does not rise above the one before it")
        rows.append(row)
    return tuple(rows)
