"""Checks whether a history of transactions satisfies an isolation level.

1. Value anomalies that the level forbids refute it at once (``transactions``).
2. A weak level demands edges (``weak_levels``). It holds iff they have no cycle.
3. For snapshot isolation and serializability, a scheduler looks for an order near the order of times (``scheduler``).
4. Otherwise edges are derived (``saturation``), first in overlapping windows, and the scheduler tries again.
5. Then a SAT solver, if python-sat is installed (``solver``), or a search (``search``) decides what is left, within the
   time limit.
6. More than ``LARGEST`` transactions are saturated and decided part by part (``decomposition``).

A pass has an order that a separate verifier has replayed (``certificate``).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from assay.checkers.isolation.certificate import find_flaw
from assay.checkers.isolation.decomposition import decide_parts
from assay.checkers.isolation.levels import Level, Rule
from assay.checkers.isolation.precedence import sort_topologically
from assay.checkers.isolation.refutation import Refutation, StepCycle, make_circle, refute
from assay.checkers.isolation.saturation import Conflict, Problem, Saturation, SearchLimitReached, make_problem
from assay.checkers.isolation.scheduler import schedule, schedule_derived
from assay.checkers.isolation.search import Shortcut, search
from assay.checkers.isolation.solver import has_solver, solve
from assay.checkers.isolation.transactions import INITIAL, TransactionHistory, ValueAnomaly
from assay.checkers.isolation.weak_levels import list_demanded_edges
from assay.checkers.judging.verdict import Verdict

TIME_LIMIT: Final = 300.0
"""Default time limit in seconds."""
LARGEST: Final = 8_000
"""Maximum number of transactions that are saturated and searched together. Their closure (which event precedes which)
takes 8 MB, or four times as much for snapshot isolation. More transactions are decided part by part."""
_WINDOW: Final = 500
"""Number of transactions in a window."""
_OVERLAP: Final = 150
"""Number of transactions that two successive windows share."""


@dataclass(frozen=True)
class LevelResult:
    """The answer for one level.

    - ``order``: the certificate of a pass, see ``certificate``
    - ``refutation``: why no order is possible
    - ``anomalies``: value anomalies that the level forbids
    - ``reasons``: why the verdict is unknown
    - ``notes``: remarks that change no verdict
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
    except SearchLimitReached as error:
        why = str(error) or f"the search reached its time limit of {seconds:g} s"
        reason = f"whether the history is {level.name} is unknown: {why}"
        verdict = Verdict.FAIL if anomalies else Verdict.UNKNOWN
        return LevelResult(level, verdict, anomalies=anomalies, reasons=(reason, *history.doubts), notes=notes)
    if not isinstance(found, list):
        doubts = _list_doubts_of_commits(history, level)
        if doubts:
            verdict = Verdict.FAIL if anomalies else Verdict.UNKNOWN
            return LevelResult(level, verdict, anomalies=anomalies, reasons=(*doubts, *history.doubts), notes=notes)
        return LevelResult(level, Verdict.FAIL, refutation=found, anomalies=anomalies, notes=notes)
    if anomalies:
        return LevelResult(level, Verdict.FAIL, anomalies=anomalies, notes=notes)
    flaw = find_flaw(history, level, found)
    if flaw is not None:
        raise AssertionError(f"the order found for {level.name} is wrong: {flaw}")
    verdict = Verdict.UNKNOWN if history.doubts else Verdict.PASS
    return LevelResult(level, verdict, order=tuple(found), reasons=tuple(history.doubts), notes=notes)


def _list_doubts_of_commits(history: TransactionHistory, level: Level) -> list[str]:
    """Returns why a refutation of read uncommitted proves nothing; empty if it proves something.

    A transaction of unknown outcome counts if its writes were read. Read uncommitted allows reads of aborted writes. So
    such a read does not show that the transaction committed, and the level must be refuted without it.
    """
    if level.rule is not Rule.READ_UNCOMMITTED:
        return []
    sure = history.leave_out_unknown()
    if sort_topologically(len(sure), list_demanded_edges(sure, level), sure.calls) is None:
        return []
    return [
        f"whether the history is {level.name} is unknown: the contradiction needs writes of transactions of unknown "
        "outcome, and reads of them do not show a commit, because this level allows reads of aborted writes"
    ]


def _decide(history: TransactionHistory, level: Level, deadline: float) -> list[int] | Refutation:
    """Returns a legal order, or a refutation. Raises ``SearchLimitReached``."""
    if not level.rule.needs_search:
        with _pausing_collector():
            edges = list_demanded_edges(history, level)
            order = sort_topologically(len(history), edges, history.calls)
        return make_circle(edges, len(history), range(len(history))) if order is None else order
    found = schedule(history, level, deadline)
    if found is not None:
        return found
    pairs = _saturate_windows(history, level, deadline)
    if isinstance(pairs, StepCycle):
        return pairs
    if len(history) > LARGEST:
        found = schedule_derived(history, level, deadline, pairs)
        return decide_parts(history, level, deadline, _decide_choices) if found is None else found
    derived = _saturate(make_problem(history, level), deadline)
    if isinstance(derived, StepCycle):
        return derived
    return _decide_choices(
        derived, deadline, lambda state: schedule_derived(history, level, deadline, state.list_derived_pairs())
    )


@contextmanager
def _pausing_collector() -> Iterator[None]:
    """Pauses the search for reference cycles, which would visit all edges again and again. Edges have no such cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decide_choices(saturation: Saturation, deadline: float, shortcut: Shortcut) -> list[int] | Refutation:
    """Decides the choices that are open after saturation, by the solver if it is installed.

    ``shortcut`` may find a legal order meanwhile (``search``).
    """
    found = solve(saturation, deadline, shortcut) if has_solver() else None
    return search(saturation, deadline, shortcut) if found is None else found


def _saturate(problem: Problem, deadline: float) -> Saturation | StepCycle:
    saturation = Saturation(problem, deadline)
    try:
        saturation.saturate()
    except Conflict as conflict:
        return refute(saturation, conflict)[0]
    return saturation


def _saturate_windows(history: TransactionHistory, level: Level, deadline: float) -> list[tuple[int, int]] | StepCycle:
    """Returns the pairs of events whose order is derived in some window, or a circle found in a window.

    The windows overlap, and each has transactions with successive calls.
    """
    pairs: set[tuple[int, int]] = set()
    if len(history) <= _WINDOW:
        return []
    for begin in range(0, len(history) - _OVERLAP, _WINDOW - _OVERLAP):
        window = range(begin, min(begin + _WINDOW, len(history)))
        writers = {read.writer for number in window for read in history.reads[number]} - {INITIAL}
        derived = _saturate(make_problem(history, level, sorted(writers.union(window))), deadline)
        if isinstance(derived, StepCycle):
            return derived
        pairs.update(derived.list_derived_pairs())
    return sorted(pairs)
