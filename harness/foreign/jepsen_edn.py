"""``history.edn`` of Jepsen, and whatever else has one operation per map: a vector of maps, or maps one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from assay.harness.foreign.edn import Reader
from assay.harness.foreign.event import Event, from_map
from assay.harness.foreign.source import Read, pieces


def events(path: Path, read: Read) -> Iterator[Event]:
    """Raises ``MalformedError`` for the first thing that is wrong."""
    for place, value in Reader(path, pieces(path, read)).values():
        yield from_map(path, place, value)
