"""How far a search may go before it says that it does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WIDEST: Final = 2048


@dataclass(frozen=True)
class Limits:
    """Where the search of one key ends unknown."""

    seconds: float | None = 300.0
    """Per key; None: as long as it takes."""
    bytes: int = 4 << 30
    """For all that the search of one key keeps."""
    widest: int = WIDEST
    """A larger set of configurations is first cut, in the hope that what is left suffices to place everything; if it
    does not, the whole set is taken up again."""

    def __post_init__(self) -> None:
        if self.bytes <= 0 or self.widest < 1 or (self.seconds is not None and self.seconds < 0):
            raise ValueError(f"limits are positive: {self}")


DEFAULT: Final = Limits()
