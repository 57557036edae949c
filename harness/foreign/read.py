"""Recognises the foreign format of a file by its beginning, and reads its operations."""

import enum
import re
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from assay.harness.core.printable import count_noun
from assay.harness.foreign.answers import ContradictoryAnswer
from assay.harness.foreign.edn import EdnReader
from assay.harness.foreign.entry import Entry, read_entry
from assay.harness.foreign.entry_order import ChosenOrder, EntryOrder
from assay.harness.foreign.jepsen_log import LINE as LOG_LINE
from assay.harness.foreign.jepsen_log import TEXT_LINE, HistoryTextReader, LogReader
from assay.harness.foreign.json_values import JsonReader
from assay.harness.foreign.keys import KeyMode
from assay.harness.foreign.nemesis_events import ForeignFault
from assay.harness.foreign.pairing import Pairing
from assay.harness.foreign.shapes import MODELS, ONLY_OPERATIONS, WORKLOADS
from assay.harness.foreign.source import MalformedError, Progress, read_pieces

__all__ = ["HEAD", "ForeignFormat", "ForeignHistory", "read_first_entries", "read_history", "recognise_format"]

HEAD: Final = 1 << 18
"""Bytes at the beginning of a file that show its format. They are many, because a log may begin with the set-up of the
nodes.
"""


class ForeignFormat(enum.StrEnum):
    """Formats of files. JSON is an array of objects, or one object per line."""

    EDN = "edn"
    JSON = "json"
    HISTORY_TXT = "history-txt"
    JEPSEN_LOG = "jepsen-log"


SUFFIXES: Final = {
    ".edn": ForeignFormat.EDN,
    ".json": ForeignFormat.JSON,
    ".jsonl": ForeignFormat.JSON,
    ".ndjson": ForeignFormat.JSON,
}
"""Formats by the end of a name, before ``.gz``. Any other name tells nothing."""
COMPRESSED: Final = ".gz"
_JSON: Final = re.compile(r'[\s,]*+(?:\[[\s,]*+)?\{\s*+"(?:[^"\\]|\\.)*"\s*:(?![\w*+!?<>=./-])')
"""The beginning of JSON: an object whose first key has a colon after it. In EDN a keyword follows its colon at once."""


