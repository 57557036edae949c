"""Interface of a model, which turns operations into actions, and applies actions to states.

A model is an ordinary class. ``encode`` returns the action of one operation, from its JSON. ``step`` applies an action
to a state. If states and actions are integers, numba compiles ``step`` for the compiled search. For any other hashable
states (``compiled = False``), ``step`` stays plain Python, and is called once for each pair of a state and an action.
These states are interned: the search sees only their numbers.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

INITIAL: Final = 0
"""The number of JSON's null, the initial value."""


class ModelError(Exception):
    """A history does not fit a model, or a model contradicts itself. The message says where."""


@contextmanager
def calling_model(model: Model, about: str) -> Iterator[None]:
    """Turns exceptions of a model's own code into a ``ModelError`` with their place."""
    try:
        yield
    except (ModelError, MemoryError):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        raise ModelError(f"{about}: the model {model.name} raised {type(error).__name__}: {error} ({where})") from error


class Action(NamedTuple):
    """Effect of an operation. Only ``step`` uses ``f``, ``x`` and ``y``; they are integers if the model is compiled.

    Three flags let the search skip orders that cannot matter. They are claims about ``step``, which the search
    verifies:

    - ``reads``: the action never changes the state.
    - ``total``: every state allows the action.
    - ``blind``: every state allows the action, and the state after it is always the same, as after a plain write.
    """

    f: int
    x: Hashable = 0
    y: Hashable = 0
    reads: bool = False
    blind: bool = False
    total: bool = False


def find_plain_register(model: Model) -> tuple[int, int] | None:
    """Returns ``Model.register``, or None if a subclass of the class that defines it changes the behaviour."""
    return model.register if _keeps(model, "register") else None


def find_exact_algorithm(model: Model) -> str | None:
    """Returns ``Model.exact``, or None if a subclass of the class that defines it changes the behaviour."""
    return model.exact if _keeps(model, "exact") else None


def _keeps(model: Model, declaration: str) -> bool:
    for each in type(model).__mro__:
        if declaration in vars(each):
            return True
        if any(name in vars(each) for name in ("step", "initial", "foresee")):
            return False
    return False


def require_action(model: Model, given: object) -> Action:
    """Returns an action of a model's own code. Raises ``ModelError`` if the search cannot use it."""
    if not isinstance(given, Action):
        raise ModelError(f"the model {model.name} returned {given!r}, which is no Action")
    if model.compiled:
        for part in given[:3]:
            require_integer(model, part, str(given))
    else:
        require_hashable(model, given)
    return given


def require_integer(model: Model, value: object, about: str) -> None:
    """Raises ``ModelError`` for values that compiled code cannot hold. ``about``: the value or its object, for the
    message."""
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ModelError(f"the compiled model {model.name} returned {about}; its parts must be 64-bit integers")


def require_hashable(model: Model, value: object) -> None:
    """Raises ``ModelError`` for values that cannot be hashed."""
    try:
        hash(value)
    except Exception as error:
        raise ModelError(f"the model {model.name} returned {value!r}, which cannot be hashed: {error}") from error


class Values:
    """Interned values: equal JSON values have equal numbers, and null has the number 0 (``INITIAL``)."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {b"null": INITIAL}
        self._texts: list[str] = ["null"]

    def number(self, value: Any) -> int:
        text = msgspec.json.encode(value, order="deterministic")
        number = self._numbers.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text.decode())
        return number

    def text(self, number: int) -> str:
        """Returns the value's JSON; raises ``IndexError`` for an unknown number."""
        return self._texts[number]


@dataclass(frozen=True)
class Call:
    """Operation of the history. ``known`` is False if it ended ``info``, so its result is unknown."""

    f: str
    argument: Any
    result: Any
    known: bool
    values: Values

    def number(self, value: Any) -> int:
        return self.values.number(value)


class Model:
    """The rules of one object. A subclass defines ``name``, ``encode`` and ``step``. An instance holds no state."""

    name: ClassVar[str]
    initial: ClassVar[Any] = INITIAL
    compiled: ClassVar[bool] = True
    """Whether ``step`` takes and returns only integers and uses only the Python that numba compiles."""
    lost: ClassVar[Any] = None
    """The lost state, if the model has one: only blind actions lead out of it. Every other action that this state
    allows is total and leaves the state unchanged.
    """
    register: ClassVar[tuple[int, int] | None] = None
    """For a plain register, the ``f`` of a read and of a write, whose ``x`` is the value. Keys with unique values are
    then judged by zones, without a search. A subclass with its own ``step``, ``initial`` or ``foresee`` must define it
    again.
    """
    exact: ClassVar[str | None] = None
    """Name of the algorithm that judges a key without a search (``key_search``), if its operations allow it. A subclass
    with its own ``step``, ``initial`` or ``foresee`` must define it again.
    """

    def encode(self, call: Call) -> Action | None:
        """Returns the operation's action, or None if the operation proves nothing, such as a read of unknown result.

        Raises ``ModelError`` if the model has no such operation.
        """
        raise NotImplementedError

    def foresee(self, actions: Sequence[Action], call: Sequence[int], ret: Sequence[int | None]) -> Sequence[Action]:
        """Returns the actions of one key, perhaps with information from later actions. A null ``ret`` means info.

        ``actions`` are all actions of the key, so a model can use later actions to reject an action earlier. The result
        must not change whether there is a legal order.
        """
        return actions

    @staticmethod
    def step(state: Any, f: int, x: Any, y: Any) -> tuple[bool, Any]:
        """Returns whether the state allows the action, and the state after it."""
        raise NotImplementedError

    def size(self, state: Any) -> int:
        """Returns the bytes of a non-integer state with all its parts, for the memory limit.

        Override this method if states share parts, or if it is slow.
        """
        return measure_deep_size(state)

    def describe(self, state: Any, values: Values) -> str:
        """Returns a state in words, for the explanation."""
        return str(state)

    def unknown(self, call: Call) -> ModelError:
        return ModelError(f"the model {self.name} knows no operation {call.f!r}")


def measure_deep_size(value: Any) -> int:
    """Returns the bytes of a value and its parts; a part that occurs twice counts twice."""
    size = sys.getsizeof(value)
    if isinstance(value, tuple | list | frozenset | set):
        return size + sum(map(measure_deep_size, value))
    if isinstance(value, Mapping):
        return size + sum(measure_deep_size(key) + measure_deep_size(one) for key, one in value.items())
    return size + (measure_deep_size(vars(value)) if hasattr(value, "__dict__") else 0)
