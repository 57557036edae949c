"""What a model is: how an operation becomes an action on a state, and what the action does to it.

A model is an ordinary class. ``encode`` says what one operation did, from its JSON; ``step`` applies it. Where states
and actions are integers, ``step`` is compiled by numba and called by the compiled search itself. Where a state is
anything else that can be hashed (``compiled = False``), ``step`` stays plain Python: each pair of a state and an action
is asked for once, states get numbers, and the search sees those only.
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
"""The number of JSON's null: the value of what was never written."""


class ModelError(Exception):
    """A history does not fit a model, or a model contradicts itself; the message says where."""


@contextmanager
def asking(model: Model, about: str) -> Iterator[None]:
    """Around a model's own code: everything that it raises becomes a ``ModelError`` that says where."""
    try:
        yield
    except (ModelError, MemoryError):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        raise ModelError(f"{about}: the model {model.name} raised {type(error).__name__}: {error} ({where})") from error


class Action(NamedTuple):
    """What an operation did. ``f``, ``x`` and ``y`` are for ``step`` alone: integers where the model is compiled.

    Three flags let the search leave out orders that cannot matter. They are claims about ``step``, which is held to
    them: ``reads``: the action never changes a state that allows it. ``total``: every state allows it. ``blind``: every
    state allows it, and it leaves the same state behind, no matter what was there before, as a plain write does.
    """

    f: int
    x: Hashable = 0
    y: Hashable = 0
    reads: bool = False
    blind: bool = False
    total: bool = False


def plain_register(model: Model) -> tuple[int, int] | None:
    """``register``, unless a subclass of the one that says so has made something else of it."""
    for each in type(model).__mro__:
        if "register" in vars(each):
            return model.register
        if any(name in vars(each) for name in ("step", "initial", "foresee")):
            return None
    return None


def usable(model: Model, given: object) -> Action:
    """What a model's own code gave as an action. Raises ``ModelError`` where the search could not use it."""
    if not isinstance(given, Action):
        raise ModelError(f"the model {model.name} gave {given!r}, which is no Action")
    if model.compiled:
        for part in given[:3]:
            whole(model, part, str(given))
    else:
        hashable(model, given)
    return given


def whole(model: Model, value: object, about: str) -> None:
    """Raises ``ModelError`` for what compiled code has no place for. ``about``: what it is, or is part of."""
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ModelError(f"the compiled model {model.name} gave {about}; its parts are integers of 64 bits")


def hashable(model: Model, value: object) -> None:
    """Raises ``ModelError`` for what cannot be looked up."""
    try:
        hash(value)
    except Exception as error:
        raise ModelError(f"the model {model.name} gave {value!r}, which cannot be hashed: {error}") from error


class Values:
    """Numbers for values: equal JSON values have equal numbers, null has 0 (``INITIAL``)."""

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
        """The value's JSON; raises ``IndexError`` for a number that was not given."""
        return self._texts[number]


@dataclass(frozen=True)
class Call:
    """One operation as the history has it. ``known`` False: it ended ``info``, so its result is not known."""

    f: str
    argument: Any
    result: Any
    known: bool
    values: Values

    def number(self, value: Any) -> int:
        return self.values.number(value)


class Model:
    """The rules of one object. Subclass it, give ``name``, ``encode`` and ``step``; an instance holds no state."""

    name: ClassVar[str]
    initial: ClassVar[Any] = INITIAL
    compiled: ClassVar[bool] = True
    """Whether ``step`` takes and gives integers only and keeps to the Python that numba compiles."""
    lost: ClassVar[Any] = None
    """A state, if there is one, that only blind actions lead out of: every other one that it allows is total, and
    leaves it as it is."""
    register: ClassVar[tuple[int, int] | None] = None
    """The ``f`` of a read and of a write (``x`` is the value), where the object is a plain register: keys whose values
    are unique are then judged by their zones, without a search. A subclass with a ``step``, an ``initial`` state or a
    ``foresee`` of its own has to say it again."""

    def encode(self, call: Call) -> Action | None:
        """What the operation did, or None when it says nothing, such as a read of unknown result.

        Raises ``ModelError`` when the model knows no such operation.
        """
        raise NotImplementedError

    def foresee(self, actions: Sequence[Action], call: Sequence[int], ret: Sequence[int | None]) -> Sequence[Action]:
        """The actions of one key, which may say more once all of them are known; ``ret`` None: ended info.

        For models that can refuse an action earlier by what the rest of the history holds. It must not change whether
        there is a legal order.
        """
        return actions

    @staticmethod
    def step(state: Any, f: int, x: Any, y: Any) -> tuple[bool, Any]:
        """Whether this state allows the action, and the state after it."""
        raise NotImplementedError

    def size(self, state: Any) -> int:
        """Bytes of a state that is no integer, for the limit: of it and all its parts.

        Override it where states share parts, or where this takes long.
        """
        return deep_size(state)

    def describe(self, state: Any, values: Values) -> str:
        """A state in words, for the explanation."""
        return str(state)

    def unknown(self, call: Call) -> ModelError:
        return ModelError(f"the model {self.name} knows no operation {call.f!r}")


def deep_size(value: Any) -> int:
    """Bytes of a value and of what it is made of; what it has twice counts twice."""
    size = sys.getsizeof(value)
    if isinstance(value, tuple | list | frozenset | set):
        return size + sum(map(deep_size, value))
    if isinstance(value, Mapping):
        return size + sum(deep_size(key) + deep_size(one) for key, one in value.items())
    return size + (deep_size(vars(value)) if hasattr(value, "__dict__") else 0)
