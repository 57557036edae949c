"""Model of a FIFO queue that uses later dequeues to order enqueues.

Any order of concurrent enqueues is possible until the dequeues come, so a long queue has very many states. But if no
value was enqueued twice, each value is removed by the one dequeue that returned it. If the dequeues of two values did
not overlap, the value dequeued first must have been in front. A value that was never dequeued must be behind all other
values. An enqueue that breaks these rules is rejected at once, not only when the dequeues come.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from assay.checkers.linearizability.model import Action, Call, Model, ModelError, Values

QUEUE: Final = "fifo-queue"
"""Name of the exact algorithm of ``queue_order``."""
ENQUEUE, DEQUEUE, EMPTY, DEQUEUE_UNKNOWN, NEVER = range(5)
"""Kinds of actions. ``NEVER`` is an enqueue of unknown outcome that no state allows, so it counts as not done."""

UNREAD: Final = -1
"""Stands for all values that no dequeue returned, because they are equivalent."""

PAIR: Final = sys.getsizeof((0, 0)) + 16
"""Bytes of one entry of a state."""

Window = tuple[float, float]
"""Call and return of the dequeue of a value."""
ANY_TIME: Final[Window] = (float("-inf"), float("inf"))
AFTER_ALL: Final[Window] = (float("inf"), float("inf"))
"""The window of a value that no dequeue may have taken."""

State = tuple[tuple[int, Window], ...]
"""Values in the queue with the windows of their dequeues. The front comes first."""


class FifoQueue(Model):
    """Queue: the value is the argument of ``enqueue``, and the result of ``dequeue`` (null if the queue is empty)."""

    name = "fifo-queue"
    exact = QUEUE
    initial: ClassVar[State] = ()
    compiled = False

    def encode(self, call: Call) -> Action | None:
        if call.f == "enqueue":
            if call.argument is None:
                raise ModelError("null cannot be enqueued: a dequeue of an empty queue returns null, too")
            return Action(ENQUEUE, call.number(call.argument), ANY_TIME)
        if call.f != "dequeue":
            raise self.unknown(call)
        if not call.known:
            return Action(DEQUEUE_UNKNOWN)
        if call.result is None:
            return Action(EMPTY, reads=True)
        return Action(DEQUEUE, call.number(call.result))

    def foresee(self, actions: Sequence[Action], call: Sequence[int], ret: Sequence[int | None]) -> Sequence[Action]:
        """Gives each enqueue the window of its value's dequeue, if values are unique."""
        entered = Counter(action.x for action in actions if action.f == ENQUEUE)
        left = Counter(action.x for action in actions if action.f == DEQUEUE)
        if any(count > 1 for count in (*entered.values(), *left.values())):
            return actions
        windows = {
            action.x: (float(call[index]), float(ret[index] or 0))
            for index, action in enumerate(actions)
            if action.f == DEQUEUE
        }
        unknown = any(action.f == DEQUEUE_UNKNOWN for action in actions)
        foreseen = []
        for action, end in zip(actions, ret, strict=True):
            if action.f != ENQUEUE:
                foreseen.append(action)
            elif action.x in windows:
                foreseen.append(Action(ENQUEUE, action.x, windows[action.x]))
            elif unknown:
                foreseen.append(Action(ENQUEUE, UNREAD, ANY_TIME))
            else:
                # A value that was never dequeued and whose enqueue has an unknown outcome can be ignored.
                foreseen.append(Action(NEVER) if end is None else Action(ENQUEUE, UNREAD, AFTER_ALL))
        return foreseen

    @staticmethod
    def step(state: State, f: int, x: Any, y: Any) -> tuple[bool, State]:
        if f == ENQUEUE:
            return all(window[0] <= y[1] for _, window in state), (*state, (x, y))
        if f == DEQUEUE:
            return bool(state) and state[0][0] == x, state[1:]
        return f == DEQUEUE_UNKNOWN or (f == EMPTY and not state), state[1:]

    def size(self, state: State) -> int:
        """Returns the bytes of the state. All but one of its pairs are shared with former states."""
        return sys.getsizeof(state) + PAIR

    def describe(self, state: State, values: Values) -> str:
        shown = ["a value that is never dequeued" if x == UNREAD else values.text(x) for x, _ in state[:10]]
        return f"[{', '.join(shown)}{', ...' if len(state) > 10 else ''}]"
