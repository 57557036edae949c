"""Models for the search: several registers that a transaction reads and writes at once, counters, drained queues."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from assay.checkers.linearizability import Action, Call, Model, ModelError, Values
from assay.checkers.linearizability.model import measure_deep_size
from assay.checkers.linearizability.queues import FifoQueue

READ: Final = "r"
WRITE: Final = "w"
COMPILED_LIMIT: Final = 2**63
"""The compiled step of a counter needs sums below this limit (``Model.compiled``)."""

Registers = tuple[tuple[int, int], ...]
"""Pairs of a key's number and its value's number, in order of the keys. A register that is not there holds null."""


class MultiRegister(Model):
    """Several registers. An operation is a list of ``["r", key, value]`` and ``["w", key, value]``, done in order.

    A read of null proves nothing, as in Jepsen, whose calls have null in the place of values that are not known.
    """

    name = "multi-register"
    compiled = False
    initial: ClassVar[Registers] = ()

    def encode(self, call: Call) -> Action | None:
        micros = call.result if call.known and call.result is not None else call.argument
        if not isinstance(micros, list) or not all(isinstance(one, list) and len(one) == 3 for one in micros):
            raise ModelError(f"a transaction is a list of [verb, key, value], not {micros!r}")
        steps = []
        for verb, key, value in micros:
            name = verb["keyword"] if isinstance(verb, dict) else verb
            if name not in (READ, WRITE, "read", "write"):
                raise ModelError(f"the model {self.name} knows no micro-operation {name!r}")
            if name[0] == WRITE or (call.known and value is not None):
                steps.append((name[0], call.number(key), call.number(value)))
        writes = any(verb == WRITE for verb, _, _ in steps)
        if not steps or (not writes and not call.known):
            return None
        return Action(0, tuple(steps), reads=not writes)  # `reads`: never changes the state

    @staticmethod
    def step(state: Registers, f: int, x: tuple[tuple[str, int, int], ...], y: int) -> tuple[bool, Registers]:
        held = dict(state)
        for verb, key, value in x:
            if verb == WRITE:
                held[key] = value
            elif held.get(key, 0) != value:
                return False, state
        return True, tuple(sorted(held.items()))

    def describe(self, state: Registers, values: Values) -> str:
        return f"{{{', '.join(f'{values.text(key)}: {values.text(value)}' for key, value in state)}}}"


class Tally(Model):
    """Counter from 0 on: ``add`` adds its argument, ``read`` returns the sum."""

    name = "tally"

    def encode(self, call: Call) -> Action | None:
        if call.f == "add":
            return Action(1, to_integer(call.argument), total=True)  # `total`: allowed in every state
        if call.f == "read":
            return Action(0, to_integer(call.result), reads=True) if call.known else None
        raise self.unknown(call)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == 0:
            return state == x, state
        return True, state + x


class LargeTally(Tally):
    """Counter whose sums may have more than 64 bits, so that its step cannot be compiled."""

    compiled = False


DRAIN: Final = "drain"
TAKEN: Final = 4
"""``Action.f`` of an action that takes an element in a drain. ``linearizability.queues`` has the other numbers."""


class DrainedQueue(FifoQueue):
    """FIFO queue with drains, which take elements one after another.

    The drain itself is not atomic: other operations may take effect between its elements. Each ``drain`` operation
    stands for one element, which is its result. Its argument is ``[number, place, length]``: the number of the drain,
    the place of the element in the drain, and the number of elements. Without a place, the order is unknown.

    A state is the values in the queue, and the next place of each drain that has begun.
    """

    name = "fifo-queue"
    exact: ClassVar[str | None] = None  # unlike `FifoQueue`, no algorithm judges it without a search
    initial: ClassVar[Any] = ((), ())

    def encode(self, call: Call) -> Action | None:
        if call.f != DRAIN:
            return super().encode(call)
        return Action(TAKEN, call.number(call.result), tuple(call.argument))

    @staticmethod
    def step(state: Any, f: int, x: Any, y: Any) -> tuple[bool, Any]:
        queue, begun = state
        if f != TAKEN:
            fits, after = FifoQueue.step(queue, f, x, y)
            return fits, (after, begun)
        drain, place, length = y
        nexts = dict(begun)
        if not queue or queue[0] != x or (place is not None and nexts.get(drain, 0) != place):
            return False, state
        if place is not None:
            nexts[drain] = place + 1
        return True, (queue[1:], tuple(sorted(one for one in nexts.items() if one != (drain, length))))

    def size(self, state: Any) -> int:
        return sum(map(measure_deep_size, state))

    def describe(self, state: Any, values: Values) -> str:
        return super().describe(state[0], values)


DRAINED_QUEUE: Final = DrainedQueue()


def to_integer(value: Any) -> int:
    """Returns a number of a history, which is ``{"integer": digits}`` if it has more than 64 bits."""
    return int(value["integer"] if isinstance(value, dict) else value)


def choose_tally(amounts: Iterable[Any], sums: Iterable[Any]) -> Tally:
    """Returns the model of a counter to which these amounts are added, and of which these sums were read."""
    numbers = [abs(to_integer(one)) for one in sums]
    fits = sum(abs(to_integer(one)) for one in amounts) < COMPILED_LIMIT > max(numbers, default=0)
    return Tally() if fits else LargeTally()


TRANSACTION_MODELS: Final[Mapping[str, Any]] = {one.name: one for one in (MultiRegister(), Tally())}
"""The models by name. Only workloads use them: ``--model`` cannot name them."""
