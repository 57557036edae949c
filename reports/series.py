"""Throughput and latency over the whole run, in a bounded number of points.

1. The run is divided into at most 240 intervals of equal, round length.
2. A rate counts an operation in the interval in which it ended, or was called if it has no end (``info``).
3. A latency belongs to the interval in which the operation was scheduled, so that an outage appears at its begin. If an
   open loop is behind schedule at its end, no operation is scheduled in the last intervals. An operation called in one
   of these intervals is counted there a second time, so that the panel is drawn to the end.
4. A latency is measured from the time for which an open loop scheduled the operation. Otherwise calls that a stalled
   system delayed would not count (coordinated omission, G. Tene, "How NOT to Measure Latency").
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from assay.checkers.times import NANOSECONDS
from assay.reports.history_db import HistoryDatabase, Row

MOST_POINTS: Final = 240
LEAST_WIDTH: Final = 1_000_000
"""Minimum nanoseconds of an interval. Narrower intervals would show the resolution of the clock."""

MILLISECOND: Final = 1_000_000

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Series:
    """Values of each interval. ``time``: the begin of the interval in seconds. Rates are per second.

    Latencies are in milliseconds, and NaN if no operation succeeded.
    """

    width: float
    """Seconds per interval."""
    time: Floats
    ok: Floats
    fail: Floats
    info: Floats
    median: Floats
    p99: Floats
    longest: Floats


@dataclass(frozen=True)
class OperationCounts:
    """Counts of all operations of one kind; latencies in milliseconds, None if none succeeded."""

    f: str
    total: int
    ok: int
    fail: int
    info: int
    median: float | None
    p99: float | None
    longest: float | None


@dataclass(frozen=True)
class ErrorCount:
    """Frequency of an error. ``error``: its name, without the details after the colon."""

    f: str
    outcome: str
    error: str
    count: int


@dataclass(frozen=True)
class GroupOwnership:
    """Ownership changes of a consumer group.

    ``generations``: 0 in a design without generations. ``partings``: number of members that left, died or fell silent.
    In the design on ZooKeeper, members assign partitions to themselves. The other counts measure this work:

    - ``changes``: claims that acquired a partition
    - ``watches``: watches that woke a member
    - ``rebalances``: computed assignments. ``unchanged``: those that equal the present ownership
    """

    group: str
    partings: int
    generations: int
    acquired: int
    released: int
    lost: int
    changes: int = 0
    watches: int = 0
    rebalances: int = 0
    unchanged: int = 0


_LATENCY: Final = "greatest(ret - coalesce(scheduled, call), 1000)"
"""SQL: the latency in nanoseconds, at least a microsecond, because a logarithmic axis has no zero."""


def choose_interval(span: int, most: int = MOST_POINTS) -> int:
    """Returns the smallest width of an interval that divides ``span`` into at most ``most`` intervals.

    The width is 1, 2 or 5 times a power of ten (ns), and at least 1 ms.
    """
    width = LEAST_WIDTH
    while True:
        for factor in (1, 2, 5):
            if -(-max(span, 1) // (width * factor)) <= most:
                return width * factor
        width *= 10


def compute_series(database: HistoryDatabase, end: int) -> Series:
    """Computes the series from the begin of the run to ``end`` (ns)."""
    width = choose_interval(end + 1)
    count = end // width + 1
    rates = database.columns(
        f"select {_select_bucket('coalesce(ret, call)', width, count)} as bucket, "
        "count(*) filter (outcome = 'ok') as ok, count(*) filter (outcome = 'fail') as fail, "
        "count(*) filter (outcome not in ('ok', 'fail')) as info from ops group by 1 order by 1"
    )
    due, called = (_select_bucket(time, width, count) for time in ("coalesce(scheduled, call)", "call"))
    latencies = database.columns(
        f"with ended as (select {due} as due, {_LATENCY} as latency, case when scheduled is not null then {called} end "
        "as called from ops where outcome = 'ok' and ret is not null), "
        f"last as (select {_select_bucket('max(scheduled)', width, count)} as due from ops) "
        "select bucket, approx_quantile(latency, 0.5) as median, approx_quantile(latency, 0.99) as p99, "
        "max(latency) as longest from (select due as bucket, latency from ended union all "
        "select called, latency from ended where called > (select due from last)) group by 1 order by 1"
    )
    seconds = width / NANOSECONDS

    def rate(name: str) -> Floats:
        return _fill_gaps(rates["bucket"], rates[name] / seconds, count, 0.0)

    def latency(name: str) -> Floats:
        return _fill_gaps(latencies["bucket"], latencies[name] / MILLISECOND, count, np.nan)

    return Series(
        width=seconds,
        time=np.arange(count, dtype=np.float64) * seconds,
        ok=rate("ok"),
        fail=rate("fail"),
        info=rate("info"),
        median=latency("median"),
        p99=latency("p99"),
        longest=latency("longest"),
    )


def count_operations(database: HistoryDatabase, most: int = 20) -> tuple[OperationCounts, ...]:
    """Returns the most frequent kinds of operation."""
    found = database.rows(
        "select f, count(*) as total, count(*) filter (outcome = 'ok') as ok, "
        "count(*) filter (outcome = 'fail') as fail, count(*) filter (outcome not in ('ok', 'fail')) as info, "
        f"approx_quantile(case when outcome = 'ok' then {_LATENCY} end, 0.5) as median, "
        f"approx_quantile(case when outcome = 'ok' then {_LATENCY} end, 0.99) as p99, "
        f"max(case when outcome = 'ok' then {_LATENCY} end) as longest "
        "from ops group by f order by total desc, f limit ?",
        [most],
    )
    return tuple(_to_counts(row) for row in found)


def count_errors(database: HistoryDatabase, most: int = 12) -> tuple[ErrorCount, ...]:
    """Returns the most frequent errors."""
    found = database.rows(
        "select f, outcome, left(split_part(error, ':', 1), 80) as error, count(*) as count from ops "
        "where error is not null group by all order by count desc, f, outcome, error limit ?",
        [most],
    )
    return tuple(ErrorCount(**row) for row in found)


def count_ownership(database: HistoryDatabase, most: int = 20) -> tuple[GroupOwnership, ...]:
    """Returns the ownership changes of each group, by name.

    An effect whose key is the group itself stands for an assignment without partitions, and does not count. In the
    design on ZooKeeper, each result of an operation has ``effort``: the member's counts since its last result.
    """
    efforts = ", ".join(
        f"coalesce(sum(try_cast(json_extract(result, '$.effort.{name}') as bigint)), 0)::bigint as {name}"
        for name in ("watches", "rebalances", "unchanged")
    )
    found = database.rows(
        "with asked as (select json_extract_string(argument, '$.group') as name, count(*) filter "
        f"(f in ('leave', 'die', 'silence') and outcome = 'ok') as partings, {efforts} from ops group by name) "
        'select e."group", coalesce(min(partings), 0) as partings, count(distinct e.generation) as generations, '
        "count(*) filter (e.kind = 'acquire') as acquired, count(*) filter (e.kind = 'release') as released, "
        "count(*) filter (e.kind = 'lost') as lost, count(distinct e.version) filter (e.kind = 'claim') as changes, "
        "coalesce(min(watches), 0) as watches, coalesce(min(rebalances), 0) as rebalances, "
        'coalesce(min(unchanged), 0) as unchanged from effects e left join asked on asked.name = e."group" '
        "where e.kind in ('acquire', 'release', 'lost', 'claim') and e.key <> e.\"group\" and e.outcome = 'ok' "
        'group by e."group" having count(*) filter (e.kind <> \'claim\') > 0 order by e."group" limit ?',
        [most],
    )
    return tuple(GroupOwnership(**row) for row in found)


def _to_counts(row: Row) -> OperationCounts:
    def milliseconds(name: str) -> float | None:
        return None if row[name] is None else row[name] / MILLISECOND

    counts = {name: int(row[name]) for name in ("total", "ok", "fail", "info")}
    return OperationCounts(row["f"], **counts, median=milliseconds("median"), p99=milliseconds("p99"),
                longest=milliseconds("longest"))  # fmt: skip


def _select_bucket(time: str, width: int, count: int) -> str:
    return f"least(greatest({time} // {width}, 0), {count - 1})"


def _fill_gaps(buckets: np.ndarray[Any, Any], values: np.ndarray[Any, Any], count: int, empty: float) -> Floats:
    filled = np.full(count, empty, dtype=np.float64)
    filled[buckets.astype(np.int64)] = values
    return filled
