"""Health of a run: how many operations of each kind were answered.

If the system never answered a kind of operation, the run proves nothing about that kind, although every check may pass.
An operation is *answered* if it ended ok, or failed with an error that the contract declares as a refusal, such as
``held``, ``mismatch`` or ``empty``. A timeout, a refused connection and an exception are no answers.

Weaknesses that change no verdict are in :mod:`assay.checkers.judging.weaknesses`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from assay.checkers.engine import INFINITY, Engine, Row
from assay.checkers.exposure import NOT_ENDED
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.disturbance import FaultTimes
from assay.checkers.judging.verdict import OperationCount
from assay.checkers.sql_idioms import EARLIEST_BEGIN, HAS_BEGUN, ROWS_SO_FAR, order_by
from assay.checkers.times import NANOSECONDS, format_seconds, shorten_times

LEAST_ISSUED: Final = 20
"""Minimum number of operations issued before a lack of answers counts."""
LEAST_UNDISTURBED: Final = 10
"""Minimum number of unanswered operations outside faults before a lack of answers counts."""
SHORTEST_SILENCE: Final = NANOSECONDS
"""Minimum nanoseconds without answers at the end of a run, as a reason not to pass."""
MOST_ERRORS: Final = 3
"""Maximum number of errors that a reason names."""
MOST_KINDS: Final = 3
"""Maximum number of kinds of operations that a reason names."""

NO_ERROR: Final = "no error given"
ERROR_NAME: Final = "case when instr(error, ':') > 0 then substr(error, 1, instr(error, ':') - 1) else error end"
"""SQL: the name of an error without its details."""


@dataclass
class _Kind:
    """Counts of one kind of operation so far. ``errors``: counts of its errors by name."""

    ok: int = 0
    fail: int = 0
    info: int = 0
    refused: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def count(self) -> OperationCount:
        return OperationCount(self.ok, self.fail, self.info, self.ok + self.refused)


@dataclass(frozen=True)
class Health:
    """The operations by kind (``f``), and for each kind the numbers of its errors that are no answers."""

    counts: Mapping[str, OperationCount] = field(default_factory=dict)
    errors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def total(self) -> OperationCount:
        return sum(self.counts.values(), OperationCount())

    @property
    def all_errors(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for of_kind in self.errors.values():
            for error, many in of_kind.items():
                totals[error] = totals.get(error, 0) + many
        return totals

    def describe_failures(self) -> str:
        """Describes the kinds of operations of which fewer than half were answered, with their errors; empty if there
        are none.

        ``of 30 add none was answered: OSError (22) and timeout (8); of 10 read 3 were answered: timeout (7)``.
        """
        failing = [(f, count) for f, count in self.counts.items() if 2 * count.answered < count.issued]
        failing.sort(key=lambda item: (item[1].answered - item[1].issued, item[0]))
        clauses = [describe_unanswered(f, count, self.errors[f]) for f, count in failing[:MOST_KINDS]]
        if len(failing) > MOST_KINDS:
            clauses.append(f"and {len(failing) - MOST_KINDS} other kinds")
        return "; ".join(clauses)

    def advise(self, *, ended: bool = True) -> str:
        """Returns why too few operations succeeded, and what helps. ``ended``: the run came to its own end."""
        failures = self.describe_failures()
        if not ended and not failures:
            return NOT_ENDED
        if not self.counts:
            return "none was issued then, so let the workload end with a drain or final reads"
        if not failures:
            return "let the run last longer (--time-limit), or raise --rate"
        return f"{failures}; see why the system does not answer{advise_on_timeouts(self.all_errors)}"


def measure_health(engine: Engine, contract: Contract, where: str = "1 = 1") -> Health:
    """Counts the operations of the history; ``where``: SQL that selects some of them."""
    rows = engine.rows(
        f"select f, outcome, {ERROR_NAME} as error, count(*) as many from ops where {where} "
        f"group by f, outcome, {ERROR_NAME}"
    )
    kinds: dict[str, _Kind] = {}
    for row in sorted(rows, key=lambda row: (row["f"], row["outcome"], row["error"] or "")):
        kind, many = kinds.setdefault(row["f"], _Kind()), int(row["many"])
        setattr(kind, row["outcome"], getattr(kind, row["outcome"]) + many)
        error = name_error(row)
        if row["outcome"] == "fail" and error in contract.refusals:
            kind.refused += many
        elif row["outcome"] != "ok":
            kind.errors[error] = kind.errors.get(error, 0) + many
    return Health({f: one.count for f, one in kinds.items()}, {f: one.errors for f, one in kinds.items()})


def name_error(row: Row) -> str:
    """Returns the name of the error of a row with the column ``error``, which ``ERROR_NAME`` selects."""
    return str(row["error"] or NO_ERROR).strip()


def find_unanswered(engine: Engine, health: Health) -> list[str]:
    """Returns a reason not to pass for each kind that was never answered, unless faults explain it."""
    reasons = []
    for f, count in health.counts.items():
        if count.answered or count.issued < LEAST_ISSUED:
            continue
        undisturbed = _count_undisturbed(engine, f)
        if undisturbed >= LEAST_UNDISTURBED:
            outside = f", {undisturbed} of them outside faults" if undisturbed < count.issued else ""
            reasons.append(
                f"no {f} was answered: {count.issued} were issued{outside}, and all ended with "
                f"{describe_errors(health.errors[f])}; see why the system does not answer them"
                f"{advise_on_timeouts(health.errors[f])}, or declare the error as a refusal if it is an answer "
                "(refusals)"
            )
    return reasons


def find_silent_end(engine: Engine, contract: Contract, faults: Sequence[FaultTimes]) -> list[str]:
    """Returns a reason not to pass if the system stopped answering before the end of the run, and no fault explains it.

    At least ``LEAST_UNDISTURBED`` operations must be unanswered, and the silence must be longer than a failover.
    """
    heals = [fault.healed for fault in faults if fault.healed is not None]
    ends = engine.rows(
        f"select outcome, trim({ERROR_NAME}) as error, max(ret) as last from ops "
        f"where outcome in ('ok', 'fail') and ret is not null group by outcome, trim({ERROR_NAME})"
    )
    answers = [int(row["last"]) for row in ends if row["outcome"] == "ok" or row["error"] in contract.refusals]
    if not answers:
        return []
    since = max([*answers, *heals])
    silent = measure_health(engine, contract, f"call > {since}")
    (row,) = engine.rows(f"select max(call) as final from ops where call > {since}")
    issued = sum(count.issued for count in silent.counts.values())
    if issued < LEAST_UNDISTURBED or int(row["final"]) - since < max(SHORTEST_SILENCE, contract.failover_nanoseconds):
        return []
    reason = (
        f"no operation was answered after {format_seconds(since)}, and {issued} were called until "
        f"{format_seconds(int(row['final']))}: {describe_errors(silent.all_errors)}; see why the system fell silent"
    )
    return [shorten_times(reason)]


def describe_unanswered(f: str, count: OperationCount, errors: Mapping[str, int]) -> str:
    """Returns ``of 30 add none was answered: OSError (22) and timeout (8)``."""
    answered = "none was" if not count.answered else "one was" if count.answered == 1 else f"{count.answered} were"
    return f"of {count.issued} {f} {answered} answered: {describe_errors(errors)}"


def describe_errors(errors: Mapping[str, int]) -> str:
    """Returns ``ConnectionError (12) and timeout (3)``, the most frequent first."""
    ordered = sorted(errors.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name} ({many})" for name, many in ordered[:MOST_ERRORS]]
    if len(ordered) > MOST_ERRORS:
        named.append(f"{len(ordered) - MOST_ERRORS} other errors")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def advise_on_timeouts(errors: Mapping[str, int]) -> str:
    """Returns the settings that help a slow system, in parentheses, if some of these errors are timeouts."""
    slow = any("timeout" in error.lower() for error in errors)
    return " (if it is only slow, a longer --operation-timeout or a lower --rate helps)" if slow else ""


CALM_OPERATIONS: Final = f"""
    select op from (
        select op, call, max(until) over ({order_by("time, side, op")} {ROWS_SO_FAR}) as active_until from (
            select "index" as op, call, coalesce(ret, call) as time, 1 as side, -1 as until from ops
            union all
            select -1, 0, {EARLIEST_BEGIN}, 0, coalesce(max(case when phase = 'healed' then time end), {INFINITY})
            from faults group by id having max(case when {HAS_BEGUN} then 1 else 0 end) = 1) as both_kinds
        ) as numbered
    where op >= 0 and active_until < call
    """
"""SQL: the operations during which no fault was active. An operation without a return counts at its call."""


def _count_undisturbed(engine: Engine, f: str) -> int:
    """Counts the operations of a kind during which no fault was active."""
    rows = engine.rows(
        f'select o.f, count(*) as many from ops o join ({CALM_OPERATIONS}) c on c.op = o."index" group by o.f'
    )
    return next((int(row["many"]) for row in rows if row["f"] == f), 0)
