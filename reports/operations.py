"""Operations as rows and as bars of a report: all operations that a finding names, and a sample of the others.

A run has more operations than a page can show. The page draws the operations that findings name, operations at about
the same time, and every k-th of the others. It always states how many of the total are shown.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from assay.checkers.engine import INFINITY
from assay.checkers.judging.verdict import Finding
from assay.reports.history_db import HistoryDatabase, Row

MOST_LANES: Final = 24
MOST_COMPLETE: Final = 7_000
"""A run with at most this many operations is drawn completely."""
MOST_AROUND: Final = 2_000
"""Maximum number of operations that are drawn because they were called at about the time of a named one."""
MOST_SAMPLED: Final = 2_000
"""Maximum number of operations in the sample of the whole run."""
MARGIN: Final = 100_000_000
"""Nanoseconds before and after a named operation that count as the same time."""

LONGEST_TEXT: Final = 600
"""Maximum number of characters of an argument or a result in a table."""
LONGEST_LABEL: Final = 72
"""Maximum number of characters of an argument or a result in the label of a bar."""


@dataclass(frozen=True)
class OperationRow:
    """An operation. Times are in nanoseconds since the run began. ``ret``: None for an unknown outcome.

    Long texts are cut and end in an ellipsis.
    """

    index: int
    process: int
    worker: str
    f: str
    key: str | None
    argument: str
    result: str | None
    call: int
    ret: int | None
    outcome: str
    error: str | None


@dataclass(frozen=True)
class OperationBar:
    """An operation in the lane of its worker. ``stop`` (ns): its ``ret``; without it, the worker's next call."""

    row: OperationRow
    lane: int
    stop: int
    named: bool
    """Whether a finding names it."""


@dataclass(frozen=True)
class OperationLanes:
    """Bars in the lanes of workers. ``workers``: from top to bottom.

    ``operations``, ``all_workers``: total numbers of the run.
    """

    workers: tuple[str, ...]
    bars: tuple[OperationBar, ...]
    operations: int
    all_workers: int

    @property
    def complete(self) -> bool:
        return len(self.bars) == self.operations


def find_operations(database: HistoryDatabase, indexes: Collection[int]) -> dict[int, OperationRow]:
    """Returns the operations with these indexes, by index. Unknown indexes are ignored."""
    if not indexes:
        return {}
    found = database.rows(
        f"select {_select_columns(LONGEST_TEXT)} from ops where list_contains(?, index)", [sorted(set(indexes))]
    )
    return {row["index"]: to_operation(row) for row in found}


def sort_for_display(finding: Finding, indexes: Sequence[int], calls: Mapping[int, int]) -> list[int]:
    """Sorts operations of a finding by call; the operations of a cycle keep their order.

    ``calls``: calls by operation. Operations without a call come last.
    """
    if finding.cycle:
        return list(indexes)
    return sorted(indexes, key=lambda index: (index not in calls, calls.get(index, 0), index))


@dataclass(frozen=True)
class FirstOccurrence:
    """First occurrence of an anomaly in a run: its time in nanoseconds, and the operation that showed it."""

    time: int
    operation: int


def find_earliest(findings: Iterable[Finding], shown: Finding) -> Finding:
    """Returns the earliest finding of the anomaly of ``shown``; ``shown`` itself if no other finding was earlier."""
    alike = (finding for finding in findings if finding.anomaly == shown.anomaly)
    return min((shown, *alike), key=_find_moment)


def _find_moment(finding: Finding) -> int:
    """Returns the time of a finding's first occurrence, or infinity if it is unknown."""
    times = (finding.first_time, finding.until, finding.time)
    return next((time for time in times if time is not None), INFINITY)


def list_first_operations(earliest: Finding) -> tuple[int, ...]:
    """Returns the operations whose calls :func:`find_first_occurrence` needs."""
    first = () if earliest.first_operation is None else (earliest.first_operation,)
    return tuple(dict.fromkeys((*earliest.operations[:2], *first)))


