"""Weaknesses of a run: they change no verdict, and each becomes a warning.

- Fewer than half of the operations were answered (:mod:`assay.checkers.judging.health`).
- A worker had a long streak of equal errors. These operations tested nothing.
- Values were added more than once. The second addition hides the loss of the first.
- An open loop did not reach its rate. Then the run had less load, and fewer races, than was asked for.

Each weakness is found by SQL. An expensive query runs only if the counts of a cheap one allow the weakness.
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

SHORTEST_STREAK: Final = 30
"""Minimum number of consecutive equal errors of a worker in a streak."""
PART_OF_TIME: Final = 4
"""A streak is long if it fills at least a quarter (1 / ``PART_OF_TIME``) of the worker's time outside faults.

The measure is time, because a worker with errors backs off: hundreds of errors may take as long as ten thousand
answers. A worker whose server restarts after a fault has a short streak by this measure.
"""
MOST_WORKERS: Final = 3
"""Maximum number of workers that a warning names."""
MOST_BEHIND: Final = 10
"""An open loop missed its rate if it was late by a tenth (1 / ``MOST_BEHIND``) of its duration, and by a second.
Delays during faults do not count."""
MOST_COMPARED: Final = 2_000_000
"""Maximum number of added values that are compared with each other. If there are more, a sample is compared."""
DISTINCT_KINDS: Final = ("append", "queue-enqueue", "set-add")
"""Kinds of effects that add a value. Registers and transactions have other rules: a value written twice makes the
verdict of its key unknown."""


def find_weaknesses(
    engine: Engine,
    contract: Contract,
    health: Health,
    faults: Sequence[FaultTimes],
    kinds: Collection[str],
    worker_nodes: Mapping[str, str],
) -> list[str]:
    """Returns the warnings. ``kinds``: kinds of effects. ``worker_nodes``: by worker, the node of its clients."""
    return [
        *describe_few_answers(health),
        *find_long_streaks(engine, contract, health, worker_nodes),
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


def find_long_streaks(
    engine: Engine,
    contract: Contract,
    health: Health,
    worker_nodes: Mapping[str, str],
) -> list[str]:
    """Returns a warning that names the workers with a long streak of equal errors, unless faults explain it."""
    if max(health.all_errors.values(), default=0) < SHORTEST_STREAK:
        return []
    rows = [row for row in engine.rows(_LONG_STREAKS) if name_error(row) not in contract.refusals]
    rows.sort(key=lambda row: (-row["many"], row["worker"], row["since"]))
    if not rows:
        return []
    named = [_describe_streak(row, worker_nodes.get(row["worker"])) for row in rows[:MOST_WORKERS]]
    more = len({row["worker"] for row in rows} - {row["worker"] for row in rows[:MOST_WORKERS]})
    if more:
        named.append(f"and {more} other worker{'s' * (more > 1)}")
    return [f"{'; '.join(named)}: these operations tested nothing, so see why they failed"]


def _describe_streak(row: Row, node: str | None) -> str:
    """Describes a streak: ``worker w3 through n2: OSError, 212 in a row since 15.0 s``."""
    where = "" if node is None else f" through {node}"
    since, until = (f"{row[name] / NANOSECONDS:.1f}" for name in ("since", "until"))
    when = f"since {since} s" if row["is_last"] else f"from {since} to {until} s"
    return f"worker {row['worker']}{where}: {name_error(row)}, {row['many']} in a row {when}"


_ERROR: Final = f"case when outcome <> 'ok' then coalesce({ERROR_NAME}, '{NO_ERROR}') end"
# `lasted` is the duration of an operation, and later that of a streak, without faults. `whole` is the time that the
# worker had outside faults.
_LONG_STREAKS: Final = f"""
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
                        where many >= {SHORTEST_STREAK} group by worker) c on worker = candidate
                        left join ({CALM_OPERATIONS}) m on m.op = "index") as placed) as timed
            ) as numbered
        where error is not null group by worker, error, island) as found
    where many >= {SHORTEST_STREAK} and calm >= {LEAST_UNDISTURBED} and {PART_OF_TIME} * lasted >= whole
"""
"""SQL: one row per long streak of equal errors (gaps and islands).

1. Select the workers with enough operations that ended with one error. Usually there are none.
2. Number the operations of each worker (``place``), and measure the time until its next operation of the same phase.
   ``calm`` is 1 outside faults.
3. Group operations with equal errors and consecutive places into streaks (``island``).
"""


def find_unreached_rate(engine: Engine, contract: Contract, faults: Sequence[FaultTimes]) -> list[str]:
    """Returns a warning if the open loop ended later than its schedule, and faults do not explain the delay.

    All workers may have to wait during a fault and during a failover after it.
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
    """Returns the nanoseconds of this interval that belong to a fault, or to a failover after it."""
    total, reached = 0, begin
    for fault in sorted((one for one in faults if one.injected is not None), key=lambda one: one.injected or 0):
        until = end if fault.healed is None else min(fault.healed + contract.failover_nanoseconds, end)
        total += max(until - max(fault.injected or 0, reached), 0)
        reached = max(reached, until)
    return total


def find_repeated_values(engine: Engine, contract: Contract, kinds: Collection[str]) -> list[str]:
    """Returns a warning if values that ought to be distinct were added more than once.

    Only acknowledged additions count, because a workload may repeat an addition of unknown outcome. An element of a set
    may be added again after it was removed.

    Comparing very many values costs as much as a check. So among very many, only the multiples of one number are
    compared. This sample is enough, because a generator that starts again repeats all its values.
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
