"""Checks that the values of a row have the types of their columns, before the row is buffered.

Rows are converted for Arrow by thousands, long after they were recorded. A wrong value must be refused at its own row.
Arrow would also store some wrong values as other ones: 0.0 as 0, and ``b""`` as empty text.

The fast check looks up the tuple of the row's types, which is new for few rows. It is left to check the size of numbers
and the encoding of texts. The slow check names the column. It also accepts numbers and booleans of other types, such as
those of NumPy, and converts them.
"""

import operator
import sys
from collections.abc import Callable, Sequence
from numbers import Integral
from operator import itemgetter
from struct import Struct
from struct import error as StructError
from types import NoneType
from typing import Any, Final

from assay.harness.core.history.data_sets import Column
from assay.harness.core.printable import represent, to_encodable

_TYPES: Final[dict[str, tuple[type, str]]] = {
    "int64": (int, "a whole number"),
    "int32": (int, "a whole number"),
    "string": (str, "text"),
    "bool": (bool, "True or False"),
}
"""By type of a column, the type of its values and its name in messages."""

_Getter = Callable[[tuple[Any, ...]], tuple[Any, ...]]
_Pack = Callable[..., bytes]


class RowChecker:
    """Checks rows with these columns. A row may have more values than columns; they are ignored."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._plans: dict[tuple[type, ...], tuple[_Getter, _Pack, _Getter]] = {}
        """By valid types of a row: functions that return its numbers, pack them in 64 bits, and return its texts."""

    def is_plain(self, row: tuple[Any, ...]) -> bool:
        """Returns whether the row can be stored as it is. If not, ``find_conversions`` has the reason."""
        types = tuple(map(type, row))
        plan = self._plans.get(types)
        if plan is None:
            if not all(map(_fits, self._columns, types)):
                return False
            get_numbers = self._make_getter(types, int)
            pack = Struct(f"{len(get_numbers(row))}q").pack
            plan = self._plans[types] = get_numbers, pack, self._make_getter(types, str)
        get_numbers, pack, get_texts = plan
        try:
            pack(*get_numbers(row))
            "".join(get_texts(row)).encode()
        except (StructError, UnicodeEncodeError):
            return False
        return True

    def find_conversions(self, row: tuple[Any, ...], what: str) -> dict[str, Any]:
        """Returns, by column, the values that must be converted, as plain values.

        Raises ``TypeError`` or ``ValueError`` for a value that its column does not take. ``what`` is the row's name in
        the message.
        """
        found = {}
        for column, value in zip(self._columns, row, strict=False):
            converted = _convert(column, value, what)
            if converted is not value:
                found[column.name] = converted
        return found

    def _make_getter(self, types: Sequence[type], wanted: type) -> _Getter:
        places = [
            place
            for place, (column, kind) in enumerate(zip(self._columns, types, strict=False))
            if kind is not NoneType and _TYPES[column.type][0] is wanted
        ]
        # With one place, itemgetter would return no tuple.
        return itemgetter(*places, places[0]) if places else lambda row: ()


def _fits(column: Column, kind: type) -> bool:
    wanted = _TYPES[column.type][0]
    if kind is NoneType:
        return column.nullable
    return issubclass(kind, wanted) and (kind is not bool or wanted is bool)


def _convert(column: Column, value: Any, what: str) -> Any:
    wanted, noun = _TYPES[column.type]
    where = f"{column.name} of {what}"
    if _fits(column, type(value)):
        converted = value
    elif wanted is int and isinstance(value, Integral) and not isinstance(value, bool):
        converted = operator.index(value)
    elif wanted is bool and _is_numpy_bool(value):
        converted = bool(value)
    else:
        raise TypeError(f"{where} is {represent(value)}: it takes {noun}")
    if isinstance(converted, str) and to_encodable(converted) != converted:
        raise ValueError(f"{where} is {value!r}: it takes text that is UTF-8")
    if wanted is int and converted is not None and not -(2**63) <= converted < 2**63:
        raise ValueError(f"{where} is {represent(value)}: it takes {noun} of 64 bits")
    return converted


def _is_numpy_bool(value: Any) -> bool:
    """Returns whether a value is a boolean of NumPy, which is not imported for that."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.bool_)
