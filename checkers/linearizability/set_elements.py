"""Sets with removals, element by element.

For ``add``, ``remove`` and ``contains``, each element is an object of its own. A history of several objects is
linearizable iff the history of each object is (Herlihy and Wing, "Linearizability", 1990; Horn and Kroening, "Faster
linearizability checking via P-compositionality", 2015).

A read of the whole set concerns all elements. For one element, it is a ``contains``. If the history of an element with
these reads has no legal order, the set has none. If all elements have one, the set may still have none, so the search
decides.

1. Most elements have few operations. ``has_order`` decides them with few configurations in plain Python.
2. Other elements, and elements without a legal order, go through the search, which explains the contradiction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from assay.checkers.linearizability.encode import FOREVER, KeyHistory
from assay.checkers.linearizability.key_result import NONLINEARIZABLE, KeyResult
from assay.checkers.linearizability.limits import Limits
from assay.checkers.linearizability.model import Action, Model, Values
from assay.checkers.linearizability.sets import ADD, CONTAINS, NO_SET, READ, list_elements, read_action
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
else:
    np = LazyModule("numpy")

ELEMENTS: Final = "elements"
MOST_CONFIGURATIONS: Final = 64
"""Number of configurations at one return after which the search takes over."""
WRITE, FIND = range(2)

Part = tuple[int, int, int]
"""An operation of one element: its row, ``WRITE`` or ``FIND``, and whether the element is then in the set."""


class Presence(Model):
    """Model of one element of a set. The element is absent at first."""

    name = "set"

    def __init__(self, element: int) -> None:
        self._element = element

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == 0:
            return True, x
        return state == x, state

    def describe(self, state: int, values: Values) -> str:
        return f"{'with' if state else 'without'} {values.text(self._element)}"


def judge_elements(history: KeyHistory, limits: Limits) -> KeyResult | None:
    """Judges the elements of one key. Returns None if none contradicts the set, but the search must decide."""
    begun = time.perf_counter()
    result = KeyResult(len(history), method=ELEMENTS)
    actions = history.actions
    if any(action.f == READ and action.x == NO_SET for action in actions):
        return None  # the search explains it
    call, ret = history.call.tolist(), history.ret.tolist()
    for element, parts in _divide(history).items():
        if has_order(parts, call, ret):
            continue
        found = _search_element(history, element, parts, limits.deduct(time.perf_counter() - begun))
        if found.finding is not None or found.unknown is not None or found.model_error is not None:
            return found
        result = replace(result, largest=max(result.largest, found.largest), bytes=max(result.bytes, found.bytes))
    return None if any(action.f == READ for action in actions) else result


def _divide(history: KeyHistory) -> dict[int, list[Part]]:
    """Returns the operations of each element, in the order of their calls. A read of the whole set is part of all."""
    actions = [read_action(action) for action in history.actions]
    elements: dict[int, list[Part]] = {}
    for kind, x, _ in actions:
        for element in list_elements(x) if kind == READ else [x]:
            elements.setdefault(element, [])
    for row, number in enumerate(history.action.tolist()):
        kind, x, y = actions[number]
        if kind == READ:
            for element, parts in elements.items():
                parts.append((row, FIND, x >> element & 1))
        else:
            elements[x].append((row, FIND, y) if kind == CONTAINS else (row, WRITE, int(kind == ADD)))
    return elements


def has_order(parts: Sequence[Part], call: Sequence[int], ret: Sequence[int]) -> bool | None:
    """Returns whether one element's operations have a legal order, or None if that takes too many configurations.

    A configuration is the state and the pending operations that have taken effect, as bits. Reads take effect as soon
    as the state allows it.
    """
    events = sorted(
        [(call[row], 0, place) for place, (row, _, _) in enumerate(parts)]
        + [(ret[row], 1, place) for place, (row, _, _) in enumerate(parts) if ret[row] < FOREVER]
    )
    pending: dict[int, tuple[int, int]] = {}
    current = {(0, 0)}
    for _, returns, place in events:
        if not returns:
            pending[place] = parts[place][1:]
            continue
        reached = _expand(current, pending, place)
        if reached is None:
            return None
        del pending[place]
        current = {(state, done & ~(1 << place)) for state, done in reached}
        if not current:
            return False
    return True


def _expand(
    current: set[tuple[int, int]], pending: dict[int, tuple[int, int]], place: int
) -> set[tuple[int, int]] | None:
    """Returns the configurations in which the operation at ``place`` has taken effect; None: there are too many."""
    reached: set[tuple[int, int]] = set()
    seen: set[tuple[int, int]] = set()
    waiting = list(current)
    while waiting:
        state, done = waiting.pop()
        for each, (kind, value) in pending.items():
            if kind == FIND and value == state:
                done |= 1 << each
        if (state, done) in seen:
            continue
        seen.add((state, done))
        if len(seen) > MOST_CONFIGURATIONS:
            return None
        if done >> place & 1:
            reached.add((state, done))
            continue
        waiting += [
            (value, done | 1 << each)
            for each, (kind, value) in pending.items()
            if kind == WRITE and not done >> each & 1
        ]
    return reached


def _search_element(history: KeyHistory, element: int, parts: Sequence[Part], limits: Limits) -> KeyResult:
    from assay.checkers.linearizability.explain import to_finding
    from assay.checkers.linearizability.searcher import MEMORY, TIME, search_key

    rows = np.array([row for row, _, _ in parts], dtype=np.int64)
    numbers: dict[tuple[int, int, str], int] = {}
    action = [
        numbers.setdefault((kind, value, history.texts[int(history.action[row])]), len(numbers))
        for row, kind, value in parts
    ]
    own = KeyHistory(
        model=Presence(element),
        key=history.key,
        index=history.index[rows],
        process=history.process[rows],
        call=history.call[rows],
        ret=history.ret[rows],
        action=np.array(action, dtype=np.int64),
        actions=[Action(kind, value, reads=kind == FIND, blind=kind == WRITE) for kind, value, _ in numbers],
        texts=[text for _, _, text in numbers],
        values=history.values,
    )
    found = search_key(own, limits)  # its field ``spent`` names the limit that ended the search
    return KeyResult(
        operations=len(history),
        finding=None if found.why is None else to_finding(NONLINEARIZABLE, own, found.why),
        unknown=found.unknown,
        largest=found.largest,
        bytes=found.bytes,
        out_of_memory=found.spent == MEMORY,
        out_of_time=found.spent == TIME,
        method=ELEMENTS,
    )
