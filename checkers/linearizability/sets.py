"""Model of a set. A state is an integer with one bit per element, so sets of many thousands of elements stay small."""

from typing import Any, ClassVar, Final, cast

from assay.checkers.linearizability.model import Action, Call, Model, ModelError, Values

SET: Final = "set"
"""Name of the exact algorithm of ``set_order``."""

ADD, REMOVE, CONTAINS, READ = range(4)
"""Kinds of actions. ``x`` is the number of the element, or the set that was read. ``y`` is what ``contains`` found."""

SPARSE: Final = 4096
"""Number of bits per element above which the elements are taken one by one, instead of looking at every byte."""
NO_SET: Final = -1
"""A read that returned an element twice. No state is equal to it."""


class Set(Model):
    """Set, initially empty. The argument of ``add``, ``remove`` and ``contains`` is an element.

    ``contains`` returns true or false. ``read`` returns a list with each element once.
    """

    name = "set"
    exact = SET  # the algorithm that is tried before the search
    compiled = False
    initial: ClassVar[int] = 0

    def encode(self, call: Call) -> Action | None:
        if call.f == "add":
            return Action(ADD, call.number(call.argument))
        if call.f == "remove":
            return Action(REMOVE, call.number(call.argument))
        if call.f not in ("contains", "read"):
            raise self.unknown(call)
        if not call.known:
            return None
        if call.f == "contains":
            if not isinstance(call.result, bool):
                raise ModelError(f"contains must return true or false, not {call.result!r}")
            return Action(CONTAINS, call.number(call.argument), int(call.result), reads=True)
        if not isinstance(call.result, list):
            raise ModelError(f"a read of a set must return the list of its elements, not {call.result!r}")
        return Action(READ, to_bits([call.number(element) for element in call.result]), reads=True)

    @staticmethod
    def step(state: int, f: int, x: Any, y: Any) -> tuple[bool, int]:
        if f == ADD:
            return True, state | 1 << x
        if f == REMOVE:
            return True, state & ~(1 << x)
        return (state == x) if f == READ else (state >> x & 1 == y), state

    def describe(self, state: int, values: Values) -> str:
        numbers = list_elements(state)
        elements = [values.text(number) for number in numbers[:10]]
        return f"{{{', '.join(elements)}{', ...' if len(numbers) > 10 else ''}}}"


def read_action(action: Action) -> tuple[int, int, int]:
    """Returns the kind of an action of ``Set``, its ``x`` and its ``y``."""
    return cast(tuple[int, int, int], action[:3])


def to_bits(elements: list[int]) -> int:
    """Returns the set as an integer, or ``NO_SET`` if an element occurs twice."""
    if len(set(elements)) < len(elements):
        return NO_SET
    places = bytearray(max(elements, default=0) // 8 + 1)
    for number in elements:
        places[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(places, "little")


def list_elements(bits: int) -> list[int]:
    """Returns the elements of a set that ``to_bits`` made, ascending."""
    found: list[int] = []
    if bits.bit_count() < bits.bit_length() // SPARSE:
        while bits:
            low = bits & -bits
            found.append(low.bit_length() - 1)
            bits ^= low
        return found
    for place, byte in enumerate(bits.to_bytes((bits.bit_length() + 7) // 8, "little")):
        while byte:
            low = byte & -byte
            found.append(place * 8 + low.bit_length() - 1)
            byte ^= low
    return found