def find_first_occurrence(earliest: Finding, shown: Finding, calls: Mapping[int, int]) -> FirstOccurrence | None:
    """Returns the first occurrence. None if it is unknown, or if ``shown`` itself shows it.

    - ``earliest``: result of :func:`find_earliest`
    - ``calls``: calls by operation
    """
    pair = [operation for operation in earliest.operations[:2] if operation in calls]
    time, operation = earliest.first_time, earliest.first_operation
    if time is None or operation is None:
        # The check names one pair, of which the later operation shows the contradiction.
        later = max(pair, key=calls.__getitem__, default=None)
        return None if later is None or earliest is shown else FirstOccurrence(calls[later], later)
    named = operation in pair and all(calls[one] <= time for one in pair)
    return None if named and earliest is shown else FirstOccurrence(time, operation)


QUEUE_LOST: Final = "queue-lost"
MOST_POSSIBLE_TAKES: Final = 10


@dataclass(frozen=True)
class PossibleDequeue:
    """A dequeue or a drain that may have taken a lost element, even if its client reported that it did not."""

    row: OperationRow
    effects: str
    """The effects of the operation, and their meaning to the check."""


@dataclass(frozen=True)
class PossibleDequeues:
    """Operations that may have taken a lost element: the first of them, and their total number."""

    first: tuple[PossibleDequeue, ...]
    total: int


def find_possible_dequeues(database: HistoryDatabase, finding: Finding) -> PossibleDequeues | None:
    """Returns the dequeues and drains of the queue that did not end ok, from the lost element's enqueue to the drain.

    Returns None for a finding that is not about a lost element. Operations without effects count, too, because a client
    that forgets an effect makes a correct queue look wrong.
    """
    if finding.anomaly != QUEUE_LOST or finding.since is None or finding.until is None:
        return None
    found = database.rows(
        f"""
        with effects_by_operation as (
            select op, list(case when value is null then [kind, outcome] else [kind, outcome, value::varchar] end
                order by sub) as effects
            from effects group by op)
        select {_select_columns(LONGEST_TEXT)}, coalesce(a.effects, []) as effects, count(*) over () as total
        from ops o left join effects_by_operation a on o.index = a.op
        where o.outcome <> 'ok' and o.call <= ? and coalesce(o.ret, o.call) >= ?
            and (o.key = ? or o.index in (select op from effects where key = ?))
            and o.index not in (select op from effects where kind = 'queue-enqueue')
        order by o.call, o.index limit {MOST_POSSIBLE_TAKES}
        """,
        [finding.until, finding.since, finding.key, finding.key],
    )
    takes = tuple(PossibleDequeue(to_operation(row), _describe_effects(row["effects"])) for row in found)
    return PossibleDequeues(takes, int(found[0]["total"]) if found else 0)


MEANINGS: Final = {
    ("queue-dequeue", "info"): "it may have taken one element",
    ("queue-dequeue", "fail"): "it took nothing",
    ("queue-drained", "info"): "it may have taken any number of elements",
    ("queue-drained", "fail"): "it did not find the end",
}


def _describe_effects(effects: Iterable[Sequence[str]]) -> str:
    """Returns ``queue-dequeue info: it may have taken one element``."""
    clauses = []
    for kind, outcome, *values in effects:
        meaning = f"it took {values[0]}" if values else MEANINGS.get((kind, outcome), "it found the queue empty")
        clauses.append(f"{kind} {outcome}: {meaning}")
    return "; ".join(clauses) or "no effect: to the check, it took nothing"


