"""Recognises the foreign format of a file by its beginning, and reads its operations."""

import enum
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from assay.harness.foreign.edn import EdnReader
from assay.harness.foreign.entry import Entry, read_entry
from assay.harness.foreign.jepsen_log import LINE, LogReader
from assay.harness.foreign.keys import KeyMode
from assay.harness.foreign.nemesis_events import ForeignFault
from assay.harness.foreign.pairing import EntryOrder, Pairing
from assay.harness.foreign.shapes import MODELS, WORKLOADS
from assay.harness.foreign.source import MalformedError, Progress, read_pieces

__all__ = ["HEAD", "ForeignFormat", "ForeignHistory", "read_history", "recognise_format"]

HEAD: Final = 1 << 18
"""Bytes at the beginning of a file that show its format. They are many, because a log may begin with the set-up of the
nodes.
"""


class ForeignFormat(enum.StrEnum):
    EDN = "edn"
    JEPSEN_LOG = "jepsen-log"


def recognise_format(path: Path) -> ForeignFormat:
    """Returns the format. Raises ``MalformedError`` for unknown formats and for pipes, and ``OSError``."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise MalformedError(
            path,
            None,
            "this is no regular file, and reading the beginning of a pipe would consume it; name the format with "
            "--format=edn or --format=jepsen-log",
        )
    if path.suffix == ".edn":
        return ForeignFormat.EDN
    text = next(read_pieces(path, lambda done: None, HEAD))
    if LINE.search(text):
        return ForeignFormat.JEPSEN_LOG
    for line in text.splitlines():
        begin = line.strip(" \t,")
        if begin and not begin.startswith(";"):
            if begin[0] in "[({#":
                return ForeignFormat.EDN
            break
    raise MalformedError(
        path,
        None,
        "neither an EDN history (it begins with no [, (, { or #) nor a jepsen.log (no line such as "
        "`INFO  jepsen.util - 0 :invoke :read nil`); say which with --format=edn or --format=jepsen-log",
    )


@dataclass(frozen=True)
class ForeignHistory:
    """The operations of a file, in the schema of ``ops``, and counts of the skipped entries."""

    ops: pa.Table
    nemesis: int
    """The number of nemesis events."""
    faults: tuple[ForeignFault, ...]
    """The faults that these events begin and end."""
    skipped: int
    """The number of lines without an operation."""
    seconds: float
    """The duration of reading."""

    @property
    def left_out(self) -> str:
        """A sentence on the entries that were skipped."""
        return f"{self.nemesis} events of the nemesis, which change no verdict; {self.skipped} other lines left out"


def read_history(
    path: Path,
    format: ForeignFormat,
    model: str,
    *,
    keys: KeyMode = KeyMode.AUTO,
    order: EntryOrder = EntryOrder.TIME,
    refusals: bool = False,
    progress: Progress = lambda done: None,
) -> ForeignHistory:
    """Reads the operations of a file. They must fit ``model``, if that is one of ``MODELS`` or ``WORKLOADS``.

    With ``refusals``, a CAS that ended ``:fail`` without an error found another value. Its result then is false.
    ``progress`` is called with the number of bytes read. Raises ``MalformedError`` with file, line, column and reason
    for the first error, and ``OSError`` if the file cannot be opened.
    """
    start = time.perf_counter()
    pairing = Pairing(path, {**MODELS, **WORKLOADS}.get(model), model, keys, order, refusals=refusals)
    log = LogReader(path)
    for entry in _read_entries(path, progress) if format is ForeignFormat.EDN else log.iterate_entries(progress):
        pairing.add(entry)
    return ForeignHistory(
        pairing.make_table(),
        pairing.nemesis.count,
        pairing.nemesis.list_faults(),
        log.skipped,
        time.perf_counter() - start,
    )


def _read_entries(path: Path, progress: Progress) -> Iterator[Entry]:
    """Reads a ``history.edn`` of Jepsen or another tool: a vector or a sequence of maps, one for each entry."""
    for place, value in EdnReader(path, read_pieces(path, progress)).iterate_values():
        yield read_entry(path, place, value)
