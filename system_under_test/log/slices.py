"""The bytes that a read gives: whole messages of one segment, or nothing."""

from __future__ import annotations

import asyncio

from assay.system_under_test.log.segment import Segment
from assay.system_under_test.runtime import Slice


class EmptySlice:
    """Nothing to read."""

    size = 0

    def read(self) -> bytes:
        return b""

    async def send(self, writer: asyncio.StreamWriter) -> None:
        """Sends nothing, at once."""


EMPTY = EmptySlice()


def whole_messages(segment: Segment, start: int, end: int, max_bytes: int, at_least_one: bool) -> Slice:
    """From position ``start``, a boundary, on: those below the offset ``end``, at most ``max_bytes`` of them.

    With ``at_least_one`` the first one comes even if it is larger. Raises ``CorruptLog``.
    """
    stop = segment.size if end >= segment.next_offset else segment.locate(end)
    if stop - start > max_bytes:
        stop = segment.end_of_range(start, stop, max_bytes, at_least_one)
    return segment.slice(start, stop) if stop > start else EMPTY
