"""Error for a file that does not have the expected format."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.harness.core.history import HistoryError
from assay.harness.core.printable import to_printable

SHOWN: Final = 60


@dataclass(frozen=True, order=True)
class TextPosition:
    """A position in a file; both numbers count from 1."""

    line: int
    column: int


class MalformedError(HistoryError):
    """Names the file, the place in it, and the reason. ``place`` None: the file as a whole."""

    def __init__(self, path: Path, place: TextPosition | None, reason: str) -> None:
        where = "" if place is None else f" line {place.line}, column {place.column}:"
        super().__init__(f"{path}:{where} {to_printable(reason)}")
        self.path = path
        self.place = place
        self.reason = reason


def shorten(text: str) -> str:
    """Quotes and shortens a piece of a file for an error."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")
