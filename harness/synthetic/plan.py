"""The plan of a synthetic history, and the record of the anomalies planted in it."""

import math
from dataclasses import dataclass
from typing import Final

import msgspec

OPERATIONS_PER_ANOMALY: Final = 500
"""Minimum number of operations per anomaly, so that there are ordinary operations before and after each one."""

MOST_PLANTED: Final = 1000
MOST_CLIENTS: Final = 10_000
MOST_KEYS: Final = 1_000_000
MOST_OPERATIONS: Final = 1_000_000_000
MOST_BURSTS: Final = 100_000
"""Each burst is two pieces of the history, which are in memory from the beginning."""

OPERATIONS_PER_BURST: Final = 25_000
"""Operations per burst of timeouts, unless the plan sets the number of bursts."""


class PlanError(ValueError):
    """The requested history cannot be made. The message names the option and the values it accepts."""


@dataclass(frozen=True)
class Plan:
    """Description of a synthetic history. Equal plans make equal histories."""

    operations: int
    """Operations of the main phase. The final drain of a log or queue is not included."""
    clients: int = 50
    """Number of clients. Each has at most one operation in progress."""
    keys: int = 1000
    seed: int = 0
    info_share: float = 0.01
    """Share of operations that time out."""
    bursts: int | None = None
    """Number of bursts of timeouts, as network faults cause them. 0: timeouts occur at any time. None: one burst per
    ``OPERATIONS_PER_BURST`` operations.
    """
    plant: tuple[str, ...] = ()
    """Names of the anomalies to plant, each in a separate key."""

    def __post_init__(self) -> None:
        if not 1 <= self.operations <= MOST_OPERATIONS:
            raise PlanError(f"operations is {self.operations}; it takes 1 to {MOST_OPERATIONS}")
        if not 1 <= self.clients <= MOST_CLIENTS:
            raise PlanError(f"clients is {self.clients}; it takes 1 to {MOST_CLIENTS}")
        if not 1 <= self.keys <= MOST_KEYS:
            raise PlanError(f"keys is {self.keys}; it takes 1 to {MOST_KEYS}")
        if not (math.isfinite(self.info_share) and 0 <= self.info_share <= 0.9):
            raise PlanError(f"info-share is {self.info_share}; it takes 0 to 0.9")
        if self.bursts is not None and not 0 <= self.bursts <= (most := min(self.operations, MOST_BURSTS)):
            raise PlanError(f"bursts is {self.bursts}; it takes 0 to {most}, and at most as many as operations")
        if self.seed < 0:
            raise PlanError(f"seed is {self.seed}; it must not be negative")
        wanted = len(self.plant)
        if wanted > MOST_PLANTED:
            raise PlanError(f"{wanted} anomalies were requested; at most {MOST_PLANTED} can be planted")
        if self.operations < wanted * OPERATIONS_PER_ANOMALY:
            raise PlanError(
                f"{self.operations} operations are too few to plant {', '.join(self.plant)}; "
                f"take {wanted * OPERATIONS_PER_ANOMALY} or more"
            )
        if self.keys < wanted:
            raise PlanError(f"each anomaly has a key of its own: {wanted} of them need {wanted} keys, not {self.keys}")


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one planted anomaly in the history."""

    anomaly: str
    key: str | None
    """The key that the finding names; None if the finding is about no object."""
    operations: tuple[int, ...]
    """Indexes of the operations of the scene, which show the anomaly."""
    time: int
    """Start of the scene, in nanoseconds since the run began."""
    until: int
    """End of the scene, in the same unit."""
    position: int | None = None
    """An offset of a log or a group."""
    value: int | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``planted.json``: the options of the history, and the anomalies planted in it."""

    model: str
    operations: int
    clients: int
    keys: int
    seed: int
    info_share: float
    bursts: int | None
    planted: tuple[Planted, ...]


class GenerationResult(msgspec.Struct, frozen=True, kw_only=True):
    operations: int
    effects: int
    seconds: float
    planted: tuple[Planted, ...]
