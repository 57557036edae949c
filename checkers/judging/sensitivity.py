"""Sensitivity of a run's checks: the shares of planted violations that they caught, as in ``sensitivity.json``.

``harness.sensitivity`` measures it: each violation is planted into a copy of a part of the run's history, and the copy
is judged. ``checkers.exposure`` explains claims.
"""

import math
import re
from typing import Annotated, Final

import msgspec

FILE: Final = "sensitivity.json"
OWN: Final = re.compile(rb"\{\s*\"shares\":")
"""Matches the start of this file."""
LOW_SHARE: Final = 0.8
"""Below this share of caught violations, the reports of runs and of nights of runs mark a run."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A number in the file. The bounds reject a damaged number, which would break the report of a run or a night."""
_Z: Final = 1.96
"""The quantile of the normal distribution for a 95 % interval."""


def wilson_interval(hits: int, tries: int) -> tuple[float, float]:
    """Returns the 95 % interval of a share (Wilson 1927); 0 to 1 without tries."""
    if not tries:
        return (0.0, 1.0)
    share = hits / tries
    scale = 1 + _Z**2 / tries
    middle = (share + _Z**2 / (2 * tries)) / scale
    half = _Z * math.sqrt(share * (1 - share) / tries + _Z**2 / (4 * tries**2)) / scale
    return (max(0.0, middle - half), min(1.0, middle + half))


class PlantedShare(msgspec.Struct, frozen=True, kw_only=True):
    """Violations of one anomaly that were planted and caught."""

    anomaly: str
    meaning: str
    """The violation in words."""
    claims: Count
    """Number of claims about the keys (or other objects) that were examined."""
    exposed: Count
    planted: Count
    """Violations planted into claims drawn from all claims."""
    caught: Count
    planted_exposed: Count
    """Violations planted into claims drawn from the exposed claims. All of them must be caught."""
    caught_exposed: Count
    found_as: dict[str, Count] = {}
    """By reported anomaly, the number of violations caught."""
    missed: str | None = None
    """An example of a violation that was missed, and the reason."""
    escaped: tuple[str, ...] = ()
    """Exposed claims whose violation was missed: a defect of the check or of the planted violation."""

    def __post_init__(self) -> None:
        pairs = ("exposed", "claims"), ("caught", "planted"), ("caught_exposed", "planted_exposed")
        for part, whole in pairs:
            if getattr(self, part) > getattr(self, whole):
                raise ValueError(f"{part} is {getattr(self, part)}, of {whole} {getattr(self, whole)}")

    @property
    def share(self) -> float | None:
        return self.caught / self.planted if self.planted else None

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.caught, self.planted)

    @property
    def is_low(self) -> bool:
        return self.share is not None and self.share < LOW_SHARE

    def __str__(self) -> str:
        """Returns ``97 % of 30 (83 to 99 %)``."""
        if self.share is None:
            return "no claims"
        low, high = self.interval
        return f"{self.share:.0%} of {self.planted} ({100 * low:.0f} to {high:.0%})".replace("%", " %")


class NotPlanted(msgspec.Struct, frozen=True):
    """A forbidden anomaly for which nothing was planted."""

    anomaly: str
    reason: str


class Sensitivity(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``sensitivity.json``."""

    shares: tuple[PlantedShare, ...]
    not_planted: tuple[NotPlanted, ...]
    seed: int
    seconds: float
    """Seconds of the measurement without the judgement of the run itself."""
    judging_seconds: float
    """Seconds of the judgement of the run."""
    copies: Count
    """Copies of the history that were judged."""
    left_out: str | None = None
    """A clause that names the part of a large run that was left out."""

    @property
    def low(self) -> tuple[PlantedShare, ...]:
        return tuple(share for share in self.shares if share.is_low)

    @property
    def unplanted_by_reason(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for one in self.not_planted:
            found.setdefault(one.reason, []).append(one.anomaly)
        return found

    @property
    def escaped(self) -> tuple[PlantedShare, ...]:
        return tuple(share for share in self.shares if share.escaped)
