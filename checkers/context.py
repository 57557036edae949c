"""What was going on around a finding: the faults in force, and who led the key then.

For the reader of a finding, never for a verdict: events carry their nodes' clocks.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from assay.checkers import disturbance
from assay.checkers.engine import Engine, Row
from assay.checkers.verdict import Finding


def with_context(engine: Engine, found: Sequence[Finding]) -> list[Finding]:
    """The findings with the time in which their cause lies, the faults in force in it, and who led at their moment."""
    if not found:
        return []
    faults = disturbance.faults(engine)
    leaders = engine.rows(
        "select time, node, key, epoch from events where event = 'became-leader' and key is not null "
        "order by time nulls first, node nulls first, seq nulls first"
    )
    spans = _spans(engine, found)
    return [_in_context(finding, faults, leaders, spans) for finding in found]


def _spans(engine: Engine, found: Sequence[Finding]) -> dict[int, tuple[int, int]]:
    """By operation; those of a history that is judged by a model alone have no effects."""
    ops = {op for finding in found for op in finding.operations}
    spans = _times(engine, "op", "effects", ops)
    return spans | _times(engine, '"index"', "ops", ops - spans.keys())


def _times(engine: Engine, column: str, table: str, ops: Collection[int]) -> dict[int, tuple[int, int]]:
    if not ops:
        return {}
    rows = engine.rows(
        f"select {column} as op, min(call) as call, max(coalesce(ret, call)) as ret from {table} "
        f"where {column} in ({', '.join(map(str, sorted(ops)))}) group by {column}"
    )
    return {row["op"]: (row["call"], row["ret"]) for row in rows}


def _in_context(
    finding: Finding,
    faults: Sequence[disturbance.FaultTimes],
    leaders: Sequence[Row],
    spans: Mapping[int, tuple[int, int]],
) -> Finding:
    # Only the two that contradict each other: others may be anywhere in the run.
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
        faults=finding.faults or tuple(fault.id for fault in faults if fault.overlaps(start, end)),
        leader=None if leader is None else leader["node"],
        epoch=None if leader is None else leader["epoch"],
    )