def recognise_format(path: Path) -> ForeignFormat:
    """Returns the format. Raises ``MalformedError`` for unknown formats and for pipes, and ``OSError``."""
    choices = " or ".join(f"--format={format}" for format in ForeignFormat)
    if not stat.S_ISREG(path.stat().st_mode):
        raise MalformedError(
            path,
            None,
            f"this is no regular file, and reading the beginning of a pipe would consume it; name the format with "
            f"{choices}",
        )
    name = path.name.removesuffix(COMPRESSED)
    if (format := SUFFIXES.get(Path(name).suffix)) is not None:
        return format
    text = next(read_pieces(path, lambda done: None, HEAD), "")
    if LOG_LINE.search(text):
        return ForeignFormat.JEPSEN_LOG
    if _JSON.match(text):
        return ForeignFormat.JSON
    for line in text.splitlines():
        begin = line.strip(" \t,")
        if begin and not begin.startswith(";"):
            if TEXT_LINE.fullmatch(line):
                return ForeignFormat.HISTORY_TXT
            if begin[0] in "[({#^":
                return ForeignFormat.EDN
            break
    raise MalformedError(
        path,
        None,
        "neither EDN or JSON (it begins with no [, (, { or #), nor a history.txt (lines of process, :type, :f and "
        "value), nor a jepsen.log (no line such as `INFO  jepsen.util - 0 :invoke :read nil`); say which with "
        f"{choices}",
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
    order: ChosenOrder
    """The real-time order that the file supports."""
    answers: tuple[ContradictoryAnswer, ...] = ()
    """Answers that contradict their calls. Their operations are in ``ops`` with an unknown outcome."""
    timed: bool = False
    """Whether the times of the operations are those of the file, and not only an order."""
    continued: int = 0
    """The number of operations in a process that had an operation of unknown outcome before."""
    unnamed: int = 0
    """The number of operations without a process."""
    fields: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Further fields of completions (``entry.MORE_FIELDS``) as plain JSON, by the index of the operation."""
    answered: int = 0
    """The number of operations that ended ok, including those with a contradictory answer."""
    comparable: int = 0
    """The number of answered operations whose form says what the answer must repeat."""
    guessed_keys: int = 0
    """The number of keys, if values without a tag were taken as ``[key value]`` without an option; otherwise 0."""

    @property
    def left_out(self) -> str:
        """A sentence on the entries that were skipped; empty if there are none."""
        change = "changes" if self.nemesis == 1 else "change"
        nemesis = f"{count_noun(self.nemesis, 'event')} of the nemesis, which {change} no verdict"
        skipped = f"{count_noun(self.skipped, 'other line')} left out"
        return "; ".join([*([nemesis] if self.nemesis else []), *([skipped] if self.skipped else [])])

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on facts that the file lacks, what was assumed, and what was left out."""
        continued = (
            f"{count_noun(self.continued, 'operation')} came after one of unknown outcome in the same process, which "
            "may still take effect"
        )
        keys = (
            f"values are read as [key value], with {count_noun(self.guessed_keys, 'key')}; --keys=none takes them as "
            "plain values"
        )
        said = (self.order.note, keys if self.guessed_keys else "", continued if self.continued else "", self.left_out)
        return tuple(filter(None, said))


def read_history(
    path: Path,
    format: ForeignFormat,
    name: str,
    *,
    is_workload: bool = False,
    keys: KeyMode = KeyMode.AUTO,
    order: EntryOrder = EntryOrder.AUTO,
    refusals: bool = False,
    all_reads: bool = False,
    prefers_values: bool = False,
    progress: Progress = lambda done: None,
) -> ForeignHistory:
    """Reads the operations of a file. They must fit the model ``name``, if that is one of ``MODELS``.

    With ``is_workload``, they must fit the workload ``name``. A model of this name may have other operations.
    With ``prefers_values``, a vector of two is the operation's value, not a key with a value, if it fits the operation.
    With ``refusals``, a CAS that ended ``:fail`` without an error found another value. Its result then is false.
    With ``all_reads``, the value of a failed or unknown operation is its result if it fits the call.
    ``progress`` is called with the number of bytes read. Raises ``MalformedError`` with file, line, column and reason
    for the first error, and ``OSError`` if the file cannot be opened.
    """
    start = time.perf_counter()
    pairing = Pairing(
        path, (WORKLOADS if is_workload else MODELS).get(name), name, keys, order,
        refusals=refusals, all_reads=all_reads, only_operation=ONLY_OPERATIONS.get(name) if is_workload else None,
        prefers_values=prefers_values,
    )  # fmt: skip
    reader = _choose_line_reader(path, format)
    for entry in _read_entries(path, format, progress) if reader is None else reader.iterate_entries(progress):
        pairing.add(entry)
    claim = pairing.settle_order()
    return ForeignHistory(
        pairing.make_table(),
        pairing.nemesis_count,
        pairing.list_faults(),
        0 if reader is None else reader.skipped,
        time.perf_counter() - start,
        claim,
        pairing.list_answers(),
        pairing.is_timed,
        pairing.continued,
        pairing.unnamed,
        pairing.fields,
        pairing.answered,
        pairing.comparable,
        pairing.guessed_keys,
    )


def read_first_entries(path: Path, format: ForeignFormat, most: int = 1000) -> list[Entry]:
    """Returns the entries of clients among the first ``most`` entries. Raises ``MalformedError`` and ``OSError``."""
    reader = _choose_line_reader(path, format)
    entries = _read_entries(path, format, _ignore) if reader is None else reader.iterate_entries(_ignore)
    return [entry for entry in islice(entries, most) if not entry.nemesis]


def _choose_line_reader(path: Path, format: ForeignFormat) -> LogReader | HistoryTextReader | None:
    """Returns the reader of a format whose entries are lines; None for EDN and JSON."""
    readers = {ForeignFormat.JEPSEN_LOG: LogReader, ForeignFormat.HISTORY_TXT: HistoryTextReader}
    return readers[format](path) if format in readers else None


def _ignore(done: int) -> None:
    """Reports no progress."""


def _read_entries(path: Path, format: ForeignFormat, progress: Progress) -> Iterator[Entry]:
    """Yields the entries of a file. Each one is a map, an object or a vector.

    The file is one vector or array of them, or has one after another.
    """
    pieces = read_pieces(path, progress)
    reader = JsonReader(path, pieces) if format is ForeignFormat.JSON else EdnReader(path, pieces, tuples=True)
    for place, value in reader.iterate_values():
        yield read_entry(path, place, value, has_unreadable=reader.has_unreadable)
