"""Checks whether a history of transactions satisfies an isolation level.

1. Value anomalies that the level forbids refute it at once (``transactions``).
2. A weak level demands edges (``weak_levels``). It holds iff they have no cycle.
3. For snapshot isolation and serializability, a scheduler looks for an order near the order of times (``scheduler``).
4. Otherwise edges are derived (``saturation``), and the scheduler tries again. Large histories are saturated in
   overlapping windows.
5. Then a search decides what is left (``search``, or ``solver`` if it is installed), within the time limit.

A pass has an order that a separate verifier has replayed (``certificate``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from assay.checkers.isolation.certificate import find_flaw
from assay.checkers.isolation.levels import Level
from assay.checkers.isolation.precedence import sort_topologically
from assay.checkers.isolation.refutation import Circle, Refutation, make_circle, refute
from assay.checkers.isolation.saturation import Conflict, Problem, Saturation, TimeLimitReached, make_problem
from assay.checkers.isolation.scheduler import schedule
from assay.checkers.isolation.search import search
from assay.checkers.isolation.transactions import TransactionHistory, ValueAnomaly
from assay.checkers.isolation.weak_levels import list_demanded_edges
from assay.checkers.judging.verdict import Verdict

TIME_LIMIT: Final = 300.0
"""Default time limit in seconds."""
LARGEST: Final = 8_000
"""Maximum number of transactions that are saturated and searched together. Their closure takes 8 MB, or four times as
much for snapshot isolation."""
_WINDOW: Final = 4_000


@dataclass(frozen=True)
class LevelResult:
    """The answer for one level.

    - ``order``: the certificate of a pass, see ``certificate``
    - ``refutation``: why no order is possible
    - ``anomalies``: value anomalies that the level forbids
    - ``reasons``: why the verdict is unknown
    """

    level: Level
    verdict: Verdict
    order: tuple[int, ...] | None = None
    refutation: Refutation | None = None
    anomalies: tuple[ValueAnomaly, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def check_level(history: TransactionHistory, level: Level, seconds: float = TIME_LIMIT) -> LevelResult:
    """Judges the history by the level within the time limit in seconds."""
    anomalies = tuple(one for one in history.anomalies if one.name in level.forbidden_values)
    notes = tuple(history.notes)
    try:
        found = _decide(history, level, time.monotonic() + seconds)
    except TimeLimitReached:
        reason = f"whether the history is {level.name} is unknown: the search reached its time limit of {seconds:g} s"
        verdict = Verdict.FAIL if anomalies else Verdict.UNKNOWN
        return LevelResult(level, verdict, anomalies=anomalies, reasons=(reason, *history.doubts), notes=notes)
    if not isinstance(found, list):
        return LevelResult(level, Verdict.FAIL, refutation=found, anomalies=anomalies, notes=notes)
    if anomalies:
        return LevelResult(level, Verdict.FAIL, anomalies=anomalies, notes=notes)
    flaw = find_flaw(history, level, found)
    if flaw is not None:
        raise AssertionError(f"the order found for {level.name} is wrong: {flaw}")
    verdict = Verdict.UNKNOWN if history.doubts else Verdict.PASS
    return LevelResult(level, verdict, order=tuple(found), reasons=tuple(history.doubts), notes=notes)


def _decide(history: TransactionHistory, level: Level, deadline: float) -> list[int] | Refutation:
    """Returns a legal order, or a refutation. Raises ``TimeLimitReached``."""
    if not level.rule.is_hard:
        edges = list_demanded_edges(history, level)
        order = sort_topologically(len(history), edges, history.calls)
        return make_circle(edges, len(history), range(len(history))) if order is None else order
    found = schedule(history, level, deadline)
    if found is not None:
        return found
    if len(history) > LARGEST:
        return _decide_in_windows(history, level, deadline)
    derived = _saturate(make_problem(history, level), deadline)
    if isinstance(derived, Circle):
        return derived
    return search(derived, deadline, lambda state: schedule(history, level, deadline, state.list_derived_events()))


def _saturate(problem: Problem, deadline: float) -> Saturation | Circle:
    saturation = Saturation(problem, deadline)
    try:
        saturation.saturate()
    except Conflict as conflict:
        return refute(saturation, conflict)[0]
    return saturation


def _decide_in_windows(history: TransactionHistory, level: Level, deadline: float) -> list[int] | Refutation:
    """Saturates windows of consecutive calls, each of which overlaps the next by a half."""
    pairs: set[tuple[int, int]] = set()
    for begin in range(0, len(history) - _WINDOW // 2, _WINDOW // 2):
        derived = _saturate(make_problem(history, level, range(begin, min(begin + _WINDOW, len(history)))), deadline)
        if isinstance(derived, Circle):
            return derived
        pairs.update(derived.list_derived_events())
    found = schedule(history, level, deadline, sorted(pairs))
    if found is None:
        raise TimeLimitReached
    return found
