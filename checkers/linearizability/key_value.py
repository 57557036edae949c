"""Model of a string store that uses later reads to order appends.

Any order of concurrent appends is possible until one of them is read, and strings of ten thousand appends are long. But
a string only matters if it is a prefix of a string that was read. So a state is a read string and the number of its
characters that are already there. Strings that are no prefix of any read string are one state, *lost*: no read is
possible in it, and only a write leads out of it.

If a read must follow an append, with no write between them, the append must not lead to the lost state. Such an append
is rejected at once, not only when the read comes.
"""

import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Final

from assay.checkers.linearizability.model import INITIAL, Action, Call, InitialValues, Model, ModelError, Values

READ, WRITE, APPEND = range(3)
"""Kinds of actions (``f``)."""

State = tuple[str | None, int]
"""A read string, and the number of its characters that are there. ``(None, 0)`` is the lost state."""

START: Final[State] = ("", 0)
"""The state for the initial string."""
EMPTY: Final[State] = ("", -1)
"""The state for the empty string, if the initial string is another one."""
LOST: Final[State] = (None, 0)


class ReadStrings:
    """The strings that were read from one key, and its initial string. Compared by identity."""

    def __init__(self, read: set[str], initial: str = "") -> None:
        self._initial = initial
        ordered = sorted(read)
        # In sorted order, a string that is a prefix of other strings is right before one of them.
        self._longest = [one for one, following in pairwise([*ordered, ""]) if not following.startswith(one)]

    def to_state(self, text: str) -> State:
        """Returns the state for a string. Equal strings have equal states."""
        if text == self._initial:
            return START
        if not text:
            return EMPTY
        index = bisect_left(self._longest, text)
        if index == len(self._longest) or not self._longest[index].startswith(text):
            return LOST
        return self._longest[index], len(text)

    def append(self, state: State, suffix: str) -> State:
        """Returns the state after ``suffix`` was appended."""
        text, length = state
        if text is None:
            return LOST
        if state == START:
            return self.to_state(self._initial + suffix)
        if len(self._longest) == 1 and text and not self._initial:  # no other string begins like it
            return (text, length + len(suffix)) if text.startswith(suffix, length) else LOST
        return self.to_state(text[:length] + suffix)


@dataclass(frozen=True)
class Append:
    """The ``x`` of an append: what it appends, and the strings of its key that were read."""

    strings: ReadStrings
    suffix: str
    followed: bool
    """Whether a read must follow the append, with no write between them."""


class KeyValue(Model):
    """String store with ``read`` or ``get``, ``write`` or ``put``, and ``append``. Null, the initial value by default,
    counts as an empty string."""

    name = "kv"
    takes_initial = True
    initial: ClassVar[State] = START
    lost: ClassVar[State] = LOST
    compiled = False

    def __init__(self, initial: Any = None) -> None:
        self.initial_values = InitialValues(initial)

    def encode(self, call: Call) -> Action | None:
        """Returns the operation's action. Its ``y`` is the initial string, for ``foresee``."""
        value = self.initial_values.find(call.key)
        initial = "" if value is None else self._string("the initial value", value)
        if call.f in ("read", "get"):
            if not call.known:
                return None
            text = "" if call.result is None else self._string(call.f, call.result)
            return Action(READ, text, initial, reads=True)
        if call.f in ("write", "put"):
            # blind: the state after a write does not depend on the state before.
            return Action(WRITE, self._string(call.f, call.argument), initial, blind=True)
        if call.f == "append":
            return Action(APPEND, self._string(call.f, call.argument), initial)
        raise self.unknown(call)

    def foresee(self, actions: Sequence[Action], call: Sequence[int], ret: Sequence[int | None]) -> Sequence[Action]:
        """Replaces strings by states, and marks each append that a read must follow."""
        initial = next((str(action.y) for action in actions), "")
        strings = ReadStrings({str(action.x) for action in actions if action.f == READ}, initial)
        with_states: dict[Action, Action] = {}
        followed = _find_followed([action.f for action in actions], call, ret)
        foreseen = []
        for index, action in enumerate(actions):
            if action.f == APPEND:
                # An append of unknown outcome may not have happened, so it need not be tried unless a read follows it.
                # Such an append is `total`: every state allows it, because it may lead to the lost state.
                must = ret[index] is None or followed[index]
                foreseen.append(Action(APPEND, Append(strings, str(action.x), must), total=not must))
            else:
                if action not in with_states:
                    with_states[action] = action._replace(x=strings.to_state(str(action.x)))
                foreseen.append(with_states[action])
        return foreseen

    @staticmethod
    def step(state: State, f: int, x: Any, y: Any) -> tuple[bool, State]:
        if f == READ:
            return state == x, state
        if f == WRITE:
            return True, x
        after = x.strings.append(state, x.suffix)
        return after is not LOST or not x.followed, after

    def size(self, state: State) -> int:
        """Returns the bytes of the state. The strings belong to the history."""
        return sys.getsizeof(state) + sys.getsizeof(state[1])

    def describe(self, state: State, values: Values) -> str:
        text, length = state
        if text is None:
            return "a string that is no prefix of any read string"
        if state == START and values.text(INITIAL) != "null":
            return values.text(INITIAL)
        if length <= 60:
            return repr(text[:length])
        return f"{text[:20]!r}...{text[length - 20 : length]!r} ({length} characters)"

    @staticmethod
    def _string(f: str, value: Any) -> str:
        if not isinstance(value, str):
            raise ModelError(f"the values of kv must be strings; {f} has {value!r}")
        return value


def _find_followed(kinds: Sequence[int], call: Sequence[int], ret: Sequence[int | None]) -> list[bool]:
    """Returns for each append whether a read was called after its return, and no write can come between the two.

    A write can come between them if it was called before the read returned, and returned after the append was called.
    """
    reads = sorted((call[index], ret[index] or 0) for index, kind in enumerate(kinds) if kind == READ)
    writes = sorted((call[index], _end(ret[index])) for index, kind in enumerate(kinds) if kind == WRITE)
    latest = list(accumulate((end for _, end in writes), max))
    found = []
    for index, kind in enumerate(kinds):
        end = ret[index]
        after = bisect_left(reads, (end + 1, 0)) if kind == APPEND and end is not None else len(reads)
        before = bisect_left(writes, (reads[after][1] + 1, 0.0)) if after < len(reads) else 0
        found.append(after < len(reads) and (before == 0 or latest[before - 1] < call[index]))
    return found


def _end(ret: int | None) -> float:
    return float("inf") if ret is None else ret
