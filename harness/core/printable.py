"""Makes text fit for one line of a terminal: no control characters, lists cut to some names, counts with a noun."""

from collections.abc import Sequence
from typing import Any


def to_printable(text: str) -> str:
    """Escapes every character that is not printable, including line ends (``\\x1b``)."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def to_encodable(text: str) -> str:
    """Escapes lone surrogates, which cannot be encoded as UTF-8 (``\\udc80``)."""
    return text.encode(errors="backslashreplace").decode()


def represent(value: Any) -> str:
    """Returns the ``repr`` of a user's value, or its type if the ``repr`` raises an exception."""
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - user code, or a value that is nested too deep
        return f"of type {type(value).__name__} ({type(error).__name__} in its repr)"


def to_plain_line(error: Exception) -> str:
    """Returns the message of a parser on one line, without bytes of the damaged file that it may quote."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(error).partition("\n")[0])
    return " ".join(text.split())


def inflect(number: int, noun: str) -> str:
    """Returns the noun for this number: ``operation`` for 1, else ``operations``."""
    return noun if number == 1 else f"{noun}s"


def count_noun(number: int, noun: str) -> str:
    """Returns ``1 operation``, ``1234 operations``."""
    return f"{number} {inflect(number, noun)}"


def format_size(size: int) -> str:
    """Returns a number of bytes with three digits: ``999 B``, ``1.21 GB``."""
    value, units = float(size), iter(("B", "KB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 999.5 and unit != "TB":
        value, unit = value / 1000, next(units)
    return f"{value:.0f} {unit}" if value >= 99.95 or unit == "B" else f"{value:.3g} {unit}"


def join_some(names: Sequence[object], most: int) -> str:
    """Joins the first names by commas, and counts the others: ``a, b, c and 4 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more
