"""Looks up in a history what a failure text names: operations and faults, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.verdict import Judgement
from assay.harness.core.history import HistoryReader
from assay.reports.cuts import what_it_cut
from assay.reports.failure_text import EvidenceLines, forbidden_findings, operations_wanted, seconds
from assay.reports.faults import detail_of

if TYPE_CHECKING:
    import pyarrow.dataset as ds

RESULT_WIDTH: Final = 100
MILLISECONDS: Final = 3
MICROSECONDS: Final = 6
"""Digits of seconds: as few as tell the times of a finding's operations apart."""


def look_up(history: HistoryReader, judgement: Judgement) -> EvidenceLines:
    """What :func:`assay.reports.failure_text.describe` asks for; empty when nothing was found."""
    operations = operations_wanted(judgement)
    faults = {number for finding in forbidden_findings(judgement)[:1] for number in finding.faults}
    if not operations and not faults:
        return EvidenceLines()
    return EvidenceLines(_operations(history.dataset("ops"), operations), _faults(history, faults))


def operations_of(ops: pa.Table | ds.Dataset, judgement: Judgement) -> EvidenceLines:
    """The same from operations alone, of a history without faults."""
    wanted = operations_wanted(judgement)
    return EvidenceLines(_operations(ops, wanted) if wanted else {})


def _operations(ops: pa.Table | ds.Dataset, indexes: Sequence[int]) -> dict[int, str]:
    wanted = pc.field("index").isin(list(indexes))
    rows = (ops.filter(wanted) if isinstance(ops, pa.Table) else ops.to_table(filter=wanted)).to_pylist()
    instants = {time for row in rows for time in (row["call"], row["ret"]) if time is not None}
    digits = MILLISECONDS if len({seconds(time) for time in instants}) == len(instants) else MICROSECONDS
    return {row["index"]: _line(row, digits) for row in rows}


def _line(row: dict[str, Any], digits: int) -> str:
    """``op 812: send [17] to orders-3 by process 12, 14.201 - 14.203 s: ok {"offset":4711}``."""
    until = f" - {seconds(row['ret'], digits)}" if row["ret"] is not None else " -"
    text = row["result"] if row["result"] is not None else row["error"] or ""
    if len(text) > RESULT_WIDTH:
        text = text[: RESULT_WIDTH - 1] + "…"
    on = f" on {row['key']}" if row["key"] is not None else ""
    return (
        f"op {row['index']}: {row['f']} {row['argument']}{on} by process {row['process']}, "
        f"{seconds(row['call'], digits)}{until} s: {row['outcome']} {text}"
    ).rstrip()


def _faults(reader: HistoryReader, ids: set[int]) -> dict[int, str]:
    """The injection has the targets; the heal has the end."""
    lines: dict[int, str] = {}
    for row in sorted(reader.table("faults").to_pylist(), key=lambda row: int(row["time"])):
        if row["id"] not in ids:
            continue
        if row["phase"] == "injected":
            names = row["targets"].strip("[]").replace('"', "").replace(",", "+")
            cut = what_it_cut(detail_of(row["detail"]))
            lines[row["id"]] = f"{row['fault']} {names}{f' ({cut})' if cut else ''} from {seconds(row['time'])} s"
        elif row["phase"] == "healed" and row["id"] in lines:
            lines[row["id"]] += f" to {seconds(row['time'])} s"
    return lines
