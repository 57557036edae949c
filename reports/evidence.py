"""Looks up in a history what a failure text names: operations and faults, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.times import digits_of, in_seconds
from assay.checkers.verdict import Judgement
from assay.harness.core.history import HistoryReader
from assay.reports.cuts import what_it_cut
from assay.reports.failure_text import EvidenceLines, forbidden_findings, operations_wanted
from assay.reports.faults import detail_of

if TYPE_CHECKING:
    import pyarrow.dataset as ds

RESULT_WIDTH: Final = 100


def look_up(history: HistoryReader, judgement: Judgement) -> EvidenceLines:
    """What :func:`assay.reports.failure_text.describe` asks for; empty when nothing was found."""
    first = forbidden_findings(judgement)[:1]
    operations = operations_wanted(judgement)
    faults = {number for finding in first for number in finding.faults}
    if not operations and not faults:
        return EvidenceLines()
    rows, steps = _operations(history.dataset("ops"), operations), _faults(history, faults)
    digits = digits_of(
        (*_times(rows), *(step["time"] for step in steps), *(time for one in first for time in (one.since, one.until)))
    )
    return EvidenceLines(_operation_lines(rows, digits), _fault_lines(steps, digits), digits)


def operations_of(ops: pa.Table | ds.Dataset, judgement: Judgement) -> EvidenceLines:
    """The same from operations alone, of a history without faults."""
    rows = _operations(ops, operations_wanted(judgement))
    digits = digits_of(_times(rows))
    return EvidenceLines(_operation_lines(rows, digits), digits=digits)


def _operations(ops: pa.Table | ds.Dataset, indexes: Sequence[int]) -> list[dict[str, Any]]:
    if not indexes:
        return []
    wanted = pc.field("index").isin(list(indexes))
    rows: list[dict[str, Any]]
    rows = (ops.filter(wanted) if isinstance(ops, pa.Table) else ops.to_table(filter=wanted)).to_pylist()
    return rows


def _times(rows: Sequence[dict[str, Any]]) -> list[int | None]:
    return [time for row in rows for time in (row["call"], row["ret"])]


def _operation_lines(rows: Sequence[dict[str, Any]], digits: int) -> dict[int, str]:
    return {row["index"]: _line(row, digits) for row in rows}


def _line(row: dict[str, Any], digits: int) -> str:
    """``op 812: send [17] to orders-3 by process 12, 14.201 - 14.203 s: ok {"offset":4711}``."""
    until = f" - {in_seconds(row['ret'], digits)}" if row["ret"] is not None else " -"
    text = row["result"] if row["result"] is not None else row["error"] or ""
    if len(text) > RESULT_WIDTH:
        text = text[: RESULT_WIDTH - 1] + "…"
    on = f" on {row['key']}" if row["key"] is not None else ""
    return (
        f"op {row['index']}: {row['f']} {row['argument']}{on} by process {row['process']}, "
        f"{in_seconds(row['call'], digits)}{until} s: {row['outcome']} {text}"
    ).rstrip()


def _faults(reader: HistoryReader, ids: set[int]) -> list[dict[str, Any]]:
    """Of these faults, in order: the injections, which have the targets, and the heals."""
    rows = [row for row in reader.table("faults").to_pylist() if row["phase"] in ("injected", "healed")]
    return sorted((row for row in rows if row["id"] in ids), key=lambda row: int(row["time"]))


def _fault_lines(rows: Sequence[dict[str, Any]], digits: int) -> dict[int, str]:
    lines: dict[int, str] = {}
    for row in rows:
        when = f"{in_seconds(row['time'], digits)} s"
        if row["phase"] == "injected":
            names = row["targets"].strip("[]").replace('"', "").replace(",", "+")
            detail = detail_of(row["detail"])
            cut, process = what_it_cut(detail), detail.get("process")
            names += f"@{process}" if process else ""
            lines[row["id"]] = f"{row['fault']} {names}{f' ({cut})' if cut else ''} from {when}"
        elif row["id"] in lines:
            lines[row["id"]] += f" to {when}"
    return lines
