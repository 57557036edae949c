"""Formats times for readers: seconds since the run began, with just enough digits to keep a text's times distinct."""

import re
from collections.abc import Iterable
from typing import Final

NANOSECONDS: Final = 1_000_000_000
"""The number in a second."""
MILLISECONDS: Final = 3
MICROSECONDS: Final = 6
"""Numbers of decimal places of a time in seconds."""

_EXACT: Final = re.compile(r"\b(\d+)\.(\d{9}) s\b")


def in_seconds(time: int, digits: int = MILLISECONDS) -> str:
    """Returns nanoseconds as seconds: ``14.203``."""
    return f"{time / NANOSECONDS:.{digits}f}"


def find_digits(times: Iterable[int | None]) -> int:
    """Returns the number of decimals: ``MILLISECONDS``, or ``MICROSECONDS`` if these keep more times distinct."""
    different = {time for time in times if time is not None}
    return MILLISECONDS if len({in_seconds(time) for time in different}) == len(different) else MICROSECONDS


def format_seconds(time: int) -> str:
    """Formats nanoseconds with all digits for a sentence. :func:`shorten_times` later removes needless digits."""
    return f"{in_seconds(time, 9)} s"


def shorten_times(sentence: str) -> str:
    """Shortens all times of the sentence to milliseconds, or to microseconds if milliseconds do not keep them distinct.

    ``14.203456789 s`` becomes ``14.203 s``.
    """
    digits = find_digits(int("".join(found.groups())) for found in _EXACT.finditer(sentence))
    return _EXACT.sub(lambda found: f"{in_seconds(int(''.join(found.groups())), digits)} s", sentence)
