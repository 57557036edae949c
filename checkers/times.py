"""Times as a reader takes them: seconds since the run began, with as few digits as tell those of one text apart."""

import re
from collections.abc import Iterable
from typing import Final

NANOSECONDS: Final = 1_000_000_000
MILLISECONDS: Final = 3
MICROSECONDS: Final = 6
"""Digits of a second."""

_EXACT: Final = re.compile(r"\b(\d+)\.(\d{9}) s\b")


def in_seconds(time: int, digits: int = MILLISECONDS) -> str:
    """``14.203`` of nanoseconds."""
    return f"{time / NANOSECONDS:.{digits}f}"


def digits_of(times: Iterable[int | None]) -> int:
    """Milliseconds, or microseconds where two different times tie in milliseconds."""
    different = {time for time in times if time is not None}
    return MILLISECONDS if len({in_seconds(time) for time in different}) == len(different) else MICROSECONDS


def seconds(time: int) -> str:
    """Nanoseconds within a sentence. All digits, of which :func:`readable` leaves what the whole sentence needs."""
    return f"{in_seconds(time, 9)} s"


def readable(sentence: str) -> str:
    """The same with ``14.203 s`` for ``14.203456789 s``, or microseconds for all of them."""
    digits = digits_of(int("".join(found.groups())) for found in _EXACT.finditer(sentence))
    return _EXACT.sub(lambda found: f"{in_seconds(int(''.join(found.groups())), digits)} s", sentence)
