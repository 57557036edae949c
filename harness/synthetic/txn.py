"""Transactional stores of lists and of registers: transactions of a few micro-operations on random keys.

Transactions take effect one after the other, so they are strictly serializable. A transaction of unknown outcome takes
effect as a whole or not at all.
"""

import random
from typing import Any, ClassVar, Final, TypeAlias

from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.core.transactions import TRANSACTION, derive_effects
from assay.harness.synthetic.model import Model, Scene, Step, Turn, get_scene_value

MOST_MICROS: Final = 4
"""Maximum number of micro-operations of a transaction."""
MICROS_PER_LIST: Final = 40
"""Number of micro-operations on one list. Then a new list replaces it, so that reads stay short."""
A, B = get_scene_value(0), get_scene_value(1)
"""The values that scenes write."""

Micro: TypeAlias = tuple[str, str, Any]


class TxnModel(Model):
    """Base class of the two kinds of stores."""

    word: ClassVar[str]
    """Name of the micro-operation that writes: ``append`` or ``w``."""

    def step(self, turn: Turn) -> Step:
        keys = [self.draw_key() for _ in range(self.rng.randint(1, MOST_MICROS))]
        micros = [self.play(key, turn, rank, self.rng.random() < 0.5) for rank, key in enumerate(keys)]
        return _build_step(tuple(micros), turn.outcome)

    def play(self, key: int, turn: Turn, rank: int, writes: bool) -> Micro:
        """Plays a micro-operation, and returns it. A read contains its result."""
        raise NotImplementedError

    def content(self, *values: int) -> Any:
        """Returns the result of a read."""
        raise NotImplementedError

    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns the scene of an anomaly, on two keys that no other transaction uses.

        All transactions of a cycle are concurrent. So only their dependencies contradict a serial order, and real time
        does not. Registers have only the anomalies that do not depend on an order of elements.
        """
        first, second = f"{self.name(key)}-x", f"{self.name(key)}-y"

        def x(value: int) -> Micro:
            return self.word, first, value

        def y(value: int) -> Micro:
            return self.word, second, value

        def read_x(*values: int) -> Micro:
            return "r", first, self.content(*values)

        def read_y(*values: int) -> Micro:
            return "r", second, self.content(*values)

        skews = (((read_x(), read_y(B)), (x(A), y(B))), ((read_x(), x(A)), (read_x(), x(B))))
        scenes = {
            # Each transaction precedes the other in one of the lists.
            "G0": (
                *_make_concurrent((x(A), y(A)), (x(B), y(B))), *_make_consecutive((read_x(A, B), read_y(B, A)), begin=4)
            ),
            "G1a": (_build_step((x(A),), Outcome.FAIL), *_make_consecutive((read_x(A),), begin=2)),
            "G1b": _make_concurrent((x(A), x(B)), (read_x(A),)),
            "G1c": _make_concurrent((x(A), read_y(B)), (read_x(A), y(B))),
            # Read skew, or a lost update.
            "G-single": _make_concurrent(*self.rng.choice(skews)),
            # A long fork: two transactions see two writes in opposite orders.
            "G-nonadjacent": _make_concurrent((read_x(), read_y(B)), (x(A),), (read_x(A), read_y()), (y(B),)),
            # Write skew.
            "G2-item": _make_concurrent((read_x(), y(B)), (x(A), read_y())),
            "garbage-read": _make_consecutive((read_x(A),)),
            "internal": _make_consecutive((x(A), read_x())),
            "duplicate-elements": _make_consecutive((x(A),), (read_x(A, A),)),
            "incompatible-order": (
                *_make_concurrent((x(A),), (x(B),)), *_make_consecutive((read_x(A, B),), (read_x(B, A),), begin=4)
            ),
        }  # fmt: skip
        return Scene(key=first, steps=scenes[anomaly], value=A)


class TxnListModel(TxnModel):
    model = "txn"
    word = "append"

    def begin(self, rng: random.Random) -> None:
        super().begin(rng)
        self._lists: dict[int, list[int]] = {}
        self._uses: dict[int, int] = {}

    def play(self, key: int, turn: Turn, rank: int, writes: bool) -> Micro:
        if self._uses.get(key) == MICROS_PER_LIST:
            self._replace(key)
        self._uses[key] = self._uses.get(key, 0) + 1
        elements, name = self._lists.setdefault(key, []), f"{self.name(key)}-{self.encode_count(key)}"
        if not writes:
            return "r", name, elements.copy()
        if turn.takes_effect:
            elements.append(turn.get_unique_value(rank))
        return self.word, name, turn.get_unique_value(rank)

    def end(self) -> None:
        for key in tuple(self._lists):
            self._replace(key)

    def content(self, *values: int) -> list[int]:
        return list(values)

    def _replace(self, key: int) -> None:
        del self._lists[key], self._uses[key]
        self.increase_counter(key)


class TxnRegisterModel(TxnModel):
    model = "txn-register"
    word = "w"

    def play(self, key: int, turn: Turn, rank: int, writes: bool) -> Micro:
        if not writes:
            return "r", self.name(key), self.encode_current(key)
        value = self.encode_count(key, 1) if turn.takes_effect else turn.get_unique_value(rank)
        self.increase_counter(key, turn.takes_effect)
        return self.word, self.name(key), value

    def content(self, *values: int) -> int | None:
        return next(iter(values), None)


def _build_step(micros: tuple[Micro, ...], outcome: Outcome, begin: int = 0, end: int = 1) -> Step:
    argument = [[f, key, None if f == "r" else value] for f, key, value in micros]
    completed = Completed(0, 0, "", Operation(TRANSACTION, None, argument), Completion(outcome, micros), begin, end)
    effects = tuple(derive_effects(completed))
    return Step(TRANSACTION, None, effects, argument, micros, outcome=outcome, begin=begin, end=end)


def _make_concurrent(*transactions: tuple[Micro, ...]) -> tuple[Step, ...]:
    return tuple(
        _build_step(micros, Outcome.OK, turn, len(transactions) + turn) for turn, micros in enumerate(transactions)
    )


def _make_consecutive(*transactions: tuple[Micro, ...], begin: int = 0) -> tuple[Step, ...]:
    return tuple(
        _build_step(micros, Outcome.OK, begin + 2 * turn, begin + 2 * turn + 1)
        for turn, micros in enumerate(transactions)
    )
