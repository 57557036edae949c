"""Looks up the operations and faults that a failure text names, as one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from assay.reports.operations import (
    FirstOccurrence,
    find_earliest,
    find_first_occurrence,
    list_first_operations,
    sort_for_display,
    to_python_notation,
)

if TYPE_CHECKING:
    import pyarrow.dataset as ds

Notation = Callable[[str], str]
"""Converts the JSON of a value to the notation of the history's source."""

TEXT_WIDTH: Final = 100
"""Maximum number of characters of an argument or a result, so that the outcome after them is never cut off."""


def look_up_evidence(history: HistoryReader, judgement: Judgement) -> EvidenceLines:
    """Returns the lines that :func:`assay.reports.failure_text.describe` needs; empty if nothing was found."""
    shown = next(iter(find_forbidden(judgement)), None)
    if shown is None:
        return EvidenceLines()
    named, injected = _read_operations(history.dataset("ops"), judgement, shown), _read_faults(history)
    faults = [fault for fault in injected if fault.id in shown.faults]
    times = [*named.times, *(time for fault in faults for time in (fault.injected, fault.healed))]
    digits = find_digits([*times, shown.since, shown.until])
    return EvidenceLines(
        named.format(digits, history.worker_nodes),
        {fault.id: fault.line(digits) for fault in faults},
        digits,
        None if faults else _find_last_fault(injected, shown, digits),
        first=named.format_first(digits, history.worker_nodes),
    )


class NamedFault(Protocol):
    """A fault in a history of another tool. ``end``: None if the fault never ended."""

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
    ops: pa.Table | ds.Dataset,
    judgement: Judgement,
    faults: Sequence[NamedFault] = (),
    notation: Notation = to_python_notation,
) -> EvidenceLines:
    """Returns the lines for a history of another tool. ``faults``: those that its events of the nemesis name.

    ``notation``: converts the JSON of an argument or a result into the notation of the history's source. Without any
    ``faults`` the text does not mention faults, because it is unknown whether there were any.
    """
    shown = next(iter(find_forbidden(judgement)), None)
    if shown is None:
        return EvidenceLines(knows_faults=False)
    named = _read_operations(ops, judgement, shown, notation)
    active = [fault for fault in faults if _overlaps(fault, shown)]
    digits = find_digits([*named.times, *(time for fault in active for time in (fault.begin, fault.end))])
    return EvidenceLines(
        named.format(digits, {}),
        digits=digits,
        knows_faults=False,
        named_faults=None if not faults else tuple(_format_named_fault(fault, digits) for fault in active),
        first=named.format_first(digits, {}),
    )


def _overlaps(fault: NamedFault, finding: Finding) -> bool:
    since, until = finding.since, finding.until
    return (
        since is not None and until is not None and fault.begin <= until and (fault.end is None or fault.end >= since)
    )


@dataclass(frozen=True)
class _NamedOperations:
    """The operations that the text shows for a finding, in the order of the text.

    ``among``: the number of findings of this anomaly that are described, if it occurred more often.
    """

    rows: Sequence[dict[str, Any]]
    first: FirstOccurrence | None
    first_row: dict[str, Any] | None
    among: int | None

    @property
    def times(self) -> list[int | None]:
        rows = [*self.rows, *([self.first_row] if self.first_row is not None else [])]
        return [time for row in rows for time in (row["call"], row["ret"])]

    def format(self, digits: int, worker_nodes: Mapping[str, str]) -> dict[int, str]:
        return {row["index"]: _format_operation(row, digits, worker_nodes.get(row["worker"])) for row in self.rows}

    def format_first(self, digits: int, worker_nodes: Mapping[str, str]) -> str | None:
        """Formats ``first at 3.000 s: op 812: ...``; None if the finding itself shows the first occurrence."""
        if self.first is None or self.first_row is None:
            return None
        among = "" if self.among is None else f", among the {self.among} that are described,"
        operation = _format_operation(self.first_row, digits, worker_nodes.get(self.first_row["worker"]))
        return f"first{among} at {in_seconds(self.first.time, digits)} s: {operation}"


def _read_operations(
    ops: pa.Table | ds.Dataset, judgement: Judgement, shown: Finding, notation: Notation = to_python_notation
) -> _NamedOperations:
    earliest = find_earliest(judgement.findings, shown)
    indexes = find_operations([shown])
    wanted = pc.field("index").isin([*indexes, *list_first_operations(earliest)])
    table = ops.filter(wanted) if isinstance(ops, pa.Table) else ops.to_table(filter=wanted)
    rows: dict[int, dict[str, Any]] = {row["index"]: _apply_notation(notation, row) for row in table.to_pylist()}
    calls = {index: row["call"] for index, row in rows.items()}
    first = find_first_occurrence(earliest, shown, calls)
    described = sum(finding.anomaly == shown.anomaly for finding in judgement.findings)
    return _NamedOperations(
        rows=[rows[index] for index in sort_for_display(shown, indexes, calls) if index in rows],
        first=first,
        first_row=None if first is None else rows.get(first.operation),
        among=described if described < judgement.anomalies.get(shown.anomaly, 0) else None,
    )


def _apply_notation(notation: Notation, row: dict[str, Any]) -> dict[str, Any]:
    result = row["result"]
    return row | {
        "argument": row["argument"] if row["argument"] == "null" else notation(row["argument"]),
        "result": None if result is None else notation(result),
    }


def _format_operation(row: dict[str, Any], digits: int, node: str | None) -> str:
    """Formats ``op 812: send [17] to orders-3 by process 12, 14.201 - 14.203 s: ok {"offset":4711}``.

    ``node``: the node to which the client connected, if known.
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
    """Targets and times of one fault. ``began``, ``injected``: the begin and the end of its injection."""

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
