"""Looks up the operations and faults that a failure text names, as one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.judging.finding_context import read_begin
from assay.checkers.judging.verdict import Finding, Judgement
from assay.checkers.times import find_digits, in_seconds
from assay.harness.core.history import HistoryReader
from assay.reports.failure_text import EvidenceLines, find_forbidden, find_operations
from assay.reports.faults import decode_detail, describe_cut, format_duration
from assay.reports.operations import sort_for_display

if TYPE_CHECKING:
    import pyarrow.dataset as ds

TEXT_WIDTH: Final = 100
"""Maximum characters of an argument or a result, so that the outcome after them is never cut off."""


def look_up_evidence(history: HistoryReader, judgement: Judgement) -> EvidenceLines:
    """Returns the lines that :func:`assay.reports.failure_text.describe` needs; empty if nothing was found."""
    first = find_forbidden(judgement)[:1]
    if not first:
        return EvidenceLines()
    rows, injected = _read_operations(history.dataset("ops"), first), _read_faults(history)
    faults = [fault for fault in injected if fault.id in first[0].faults]
    times = [*_list_times(rows), *(time for fault in faults for time in (fault.injected, fault.healed))]
    times += [time for finding in first for time in (finding.since, finding.until)]
    digits = find_digits(times)
    return EvidenceLines(
        _format_operations(rows, digits, history.worker_nodes),
        {fault.id: fault.line(digits) for fault in faults},
        digits,
        None if faults else _find_last_fault(injected, first[0], digits),
    )


class NamedFault(Protocol):
    """A fault that another tool's history names. ``end`` None: it was never ended."""

    @property
    def name(self) -> str: ...
    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int | None: ...


def _format_named_fault(fault: NamedFault, digits: int) -> str:
    if fault.end == fault.begin:
        return f"{fault.name} at {in_seconds(fault.begin, digits)} s"
    until = ", and was never ended" if fault.end is None else f" to {in_seconds(fault.end, digits)} s"
    return f"{fault.name} from {in_seconds(fault.begin, digits)} s{until}"


def look_up_operations(
    ops: pa.Table | ds.Dataset, judgement: Judgement, faults: Sequence[NamedFault] = ()
) -> EvidenceLines:
    """Returns the lines of operations, and of faults that the events of another tool's nemesis name.

    Without any such faults nothing is said of faults, because it is not known whether there were any.
    """
    first = find_forbidden(judgement)[:1]
    rows = _read_operations(ops, first)
    active = [fault for finding in first for fault in faults if _overlaps(fault, finding)]
    times = [*_list_times(rows), *(time for fault in active for time in (fault.begin, fault.end))]
    digits = find_digits(times)
    lines = None if not faults else tuple(_format_named_fault(fault, digits) for fault in active)
    return EvidenceLines(_format_operations(rows, digits, {}), digits=digits, named_faults=lines, knows_faults=False)


def _overlaps(fault: NamedFault, finding: Finding) -> bool:
    since, until = finding.since, finding.until
    return (
        since is not None and until is not None and fault.begin <= until and (fault.end is None or fault.end >= since)
    )


def _read_operations(ops: pa.Table | ds.Dataset, first: Sequence[Finding]) -> list[dict[str, Any]]:
    """Returns the rows of the operations that the text shows for the finding, in the order of the text."""
    indexes = find_operations(first)
    if not indexes:
        return []
    wanted = pc.field("index").isin(list(indexes))
    table = ops.filter(wanted) if isinstance(ops, pa.Table) else ops.to_table(filter=wanted)
    rows: dict[int, dict[str, Any]] = {row["index"]: row for row in table.to_pylist()}
    calls = {index: row["call"] for index, row in rows.items()}
    return [rows[index] for index in sort_for_display(first[0], indexes, calls) if index in rows]


def _list_times(rows: Sequence[dict[str, Any]]) -> list[int | None]:
    return [time for row in rows for time in (row["call"], row["ret"])]


def _format_operations(rows: Sequence[dict[str, Any]], digits: int, through: Mapping[str, str]) -> dict[int, str]:
    return {row["index"]: _format_operation(row, digits, through.get(row["worker"])) for row in rows}


def _format_operation(row: dict[str, Any], digits: int, node: str | None) -> str:
    """Formats ``op 812: send [17] to orders-3 by process 12, 14.201 - 14.203 s: ok {"offset":4711}``.

    ``node``: the node through which the client reached the system, if known.
    """
    until = f" - {in_seconds(row['ret'], digits)}" if row["ret"] is not None else " -"
    text = _cut(row["result"] if row["result"] is not None else row["error"] or "")
    argument = "" if row["argument"] == "null" else f" {_cut(row['argument'])}"
    on = f" on {row['key']}" if row["key"] is not None else ""
    through = "" if node is None else f" through {node}"
    return (
        f"op {row['index']}: {row['f']}{argument}{on} by process {row['process']}{through}, "
        f"{in_seconds(row['call'], digits)}{until} s: {row['outcome']} {text}"
    ).rstrip()


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…"


@dataclass(frozen=True)
class _InjectedFault:
    """Targets and times of one fault."""

    id: int
    what: str
    began: int | None
    injected: int
    healed: int | None

    def line(self, digits: int) -> str:
        return f"{self.what} {format_duration(self.began, self.injected, self.healed, digits)}"


def _find_last_fault(injected: Sequence[_InjectedFault], finding: Finding, digits: int) -> str | None:
    """Returns ``kill n1, healed at 7.200 s``: the last fault healed before the operations of a finding."""
    begin = finding.since if finding.since is not None else finding.time
    healed = {fault.healed: fault for fault in injected if fault.healed is not None}
    last = max((time for time in healed if begin is not None and time <= begin), default=None)
    return None if last is None else f"{healed[last].what}, healed at {in_seconds(last, digits)} s"


def _read_faults(reader: HistoryReader) -> list[_InjectedFault]:
    """Returns the faults that were injected, in order of injection."""
    rows = reader.table("faults").to_pylist()
    healed = {row["id"]: int(row["time"]) for row in rows if row["phase"] == "healed"}
    injections = sorted((row for row in rows if row["phase"] == "injected"), key=lambda row: int(row["time"]))
    return [_to_injected_fault(row, healed.get(row["id"])) for row in injections]


def _to_injected_fault(row: dict[str, Any], healed: int | None) -> _InjectedFault:
    detail = decode_detail(row["detail"])
    names = row["targets"].strip("[]").replace('"', "").replace(",", "+")
    cut, process = describe_cut(detail), detail.get("process")
    what = f"{row['fault']} {names}{f'@{process}' if process else ''}{f' ({cut})' if cut else ''}"
    return _InjectedFault(row["id"], what, read_begin(detail), int(row["time"]), healed)
