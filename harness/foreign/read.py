"""Reads the operations of a file in a foreign format."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from assay.harness.foreign.edn import EdnReader
from assay.harness.foreign.entry import Entry, read_entry
from assay.harness.foreign.jepsen_log import LogReader
from assay.harness.foreign.keys import KeyMode
from assay.harness.foreign.pairing import EntryOrder, Pairing
from assay.harness.foreign.recognise import ForeignFormat
from assay.harness.foreign.shapes import MODELS, WORKLOADS
from assay.harness.foreign.source import Read, read_pieces

__all__ = ["ForeignFormat", "ForeignHistory", "read_history"]


@dataclass(frozen=True)
class ForeignHistory:
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


def read_history(
    path: Path,
    format: ForeignFormat,
    model: str,
    *,
    keys: KeyMode = KeyMode.AUTO,
    order: EntryOrder = EntryOrder.TIME,
    refusals: bool = False,
    progress: Read = lambda done: None,
) -> ForeignHistory:
    """Reads the operations of a file. They must fit ``model``, if that is one of ``MODELS`` or ``WORKLOADS``.

    With ``refusals`` a CAS that ended ``:fail`` without an error found another value, which then is the result false.
    ``progress`` is called with the number of bytes read. Raises ``MalformedError`` with file, line, column and reason
    for the first error, and ``OSError`` if the file cannot be opened.
    """
    begun = time.perf_counter()
    pairing = Pairing(path, {**MODELS, **WORKLOADS}.get(model), model, keys, order, refusals=refusals)
    log = LogReader(path)
    for entry in _read_entries(path, progress) if format is ForeignFormat.EDN else log.entries(progress):
        pairing.add(entry)
    return ForeignHistory(pairing.table(), pairing.nemesis, log.skipped, time.perf_counter() - begun)


def _read_entries(path: Path, progress: Read) -> Iterator[Entry]:
    """Reads a ``history.edn`` of Jepsen or another tool: a vector or a sequence of maps, one for each entry."""
    for place, value in EdnReader(path, read_pieces(path, progress)).values():
        yield read_entry(path, place, value)
