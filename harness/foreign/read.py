"""Reads the operations of a file in a foreign format."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from assay.harness.foreign.edn import Reader
from assay.harness.foreign.entry import Entry, from_map
from assay.harness.foreign.jepsen_log import LogReader
from assay.harness.foreign.keys import Keys
from assay.harness.foreign.pairing import Order, Pairing
from assay.harness.foreign.recognise import Format
from assay.harness.foreign.shapes import MODELS, WORKLOADS
from assay.harness.foreign.source import Read, pieces

__all__ = ["Foreign", "Format", "read"]


@dataclass(frozen=True)
class Foreign:
    """The operations of a file, in the schema of ``ops``, and what was left out."""

    ops: pa.Table
    nemesis: int
    """The number of nemesis events."""
    skipped: int
    """The number of lines without an operation."""
    seconds: float
    """The duration of reading."""

    @property
    def left_out(self) -> str:
        """Describes in words what was left out."""
        return f"{self.nemesis} events of the nemesis and {self.skipped} other lines left out"


def read(
    path: Path,
    format: Format,
    model: str,
    *,
    keys: Keys = Keys.AUTO,
    order: Order = Order.TIME,
    refusals: bool = False,
    progress: Read = lambda done: None,
) -> Foreign:
    """Reads the operations of a file. They must fit ``model``, if that is one of ``MODELS`` or ``WORKLOADS``.

    With ``refusals`` a CAS that ended ``:fail`` without an error found another value, which then is the result false.
    ``progress`` is called with the number of bytes read. Raises ``MalformedError`` with file, line, column and reason
    for the first error, and ``OSError`` if the file cannot be opened.
    """
    begun = time.perf_counter()
    pairing = Pairing(path, {**MODELS, **WORKLOADS}.get(model), model, keys, order, refusals=refusals)
    log = LogReader(path)
    for entry in _maps(path, progress) if format is Format.EDN else log.entries(progress):
        pairing.add(entry)
    return Foreign(pairing.table(), pairing.nemesis, log.skipped, time.perf_counter() - begun)


def _maps(path: Path, progress: Read) -> Iterator[Entry]:
    """Reads a ``history.edn`` of Jepsen or another tool: a vector or a sequence of maps, one for each entry."""
    for place, value in Reader(path, pieces(path, progress)).values():
        yield from_map(path, place, value)
