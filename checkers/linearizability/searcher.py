"""Drives the search of one key: memory when it asks for some, the clock, the answer.

The search is compiled, unless there is little to do: it begins in plain Python where that may be faster than to load
what is compiled, and goes on compiled where it was not.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from assay.checkers.linearizability import core, tables
from assay.checkers.linearizability.compiled import all_compiled, compile_all, compiled_step, noticing
from assay.checkers.linearizability.encode import FOREVER, KeyHistory
from assay.checkers.linearizability.explain import NoPlace, explain, order
from assay.checkers.linearizability.layout import NONE, Layout, lay_out
from assay.checkers.linearizability.limits import Limits
from assay.checkers.linearizability.model import Action, Model, ModelError, asking, usable
from assay.checkers.linearizability.workspace import OutOfMemory, States, Workspace

BUDGET: Final = 200_000
"""Steps of a model between two looks at the clock."""
PLAIN_STEPS: Final = 4_000
"""Steps of models that a process does in plain Python at most: they take as long as to load what is compiled."""
PLAIN_OPERATIONS: Final = 300
"""Of a key's history, at most, that is begun in plain Python."""

CLAIMS: Final = {
    core.WRONG_READ: "reads, and changed the state",
    core.WRONG_BLIND: "is not blind",
    core.WRONG_TOTAL: "is total, and was refused",
    core.WRONG_LOST: "leads out of the lost state, and is not blind",
}
"""What an action did against what the model says of it."""


@dataclass(frozen=True)
class Searched:
    """What was found of one key."""

    order: tuple[int, ...] | None = None
    """All operations in a legal order, if there is one and it was asked for; by ``index``."""
    why: NoPlace | None = None
    """Why there is none."""
    unknown: str | None = None
    spent: str | None = None
    """Which limit was reached, if it is unknown: ``TIME`` or ``MEMORY``."""
    largest: int = 0
    """The most configurations kept at one return."""
    explored: int = 0
    bytes: int = 0


TIME: Final = "time"
MEMORY: Final = "memory"


def search_key(history: KeyHistory, limits: Limits, *, witness: bool = False) -> Searched:
    """``witness``: a legal order is wanted, too. Raises ``ModelError`` when the model contradicts itself."""
    model, space, layout = history.model, None, None
    deadline = None if limits.seconds is None else time.perf_counter() + limits.seconds - limits.spent
    try:
        states = States(model)
        plain = _begins_plain(history)
        layout, actions = _lay_out(history, states)
        wanted = model.step if model.compiled else _never
        step = wanted if plain else _step(wanted)
        space = Workspace(layout, model.initial if model.compiled else 0, limits.bytes, states)
        space.counters[tables.WIDEST] = limits.widest
        while True:
            space.counters[tables.BUDGET] = budget = _plain.left if plain else BUDGET
            with noticing(model):
                status = core.advance(step, not model.compiled, layout, space.memory)
            if plain:
                _plain.left -= budget - int(space.counters[tables.BUDGET])
            if status == core.PLACED:
                trail = int(space.memory.current_trail[0])
                return _measured(space, Searched(order=order(history, layout, space, trail) if witness else None))
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
                space.counters[tables.WIDEST] = np.iinfo(np.int64).max
            elif status == core.STUCK:
                return _measured(space, Searched(why=explain(history, layout, space)))
            elif status == core.SPENT and plain:
                compile_all()
                plain, step = False, _step(wanted)  # without numba both stay as they are
            elif status != core.SPENT:
                raise space.broken(CLAIMS[status], actions)
            if deadline is not None and time.perf_counter() > deadline:
                return _unknown(history, TIME, f"the time limit of {limits.seconds:g} s", layout, space)
    except OutOfMemory as error:
        return _unknown(history, MEMORY, f"the memory limit ({error})", layout, space)
    except MemoryError:
        return _unknown(history, MEMORY, "the end of this machine's memory", layout, space)


@dataclass
class _Plain:
    left: int


_plain = _Plain(PLAIN_STEPS)
"""Of this process."""


def _begins_plain(history: KeyHistory) -> bool:
    """Else all is compiled from here on. A stranger's model is compiled at once: that shows whether it can be."""
    if all_compiled():
        return False
    known = not history.model.compiled or type(history.model).__module__.startswith("assay.checkers.")
    if known and len(history) <= PLAIN_OPERATIONS and _plain.left > 0:
        return True
    compile_all()
    return False


def _never(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
    """What takes a compiled step's place where states are interned."""
    return False, state


@lru_cache(maxsize=8)
def _step(step: Callable[..., Any]) -> Any:
    return compiled_step(step)


def _lay_out(history: KeyHistory, states: States) -> tuple[Layout, list[Action]]:
    """The key's layout and its distinct actions, which the layout numbers in that order."""
    model, actions, action = history.model, history.actions, history.action
    if type(model).foresee is not Model.foresee:
        ends = [None if end == FOREVER else end for end in history.ret.tolist()]
        with asking(model, history.name):
            given = model.foresee([actions[number] for number in action.tolist()], history.call.tolist(), ends)
            foreseen = [usable(model, one) for one in given]
            if len(foreseen) != len(action):
                raise ModelError(f"the model {model.name} foresaw {len(foreseen)} actions for {len(action)} operations")
        actions = list(dict.fromkeys(foreseen))
        places = {one: place for place, one in enumerate(actions)}
        action = np.array([places[one] for one in foreseen], dtype=np.int64)
    if model.compiled:
        lost = NONE if model.lost is None else model.lost
        return lay_out(actions, None, action, history.call, history.ret, lost), actions
    known = [states.number(one) for one in actions]
    return lay_out(actions, known, action, history.call, history.ret, states.lost), actions


def _measured(space: Workspace, found: Searched) -> Searched:
    largest, explored = int(space.counters[tables.LARGEST]), int(space.counters[tables.EXPLORED])
    return replace(found, largest=largest, explored=explored, bytes=space.peak)


def _unknown(history: KeyHistory, spent: str, limit: str, layout: Layout | None, space: Workspace | None) -> Searched:
    far = 0
    if layout is not None and space is not None:
        far = int((layout.events[: int(space.counters[tables.EVENT])] < 0).sum())
    why = f"{history.name}: {limit} was reached when {far} of {len(history)} operations had returned"
    found = Searched(unknown=why, spent=spent)
    return found if space is None else _measured(space, found)
