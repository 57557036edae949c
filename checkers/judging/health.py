"""Health of a run: how many operations of each kind were answered.

A run in which the system answered nothing of some kind proves nothing about it, although every check may pass. An
operation is *answered* if it ended ok, or failed with an error that the contract declares as a refusal: ``held``,
``mismatch``, ``empty``. Then the system itself has answered. A timeout, a refused connection and an exception are no
answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from assay.checkers.engine import INFINITY, Engine
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.disturbance import FaultTimes
from assay.checkers.judging.verdict import OperationCount

LEAST_ISSUED: Final = 20
"""Operations of a kind from which on a kind without any answer is a doubt."""
LEAST_UNDISTURBED: Final = 10
"""How many of them must have been outside faults."""
MOST_ERRORS: Final = 3
"""Errors that a reason names."""

_ERROR: Final = "case when instr(error, ':') > 0 then substr(error, 1, instr(error, ':') - 1) else error end"
"""The name of an error without its details."""


@dataclass
class _Kind:
    """Counts of a kind of operation so far, and of its errors by name."""

    ok: int = 0
    fail: int = 0
    info: int = 0
    refused: int = 0
    errors: dict[str, int] = field(default_factory=dict)


def count_operations(engine: Engine, contract: Contract) -> tuple[dict[str, OperationCount], dict[str, dict[str, int]]]:
    """Returns the counts by kind (``f``), and for each kind the numbers of its errors that are no answers."""
    kinds: dict[str, _Kind] = {}
    rows = engine.rows(f"select f, outcome, {_ERROR} as error, count(*) as many from ops group by f, outcome, {_ERROR}")
    for row in sorted(rows, key=lambda row: (row["f"], row["outcome"], row["error"] or "")):
        kind, many = kinds.setdefault(row["f"], _Kind()), int(row["many"])
        setattr(kind, row["outcome"], getattr(kind, row["outcome"]) + many)
        error = (row["error"] or "no error given").strip()
        if row["outcome"] == "fail" and error in contract.refusals:
            kind.refused += many
        elif row["outcome"] != "ok":
            kind.errors[error] = kind.errors.get(error, 0) + many
    counts = {f: OperationCount(one.ok, one.fail, one.info, one.ok + one.refused) for f, one in kinds.items()}
    return counts, {f: one.errors for f, one in kinds.items()}


def find_unanswered(
    engine: Engine,
    counts: Mapping[str, OperationCount],
    errors: Mapping[str, Mapping[str, int]],
    faults: Sequence[FaultTimes],
) -> list[str]:
    """Returns a reason not to pass for each kind of which nothing was answered, although faults do not explain it."""
    reasons = []
    for f, count in counts.items():
        if count.answered or count.issued < LEAST_ISSUED:
            continue
        undisturbed = _count_undisturbed(engine, f, faults)
        if undisturbed >= LEAST_UNDISTURBED:
            outside = f", {undisturbed} of them outside faults" if undisturbed < count.issued else ""
            reasons.append(
                f"no {f} was answered: {count.issued} were issued{outside}, and all ended with "
                f"{describe_errors(errors[f])}; see why the system does not answer them, or declare the error as a "
                "refusal if it is an answer (refusals)"
            )
    return reasons


def describe_few_answers(counts: Mapping[str, OperationCount], errors: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Returns a warning if fewer than half of all operations were answered."""
    issued = sum(count.issued for count in counts.values())
    answered = sum(count.answered for count in counts.values())
    if issued < LEAST_ISSUED or 2 * answered >= issued:
        return []
    totals: dict[str, int] = {}
    for of_kind in errors.values():
        for error, many in of_kind.items():
            totals[error] = totals.get(error, 0) + many
    return [f"only {answered} of {issued} operations were answered; the others ended with {describe_errors(totals)}"]


def describe_errors(errors: Mapping[str, int]) -> str:
    """Returns ``ConnectionError (12) and timeout (3)``, the most frequent first."""
    ordered = sorted(errors.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name} ({many})" for name, many in ordered[:MOST_ERRORS]]
    if len(ordered) > MOST_ERRORS:
        named.append(f"{len(ordered) - MOST_ERRORS} other errors")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _count_undisturbed(engine: Engine, f: str, faults: Sequence[FaultTimes]) -> int:
    """Counts the operations of a kind during which no fault was active. Unknown outcomes count by their calls."""
    conditions = []
    for fault in faults:
        begin = fault.injected if fault.since is None else fault.since
        if begin is not None:
            end = INFINITY if fault.healed is None else fault.healed
            conditions.append(f"not (call <= {end} and coalesce(ret, call) >= {begin})")
    where = f" where {' and '.join(conditions)}" if conditions else ""
    rows = engine.rows(f"select f, count(*) as many from ops{where} group by f")
    return next((int(row["many"]) for row in rows if row["f"] == f), 0)