def choose_lanes(database: HistoryDatabase, named: Sequence[OperationRow], end: int) -> OperationLanes:
    """Returns the bars to draw. ``named``: the operations of the findings, the most important ones first."""
    known = database.rows("select worker, count(*) as total from ops group by worker order by min(index), worker")
    named_workers = dict.fromkeys(row.worker for row in named)
    order = {row["worker"]: number for number, row in enumerate(known)}
    chosen = sorted(order, key=lambda worker: (worker not in named_workers, order[worker]))[:MOST_LANES]
    workers = tuple(sorted(chosen, key=order.__getitem__))
    total = sum(int(row["total"]) for row in known)
    if not workers:
        return OperationLanes((), (), 0, 0)
    indexes = {row.index for row in named}
    _create_chosen_table(database, workers, named, total)
    rows = database.rows(
        f"with picked as (select {_select_columns(LONGEST_LABEL)} from ops where index in (select index from chosen)) "
        "select p.*, l.call as following from picked p "
        "asof left join (select worker, call from lane) l on p.worker = l.worker and p.call < l.call order by p.index"
    )
    place = {worker: number for number, worker in enumerate(workers)}
    bars = tuple(
        OperationBar(to_operation(row), place[row["worker"]], _find_stop(row, end), row["index"] in indexes)
        for row in rows
    )
    return OperationLanes(workers, bars, total, len(known))


_MICRO_OPERATIONS: Final = re.compile(r'\[\["(?:append|w|r)",')
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|null|true|false|,')
_PYTHON: Final = {"null": "None", "true": "True", "false": "False", ",": ", "}


def to_python_notation(text: str) -> str:
    """Returns micro-operations of a transaction in Python's notation: ``[["r", "x", None]]``. Other JSON is unchanged.

    The text may be incomplete.
    """
    if not _MICRO_OPERATIONS.match(text):
        return text
    return _TOKEN.sub(lambda token: _PYTHON.get(token[0], token[0]), text)


def merge_spans(spans: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merges overlapping closed intervals. Returns disjoint intervals in order."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    return joined


def to_operation(row: Row) -> OperationRow:
    return OperationRow(
        row["index"], row["process"], row["worker"], row["f"], row["key"], to_python_notation(row["argument"]),
        None if row["result"] is None else to_python_notation(row["result"]), row["call"], row["ret"], row["outcome"],
        row["error"],
    )  # fmt: skip


def _create_chosen_table(
    database: HistoryDatabase, workers: Sequence[str], named: Sequence[OperationRow], total: int
) -> None:
    """Creates the table ``chosen``: all operations, or the named operations and samples of the others."""
    # Only times and indexes are copied, because texts are needed for the chosen operations alone.
    database.table("lane", "select index, worker, call, ret from ops where list_contains(?, worker)", [list(workers)])
    if total <= MOST_COMPLETE:
        database.table("chosen", "select index from lane")
        return
    around = merge_spans({(row.call - MARGIN, (row.ret or row.call) + MARGIN) for row in named})
    database.table(
        "spans",
        "select unnest(?::bigint[]) as start, unnest(?::bigint[]) as stop",
        [[start for start, _ in around], [stop for _, stop in around]],
    )
    database.table(
        "near",
        "select index from lane l asof join spans s on l.call <= s.stop where s.start <= coalesce(l.ret, l.call)",
    )
    stride = "select greatest(1, ceil(count(*) / ?)::bigint) from"
    database.table(
        "chosen",
        "select index from lane where list_contains(?::bigint[], index) "
        f"or index in (select index from near where index % ({stride} near) = 0) "
        f"or index % ({stride} lane) = 0",
        [[row.index for row in named], MOST_AROUND, MOST_SAMPLED],
    )


def _find_stop(row: Row, end: int) -> int:
    if row["ret"] is not None:
        return int(row["ret"])
    return int(row["following"]) if row["following"] is not None else max(end, int(row["call"]))


def _select_columns(limit: int) -> str:
    def cut(name: str) -> str:
        return f"case when length({name}) > {limit} then left({name}, {limit - 1}) || '…' else {name} end as {name}"

    return (
        f"index, process, worker, f, {cut('key')}, {cut('argument')}, {cut('result')}, call, ret, outcome, "
        f"{cut('error')}"
    )
