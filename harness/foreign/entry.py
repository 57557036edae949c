"""Entry of a history: one map or log line, which is a call of a process or its completion."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay.harness.core.operation import Outcome
from assay.harness.foreign.edn import Keyword, Map, Symbol, Tagged
from assay.harness.foreign.edn_text import text_of, to_json
from assay.harness.foreign.malformed import MalformedError, Place, shown

INVOKE: Final = "invoke"
TYPES: Final = (INVOKE, *Outcome)
MOST_PROCESSES: Final = 2**31
LARGEST: Final = 2**63
LATEST: Final = 2**62
"""Nanoseconds, 146 years. The rest of int64 is left for entries of equal times, which are moved apart."""
NO_KEY: Final = object()
"""Marks an entry without ``:key``; nil is a valid key."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A call or a completion. ``process`` None is the nemesis, whose events do not affect the state; ``type``:
    ``TYPES``.
    """

    place: Place
    process: int | None
    type: str
    f: str
    value: Any
    key: Any = NO_KEY
    time: int | None = None
    index: int | None = None
    error: str | None = None


def from_map(path: Path, place: Place, value: Any) -> Entry:
    """Reads an operation of ``history.edn``: a map, or a record printed as one. Raises ``MalformedError``."""
    if isinstance(value, Tagged) and isinstance(value.value, Map):
        value = value.value
    if not isinstance(value, Map):
        raise MalformedError(path, place, f"an operation is a map, not {shown(to_json(value))}")
    said = {key.name: one for key, one in value.pairs if type(key) is Keyword}
    for name in ("process", "type", "f"):
        if name not in said:
            raise MalformedError(path, place, f"this operation has no :{name}")
    process = said["process"]
    error = said.get("error")
    return Entry(
        place=place,
        process=None if type(process) is Keyword else process_of(path, place, process),
        type=type_of(path, place, said["type"]),
        f=name_of(path, place, "f", said["f"]),
        value=said.get("value"),
        key=said.get("key", NO_KEY),
        time=_natural(path, place, "time", said, LATEST),
        index=_natural(path, place, "index", said, LARGEST),
        error=None if error is None else text_of(error),
    )


def process_of(path: Path, place: Place, value: Any) -> int:
    """Returns the number of a client. Raises ``MalformedError`` for other values."""
    if type(value) is not int or not 0 <= value < MOST_PROCESSES:
        raise MalformedError(
            path, place, f":process is {shown(to_json(value))}; clients are numbers from 0 on, the nemesis a keyword"
        )
    return value


def type_of(path: Path, place: Place, value: Any) -> str:
    """Returns one of ``TYPES``. Raises ``MalformedError`` for other values."""
    name = value.name if isinstance(value, Keyword) else value
    if name not in TYPES:
        raise MalformedError(path, place, f":type is {shown(_said(value))}, which is none of :{', :'.join(TYPES)}")
    return str(name)


def name_of(path: Path, place: Place, what: str, value: Any) -> str:
    """Returns a keyword, a symbol or a string as a name. Raises ``MalformedError`` for other values."""
    if not isinstance(value, Keyword | Symbol | str):
        raise MalformedError(path, place, f":{what} is {shown(to_json(value))}; it is a name, such as :read")
    return text_of(value)


def _natural(path: Path, place: Place, name: str, said: dict[str, Any], end: int) -> int | None:
    value = said.get(name)
    if value is not None and (type(value) is not int or not 0 <= value < end):
        raise MalformedError(
            path, place, f":{name} is {shown(_said(value))}; it is a whole number from 0 on, below {end}"
        )
    return value


def _said(value: Any) -> str:
    return f":{value.name}" if isinstance(value, Keyword) else to_json(value)
