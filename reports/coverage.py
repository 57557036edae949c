"""Coverage table of a report: one row per anomaly, whether it was checked or not, from the judgement alone.

A result without findings proves little without the number of examined rows. So the table also has checks without data
and unjudged anomalies, and never shows them as passed.
"""

import enum
from dataclasses import dataclass
from typing import Final

from assay.checkers.families import FAMILIES, list_meanings
from assay.checkers.isolation.levels import is_level_check
from assay.checkers.judging.contract import NO_RECOVERY
from assay.checkers.judging.verdict import CheckCoverage, Judgement, OperationCount
from assay.checkers.transactions.family import LEVEL_ANOMALIES
from assay.harness.core.printable import inflect

KNOWN_MEANINGS: Final = list_meanings(FAMILIES)
NEED_NO_DATA: Final = {
    NO_RECOVERY,
    *(check.anomaly for family in FAMILIES for check in family.checks if check.optional),
}
"""Anomalies for which a run needs no data, even if the contract forbids them."""


class CheckState(enum.StrEnum):
    """Result of a check."""

    FOUND = "found"
    CLEAR = "none found"
    NOT_EXPOSED = "nothing exposed"
    """The check has claims, and nothing in the history could have contradicted any of them."""
    NO_DATA = "no data"
    NOT_JUDGED = "not judged"
    NOT_APPLICABLE = "not applicable"


class AnomalyPolicy(enum.StrEnum):
    """The contract's policy for an anomaly."""

    FORBIDDEN = "forbidden"
    TOLERATED = "tolerated"
    OPEN = "neither"


@dataclass(frozen=True)
class CheckRow:
    """A row of the table.

    - ``rows``: number of rows examined
    - ``instances``: number of violations found
    - ``claims``: number of assertions that the check tests; None if unknown
    - ``exposed``: number of claims that the history could have contradicted; None if unknown
    """

    name: str
    meaning: str | None
    policy: AnomalyPolicy
    state: CheckState
    instances: int
    rows: int
    claims: int | None
    exposed: int | None
    seconds: float | None
    note: str | None


def describe_totals(judgement: Judgement) -> str:
    """Returns ``1,255 operations (34 ok, 1,221 failed)``."""
    operations = f"{judgement.operations:,} {inflect(judgement.operations, 'operation')}"
    return f"{operations} ({sum(judgement.kinds.values(), OperationCount())})" if judgement.kinds else operations


def describe_kinds(judgement: Judgement) -> str:
    """Returns ``add 381 ok, 3 unknown; read 20 ok``, or an empty text for files of earlier versions."""
    return "; ".join(f"{name} {count}" for name, count in judgement.kinds.items())


def list_count_properties(judgement: Judgement) -> list[tuple[str, str]]:
    """Returns properties for JUnit XML: ``operations`` with ``401 ok, 3 unknown``, and ``operations.add`` and so on.

    Files of earlier versions have none.
    """
    totals = {"operations": sum(judgement.kinds.values(), OperationCount())} if judgement.kinds else {}
    each = {f"operations.{name}": count for name, count in judgement.kinds.items()}
    return [(name, str(count)) for name, count in (totals | each).items()]


def find_policy(judgement: Judgement, anomaly: str) -> AnomalyPolicy:
    if anomaly in judgement.forbidden or is_level_check(anomaly):
        return AnomalyPolicy.FORBIDDEN
    return AnomalyPolicy.TOLERATED if anomaly in judgement.tolerated else AnomalyPolicy.OPEN


def find_meaning(judgement: Judgement, anomaly: str) -> str | None:
    """Returns the meaning of an anomaly's name from the judgement, or from its check for files of earlier versions."""
    return judgement.meanings.get(anomaly) or KNOWN_MEANINGS.get(anomaly)


def build_rows(judgement: Judgement) -> tuple[CheckRow, ...]:
    """Returns one row for each anomaly that was checked, found, forbidden or tolerated. Rows that need attention come
    first."""
    examined = {one.check: one for one in judgement.examined}
    names = dict.fromkeys((*examined, *judgement.anomalies, *judgement.forbidden, *judgement.tolerated))
    rows = []
    for name in names:
        one = examined.get(name)
        instances = _count_against_level(judgement) if is_level_check(name) else judgement.anomalies.get(name, 0)
        state = _find_state(name, instances, one)
        rows.append(
            CheckRow(
                name=name,
                meaning=find_meaning(judgement, name),
                policy=find_policy(judgement, name),
                state=state,
                instances=instances,
                rows=0 if one is None else one.rows,
                claims=None if one is None else one.claims,
                exposed=None if one is None else one.exposed,
                seconds=None if one is None else one.seconds,
                note=_join_notes(judgement.reasons.get(name), _find_note(state, one)),
            )
        )
    attention_order = (
        CheckState.FOUND,
        CheckState.NOT_JUDGED,
        CheckState.NO_DATA,
        CheckState.NOT_EXPOSED,
        CheckState.CLEAR,
        CheckState.NOT_APPLICABLE,
    )
    return tuple(sorted(rows, key=lambda row: attention_order.index(row.state)))


def _count_against_level(judgement: Judgement) -> int:
    """Returns the number of findings that refute the isolation level. They have the names of their anomalies."""
    return sum(judgement.violations.get(name, 0) for name in LEVEL_ANOMALIES)


def _find_state(name: str, instances: int, one: CheckCoverage | None) -> CheckState:
    if instances:
        return CheckState.FOUND
    if name in NEED_NO_DATA and (one is None or (one.rows == 0 and one.note is None)):
        return CheckState.NOT_APPLICABLE
    if one is None:
        return CheckState.NOT_JUDGED
    if not one.applies:
        return CheckState.NOT_APPLICABLE
    if one.rows == 0:
        return CheckState.NO_DATA if one.note is None else CheckState.NOT_JUDGED
    return CheckState.NOT_EXPOSED if one.claims and one.exposed == 0 else CheckState.CLEAR


def _find_note(state: CheckState, one: CheckCoverage | None) -> str | None:
    if state is CheckState.NOT_APPLICABLE and (one is None or one.note is None):
        return "this run has no data about it, and needs none"
    return "no check of it applied to this history" if one is None else one.note


def _join_notes(*parts: str | None) -> str | None:
    return "; ".join(part for part in parts if part) or None
