"""A file to its operations."""

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
    """``ops`` has the schema of a history's; the rest says how much was left out, and of what."""

    ops: pa.Table
    nemesis: int
    """Events of the nemesis."""
    skipped: int
    """Lines that are about no operation."""
    seconds: float
    """That reading took."""

    @property
    def left_out(self) -> str:
        """What was left out, in words."""
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
    """The operations of a file. Those of one of ``MODELS`` or ``WORKLOADS`` must be its own; of any other, all of them.

    ``refusals``: a CAS that ended ``:fail`` without an error found another value there, which then is a result (false).
    ``progress`` is called with the number of bytes read. Raises ``MalformedError`` naming file, line, column and reason
    for the first thing that is wrong, ``OSError`` when it cannot be opened.
    """
    begun = time.perf_counter()
    pairing = Pairing(path, {**MODELS, **WORKLOADS}.get(model), model, keys, order, refusals=refusals)
    log = LogReader(path)
    for entry in _maps(path, progress) if format is Format.EDN else log.entries(progress):
        pairing.add(entry)
    return Foreign(pairing.table(), pairing.nemesis, log.skipped, time.perf_counter() - begun)


def _maps(path: Path, progress: Read) -> Iterator[Entry]:
    """Of Jepsen's ``history.edn`` and its like: a vector of maps, or maps one by one; one operation each."""
    for place, value in Reader(path, pieces(path, progress)).values():
        yield from_map(path, place, value)
