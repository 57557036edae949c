"""How far a search may go before it says that it does not know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

WIDEST: Final = 2048


@dataclass(frozen=True)
class Limits:
    """Where the search of one key ends unknown."""

    seconds: float | None = 300.0
    """Per key; None: as long as it takes."""
    bytes: int = 4 << 30
    """For all that the searches that are under way at one time on one machine keep."""
    widest: int = WIDEST
    """A larger set of configurations is first cut, in the hope that what is left suffices to place everything; if it
    does not, the whole set is taken up again."""

    spent: float = 0.0
    """Seconds of a key's time that went by in a former attempt."""

    def __post_init__(self) -> None:
        if self.bytes <= 0 or self.widest < 1 or (self.seconds is not None and self.seconds < 0):
            raise ValueError(f"limits are positive: {self}")

    def among(self, searches: int) -> Limits:
        """Of one of so many searches side by side."""
        return replace(self, bytes=max(1, self.bytes // searches))

    def after(self, seconds: float) -> Limits:
        """Of another attempt after one that took so long."""
        return replace(self, spent=self.spent + seconds)


DEFAULT: Final = Limits()
