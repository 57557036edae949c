"""Memory of the compiled search, and its limit: this module allocates and enlarges every array.

The limit counts the bytes of all arrays, of the temporary copy while an array grows, and of the states that an interned
model has reached. An interned model has states that are no integers; each state gets a number. The search stops before
a new array would exceed the limit. For states, it stops at most a megabyte above the limit.

``tables`` explains the arrays, and the cells of ``counters``, by name.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.checkers.linearizability import tables
from assay.checkers.linearizability.layout import NONE, Layout
from assay.checkers.linearizability.model import (
    Action,
    Model,
    ModelError,
    calling_model,
    require_hashable,
    require_integer,
    require_states,
)

Ints = NDArray[np.int64]

ROWS: Final = 64
"""Initial number of rows for configurations."""

REQUESTS: Final = 256
"""Maximum number of transitions that the search requests at once."""
STATE: Final = 192
"""Overhead of an interned state in bytes: its number, and its entries in a list and a dict."""
UNCOUNTED: Final = 1_000_000
"""Bytes of new states after which the limit is checked."""
REJECTED: Final = -1
"""Stands for the next state of an action that a state does not allow."""
NOWHERE: Final = -1
"""Stands for no entry of a table or a trail."""


class OutOfMemory(Exception):
    """The limit would be exceeded. The message has the number of configurations."""


class InternedStates:
    """Numbers for the states of an interned model, and the results of its ``step``.

    - ``number`` and ``actions`` number the model's actions
    - ``numbers`` and ``states`` number its states; ``lost`` is the number of the state ``model.lost``
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._bytes = 0
        self._numbers: dict[Action, int] = {}
        self.actions: list[Action] = []
        for state in (model.initial,) if model.lost is None else (model.initial, model.lost):
            if model.compiled:
                require_integer(model, state, f"the state {state!r}")
            else:
                require_hashable(model, state)
        self.numbers: dict[Hashable, int] = {model.initial: 0}
        self.states: list[Hashable] = [model.initial]
        self.lost = NONE
        if model.lost is not None:
            with calling_model(model, "size"):
                self.lost = self._number(model.lost)
        self.known = np.full(1024, NOWHERE, dtype=np.int64)
        self.known_next = np.zeros(1024, dtype=np.int64)
        self.branches = np.zeros(64, dtype=np.int64)
        self._branches_used = 0
        self._places: dict[tuple[int, ...], int] = {}
        self.count = 0

    @property
    def bytes(self) -> int:
        """Bytes of all states with their indexes, and of the table of transitions."""
        return self._bytes + self.known.nbytes * 2 + self.branches.nbytes

    def number(self, action: Action) -> int:
        """Returns the action's number. A new action gets the next number."""
        number = self._numbers.setdefault(action, len(self.actions))
        if number == len(self.actions):
            self.actions.append(action)
        return number

    def compute_transitions(self, requests: Ints, check: Callable[[int], None]) -> None:
        """Computes the transition of each requested pair of state and action.

        ``check``: called with the number of bytes before a table is allocated.
        """
        keys = np.unique(requests)
        after = np.empty(len(keys), dtype=np.int64)
        counted = self._bytes
        with calling_model(self.model, "step"):
            for index, key in enumerate(keys.tolist()):
                after[index] = self._apply_step(key >> 31, key & 0x7FFFFFFF)
                if self._bytes - counted > UNCOUNTED:
                    counted = self._bytes
                    check(0)
        self.count += len(keys)
        while self.count * 2 > len(self.known):
            check(4 * self.known.nbytes)
            known, known_next = self.known, self.known_next
            self.known = np.full(len(known) * 2, NOWHERE, dtype=np.int64)
            self.known_next = np.zeros(len(known) * 2, dtype=np.int64)
            used = known >= 0
            tables.add_transitions(self.known, self.known_next, known[used], known_next[used])
        tables.add_transitions(self.known, self.known_next, keys, after)

    def _apply_step(self, state: int, action: int) -> int:
        f, x, y, *_ = self.actions[action]
        returned = self.model.step(self.states[state], f, x, y)
        if isinstance(returned, tuple):
            allowed, after = returned
            return self._number(after) if allowed else REJECTED
        states = sorted({self._number(after) for after in require_states(self.model, returned)})
        if len(states) <= 1:
            return states[0] if states else REJECTED
        return -2 - self._place(tuple(states))

    def _place(self, states: tuple[int, ...]) -> int:
        """Returns the place in ``branches`` of a list of states. A new list is appended there."""
        place = self._places.setdefault(states, self._branches_used)
        if place == self._branches_used:
            self._branches_used += 1 + len(states)
            self._bytes += STATE + 32 * len(states)
            while self._branches_used > len(self.branches):
                self.branches = _enlarge(self.branches, 2 * len(self.branches))
            self.branches[place : self._branches_used] = (len(states), *states)
        return place

    def _number(self, state: Hashable) -> int:
        number = self.numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self._bytes += self.model.size(state) + STATE
        return number


