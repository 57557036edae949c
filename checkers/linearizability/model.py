"""Interface of a model: how an operation becomes an action on a state, and what the action does to the state.

A model is an ordinary class. ``encode`` returns the action of one operation, from its JSON; ``step`` applies it. If
states and actions are integers, numba compiles ``step`` and the compiled search calls it. For any other hashable states
(``compiled = False``), ``step`` stays plain Python, called once for each pair of a state and an action. States are then
interned as numbers, and the search sees only those.
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
"""The number of JSON's null: the value of something never written."""


class ModelError(Exception):
    """A history does not fit a model, or a model contradicts itself; the message says where."""


@contextmanager
def calling_model(model: Model, about: str) -> Iterator[None]:
    """Turns everything that a model's own code raises into a ``ModelError`` that says where."""
    try:
        yield
    except (ModelError, MemoryError):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        raise ModelError(f"{about}: the model {model.name} raised {type(error).__name__}: {error} ({where})") from error


class Action(NamedTuple):
    """Effect of an operation. ``f``, ``x`` and ``y`` are for ``step`` alone; they are integers if the model is
    compiled.

    Three flags let the search leave out orders that cannot matter. They are claims about ``step``, which the search
    verifies:

    - ``reads``: the action never changes a state that allows it.
    - ``total``: every state allows it.
    - ``blind``: every state allows it, and it always leaves the same state behind, as a plain write does.
    """

    f: int
    x: Hashable = 0
    y: Hashable = 0
    reads: bool = False
    blind: bool = False
    total: bool = False


def find_plain_register(model: Model) -> tuple[int, int] | None:
    """Returns ``register``, unless a subclass of the class that defines it changes its behaviour."""
    for each in type(model).__mro__:
        if "register" in vars(each):
            return model.register
        if any(name in vars(each) for name in ("step", "initial", "foresee")):
            return None
    return None


def require_action(model: Model, given: object) -> Action:
    """Checks what a model's own code returned as an action. Raises ``ModelError`` if the search cannot use it."""
    if not isinstance(given, Action):
        raise ModelError(f"the model {model.name} returned {given!r}, which is no Action")
    if model.compiled:
        for part in given[:3]:
            require_integer(model, part, str(given))
    else:
        require_hashable(model, given)
    return given


def require_integer(model: Model, value: object, about: str) -> None:
    """Raises ``ModelError`` for values that compiled code cannot hold. ``about`` is the value, or the object it belongs
    to."""
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ModelError(f"the compiled model {model.name} returned {about}; its parts must be 64-bit integers")


def require_hashable(model: Model, value: object) -> None:
    """Raises ``ModelError`` for values that cannot be hashed."""
    try:
        hash(value)
    except Exception as error:
        raise ModelError(f"the model {model.name} returned {value!r}, which cannot be hashed: {error}") from error


class Values:
    """Interned values: equal JSON values have equal numbers, null has 0 (``INITIAL``)."""

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
    """The rules of one object. Subclass it and define ``name``, ``encode`` and ``step``; an instance holds no state."""

    name: ClassVar[str]
    initial: ClassVar[Any] = INITIAL
    compiled: ClassVar[bool] = True
    """Whether ``step`` takes and returns only integers and uses only the Python that numba compiles."""
    lost: ClassVar[Any] = None
    """A state, if there is one, that only blind actions lead out of. Every other action that it allows is total and
    leaves the state unchanged.
    """
    register: ClassVar[tuple[int, int] | None] = None
    """The ``f`` of a read and of a write (``x`` is the value), if the object is a plain register. Keys whose values are
    unique are then judged by their zones, without a search. A subclass with its own ``step``, ``initial`` or
    ``foresee`` must define it again.
    """

    def encode(self, call: Call) -> Action | None:
        """Returns the operation's action, or None if it says nothing, such as a read of unknown result.

        Raises ``ModelError`` if the model knows no such operation.
        """
        raise NotImplementedError

    def foresee(self, actions: Sequence[Action], call: Sequence[int], ret: Sequence[int | None]) -> Sequence[Action]:
        """Returns the actions of one key, with more information if the model can add some. A null ``ret`` means info.

        ``actions`` are all actions of the key. So a model can use later ones to reject an action earlier. It must not
        change whether there is a legal order.
        """
        return actions

    @staticmethod
    def step(state: Any, f: int, x: Any, y: Any) -> tuple[bool, Any]:
        """Returns whether the state allows the action, and the state after it."""
        raise NotImplementedError

    def size(self, state: Any) -> int:
        """Returns the bytes of a non-integer state with all its parts, for the memory limit.

        Override it if states share parts, or if this takes long.
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
