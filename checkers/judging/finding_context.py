"""Context of a finding: the active faults, and the leader of the key at that time.

The context serves the reader of a finding. No verdict depends on it, because events have the times of their nodes'
clocks.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from assay.checkers.engine import Engine, Row
from assay.checkers.judging import disturbance
from assay.checkers.judging.verdict import Finding


class FindingContext:
    """Adds contexts to the findings of one history in ``engine``. Queries common to all findings run once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @cached_property
    def faults(self) -> list[disturbance.FaultTimes]:
        """All faults, ordered by id."""
        return disturbance.read_faults(self._engine)

    @cached_property
    def _begins(self) -> dict[int, int]:
        """By fault, the time at which its injection began, if known. A fault may do harm before it is confirmed."""
        rows = self._engine.rows("select id, time, detail from faults where phase = 'injected'")
        known = {row["id"]: (read_begin(disturbance.parse_detail(row["detail"])), row["time"]) for row in rows}
        return {id: min(start, confirmed) for id, (start, confirmed) in known.items() if start is not None}

    @cached_property
    def _leaders(self) -> list[Row]:
        return self._engine.rows(
            "select time, node, key, epoch from events where event = 'became-leader' and key is not null "
            "order by time nulls first, node nulls first, seq nulls first"
        )

    def add_to(self, findings: Sequence[Finding]) -> list[Finding]:
        """Returns the findings with the time span of their cause, the faults active in this span, and the leader."""
        if not findings:
            return []
        spans = _read_spans(self._engine, findings)
        return [self._add_to_finding(finding, spans) for finding in findings]

    def _add_to_finding(self, finding: Finding, spans: Mapping[int, tuple[int, int]]) -> Finding:
        # The first two operations contradict each other; the others may be anywhere in the run.
        pair = [spans[op] for op in finding.operations[:2] if op in spans]
        known = (finding.time, finding.since, finding.until)
        times = [time for time in (*known, *(time for span in pair for time in span)) if time is not None]
        if not times:
            return finding
        start, end = min(times), max(times)
        moment = start if finding.time is None else finding.time
        leaders = [row for row in self._leaders if row["key"] == finding.key and row["epoch"] is not None]
        leader = max(
            (row for row in leaders if row["time"] <= moment), key=lambda row: (row["epoch"], row["time"]), default=None
        )
        active = (fault.id for fault in self.faults if fault.overlaps(start, end, self._begins.get(fault.id)))
        return msgspec.structs.replace(
            finding,
            since=start,
            until=end,
            faults=finding.faults or tuple(active),
            leader=None if leader is None else leader["node"],
            epoch=None if leader is None else leader["epoch"],
        )


def read_begin(detail: Mapping[str, Any]) -> int | None:
    """Returns the time at which the injection began, from the detail of the row ``injected``; None if it is unknown."""
    known = detail.get("began")
    return known if isinstance(known, int) and not isinstance(known, bool) else None


def _read_spans(engine: Engine, findings: Sequence[Finding]) -> dict[int, tuple[int, int]]:
    """Returns the times of call and return by operation. They come from ``ops`` if an operation has no effects."""
    ops = {op for finding in findings for op in finding.operations}
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