@dataclass
class SavedSearch:
    """State of the search at a return, from which the search can resume."""

    counters: Ints
    arrays: dict[str, Ints]

    # Arrays that are saved in addition to the rows.
    COPIED = ("pending", "pending_reads", "available", "open_groups", "total_mask", "blind_state")

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


class Workspace:
    """The memory of one key's search. Raises ``OutOfMemory`` if it would need more than ``limit`` bytes."""

    def __init__(self, layout: Layout, initial: int, limit: int, states: InternedStates) -> None:
        self.layout = layout
        self.limit = limit
        self.states = states
        self.saved: SavedSearch | None = None
        self.peak = 0
        kinds, groups, operations = len(layout.f), len(layout.group_kind), len(layout.kind)

        def zeros(*shape: int) -> Ints:
            return np.zeros(shape, dtype=np.int64)

        rows = {name: zeros(ROWS, layout.width) for name in ("current", "seen", "next")}
        trails = {f"{name}_trail": zeros(ROWS) for name in ("current", "seen", "next")}
        room = 4 * (operations + ROWS)
        self.memory = tables.SearchMemory(
            counters=zeros(tables.COUNTERS),
            **rows,
            **trails,
            seen_table=zeros(2 * ROWS),
            next_table=zeros(2 * ROWS),
            heads=zeros(2 * ROWS),
            links=zeros(ROWS),
            trail_parent=zeros(room),
            trail_op=zeros(room),
            trail_event=zeros(room),
            pending=zeros(operations + 1),
            pending_reads=zeros(operations + 1),
            available=zeros(groups + 1),
            open_groups=zeros(groups + 1),
            total_mask=zeros(layout.words),
            blind_state=zeros(kinds, 2),
            tried=zeros(kinds),
            row=zeros(layout.width),
            requests=zeros(REQUESTS),
            known=states.known,
            known_next=states.known_next,
            branches=states.branches,
        )
        self.memory.current[0, 0] = initial
        self.memory.current_trail[0] = NOWHERE
        self.counters[tables.CURRENT] = self.counters[tables.LARGEST] = 1
        self._check(0)

    @property
    def counters(self) -> Ints:
        return self.memory.counters

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, of the saved search, and of the interned states."""
        shared = ("known", "known_next", "branches")
        own: int = sum(array.nbytes for name, array in self.memory._asdict().items() if name not in shared)
        return own + self.states.bytes + (self.saved.bytes if self.saved else 0)

    def grow_rows(self) -> None:
        """Doubles the number of rows for configurations."""
        memory, counters, width = self.memory, self.counters, self.layout.width
        room = 2 * len(memory.seen)
        self._check(8 * (3 * room * (width + 1) + 6 * room + room))
        larger: dict[str, Ints] = {}
        for name in ("current", "seen", "next"):
            larger[name] = _enlarge(getattr(memory, name), room)
            larger[f"{name}_trail"] = _enlarge(getattr(memory, f"{name}_trail"), room)
        larger |= {name: np.zeros(2 * room, dtype=np.int64) for name in ("seen_table", "next_table", "heads")}
        larger["links"] = np.zeros(room, dtype=np.int64)
        self.memory = memory._replace(**larger)
        generation = int(counters[tables.GENERATION])
        tables.rebuild(self.memory.seen_table, generation, self.memory.seen, int(counters[tables.SEEN]), width)
        tables.rebuild(self.memory.next_table, generation, self.memory.next, int(counters[tables.NEXT]), width)

    def clear_trail(self) -> None:
        """Drops trail entries that no configuration needs. If this frees less than half of them, doubles the trail."""
        memory, counters = self.memory, self.counters
        used = {"current": tables.CURRENT, "seen": tables.SEEN, "next": tables.NEXT}
        trails = [getattr(memory, f"{name}_trail")[: counters[place]] for name, place in used.items()]
        if self.saved:
            trails.append(self.saved.arrays["current_trail"])
        all_trails = np.concatenate(trails)
        self._check(8 * int(counters[tables.TRAIL]))
        counters[tables.TRAIL] = tables.sweep_trail(
            memory.trail_parent, memory.trail_op, memory.trail_event, int(counters[tables.TRAIL]), all_trails
        )
        start = 0
        for trail in trails:
            trail[:] = all_trails[start : start + len(trail)]
            start += len(trail)
        room = len(memory.trail_op)
        if int(counters[tables.TRAIL]) * 2 > room:
            self._check(8 * 3 * 2 * room)
            names = ("trail_parent", "trail_op", "trail_event")
            self.memory = memory._replace(**{name: _enlarge(getattr(memory, name), 2 * room) for name in names})

    def compute_transitions(self) -> None:
        """Computes the transitions that the search requested, and gives the search the new table."""
        count = int(self.counters[tables.REQUESTS])
        self.states.compute_transitions(self.memory.requests[:count], self._check)
        self.counters[tables.REQUESTS] = 0
        states = self.states
        self.memory = self.memory._replace(known=states.known, known_next=states.known_next, branches=states.branches)
        self._check(0)

    def narrow(self, kept: int) -> None:
        """Continues with only the first ``kept`` configurations. The first call saves all configurations."""
        if self.saved is None:
            arrays = {name: getattr(self.memory, name).copy() for name in SavedSearch.COPIED}
            count = self.counters[tables.CURRENT]
            arrays |= {name: getattr(self.memory, name)[:count].copy() for name in ("current", "current_trail")}
            self.saved = SavedSearch(self.counters.copy(), arrays)
            self._check(0)
        self.counters[tables.CURRENT] = kept

    def restore(self) -> None:
        """Restores all configurations at the first call of ``narrow``."""
        saved = self.saved
        assert saved is not None, "nothing was narrowed"
        for place in (tables.EVENT, tables.PHASE, tables.CURRENT, tables.PENDING, tables.READS, tables.OPEN):
            self.counters[place] = saved.counters[place]
        for name, array in saved.arrays.items():
            getattr(self.memory, name)[: len(array)] = array
        self.saved = None

    def read_trail(self, trail: int) -> list[tuple[int, int]]:
        """Returns the operations that led to a configuration, in order, each with the event at which it was placed.

        An operation of unknown outcome is given by the bitwise complement of its group's number, so it is negative.
        """
        found = []
        while trail != NOWHERE:
            found.append((int(self.memory.trail_op[trail]), int(self.memory.trail_event[trail])))
            trail = int(self.memory.trail_parent[trail])
        return found[::-1]

    def describe(self, state: int, values: Any) -> str:
        model = self.states.model
        reached = state if model.compiled else self.states.states[state]
        try:
            return str(model.describe(reached, values))
        except Exception as error:  # noqa: BLE001 - a user's model may raise anything, and a finding must survive it
            return f"{reached!r} (describe raised {type(error).__name__}: {error})"

    def to_model_error(self, what: str, actions: list[Action]) -> ModelError:
        """Returns the error for the action at which the search stopped: it violates a claim of its model."""
        return ModelError(f"{self.states.model.name}: {actions[int(self.counters[tables.AT_ACTION])]} {what}")

    def _check(self, more: int) -> None:
        """Raises ``OutOfMemory`` before ``more`` bytes would exceed the limit."""
        wanted = self.bytes + more
        if wanted > self.limit:
            configurations = int(self.counters[tables.SEEN] + self.counters[tables.NEXT])
            raise OutOfMemory(f"{configurations} configurations at once, {wanted} bytes of {self.limit}")
        self.peak = max(self.peak, wanted)


def _enlarge(array: Ints, room: int) -> Ints:
    larger = np.zeros((room, *array.shape[1:]), dtype=np.int64)
    larger[: len(array)] = array
    return larger
