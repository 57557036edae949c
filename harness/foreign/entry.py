"""Entry of a history: one map or log line, which is a call of a process or its completion."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay.harness.core.operation import Outcome
from assay.harness.foreign.edn import Keyword, Map, Symbol, Tagged, to_json, to_name
from assay.harness.foreign.source import MalformedError, TextPosition, shorten

INVOKE: Final = "invoke"
TYPES: Final = (INVOKE, *Outcome)
MAX_PROCESSES: Final = 2**31
MAX_INDEX: Final = 2**63
MAX_TIME: Final = 2**62
"""Limit of times in nanoseconds (146 years). Higher int64 values are kept free: equal times are moved to later ones."""
NO_KEY: Final = object()
"""Marks an entry without ``:key``; nil is a valid key."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A call or a completion. ``type`` is one of ``TYPES``. ``process`` is None for events of the nemesis."""

    place: TextPosition
    process: int | None
    type: str
    f: str
    value: Any
    key: Any = NO_KEY
    time: int | None = None
    index: int | None = None
    error: str | None = None


def read_entry(path: Path, place: TextPosition, value: Any) -> Entry:
    """Reads an operation of ``history.edn``: a map, or a record printed as one. Raises ``MalformedError``."""
    if isinstance(value, Tagged) and isinstance(value.value, Map):
        value = value.value
    if not isinstance(value, Map):
        raise MalformedError(path, place, f"an operation is a map, not {shorten(to_json(value))}")
    fields = {key.name: item for key, item in value.pairs if type(key) is Keyword}
    for name in ("process", "type", "f"):
        if name not in fields:
            raise MalformedError(path, place, f"this operation has no :{name}")
    process = fields["process"]
    error = fields.get("error")
    return Entry(
        place=place,
        process=None if type(process) is Keyword else parse_process(path, place, process),
        type=parse_type(path, place, fields["type"]),
        f=parse_name(path, place, "f", fields["f"]),
        value=fields.get("value"),
        key=fields.get("key", NO_KEY),
        time=_parse_natural(path, place, "time", fields, MAX_TIME),
        index=_parse_natural(path, place, "index", fields, MAX_INDEX),
        error=None if error is None else to_name(error),
    )


def parse_process(path: Path, place: TextPosition, value: Any) -> int:
    """Returns the number of a client. Raises ``MalformedError`` for other values."""
    if type(value) is not int or not 0 <= value < MAX_PROCESSES:
        raise MalformedError(
            path, place, f":process is {shorten(to_json(value))}; a client is a number from 0 on, the nemesis a keyword"
        )
    return value


def parse_type(path: Path, place: TextPosition, value: Any) -> str:
    """Returns one of ``TYPES``. Raises ``MalformedError`` for other values."""
    name = value.name if isinstance(value, Keyword) else value
    if name not in TYPES:
        raise MalformedError(
            path, place, f":type is {shorten(_quote_value(value))}, which is none of :{', :'.join(TYPES)}"
        )
    return str(name)


def parse_name(path: Path, place: TextPosition, field: str, value: Any) -> str:
    """Returns a keyword, a symbol or a string as a name. Raises ``MalformedError`` for other values."""
    if not isinstance(value, Keyword | Symbol | str):
        raise MalformedError(path, place, f":{field} is {shorten(to_json(value))}; it is a name, such as :read")
    return to_name(value)


def _parse_natural(path: Path, place: TextPosition, name: str, fields: dict[str, Any], end: int) -> int | None:
    value = fields.get(name)
    if value is not None and (type(value) is not int or not 0 <= value < end):
        raise MalformedError(
            path, place, f":{name} is {shorten(_quote_value(value))}; it is a whole number from 0 on, below {end}"
        )
    return value


def _quote_value(value: Any) -> str:
    return f":{value.name}" if isinstance(value, Keyword) else to_json(value)
