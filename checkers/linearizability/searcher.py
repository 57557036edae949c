"""Runs the search of one key: enlarges its memory, enforces the time limit, and returns the result.

A search of few operations begins in plain Python, because loading compiled code may take longer. If it does not end
soon, it continues compiled. All other searches are compiled from the start.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.checkers.linearizability import core, tables
from assay.checkers.linearizability.compiled import (
    can_compile,
    catching_step_errors,
    compile_all,
    compile_step,
    is_all_compiled,
)
from assay.checkers.linearizability.encode import FOREVER, KeyHistory
from assay.checkers.linearizability.explain import StuckSearch, explain, find_order
from assay.checkers.linearizability.layout import NONE, Layout, lay_out
from assay.checkers.linearizability.limits import Deadline, Limits
from assay.checkers.linearizability.model import (
    Action,
    Model,
    ModelError,
    calling_model,
    find_plain_register,
    find_requiring,
    require_action,
)
from assay.checkers.linearizability.workspace import InternedStates, OutOfMemory, Workspace
from assay.harness.core.printable import count_noun

BUDGET: Final = 200_000
"""Work between two checks of the time limit, in model steps (``core.count_work``)."""
PLAIN_BUDGET: Final = 4_000
"""The budget without numba, because a plain step takes as long as some fifty compiled ones."""
PLAIN_STEPS: Final = 4_000
"""Maximum number of model steps that a process runs in plain Python. They take as long as loading the compiled code."""
PLAIN_OPERATIONS: Final = 300
"""Maximum number of operations of a key whose search begins in plain Python."""

CLAIMS: Final = {
    core.WRONG_READ: "reads, but changed the state",
    core.WRONG_BLIND: "is not blind",
    core.WRONG_TOTAL: "is total, but was rejected",
    core.WRONG_LOST: "leads out of the lost state, but is not blind",
}
"""By status, a clause that says how an action contradicts its model's claim."""


@dataclass(frozen=True)
class SearchResult:
    """Result of one key's search. Without ``why`` and ``unknown``, there is a legal order."""

    order: tuple[int, ...] | None = None
    """All operations in a legal order, by ``index``, if there is one and it was requested."""
    why: StuckSearch | None = None
    """The explanation, if there is no legal order."""
    unknown: str | None = None
    """The reason why the result is unknown."""
    spent: str | None = None
    """The limit that was reached, if the result is unknown: ``TIME`` or ``MEMORY``."""
    most_configurations: int = 0
    """Maximum number of configurations at one return."""
    explored: int = 0
    """Number of configurations from which actions were tried."""
    bytes: int = 0


TIME: Final = "time"
MEMORY: Final = "memory"


