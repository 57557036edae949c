"""Plain data: the values that a history can hold as JSON, so that equal values have equal texts.

- None, booleans, text and integers: as they are. The numbers ``1``, ``1.0`` and ``true`` are three values.
- Floats: as they are, and ``-0.0`` is ``0.0``. NaN and the infinities are refused, because JSON has none.
- Lists and tuples: an array.
- Sets: a sorted array.
- Dicts: an object. Keys that are not text are refused, because ``1`` would become ``"1"``.
- Bytes and ``Decimal``: refused, because their text would be equal to that of a string.
- Structs and dataclasses: an object of their fields.
- Members of an enum: their value.
- ``UUID``, dates and times: text. A time with a time zone is given in UTC.
"""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

_AS_THEY_ARE: Final = frozenset((type(None), bool, int, str))
_BYTES: Final = (bytes, bytearray, memoryview)
_KEPT: Final = (*_BYTES, Decimal, datetime)
"""Types that a struct's fields keep, so that ``to_plain_data`` sees them."""
MOST_SHOWN: Final = 100
"""Maximum characters of a refused value in an error."""


class NotPlainError(TypeError):
    """A value that no history can hold. The message names the value and the remedy."""


def to_plain_data(value: Any) -> Any:
    """Returns a value as its JSON form has it. Raises :class:`NotPlainError` for a value that is refused.

    Raises ``TypeError`` for any other object, and ``RecursionError`` for a value that contains itself.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise NotPlainError(f"{value!r} has no JSON form; use text, such as {str(value)!r}")
        return value + 0.0  # the sum of -0.0 and 0.0 is 0.0
    if isinstance(value, list | tuple):
        return value if _AS_THEY_ARE.issuperset(map(type, value)) else [to_plain_data(one) for one in value]
    if isinstance(value, dict):
        return {_require_text(key): to_plain_data(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return _sort(map(to_plain_data, value))
    if isinstance(value, _BYTES):
        raise NotPlainError(f"{_shorten(value)} would become text in base64; decode it, as with value.decode()")
    if isinstance(value, Decimal):
        raise NotPlainError(f"{_shorten(value)} would become text; convert it by int(value) or str(value)")
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    # A struct, a dataclass, or another object that msgspec knows.
    return to_plain_data(msgspec.to_builtins(value, builtin_types=_KEPT, order="deterministic"))


def _require_text(key: Any) -> str:
    if isinstance(key, str):
        return key
    raise NotPlainError(f"the key {_shorten(key)} of a dict would become text; make it text, as with str(key)")


def _sort(elements: Iterable[Any]) -> list[Any]:
    """Sorts numbers by size, strings by their characters, and a mixture by the JSON of its elements."""
    found = list(elements)
    kinds = set(map(type, found))
    if kinds <= {int, float} or kinds == {str}:
        return sorted(found)
    return sorted(found, key=msgspec.json.Encoder(order="deterministic").encode)


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
