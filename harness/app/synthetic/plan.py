"""What synthetic history to make, and what was planted in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import msgspec

LEAST_TO_PLANT: Final = 500
"""Operations that a history needs so that an anomaly has ordinary traffic before and after it."""

MOST_CLIENTS: Final = 10_000
MOST_OPERATIONS: Final = 1_000_000_000


class PlanError(ValueError):
    """What was asked for cannot be made; the message names the option and what it takes."""


@dataclass(frozen=True)
class Plan:
    """One synthetic history; the same plan makes the same one."""

    operations: int
    """Of the main phase; the final reading of a log comes on top."""
    clients: int = 50
    keys: int = 1000
    seed: int = 0
    info_share: float = 0.01
    """Share of operations that time out; they come in clusters, as under a fault."""
    plant: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.operations <= MOST_OPERATIONS:
            raise PlanError(f"operations is {self.operations}; it takes 1 to {MOST_OPERATIONS}")
        if not 1 <= self.clients <= MOST_CLIENTS:
            raise PlanError(f"clients is {self.clients}; it takes 1 to {MOST_CLIENTS}")
        if self.keys < 1:
            raise PlanError(f"keys is {self.keys}; there must be at least one")
        if not (math.isfinite(self.info_share) and 0 <= self.info_share <= 0.9):
            raise PlanError(f"info-share is {self.info_share}; it takes 0 to 0.9")
        if self.seed < 0:
            raise PlanError(f"seed is {self.seed}; it must not be negative")
        if self.plant is not None and self.operations < LEAST_TO_PLANT:
            raise PlanError(f"{self.operations} operations are too few to plant {self.plant}; take {LEAST_TO_PLANT}")


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``planted.json``: where the one anomaly is."""

    anomaly: str
    key: str
    operations: tuple[int, ...]
    """Indexes of all that take part in the scene."""
    time: int
    """Nanoseconds since the run began, at which the scene opens."""
    position: int | None = None
    """A log's offset."""
    value: int | None = None


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What ``generate`` answers."""

    operations: int
    effects: int
    seconds: float
    planted: Planted | None