def search_key(history: KeyHistory, limits: Limits, *, witness: bool = False) -> SearchResult:
    """Searches one key's history. ``witness``: the result has a legal order, if there is one.

    Raises ``ModelError`` if the model contradicts itself.
    """
    model, space, layout = history.model, None, None
    try:
        states = InternedStates(model)
        plain = _should_begin_plain(history)  # may compile, which does not count for the time limit
        deadline = Deadline(limits)
        layout, actions = _lay_out(history, states)
        wanted = model.step if model.compiled else _reject_step
        step = wanted if plain else _compile_step(wanted)
        full_budget = BUDGET if can_compile() else PLAIN_BUDGET
        space = Workspace(layout, model.initial if model.compiled else 0, limits.bytes, states)
        space.counters[tables.BEAM_WIDTH] = limits.beam_width
        while True:
            space.counters[tables.BUDGET] = budget = _plain.left if plain else full_budget
            with catching_step_errors(model):
                status = core.advance(step, not model.compiled, layout, space.memory)
            if plain:
                _plain.left -= budget - int(space.counters[tables.BUDGET])
            if status == core.PLACED:
                trail = int(space.memory.current_trail[0])
                return _add_measurements(
                    space, SearchResult(order=find_order(history, layout, space, trail) if witness else None)
                )
            if status == core.FULL_ROWS:
                space.grow_rows()
            elif status == core.FULL_TRAIL:
                space.clear_trail()
            elif status == core.MISSING:
                space.compute_transitions()
            elif status == core.WIDE:
                space.narrow(max(1, limits.beam_width // 4))
            elif status == core.STUCK and space.saved:
                space.restore()
                space.counters[tables.BEAM_WIDTH] = np.iinfo(np.int64).max
            elif status == core.STUCK:
                return _add_measurements(space, SearchResult(why=explain(history, layout, space)))
            elif status == core.SPENT and plain:
                begun = time.perf_counter()
                _load_compiled()
                deadline.extend(time.perf_counter() - begun)
                plain, step = False, _compile_step(wanted)  # without numba, the step stays plain
            elif status != core.SPENT:
                raise space.to_model_error(CLAIMS[status], actions)
            if deadline.is_over():
                return _to_unknown(history, TIME, f"the time limit of {limits.seconds or 0:g} s", layout, space)
    except OutOfMemory as error:
        return _to_unknown(history, MEMORY, f"the memory limit ({error})", layout, space)
    except MemoryError:
        return _to_unknown(history, MEMORY, "the end of this machine's memory", layout, space)


@dataclass
class _PlainBudget:
    left: int
    """Number of model steps that this process may still run in plain Python."""


_plain = _PlainBudget(PLAIN_STEPS)
"""Shared by all searches of this process."""


def _should_begin_plain(history: KeyHistory) -> bool:
    """Returns whether the search begins in plain Python; otherwise compiles all functions.

    A user's model is always compiled at once, so that its errors appear.
    """
    if is_all_compiled():
        return False
    known = not history.model.compiled or type(history.model).__module__.startswith("assay.checkers.")
    if known and len(history) <= PLAIN_OPERATIONS and _plain.left > 0:
        return True
    _load_compiled()
    return False


@lru_cache(maxsize=1)
def _load_compiled() -> None:
    """Compiles the search, or loads the compiled code. Numba does so at the first call, so an empty key is searched.

    Without this function, the time limit of the first key would include the time to compile.
    """
    compile_all()
    if can_compile():
        model, none = Model(), np.zeros(0, dtype=np.int64)
        layout = lay_out([], None, none, none, none)
        space = Workspace(layout, 0, 1 << 30, InternedStates(model))
        core.advance(_compile_step(_reject_step), False, layout, space.memory)


def _reject_step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
    """Replaces the step of a model with interned states. The compiled search never calls it."""
    return False, state


@lru_cache(maxsize=8)
def _compile_step(step: Callable[..., Any]) -> Any:
    return compile_step(step)


def find_unread_writes(
    model: Model, actions: list[Action], action: NDArray[np.int64], ret: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns which operations the search can leave out. ``action``: indexes into ``actions``.

    They are writes of unknown outcome to a register, whose values no operation needs. Such a write is pending for ever,
    so the search would try it again at each later return. Thousands of them would make each configuration long.

    A write W of unknown outcome can be left out if no action of the key but writes is allowed in the state to which W
    leads. Proof:

    1. Let there be a legal order in which W takes effect. Let A be the next action after W.
    2. A is allowed in the state after W. So A is a write, or there is no A.
    3. A write is allowed in any state, and leads to the same state from any state. So A, and all actions after it, are
       still allowed without W. W needs no place, because its outcome is unknown.
    4. Conversely, a legal order without W is legal for the whole history, because W may never take effect.

    The proof holds for one write after another, so all of them can be left out at once.
    """
    register, requiring = find_plain_register(model), find_requiring(model)
    if register is None or requiring is None:
        return np.zeros(len(action), dtype=np.bool_)
    _, write = register
    none = np.zeros(len(action), dtype=np.bool_)
    others = [one for one in actions if one.f != write]
    if any(one.f not in requiring for one in others):
        return none  # such as a refused CAS, which many states allow
    needed = {one.x for one in others}
    unread = np.array([one.f == write and one.x not in needed for one in actions], dtype=np.bool_)
    found: NDArray[np.bool_] = unread[action] & (ret == FOREVER) if len(action) else none
    return found


def _lay_out(history: KeyHistory, states: InternedStates) -> tuple[Layout, list[Action]]:
    """Returns the key's layout, and its distinct actions in the order of their numbers in the layout."""
    model, actions, action = history.model, history.actions, history.action
    if type(model).foresee is not Model.foresee:
        ends = [None if end == FOREVER else end for end in history.ret.tolist()]
        with calling_model(model, history.name):
            returned = model.foresee([actions[number] for number in action.tolist()], history.call.tolist(), ends)
            foreseen = [require_action(model, one) for one in returned]
            if len(foreseen) != len(action):
                raise ModelError(f"the model {model.name} foresaw {len(foreseen)} actions for {len(action)} operations")
        actions = list(dict.fromkeys(foreseen))
        numbers = {one: number for number, one in enumerate(actions)}
        action = np.array([numbers[one] for one in foreseen], dtype=np.int64)
    if model.compiled:
        lost = NONE if model.lost is None else model.lost
        unread = find_unread_writes(model, actions, action, history.ret)
        return lay_out(actions, None, action, history.call, history.ret, lost, unread), actions
    interned = [states.number(one) for one in actions]
    return lay_out(actions, interned, action, history.call, history.ret, states.lost), actions


def _add_measurements(space: Workspace, found: SearchResult) -> SearchResult:
    most_configurations, explored = int(space.counters[tables.LARGEST]), int(space.counters[tables.EXPLORED])
    return replace(found, most_configurations=most_configurations, explored=explored, bytes=space.peak)


def _to_unknown(
    history: KeyHistory, spent: str, limit: str, layout: Layout | None, space: Workspace | None
) -> SearchResult:
    returned = 0
    if layout is not None and space is not None:
        returned = int((layout.events[: int(space.counters[tables.EVENT])] < 0).sum())
    why = f"{history.name}: {limit} was reached when {returned} of {count_noun(len(history), 'operation')} had returned"
    found = SearchResult(unknown=why, spent=spent)
    return found if space is None else _add_measurements(space, found)
