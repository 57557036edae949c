"""Weaknesses of a run: they change no verdict, and each becomes a warning.

- Fewer than half of the operations were answered (:mod:`assay.checkers.judging.health`).
- A worker had a long row of equal errors. Its operations tested nothing then, although those of others may have.
- Values were added more than once. The second addition hides the loss of the first.
- An open loop did not reach its rate. Then the run had less load, and fewer races, than was asked for.

Each is found by SQL. The costly queries run only if the counts of a cheap one leave it possible.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from assay.checkers.engine import Engine, Row
from assay.checkers.engine.base import quote_texts
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.disturbance import FaultTimes
from assay.checkers.judging.health import (
    CALM_OPERATIONS,
    ERROR_NAME,
    LEAST_ISSUED,
    LEAST_UNDISTURBED,
    NO_ERROR,
    Health,
    describe_errors,
    name_error,
)
from assay.checkers.sql_idioms import order_by, row_number, total_of
from assay.checkers.times import NANOSECONDS

LONG_ROW: Final = 30
"""Equal errors of a worker, one after the other, from which on they may be a weakness."""
PART_OF_TIME: Final = 4
"""A row is long if it fills at least one of so many parts of the worker's time outside faults.

The measure is time, because a worker with errors backs off: hundreds of errors may take as long as ten thousand
answers. A worker whose server restarts after a fault has a row that is short by this measure.
"""
MOST_WORKERS: Final = 3
"""Workers that a warning names."""
MOST_BEHIND: Final = 10
"""An open loop has not reached its rate if it is late by one of so many parts of its time, and by a second. The time
in which faults disturbed it does not count."""
MOST_COMPARED: Final = 2_000_000
"""Added values up to which all of them are compared with each other."""
DISTINCT_KINDS: Final = ("append", "queue-enqueue", "set-add")
"""Kinds of effects that add a value. Registers and transactions are not among them: values that are written twice make
their keys unknown."""


def find_weaknesses(
    engine: Engine,
    contract: Contract,
    health: Health,
    faults: Sequence[FaultTimes],
    kinds: Collection[str],
    worker_nodes: Mapping[str, str],
) -> list[str]:
    """Returns the warnings. ``kinds``: the kinds of effects in the history. ``worker_nodes``: by worker, its node."""
    return [
        *describe_few_answers(health),
        *find_long_rows(engine, contract, health, worker_nodes),
        *find_unreached_rate(engine, contract, faults),
        *find_repeated_values(engine, contract, kinds),
    ]


def describe_few_answers(health: Health) -> list[str]:
    """Returns a warning if fewer than half of all operations were answered."""
    issued, answered = health.total.issued, health.total.answered
    if issued < LEAST_ISSUED or 2 * answered >= issued:
        return []
    errors = describe_errors(health.all_errors)
    return [f"only {answered} of {issued} operations were answered; the others ended with {errors}"]


def find_long_rows(
    engine: Engine,
    contract: Contract,
    health: Health,
    worker_nodes: Mapping[str, str],
) -> list[str]:
    """Returns a warning that names the workers with a long row of equal errors that faults do not explain."""
    if max(health.all_errors.values(), default=0) < LONG_ROW:
        return []
    rows = [row for row in engine.rows(_LONG_ROWS) if name_error(row) not in contract.refusals]
    rows.sort(key=lambda row: (-row["many"], row["worker"], row["since"]))
    if not rows:
        return []
    named = [_describe_row(row, worker_nodes.get(row["worker"])) for row in rows[:MOST_WORKERS]]
    more = len({row["worker"] for row in rows} - {row["worker"] for row in rows[:MOST_WORKERS]})
    if more:
        named.append(f"and {more} other worker{'s' * (more > 1)}")
    return [f"{'; '.join(named)}: these operations tested nothing, so see why they failed"]


def _describe_row(row: Row, node: str | None) -> str:
    """Returns ``worker w3 through n2: OSError, 212 in a row since 15.0 s``."""
    where = "" if node is None else f" through {node}"
    since, until = (f"{row[name] / NANOSECONDS:.1f}" for name in ("since", "until"))
    when = f"since {since} s" if row["is_last"] else f"from {since} to {until} s"
    return f"worker {row['worker']}{where}: {name_error(row)}, {row['many']} in a row {when}"


_ERROR: Final = f"case when outcome <> 'ok' then coalesce({ERROR_NAME}, '{NO_ERROR}') end"
_LONG_ROWS: Final = f"""
    select worker, error, many, since, until, is_last from (
        select worker, error, island, count(*) as many, {total_of("calm")} as calm, min(call) as since,
            max(until) as until, {total_of("calm * lasted")} as lasted, min(whole) as whole,
            max(case when place = places then 1 else 0 end) as is_last
        from (
            select worker, error, call, until, calm, lasted, place,
                place - {row_number(by="worker, error", order="call")} as island,
                cast(sum(calm * lasted) over (partition by worker) as bigint) as whole,
                count(*) over (partition by worker) as places
            from (
                select worker, error, call, until, calm, coalesce(following, until) - call as lasted, place from (
                    select worker, {_ERROR} as error, call, coalesce(ret, call) as until,
                        case when m.op is null then 0 else 1 end as calm,
                        lead(call) over (partition by worker, phase {order_by("call")}) as following,
                        {row_number(by="worker", order="call")} as place
                    from ops join (
                        select worker as candidate from (
                            select worker, {ERROR_NAME} as error, count(*) as many from ops
                            where outcome <> 'ok' group by worker, {ERROR_NAME}) as counted
                        where many >= {LONG_ROW} group by worker) c on worker = candidate
                        left join ({CALM_OPERATIONS}) m on m.op = "index") as placed) as timed
            ) as numbered
        where error is not null group by worker, error, island) as found
    where many >= {LONG_ROW} and calm >= {LEAST_UNDISTURBED} and {PART_OF_TIME} * lasted >= whole
