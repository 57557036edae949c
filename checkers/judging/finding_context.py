"""Context of a finding: the faults in force, and the leader of the key at that time.

It serves the reader of a finding, never a verdict, because events carry their nodes' clocks.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from assay.checkers.engine import Engine, Row
from assay.checkers.judging import disturbance
from assay.checkers.judging.verdict import Finding


class FindingContext:
    """Contexts for one finished history in ``engine``; queries common to all findings run once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @cached_property
    def faults(self) -> list[disturbance.FaultTimes]:
        """All faults, ordered by id."""
        return disturbance.read_faults(self._engine)

    @cached_property
    def _begun(self) -> dict[int, int]:
        return _read_begins(self._engine)

    @cached_property
    def _leaders(self) -> list[Row]:
        return self._engine.rows(
            "select time, node, key, epoch from events where event = 'became-leader' and key is not null "
            "order by time nulls first, node nulls first, seq nulls first"
        )

    def around(self, found: Sequence[Finding]) -> list[Finding]:
        """Returns the findings with the time span of their cause, the faults in force in it, and the leader."""
        if not found:
            return []
        spans = _read_spans(self._engine, found)
        return [_add_context(finding, self.faults, self._begun, self._leaders, spans) for finding in found]


def read_begin(detail: Mapping[str, Any]) -> int | None:
    """Returns when the injection began, from the detail of the row that reports its end; None in older histories."""
    known = detail.get("began")
    return known if isinstance(known, int) and not isinstance(known, bool) else None


def _read_begins(engine: Engine) -> dict[int, int]:
    """Returns when each fault's injection began, if known: it may have done harm before it was confirmed."""
    rows = engine.rows("select id, time, detail from faults where phase = 'injected'")
    known = {row["id"]: (read_begin(disturbance.parse_detail(row["detail"])), row["time"]) for row in rows}
    return {id: min(start, confirmed) for id, (start, confirmed) in known.items() if start is not None}


def _read_spans(engine: Engine, found: Sequence[Finding]) -> dict[int, tuple[int, int]]:
    """Returns call and return by operation. Histories that are judged by a model alone have no effects."""
    ops = {op for finding in found for op in finding.operations}
    spans = _read_times(engine, "op", "effects", ops)
    return spans | _read_times(engine, '"index"', "ops", ops - spans.keys())


def _read_times(engine: Engine, column: str, table: str, ops: Collection[int]) -> dict[int, tuple[int, int]]:
    if not ops:
        return {}
    rows = engine.rows(
        f"select {column} as op, min(call) as call, max(coalesce(ret, call)) as ret from {table} "
        f"where {column} in ({', '.join(map(str, sorted(ops)))}) group by {column}"
    )
    return {row["op"]: (row["call"], row["ret"]) for row in rows}


def _add_context(
    finding: Finding,
    faults: Sequence[disturbance.FaultTimes],
    begun: Mapping[int, int],
    leaders: Sequence[Row],
    spans: Mapping[int, tuple[int, int]],
) -> Finding:
    # Only the two that contradict each other, because others may be anywhere in the run.
    pair = [spans[op] for op in finding.operations[:2] if op in spans]
    given = (finding.time, finding.since, finding.until)
    times = [time for time in (*given, *(time for span in pair for time in span)) if time is not None]
    if not times:
        return finding
    start, end = min(times), max(times)
    moment = start if finding.time is None else finding.time
    leader = max(
        (row for row in leaders if row["key"] == finding.key and row["time"] <= moment and row["epoch"] is not None),
        key=lambda row: (row["epoch"], row["time"]),
        default=None,
    )
    return msgspec.structs.replace(
        finding,
        since=start,
        until=end,
        faults=finding.faults or tuple(fault.id for fault in faults if fault.overlaps(start, end, begun.get(fault.id))),
        leader=None if leader is None else leader["node"],
        epoch=None if leader is None else leader["epoch"],
    )
