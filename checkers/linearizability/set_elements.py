"""Sets with removals, element by element.

For ``add``, ``remove`` and ``contains``, each element is an object of its own. A history of several objects is
linearizable iff the history of each object is (Herlihy and Wing, "Linearizability", 1990; Horn and Kroening, "Faster
linearizability checking via P-compositionality", 2015).

A read of the whole set concerns all elements. For one element, it is a ``contains``. If the history of an element with
these reads has no legal order, the set has none. If all elements have one, the set may still have none, so the search
decides.

1. Most reads of the whole set repeat another one, as far as one element is concerned (``_Reads``). They are left out.
2. Most elements have few operations. ``has_order`` decides them with few configurations in plain Python.
3. Other elements, and elements without a legal order, go through the search, which explains the contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from assay.checkers.linearizability.encode import FOREVER, KeyHistory
from assay.checkers.linearizability.key_result import NONLINEARIZABLE, KeyResult
from assay.checkers.linearizability.limits import Deadline
from assay.checkers.linearizability.model import Action, Model, Values
from assay.checkers.linearizability.sets import ADD, CONTAINS, NO_SET, READ, list_elements, read_action
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]
else:
    np = LazyModule("numpy")

ELEMENTS: Final = "elements"
UNFINISHED: Final = "before all elements were judged"
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


def judge_elements(history: KeyHistory, deadline: Deadline) -> KeyResult | None:
    """Judges the elements of one key. Returns None if none contradicts the set, but the search must decide.

    Raises ``OutOfTime``.
    """
    result = KeyResult(len(history), method=ELEMENTS)
    actions = history.actions
    if any(action.f == READ and action.x == NO_SET for action in actions):
        return None  # the search explains it
    call, ret = history.call.tolist(), history.ret.tolist()
    elements = _divide(history)
    reads = _Reads(history, deadline)
    for element, parts in elements.items():
        deadline.require(UNFINISHED)
        if has_order(sorted([*parts, *reads.list_needed(element, parts)]), call, ret, deadline):
            continue
        found = _search_element(history, element, sorted([*parts, *reads.list_all(element)]), deadline)
        if found.finding is not None or found.unknown is not None or found.model_error is not None:
            return found
        result = replace(
            result,
            most_configurations=max(result.most_configurations, found.most_configurations),
            bytes=max(result.bytes, found.bytes),
        )
    return None if len(reads) else result


def _divide(history: KeyHistory) -> dict[int, list[Part]]:
    """Returns the operations of each element, in the order of their calls, without reads of the whole set."""
    actions = [read_action(action) for action in history.actions]
    elements: dict[int, list[Part]] = {}
    known = 0  # the elements of reads so far, as bits
    for kind, x, _ in actions:
        for element in list_elements(x & ~known) if kind == READ else [x]:
            elements.setdefault(element, [])
        if kind == READ:
            known |= x
    for row, number in enumerate(history.action.tolist()):
        kind, x, y = actions[number]
        if kind != READ:
            elements[x].append((row, FIND, y) if kind == CONTAINS else (row, WRITE, int(kind == ADD)))
    return elements


class _Reads:
    """Reads of the whole set, as operations of each element."""

    def __init__(self, history: KeyHistory, deadline: Deadline) -> None:
        """Raises ``OutOfTime``."""
        actions = [read_action(action) for action in history.actions]
        shown = {number: x for number, (kind, x, _) in enumerate(actions) if kind == READ}
        self._rows = np.flatnonzero(np.isin(history.action, list(shown)))
        self._begin, self._end = history.call, history.ret  # of all operations
        self._call, self._ret = history.call[self._rows], history.ret[self._rows]  # of the reads
        width = 1 + max((x.bit_length() for x in shown.values()), default=0) // 8
        # By set that was read, a byte for each eight elements. The transposed table has an element's bytes in line.
        table: Bytes = np.zeros((len(shown), width), dtype=np.uint8)
        for place, x in enumerate(shown.values()):
            deadline.require(UNFINISHED)
            table[place] = np.frombuffer(x.to_bytes(width, "little"), dtype=np.uint8)
        self._bytes = np.ascontiguousarray(table.T)
        places = {number: place for place, number in enumerate(shown)}
        # by read, the column of its set in the transposed table
        self._place = np.array([places[number] for number in history.action[self._rows].tolist()], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def list_all(self, element: int) -> list[Part]:
        """Returns all reads."""
        return self._make_parts(np.arange(len(self)), self._find_values(element))

    def list_needed(self, element: int, parts: Sequence[Part]) -> list[Part]:
        """Returns enough reads to decide whether the element's operations have an order. ``parts``: its other ones.

        While no write is pending, the state does not change. Some reads begin and end between the same two writes, and
        agree. A single one of them is enough: if it has a place, all have one.
        """
        if not len(self):
            return []
        value = self._find_values(element)
        writes = np.array([row for row, kind, _ in parts if kind == WRITE], dtype=np.int64)
        begins, ends = np.sort(self._begin[writes]), np.sort(self._end[writes])
        # A read is alone iff as many writes had begun before it ended as had ended before it began.
        before = np.searchsorted(ends, self._call, side="left")
        alone = before == np.searchsorted(begins, self._ret, side="right")
        _, first = np.unique(2 * before[alone] + value[alone], return_index=True)
        needed = np.concatenate([np.flatnonzero(~alone), np.flatnonzero(alone)[first]])
        return self._make_parts(needed, value[needed])

    def _find_values(self, element: int) -> Ints:
        """Returns for each read whether it shows the element, as 0 or 1."""
        if element >> 3 >= len(self._bytes):
            return np.zeros(len(self), dtype=np.int64)
        shown: Ints = (self._bytes[element >> 3] >> (element & 7) & 1).astype(np.int64)
        return shown[self._place]

    def _make_parts(self, reads: Ints, values: Ints) -> list[Part]:
        return [(row, FIND, value) for row, value in zip(self._rows[reads].tolist(), values.tolist(), strict=True)]


def has_order(parts: Sequence[Part], call: Sequence[int], ret: Sequence[int], deadline: Deadline) -> bool | None:
    """Returns whether one element's operations have a legal order, or None if that takes too many configurations.

    A configuration is the state and the pending operations that have taken effect, as bits. Reads take effect as soon
    as the state allows it. Raises ``OutOfTime``.
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
        deadline.require(UNFINISHED)
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


def _search_element(history: KeyHistory, element: int, parts: Sequence[Part], deadline: Deadline) -> KeyResult:
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
        # blind: the state after a write does not depend on the state before.
        actions=[Action(kind, value, reads=kind == FIND, blind=kind == WRITE) for kind, value, _ in numbers],
        texts=[text for _, _, text in numbers],
        values=history.values,
    )
    found = search_key(
        own, deadline.get_remaining_limits()
    )  # its field ``spent`` names the limit that ended the search
    return KeyResult(
        operations=len(history),
        finding=None if found.why is None else to_finding(NONLINEARIZABLE, own, found.why),
        unknown=found.unknown,
        most_configurations=found.most_configurations,
        bytes=found.bytes,
        out_of_memory=found.spent == MEMORY,
        out_of_time=found.spent == TIME,
        method=ELEMENTS,
    )
