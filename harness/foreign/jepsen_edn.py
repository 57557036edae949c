"""``history.edn`` of Jepsen, and other files with one operation per map: a vector of maps, or maps one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from assay.harness.foreign.edn import Reader
from assay.harness.foreign.entry import Entry, from_map
from assay.harness.foreign.source import Read, pieces


def entries(path: Path, read: Read) -> Iterator[Entry]:
    """Raises ``MalformedError`` for the first thing that is wrong."""
    for place, value in Reader(path, pieces(path, read)).values():
        yield from_map(path, place, value)
