"""The table of all built-in models, and the classes of two of them: register and CAS register."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from assay.checkers.linearizability.key_value import KeyValue
from assay.checkers.linearizability.locks import (
    FencedMutex,
    FencedReentrantMutex,
    LeaseMutex,
    Mutex,
    OwnerMutex,
    OwnerSemaphore,
    ReentrantMutex,
    Semaphore,
)
from assay.checkers.linearizability.model import Action, Call, InitialValues, Model, ModelError, Values
from assay.checkers.linearizability.queues import FifoQueue, UnorderedQueue
from assay.checkers.linearizability.sets import Set

READ, WRITE, CAS, CAS_REFUSED = range(4)
"""Kinds of actions (``f``), which compiled steps name by number."""


class Register(Model):
    """Register: the value is the result of ``read``, and the argument of ``write``.

    ``initial``: the initial value of every key without one of its own.
    """

    name = "register"
    register = (READ, WRITE)
    requiring: ClassVar[tuple[int, ...]] = (READ,)
    takes_initial = True

    def __init__(self, initial: Any = None) -> None:
        self.initial_values = InitialValues(initial)

    def encode(self, call: Call) -> Action | None:
        if call.f == "read":
            return Action(READ, call.number(call.result), reads=True) if call.known else None
        if call.f == "write":
            return Action(WRITE, call.number(call.argument), blind=True)  # the new state does not depend on the old one
        raise self.unknown(call)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == 0:
            return state == x, state
        return True, x

    def describe(self, state: int, values: Values) -> str:
        return values.text(state)


class CasRegister(Register):
    """A register with ``cas``, whose argument is ``[expected, value]``.

    A CAS that ended ok with the result false found another value. A CAS that ended fail proves nothing.
    """

    name = "cas-register"
    register = Register.register
    requiring = (READ, CAS)

    def encode(self, call: Call) -> Action | None:
        if call.f != "cas":
            return super().encode(call)
        if not isinstance(call.argument, list) or len(call.argument) != 2:
            raise ModelError(f"the argument of a cas must be [expected, value], not {call.argument!r}")
        expected, value = (call.number(part) for part in call.argument)
        if call.known and call.result is False:
            return Action(CAS_REFUSED, expected, reads=True)
        return Action(CAS, expected, value)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == 0:
            return state == x, state
        if f == 1:
            return True, x
        if f == 2:
            return state == x, y
        return state != x, state


MODELS: Final[Mapping[str, Model]] = {
    model.name: model
    for model in (
        Register(), CasRegister(), KeyValue(), Mutex(), OwnerMutex(), ReentrantMutex(), FencedMutex(),
        FencedReentrantMutex(), LeaseMutex(), Semaphore(), OwnerSemaphore(), FifoQueue(), UnorderedQueue(),
        Set(),
    )
}  # fmt: skip
"""The models by name, as ``--model`` accepts them."""


def is_builtin(model: Model) -> bool:
    """Returns whether a model is a built-in one, with any arguments, and not the user's."""
    return type(MODELS.get(model.name)) is type(model)
