"""Models of queues. Most keys need no search of their states (``queue_order``)."""

import sys
from typing import Any, ClassVar, Final

from assay.checkers.linearizability.model import Action, Call, Model, ModelError, Values

QUEUE: Final = "fifo-queue"
"""Name of the exact algorithm for FIFO queues (``queue_order``)."""
UNORDERED: Final = "unordered-queue"
"""Name of the exact algorithm for unordered queues (``queue_order``)."""

ENQUEUE, DEQUEUE, EMPTY, DEQUEUE_UNKNOWN = range(4)
"""Kinds of actions. ``EMPTY`` is a dequeue that found the queue empty."""

State = tuple[int, ...]
"""Numbers of the values in the queue. The front of a FIFO queue comes first; an unordered queue is sorted."""


class Queue(Model):
    """Base of queues: a value is the argument of ``enqueue``, and the result of ``dequeue`` (null: it was empty)."""

    initial: ClassVar[State] = ()
    compiled = False

    def encode(self, call: Call) -> Action | None:
        if call.f == "enqueue":
            if call.argument is None:
                raise ModelError("null cannot be enqueued: a dequeue of an empty queue returns null, too")
            return Action(ENQUEUE, call.number(call.argument))
        if call.f != "dequeue":
            raise self.unknown(call)
        if not call.known:
            return Action(DEQUEUE_UNKNOWN)
        if call.result is None:
            return Action(EMPTY, reads=True)
        return Action(DEQUEUE, call.number(call.result))

    def size(self, state: State) -> int:
        """Returns the bytes of the state. Its numbers are shared with other states."""
        return sys.getsizeof(state)

    def describe(self, state: State, values: Values) -> str:
        shown = [values.text(x) for x in state[:10]]
        return f"[{', '.join(shown)}{', ...' if len(state) > 10 else ''}]"


class FifoQueue(Queue):
    """First in, first out: values leave in the order of their enqueues."""

    name = "fifo-queue"
    exact: ClassVar[str | None] = QUEUE

    @staticmethod
    def step(state: State, f: int, x: Any, y: Any) -> tuple[bool, State]:
        if f == ENQUEUE:
            return True, (*state, x)
        if f == DEQUEUE:
            return bool(state) and state[0] == x, state[1:]
        return f == DEQUEUE_UNKNOWN or (f == EMPTY and not state), state[1:]


class UnorderedQueue(Queue):
    """A queue whose values leave in any order. A value that was enqueued twice is in it twice."""

    name = "unordered-queue"
    exact = UNORDERED

    @staticmethod
    def step(state: State, f: int, x: Any, y: Any) -> tuple[bool, State] | list[State]:
        if f == ENQUEUE:
            return True, tuple(sorted((*state, x)))
        if f == DEQUEUE:
            return (True, _remove(state, x)) if x in state else (False, state)
        if f == EMPTY:
            return not state, state
        return [_remove(state, each) for each in dict.fromkeys(state)] or [state]


def _remove(state: State, value: int) -> State:
    place = state.index(value)
    return state[:place] + state[place + 1 :]