"""
"""SQL: one row per long row of equal errors.

1. Only workers that have ended often enough with one error are looked at; usually there is none.
2. Each operation has its place among those of its worker, and the time until the next one of its phase. ``calm`` is 1
   outside faults.
3. Operations with an error whose place rises as fast as their number are one row.
"""


def find_unreached_rate(engine: Engine, contract: Contract, faults: Sequence[FaultTimes]) -> list[str]:
    """Returns a warning if the open loop was behind its schedule at its end, by more than faults explain.

    While a fault is active, and for a failover after it, all workers may have to wait.
    """
    (row,) = engine.rows(
        "select count(*) as many, min(scheduled) as first_due, max(scheduled) as last_due, max(call) as last_call "
        "from ops where scheduled is not null and phase = 'main'"
    )
    many = int(row["many"])
    if many < LEAST_ISSUED or row["last_due"] == row["first_due"]:
        return []
    lasted, behind = row["last_call"] - row["first_due"], row["last_call"] - row["last_due"]
    unexplained = behind - _measure_disturbed(contract, faults, row["first_due"], row["last_call"])
    if unexplained < NANOSECONDS or MOST_BEHIND * unexplained < lasted:
        return []
    wanted, done = ((many - 1) * NANOSECONDS / time for time in (row["last_due"] - row["first_due"], lasted))
    return [
        f"the open loop did not reach its rate: {done:.3g} of {wanted:.3g} per second done, "
        f"{behind / NANOSECONDS:.3g} s behind at its end; raise --concurrency, or lower --rate"
    ]


def _measure_disturbed(contract: Contract, faults: Sequence[FaultTimes], begin: int, end: int) -> int:
    """Returns the nanoseconds of this interval in which a fault was active, or others took over after it."""
    total, reached = 0, begin
    for fault in sorted((one for one in faults if one.injected is not None), key=lambda one: one.injected or 0):
        until = end if fault.healed is None else min(fault.healed + contract.failing_over, end)
        total += max(until - max(fault.injected or 0, reached), 0)
        reached = max(reached, until)
    return total


def find_repeated_values(engine: Engine, contract: Contract, kinds: Collection[str]) -> list[str]:
    """Returns a warning if values that ought to be distinct were added more than once.

    Only acknowledged additions count: a workload may repeat one of unknown outcome. An element of a set may be added
    again after it was removed. If there are very many values, only the multiples of some number are compared, because
    the comparison of all costs as much as a check. A generator that starts again repeats such values, too.
    """
    if contract.repeated_values or not set(kinds).intersection(DISTINCT_KINDS):
        return []
    added = quote_texts(DISTINCT_KINDS)
    (row,) = engine.rows(f"select {total_of('many')} as many from effect_kinds where kind in ({added})")
    stride = 1 + int(row["many"]) // MOST_COMPARED
    (row,) = engine.rows(
        f"""
        select count(*) as many, min(key) as key from (
            select kind, key, value from (
                select case when kind = 'set-remove' then 'set-add' else kind end as kind, key, value,
                    case when kind = 'set-remove' then 1 else 0 end as removed
                from effects where value is not null {f"and value % {stride} = 0" if stride > 1 else ""}
                    and (kind = 'set-remove' or (outcome = 'ok' and kind in ({added})))) as added
            group by kind, key, value having count(*) > 1 and max(removed) = 0) as repeated
        """
    )
    if not row["many"]:
        return []
    values = "one value was" if row["many"] == 1 else f"{row['many']} values were"
    sampled = f"of the values that {stride} divides, " if stride > 1 else ""
    return [
        f"{sampled}{values} added more than once, such as in {row['key']}, so the loss of one addition does not show; "
        "let the generator count, or say repeated_values in the contract if it is meant"
    ]
