"""Limits after which a search ends as unknown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

BEAM_WIDTH: Final = 2048


@dataclass(frozen=True)
class Limits:
    """Limits of the search of one key."""

    seconds: float | None = 300.0
    """Maximum seconds per key; None: unlimited."""
    bytes: int = 4 << 30
    """Maximum memory of all parallel searches on one machine or, after ``divide_by``, of one search."""
    beam_width: int = BEAM_WIDTH
    """Maximum number of configurations. A larger set is first reduced to a quarter of this number. If this part has no
    legal order, the search resumes with the whole set.
    """

    spent: float = 0.0
    """Seconds that an earlier attempt of this key used."""

    def __post_init__(self) -> None:
        if self.bytes <= 0 or self.beam_width < 1 or (self.seconds is not None and self.seconds < 0):
            raise ValueError(f"limits must be positive: {self}")

    def divide_by(self, searches: int) -> Limits:
        """Returns the limits of one of ``searches`` parallel searches."""
        return replace(self, bytes=max(1, self.bytes // searches))

    def deduct(self, seconds: float) -> Limits:
        """Returns the limits of another attempt, after an attempt that took ``seconds``."""
        return replace(self, spent=self.spent + seconds)


DEFAULT: Final = Limits()
