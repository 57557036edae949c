"""Looks up the operations and faults that a failure text names, as one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.judging.finding_context import began
from assay.checkers.judging.verdict import Judgement
from assay.checkers.times import digits_of, in_seconds
from assay.harness.core.history import HistoryReader
from assay.reports.cut_description import what_it_cut
from assay.reports.failure_text import EvidenceLines, forbidden_findings, operations_wanted
from assay.reports.faults import detail_of, lasted

if TYPE_CHECKING:
    import pyarrow.dataset as ds

TEXT_WIDTH: Final = 100
"""Maximum characters of an argument or a result, so that the outcome after them is never cut off."""


def look_up(history: HistoryReader, judgement: Judgement) -> EvidenceLines:
    """Returns the lines that :func:`assay.reports.failure_text.describe` needs; empty if nothing was found."""
    first = forbidden_findings(judgement)[:1]
    operations = operations_wanted(judgement)
    faults = {number for finding in first for number in finding.faults}
    if not operations and not faults:
        return EvidenceLines()
    rows, lives = _operations(history.dataset("ops"), operations), _faults(history, faults)
    moments = [time for one in first for time in (one.since, one.until)]
    digits = digits_of((*_times(rows), *(time for one in lives for time in (one.injected, one.healed)), *moments))
    return EvidenceLines(
        _operation_lines(rows, digits, history.through), {one.id: one.line(digits) for one in lives}, digits
    )


def operations_of(ops: pa.Table | ds.Dataset, judgement: Judgement) -> EvidenceLines:
    """Returns the lines of operations alone, for a history without faults."""
    rows = _operations(ops, operations_wanted(judgement))
    digits = digits_of(_times(rows))
    return EvidenceLines(_operation_lines(rows, digits, {}), digits=digits)


def _operations(ops: pa.Table | ds.Dataset, indexes: Sequence[int]) -> list[dict[str, Any]]:
    if not indexes:
        return []
    wanted = pc.field("index").isin(list(indexes))
    rows: list[dict[str, Any]]
    rows = (ops.filter(wanted) if isinstance(ops, pa.Table) else ops.to_table(filter=wanted)).to_pylist()
    return rows


def _times(rows: Sequence[dict[str, Any]]) -> list[int | None]:
    return [time for row in rows for time in (row["call"], row["ret"])]


def _operation_lines(rows: Sequence[dict[str, Any]], digits: int, through: Mapping[str, str]) -> dict[int, str]:
    return {row["index"]: _line(row, digits, through.get(row["worker"])) for row in rows}


def _line(row: dict[str, Any], digits: int, node: str | None) -> str:
    """Formats ``op 812: send [17] to orders-3 by process 12, 14.201 - 14.203 s: ok {"offset":4711}``.

    ``node``: the node through which the client reached the system, if known.
    """
    until = f" - {in_seconds(row['ret'], digits)}" if row["ret"] is not None else " -"
    text = _cut(row["result"] if row["result"] is not None else row["error"] or "")
    on = f" on {row['key']}" if row["key"] is not None else ""
    through = "" if node is None else f" through {node}"
    return (
        f"op {row['index']}: {row['f']} {_cut(row['argument'])}{on} by process {row['process']}{through}, "
        f"{in_seconds(row['call'], digits)}{until} s: {row['outcome']} {text}"
    ).rstrip()


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…"


@dataclass(frozen=True)
class _Life:
    """Targets and times of one fault."""

    id: int
    what: str
    began: int | None
    injected: int
    healed: int | None

    def line(self, digits: int) -> str:
        return f"{self.what} {lasted(self.began, self.injected, self.healed, digits)}"


def _faults(reader: HistoryReader, ids: set[int]) -> list[_Life]:
    """Returns the faults with these ids that were injected, in order of injection."""
    rows = [row for row in reader.table("faults").to_pylist() if row["id"] in ids]
    healed = {row["id"]: int(row["time"]) for row in rows if row["phase"] == "healed"}
    injections = sorted((row for row in rows if row["phase"] == "injected"), key=lambda row: int(row["time"]))
    return [_life(row, healed.get(row["id"])) for row in injections]


def _life(row: dict[str, Any], healed: int | None) -> _Life:
    detail = detail_of(row["detail"])
    names = row["targets"].strip("[]").replace('"', "").replace(",", "+")
    cut, process = what_it_cut(detail), detail.get("process")
    what = f"{row['fault']} {names}{f'@{process}' if process else ''}{f' ({cut})' if cut else ''}"
    return _Life(row["id"], what, began(detail), int(row["time"]), healed)
