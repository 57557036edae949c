"""The built-in models: register, CAS register, key-value with append, mutex, FIFO queue, set."""

from collections.abc import Mapping
from typing import ClassVar, Final

from assay.checkers.linearizability.fifo_queue import FifoQueue
from assay.checkers.linearizability.key_value import KeyValue
from assay.checkers.linearizability.model import Action, Call, Model, ModelError, Values

READ, WRITE, CAS, CAS_REFUSED = range(4)


class Register(Model):
    """Register: the value is the result of ``read``, and the argument of ``write``. Null is the initial value."""

    name = "register"
    register = (READ, WRITE)

    def encode(self, call: Call) -> Action | None:
        if call.f == "read":
            return Action(READ, call.number(call.result), reads=True) if call.known else None
        if call.f == "write":
            return Action(WRITE, call.number(call.argument), blind=True)
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


class Mutex(Model):
    """Mutex with ``acquire`` and ``release``; any process may release."""

    name = "mutex"

    def encode(self, call: Call) -> Action | None:
        if call.f not in ("acquire", "release"):
            raise self.unknown(call)
        return Action(int(call.f == "release"))

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        return state == f, 1 - state

    def describe(self, state: int, values: Values) -> str:
        return "held" if state else "free"


class Set(Model):
    """Set, initially empty. The argument of ``add`` is an element. ``read`` returns a list with each element once."""

    name = "set"
    compiled = False
    ADD: ClassVar[int] = 0
    READ: ClassVar[int] = 1
    NO_SET: ClassVar[int] = -1

    def encode(self, call: Call) -> Action | None:
        if call.f == "add":
            return Action(self.ADD, 1 << call.number(call.argument))
        if call.f != "read":
            raise self.unknown(call)
        if not call.known:
            return None
        if not isinstance(call.result, list):
            raise ModelError(f"a read of a set must return the list of its elements, not {call.result!r}")
        elements = 0
        for element in call.result:
            bit = 1 << call.number(element)
            elements = self.NO_SET if elements & bit else elements | bit
        return Action(self.READ, elements, reads=True)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        return (True, state | x) if f == Set.ADD else (state == x, state)

    def describe(self, state: int, values: Values) -> str:
        bits = (number for number in range(state.bit_length()) if state >> number & 1)
        elements = [values.text(number) for number in bits]
        return f"{{{', '.join(elements[:10])}{', ...' if len(elements) > 10 else ''}}}"


MODELS: Final[Mapping[str, Model]] = {
    model.name: model for model in (Register(), CasRegister(), KeyValue(), Mutex(), FifoQueue(), Set())
}
"""The models by name, as ``--model`` accepts them."""
