"""What synthetic history to make, and what was planted in it."""

import math
from dataclasses import dataclass
from typing import Final

import msgspec

LEAST_TO_PLANT: Final = 500
"""Operations that a history needs for each anomaly, so that it has ordinary traffic before and after it."""

MOST_PLANTED: Final = 1000
MOST_CLIENTS: Final = 10_000
MOST_KEYS: Final = 1_000_000
MOST_OPERATIONS: Final = 1_000_000_000

CLUSTER: Final = 25_000
"""Without a number of bursts there is one for so many operations."""


class PlanError(ValueError):
    """What was asked for cannot be made; the message names the option and what it takes."""


@dataclass(frozen=True)
class Plan:
    """One synthetic history; the same plan makes the same one."""

    operations: int
    """Of the main phase; the final reading of a log or queue comes on top."""
    clients: int = 50
    """Also how many operations are open at once."""
    keys: int = 1000
    seed: int = 0
    info_share: float = 0.01
    """Share of operations that time out."""
    bursts: int | None = None
    """In so many bursts, as under faults of the network; 0: anywhere; None: one for each ``CLUSTER`` operations."""
    plant: tuple[str, ...] = ()
    """One anomaly for each name, each in a key of its own."""

    def __post_init__(self) -> None:
        if not 1 <= self.operations <= MOST_OPERATIONS:
            raise PlanError(f"operations is {self.operations}; it takes 1 to {MOST_OPERATIONS}")
        if not 1 <= self.clients <= MOST_CLIENTS:
            raise PlanError(f"clients is {self.clients}; it takes 1 to {MOST_CLIENTS}")
        if not 1 <= self.keys <= MOST_KEYS:
            raise PlanError(f"keys is {self.keys}; it takes 1 to {MOST_KEYS}")
        if not (math.isfinite(self.info_share) and 0 <= self.info_share <= 0.9):
            raise PlanError(f"info-share is {self.info_share}; it takes 0 to 0.9")
        if self.bursts is not None and not 0 <= self.bursts <= self.operations:
            raise PlanError(f"bursts is {self.bursts}; it takes 0 to as many as there are operations")
        if self.seed < 0:
            raise PlanError(f"seed is {self.seed}; it must not be negative")
        wanted = len(self.plant)
        if wanted > MOST_PLANTED:
            raise PlanError(f"{wanted} anomalies are to be planted; at most {MOST_PLANTED} can be")
        if self.operations < wanted * LEAST_TO_PLANT:
            raise PlanError(
                f"{self.operations} operations are too few to plant {', '.join(self.plant)}; "
                f"take {wanted * LEAST_TO_PLANT} or more"
            )
        if self.keys < wanted:
            raise PlanError(f"each anomaly has a key of its own: {wanted} of them need {wanted} keys, not {self.keys}")


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """Where one anomaly is."""

    anomaly: str
    key: str | None
    """None: of no object."""
    operations: tuple[int, ...]
    """Indexes of all that take part in the scene."""
    time: int
    """Nanoseconds since the run began, at which the scene opens."""
    until: int
    """And at which it is over."""
    position: int | None = None
    """A log's or group's offset."""
    value: int | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``planted.json``: how to make the same history again, and what is wrong in it."""

    model: str
    operations: int
    clients: int
    keys: int
    seed: int
    info_share: float
    bursts: int | None
    planted: tuple[Planted, ...]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What ``generate`` answers."""

    operations: int
    effects: int
    seconds: float
    planted: tuple[Planted, ...]
