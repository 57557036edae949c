"""The part of a large log that a run keeps: its beginning and its end, with a line between them.

The line says how many bytes were left out, and at which position. The beginning shows how a server started. The end
shows how it failed, so more of it is kept.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HEAD_BYTES: Final = 16 << 20
"""Bytes at the beginning of a large log that are kept."""
TAIL_BYTES: Final = 48 << 20
"""Bytes at the end of a large log that are kept."""
MAX_LOG_BYTES: Final = HEAD_BYTES + TAIL_BYTES
"""A log of at most so many bytes is kept unchanged."""
_LINE: Final = re.compile(rb"\nassay: (\d{1,18}) bytes were left out here, from byte (\d{1,18}) on[^\n]*\n")
_LINE_BYTES: Final = 256


@dataclass(frozen=True)
class Omission:
    """The bytes of a log that its excerpt leaves out. ``begin``: the position of the first one."""

    begin: int
    size: int

    @property
    def end(self) -> int:
        return self.begin + self.size

    @property
    def line(self) -> bytes:
        """The line in their place, with a line feed on each side."""
        return (
            f"\nassay: {self.size} bytes were left out here, from byte {self.begin} on: "
            f"a run keeps {MAX_LOG_BYTES >> 20} MiB of a log\n"
        ).encode()

    def to_excerpt_offset(self, offset: int) -> int | None:
        """Returns where the byte before ``offset`` of the log ends in the excerpt; None if it was left out."""
        if offset <= self.begin:
            return offset
        return None if offset <= self.end else offset - self.size + len(self.line)


def plan_omission(size: int) -> Omission | None:
    """Returns what the excerpt of a log of ``size`` bytes leaves out; None if it is the whole log."""
    return None if size <= MAX_LOG_BYTES else Omission(HEAD_BYTES, size - MAX_LOG_BYTES)


def cut_log(data: bytes) -> bytes:
    """Returns the excerpt of a log."""
    left_out = plan_omission(len(data))
    return data if left_out is None else data[: left_out.begin] + left_out.line + data[left_out.end :]


def read_omission(excerpt: Path) -> Omission | None:
    """Returns what a stored log leaves out; None if it leaves out nothing, or does not exist."""
    try:
        if excerpt.stat().st_size <= MAX_LOG_BYTES:
            return None
        with excerpt.open("rb") as file:
            file.seek(HEAD_BYTES)
            found = _LINE.match(file.read(_LINE_BYTES))
    except OSError:
        return None
    return None if found is None else Omission(int(found[2]), int(found[1]))
