"""Entry of a history: one map, vector or line, which is a call of a process or its completion."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.harness.core.operation import Outcome
from assay.harness.foreign.edn import (
    Keyword,
    Map,
    Symbol,
    Tagged,
    Unreadable,
    find_unreadable,
    to_name,
    to_source,
)
from assay.harness.foreign.source import MalformedError, TextPosition

INVOKE: Final = "invoke"
TYPES: Final = (INVOKE, *Outcome)
MAX_PROCESSES: Final = 2**31
MAX_INDEX: Final = 2**63
MAX_TIME: Final = 2**62
"""Limit of times in nanoseconds (146 years). Higher int64 values are kept free: equal times are moved to later ones."""
ABSENT: Final = -1
"""Stands for an unknown ``:time`` or ``:index``, as in Jepsen's records of operations."""
NEMESIS: Final = "nemesis"
NO_KEY: Final = object()
"""Marks an entry without ``:key``; nil is a valid key."""
TUPLE_FIELDS: Final = ("process", "type", "f", "value")
"""The elements of an entry that is a vector, as Knossos reads them."""
_NEEDED: Final = ("process", "type", "f", "key", "time", "index")
"""Fields whose values must be readable. The value is needed only if a check reads it."""


MORE_FIELDS: Final = ("link", "position", "rebalance-log")
"""Further fields of completions, which checks of workloads read."""


class Entry(msgspec.Struct, frozen=True):
    """A call or a completion. ``type`` is one of ``TYPES``.

    - ``process``: the number of a client; None if the entry has none
    - ``nemesis``: an event of the nemesis, which has no process
    - ``f``: empty if the entry has none
    - ``unreadable``: the first unreadable part of the value
    """

    place: TextPosition
    process: int | None
    type: str
    f: str
    value: Any
    key: Any = NO_KEY
    time: int | None = None
    index: int | None = None
    error: str | None = None
    nemesis: bool = False
    unreadable: Unreadable | None = None
    final: bool = False
    """Whether the entry is marked ``:final?``, as Maelstrom's last reads are."""
    more: Mapping[str, Any] | None = None
    """The fields of ``MORE_FIELDS`` that the entry has."""


def read_entry(path: Path, place: TextPosition, value: Any, *, has_unreadable: bool = False) -> Entry:
    """Reads an operation: a map, a record printed as one, or a vector of ``TUPLE_FIELDS``.

    ``has_unreadable``: the value may have unreadable parts. Raises ``MalformedError``.
    """
    fields = _read_fields(path, place, value)
    if has_unreadable:
        for name in _NEEDED:
            require_readable(path, find_unreadable(fields.get(name)), f"the :{name} of an operation")
    if "type" not in fields:
        raise MalformedError(
            path, place, f"this operation has no :type; an operation has one of :{', :'.join(TYPES)}, such as :type :ok"
        )
    process, f, error = fields.get("process"), fields.get("f"), fields.get("error")
    kind = parse_type(path, place, fields["type"])
    nemesis = _is_nemesis(process, kind)
    return Entry(
        place=place,
        process=None if nemesis or process is None else parse_process(path, place, process),
        type=kind,
        f="" if f is None else parse_name(path, place, "f", f),
        value=fields.get("value"),
        key=fields.get("key", NO_KEY),
        time=_parse_natural(path, place, "time", fields, MAX_TIME),
        index=_parse_natural(path, place, "index", fields, MAX_INDEX),
        error=None if error is None else to_name(error),
        nemesis=nemesis,
        unreadable=find_unreadable(fields.get("value")) if has_unreadable else None,
        final=fields.get("final?") is True,
        more={name: fields[name] for name in MORE_FIELDS if name in fields} or None,
    )


def _read_fields(path: Path, place: TextPosition, value: Any) -> dict[str, Any]:
    if isinstance(value, Unreadable):
        raise MalformedError(path, value.place, f"{value.reason}; an operation is a map such as {{:process 0, ...}}")
    if isinstance(value, Tagged):
        value = value.value
    if isinstance(value, tuple) and len(value) == len(TUPLE_FIELDS):
        return dict(zip(TUPLE_FIELDS, value, strict=True))
    if not isinstance(value, Map):
        raise MalformedError(
            path,
            place,
            f"an operation is a map such as {{:process 0, :type :ok, :f :read, :value 1}}, or a vector "
            f"[process type f value], not {to_source(value)}",
        )
    fields: dict[str, Any] = {}
    for key, item in value.pairs:
        if isinstance(key, Keyword | str):
            fields.setdefault(key.name if isinstance(key, Keyword) else key, item)
    return fields


def require_readable(path: Path, unreadable: Unreadable | None, use: str) -> None:
    """Raises ``MalformedError`` for an unreadable part of a value that is needed. ``use``: what the value is."""
    if unreadable is not None:
        raise MalformedError(path, unreadable.place, f"{unreadable.reason}, and {use} must be readable; repair it")


def _is_nemesis(process: Any, kind: str) -> bool:
    """Returns whether an entry is an event of the nemesis: its process has this name, or another name of a keyword.

    Under another name, it is an event only with the type info. With another type it is an operation, so its process is
    a client that is no number. Such an operation must not be overlooked.
    """
    if isinstance(process, Keyword | Symbol):
        return process.name == NEMESIS or kind == Outcome.INFO
    return bool(process == NEMESIS)


def parse_process(path: Path, place: TextPosition, value: Any) -> int:
    """Returns the number of a client. Raises ``MalformedError`` for other values."""
    if type(value) is not int or not 0 <= value < MAX_PROCESSES:
        raise MalformedError(
            path,
            place,
            f":process is {to_source(value)}; a client is a number from 0 on, below {MAX_PROCESSES}, "
            "and the nemesis a keyword; give each client a number, in all its entries",
        )
    return value


def parse_type(path: Path, place: TextPosition, value: Any) -> str:
    """Returns one of ``TYPES``. Raises ``MalformedError`` for other values."""
    name = value.name if isinstance(value, Keyword | Symbol) else value
    if name not in TYPES:
        raise MalformedError(path, place, f":type is {to_source(value)}, which is none of :{', :'.join(TYPES)}")
    return str(name)


def parse_name(path: Path, place: TextPosition, field: str, value: Any) -> str:
    """Returns a keyword, a symbol or a string as a name. Raises ``MalformedError`` for other values."""
    if not isinstance(value, Keyword | Symbol | str):
        raise MalformedError(path, place, f":{field} is {to_source(value)}; it is a name, such as :read")
    return to_name(value)


def _parse_natural(path: Path, place: TextPosition, name: str, fields: dict[str, Any], end: int) -> int | None:
    value = fields.get(name)
    if value is None or (type(value) is int and value == ABSENT):
        return None
    if type(value) is float and value.is_integer() and 0 <= value < 2**53:
        value = int(value)
    if type(value) is not int or not 0 <= value < end:
        raise MalformedError(path, place, f":{name} is {to_source(value)}; it is a whole number from 0 on, below {end}")
    return value
