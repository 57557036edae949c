"""Interface of a model, which turns operations into actions, and applies actions to states.

A model is an ordinary class. ``encode`` returns the action of one operation, from its JSON. ``step`` applies an action
to a state. If states and actions are integers, numba compiles ``step`` for the compiled search. For any other hashable
states (``compiled = False``), ``step`` stays plain Python, and is called once for each pair of a state and an action.
These states are interned: the search sees only their numbers.

A step of an interned model may return several next states, if the model does not determine the next state. A history is
then legal if one choice of states is.

The search exchanges operations only if their actions are equal. So an action must contain every fact on which a step
depends: the process of a lock's owner, or the time of a lease. ``Call`` records which facts ``encode`` reads, so calls
that differ in such a fact are encoded one by one.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Self

import msgspec

INITIAL: Final = 0
"""The number of the initial value, which is JSON's null by default."""


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


def find_requiring(model: Model) -> Collection[int] | None:
    """Returns ``Model.requiring``, or None if a subclass of the class that defines it changes the behaviour."""
    return model.requiring if _keeps(model, "requiring") else None


def _keeps(model: Model, declaration: str) -> bool:
    """Returns whether no subclass below the class with this declaration changes ``step``, ``initial`` or
    ``foresee``."""
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


def require_states(model: Model, given: object) -> Collection[Hashable]:
    """Returns the next states of a step. Raises ``ModelError`` for any other value than a list or a set of states."""
    if not isinstance(given, list | set | frozenset):
        raise ModelError(
            f"step of the model {model.name} returned {given!r}; it must return a pair (whether the state allows the "
            "action, the state after it), or a list or a set of all next states"
        )
    return given


class Values:
    """Interned values: equal JSON values have equal numbers, and the initial value has the number 0 (``INITIAL``)."""

    def __init__(self, initial: Any = None) -> None:
        text = msgspec.json.encode(initial, order="deterministic")
        self._numbers: dict[bytes, int] = {text: INITIAL}
        self._texts: list[str] = [text.decode()]

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
class InitialValues:
    """The values that objects hold at first, as JSON values."""

    default: Any = None
    by_key: Mapping[str, Any] = field(default_factory=dict)

    def find(self, key: str | None) -> Any:
        """Returns the initial value of a key, or of the history's only object (None)."""
        return self.default if key is None else self.by_key.get(key, self.default)


NIL_AT_FIRST: Final = InitialValues()
"""All objects hold null at first."""


@dataclass(frozen=True)
class Origin:
    """The process of an operation, and its times in nanoseconds.

    ``process`` is negative if the history names none. ``ret`` is None if the outcome is info.
    """

    process: int = 0
    call: int = 0
    ret: int | None = None


PROCESS: Final = "process"
TIMES: Final = "times"


@dataclass(frozen=True)
class Call:
    """Operation of the history. ``known`` is False if it ended ``info``, so its result is unknown."""

    f: str
    argument: Any
    result: Any
    known: bool
    values: Values
    key: str | None = None
    origin: Origin = Origin()
    used: set[str] = field(default_factory=set, compare=False, repr=False)
    """The parts of ``origin`` that ``encode`` has read: ``PROCESS`` and ``TIMES``."""

    @property
    def process(self) -> int | None:
        """The process that called the operation; None if the history does not name it."""
        self.used.add(PROCESS)
        return None if self.origin.process < 0 else self.origin.process

    @property
    def call_time(self) -> int:
        """The time of the call in nanoseconds."""
        self.used.add(TIMES)
        return self.origin.call

    @property
    def return_time(self) -> int | None:
        """The time of the return in nanoseconds; None if the operation may take effect at any later time, or never."""
        self.used.add(TIMES)
        return self.origin.ret

    def number(self, value: Any) -> int:
        return self.values.number(value)


class Model:
    """The rules of one object. A subclass defines ``name``, ``encode`` and ``step``. An instance holds only its
    arguments, and no state."""

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
    requiring: ClassVar[Collection[int]] = ()
    """For a plain register, each ``f`` of the actions that only the state ``x`` allows.

    The search then leaves out writes of unknown outcome whose value no such action needs. A subclass with its own
    ``step``, ``initial`` or ``foresee`` must define it again.
    """
    exact: ClassVar[str | None] = None
    """Name of the algorithm that judges a key without a search (``key_search``), if its operations allow it. A subclass
    with its own ``step``, ``initial`` or ``foresee`` must define it again.
    """

    needs_times: ClassVar[bool] = False
    """Whether the model measures durations, so that the order of the operations is not enough."""
    takes_initial: ClassVar[bool] = False
    """Whether ``INITIAL`` is the initial state, so that another initial value can be chosen."""
    needs_arguments: ClassVar[str] = ""
    """An example of the arguments, for a model that cannot do without them."""
    initial_values: InitialValues = NIL_AT_FIRST

    def with_initial(self, values: InitialValues) -> Self:
        """Returns a copy with other initial values. Raises ``ModelError`` if the model takes none."""
        if not self.takes_initial or any("initial" in vars(each) for each in _list_below_initial(type(self))):
            raise ModelError(f"the model {self.name} takes no initial value")
        other = copy(self)
        other.initial_values = values
        return other

    def encode(self, call: Call) -> Action | None:
        """Returns the operation's action, or None if the operation proves nothing, such as a read of unknown result.

        The action must depend only on the call. Raises ``ModelError`` if the model has no such operation.
        """
        raise NotImplementedError

    def foresee(self, actions: Sequence[Action], call: Sequence[int], ret: Sequence[int | None]) -> Sequence[Action]:
        """Returns the actions of one key, perhaps changed by what later actions show. A null ``ret`` means info.

        ``actions`` are all actions of the key, in the order of their calls. With their help a model can reject an
        action as soon as it is tried, not only when a later action contradicts it. The result must not change whether
        there is a legal order.
        """
        return actions

    @staticmethod
    def step(state: Any, f: int, x: Any, y: Any) -> tuple[bool, Any] | Collection[Any]:
        """Returns whether the state allows the action, and the state after it.

        If ``compiled`` is False, the result may also be a list or a set of all possible next states. It is empty if the
        state does not allow the action.
        """
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
        """Returns the error to raise for an operation that the model does not have."""
        return ModelError(f"the model {self.name} knows no operation {call.f!r}")


def _list_below_initial(kind: type[Model]) -> list[type]:
    """Returns the classes from ``kind`` up to the one that defines ``takes_initial``, without the latter."""
    line = type.mro(kind)
    return line[: next(place for place, each in enumerate(line) if "takes_initial" in vars(each))]


def measure_deep_size(value: Any) -> int:
    """Returns the bytes of a value and its parts; a part that occurs twice counts twice."""
    size = sys.getsizeof(value)
    if isinstance(value, tuple | list | frozenset | set):
        return size + sum(map(measure_deep_size, value))
    if isinstance(value, Mapping):
        return size + sum(measure_deep_size(key) + measure_deep_size(one) for key, one in value.items())
    return size + (measure_deep_size(vars(value)) if hasattr(value, "__dict__") else 0)
