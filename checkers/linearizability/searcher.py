"""Drives the compiled search of one key after the other: memory when it asks for some, the clock, the answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from checkers.linearizability import core
from checkers.linearizability.compiled import compiled_step
from checkers.linearizability.encode import FOREVER, Encoded
from checkers.linearizability.explain import Explanation, explain, order
from checkers.linearizability.layout import Layout, lay_out
from checkers.linearizability.limits import Limits
from checkers.linearizability.model import Action, Model
from checkers.linearizability.workspace import OutOfMemory, States, Workspace

BUDGET: Final = 1_000_000
"""Steps of a model between two looks at the clock."""


@dataclass(frozen=True)
class Searched:
    """What was found of one key."""

    order: tuple[int, ...] | None = None
    """All operations in a legal order, if there is one and it was asked for; by ``index``."""
    why: Explanation | None = None
    """Why there is none."""
    unknown: str | None = None
    largest: int = 0
    """The most configurations kept at one return."""
    explored: int = 0
    bytes: int = 0


def _never(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
    """What takes a compiled step's place where states are interned."""
    return False, state


class Searcher:
    """Searches the keys of one history, one after the other."""

    def __init__(self, encoded: Encoded, limits: Limits) -> None:
        self._encoded = encoded
        self._limits = limits
        self._model = encoded.model
        self._step: Any = None
        self._states = States(encoded.model)

    def search(self, key: str | None, where: slice, *, witness: bool = False) -> Searched:
        """Of one key, whose operations are there. ``witness``: a legal order is wanted, too."""
        if self._step is None:
            self._step = compiled_step(self._model.step if self._model.compiled else _never)
        encoded, model, limits = self._encoded, self._model, self._limits
        if self._states.bytes * 4 > limits.bytes:
            self._states = States(model)
        layout, actions = self._lay_out(where)
        space = None
        deadline = None if limits.seconds is None else time.perf_counter() + limits.seconds
        try:
            space = Workspace(layout, model.initial if model.compiled else 0, limits.bytes, self._states)
            space.counters[core.WIDEST] = limits.widest
            while True:
                space.counters[core.BUDGET] = BUDGET
                status = core.advance(self._step, not model.compiled, layout, space.memory)
                if status == core.PLACED:
                    trail = int(space.memory.current_trail[0])
                    whole = order(encoded, where, layout, space, trail) if witness else None
                    return _measured(space, Searched(order=whole))
                if status == core.FULL_ROWS:
                    space.grow_rows()
                elif status == core.FULL_TRAIL:
                    space.clear_trail()
                elif status == core.MISSING:
                    space.answer()
                elif status == core.WIDE:
                    space.cut(max(1, limits.widest // 4))
                elif status == core.STUCK and space.saved:
                    space.restore()
                    space.counters[core.WIDEST] = np.iinfo(np.int64).max
                elif status == core.STUCK:
                    return _measured(space, Searched(why=explain(encoded, where, layout, space)))
                elif status != core.SPENT:
                    what = "reads, and changed the state" if status == core.WRONG_READ else "is not blind"
                    raise space.broken(what, actions)
                if deadline is not None and time.perf_counter() > deadline:
                    reason = f"the time limit of {limits.seconds:g} s"
                    return _measured(space, _unknown(key, reason, encoded, where, space))
        except OutOfMemory as error:
            found = _unknown(key, f"the memory limit ({error})", encoded, where, space)
            return found if space is None else _measured(space, found)

    def _lay_out(self, where: slice) -> tuple[Layout, list[Action]]:
        """The key's layout and its distinct actions, which the layout numbers in that order."""
        encoded, interned = self._encoded, not self._model.compiled
        call, ret = encoded.call[where], encoded.ret[where]
        numbers, action = np.unique(encoded.action[where], return_inverse=True)
        actions = [encoded.actions[number] for number in numbers.tolist()]
        if type(self._model).foresee is not Model.foresee:
            ends = [None if end == FOREVER else end for end in ret.tolist()]
            foreseen = self._model.foresee([actions[number] for number in action.tolist()], call.tolist(), ends)
            actions = list(dict.fromkeys(foreseen))
            places = {one: place for place, one in enumerate(actions)}
            action = np.array([places[one] for one in foreseen], dtype=np.int64)
        known = [self._states.number(one) for one in actions] if interned else None
        return lay_out(actions, known, action, call, ret), actions


def _measured(space: Workspace, found: Searched) -> Searched:
    largest, explored = int(space.counters[core.LARGEST]), int(space.counters[core.EXPLORED])
    return replace(found, largest=largest, explored=explored, bytes=space.peak)


def _unknown(key: str | None, limit: str, encoded: Encoded, where: slice, space: Workspace | None) -> Searched:
    whole = where.stop - where.start
    far = 0
    if space is not None:
        past = space.layout.events[: int(space.counters[core.EVENT])]
        far = int((past < 0).sum())
    name = "the history" if key is None else f"key {key}"
    return Searched(unknown=f"{name}: {limit} was reached when {far} of {whole} operations had returned")
