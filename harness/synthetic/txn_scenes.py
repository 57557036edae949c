"""Scenes of the transaction anomalies, on two keys that no other transaction uses.

The store holds lists or registers. All transactions on a cycle are concurrent, so that only their dependencies, and not
real time, contradict a serial order.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.core.transactions import TRANSACTION, derive_effects
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.values import SCENE_VALUES

A: Final = SCENE_VALUES
B: Final = SCENE_VALUES + 1

Micro: TypeAlias = tuple[str, str, list[int] | int | None]


@dataclass(frozen=True)
class SceneStore:
    """Two keys of a store of lists, or of registers."""

    first: str
    second: str
    lists: bool

    def x(self, value: int) -> Micro:
        """Writes to the first key."""
        return ("append" if self.lists else "w", self.first, value)

    def y(self, value: int) -> Micro:
        return ("append" if self.lists else "w", self.second, value)

    def read_x(self, *values: int) -> Micro:
        """Reads the first key. A register has at most one value."""
        return "r", self.first, self._content(values)

    def read_y(self, *values: int) -> Micro:
        return "r", self.second, self._content(values)

    def _content(self, values: tuple[int, ...]) -> list[int] | int | None:
        return list(values) if self.lists else next(iter(values), None)


def _build_step(micros: tuple[Micro, ...], begin: int, end: int, failed: bool = False) -> SceneStep:
    asked = [[f, key, None if f == "r" else value] for f, key, value in micros]
    result = None if failed else [list(micro) for micro in micros]
    outcome = Outcome.FAIL if failed else Outcome.OK
    completed = Completed(0, 0, "", Operation(TRANSACTION, None, asked), Completion(outcome, result), begin, end)
    return SceneStep(
        TRANSACTION, begin, end, tuple(derive_effects(completed)), failed=failed, argument=asked, result=result
    )


def _build_concurrent_steps(*transactions: tuple[Micro, ...]) -> tuple[SceneStep, ...]:
    return tuple(_build_step(micros, turn, len(transactions) + turn) for turn, micros in enumerate(transactions))


def _build_consecutive_steps(*transactions: tuple[Micro, ...], begin: int = 0) -> tuple[SceneStep, ...]:
    return tuple(
        _build_step(micros, begin + 2 * turn, begin + 2 * turn + 1) for turn, micros in enumerate(transactions)
    )


def build_txn_scene(anomaly: str, at: Opening, *, lists: bool) -> Scene:
    """Returns the scene of an anomaly. Registers have only the anomalies that need no order of elements."""
    on = SceneStore(f"{at.key}-x", f"{at.key}-y", lists)
    scenes = {
        # Each transaction precedes the other in one of the lists.
        "G0": (
            *_build_concurrent_steps((on.x(A), on.y(A)), (on.x(B), on.y(B))),
            *_build_consecutive_steps((on.read_x(A, B), on.read_y(B, A)), begin=4),
        ),
        "G1a": (_build_step((on.x(A),), 0, 1, failed=True), *_build_consecutive_steps((on.read_x(A),), begin=2)),
        "G1b": _build_concurrent_steps((on.x(A), on.x(B)), (on.read_x(A),)),
        "G1c": _build_concurrent_steps((on.x(A), on.read_y(B)), (on.read_x(A), on.y(B))),
        # Read skew in even slots, a lost update in odd slots.
        "G-single": (
            _build_concurrent_steps((on.read_x(), on.x(A)), (on.read_x(), on.x(B)))
            if at.slot % 2
            else _build_concurrent_steps((on.read_x(), on.read_y(B)), (on.x(A), on.y(B)))
        ),
        # A long fork: two transactions see two writes in opposite orders.
        "G-nonadjacent": _build_concurrent_steps(
            (on.read_x(), on.read_y(B)), (on.x(A),), (on.read_x(A), on.read_y()), (on.y(B),)
        ),
        # Write skew.
        "G2-item": _build_concurrent_steps((on.read_x(), on.y(B)), (on.x(A), on.read_y())),
        "garbage-read": _build_consecutive_steps((on.read_x(A),)),
        "internal": _build_consecutive_steps((on.x(A), on.read_x())),
        "duplicate-elements": _build_consecutive_steps((on.x(A),), (on.read_x(A, A),)),
        "incompatible-order": (
            *_build_concurrent_steps((on.x(A),), (on.x(B),)),
            *_build_consecutive_steps((on.read_x(A, B),), (on.read_x(B, A),), begin=4),
        ),
    }
    return Scene(key=on.first, steps=scenes[anomaly], value=A)
