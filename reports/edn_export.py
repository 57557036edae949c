"""EDN export of a history for Jepsen's tools: one map per line, an invocation and then its completion.

``{:index 12, :type :invoke, :process 3, :f :send, :key "orders-0", :value [7], :time 1204000000}``. ``:index`` numbers
the lines. ``:op`` is the operation's index in a report. Times are nanoseconds since the run began. An operation without
an answer has no completion, as in Jepsen. ``:value`` is the argument in an invocation. In an ok completion it is the
result, or the argument if there is no result.
"""

import gzip
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from assay.reports.history_db import HistoryDatabase

MOST_OPERATIONS: Final = 200_000
"""Longer histories are not embedded in a page."""
MOST_CHARACTERS: Final = 12_000_000
"""Maximum length of all arguments and results of an embedded history; more does not compress to ``MOST_BYTES``."""
MOST_BYTES: Final = 2_000_000
"""Maximum compressed size of an embedded history."""
_LEVEL: Final = 6
"""The level of compression: level 9 takes four times as long and saves 5 %."""
_NAME: Final = re.compile(r"[A-Za-z*!_?$%&=<>][A-Za-z0-9*!_?$%&=<>.+-]*")

_LINES: Final = """
    select time, place, index, process, f, key, type, text, error from (
        select call as time, 1 as place, index, process, f, key, 'invoke' as type, argument as text,
            null as error from ops
        union all
        select ret, 0, index, process, f, key, outcome, case when outcome = 'ok' then coalesce(result, argument)
            else argument end, error from ops where ret is not null) lines
    order by time, place, index
    """
"""Completions precede invocations of the same time, so that the real-time order is preserved."""


def compress_history(database: HistoryDatabase) -> bytes | None:
    """Returns the export compressed with gzip, or None if the history is too long for a page."""
    if database.operations > MOST_OPERATIONS:
        return None
    (total,) = database.rows(
        "select sum(coalesce(length(argument), 0) + coalesce(length(result), 0)) as characters from ops"
    )
    if (total["characters"] or 0) > MOST_CHARACTERS:
        return None
    data = gzip.compress("".join(iterate_lines(database)).encode(errors="replace"), _LEVEL, mtime=0)
    return data if len(data) <= MOST_BYTES else None


def iterate_lines(database: HistoryDatabase) -> Iterator[str]:
    """Yields the lines, each with its line ending."""
    for number, row in enumerate(database.rows(_LINES)):
        parts = [
            f":index {number}",
            f":type :{row['type']}",
            f":process {row['process']}",
            f":f {_to_keyword(row['f'])}",
            *([] if row["key"] is None else [f":key {_to_string(row['key'])}"]),
            f":value {convert_json(row['text'])}",
            f":time {row['time']}",
            f":op {row['index']}",
            *([] if row["error"] is None else [f":error {_to_string(row['error'])}"]),
        ]
        yield "{" + ", ".join(parts) + "}\n"


def convert_json(text: str | None) -> str:
    """Converts JSON text to EDN; invalid JSON becomes a string."""
    if text is None:
        return "nil"
    try:
        return _to_edn(json.loads(text))
    except (ValueError, RecursionError):
        return _to_string(text)


def _to_edn(plain: Any) -> str:
    match plain:
        case None:
            return "nil"
        case bool():
            return "true" if plain else "false"
        case int():
            return str(plain) if -(2**63) <= plain < 2**63 else f"{plain}N"
        case float():
            return repr(plain) if math.isfinite(plain) else _to_string(repr(plain))
        case str():
            return _to_string(plain)
        case list():
            return "[" + " ".join(map(_to_edn, plain)) + "]"
        case dict():
            return "{" + ", ".join(f"{_to_keyword(key)} {_to_edn(one)}" for key, one in plain.items()) + "}"
    raise TypeError(f"JSON holds no {type(plain).__name__}")


def _to_keyword(text: str) -> str:
    """Returns a keyword if the text can be one, otherwise a string."""
    return f":{text}" if _NAME.fullmatch(text) else _to_string(text)


def _to_string(text: str) -> str:
    """Returns a string literal; EDN has the same escapes as JSON."""
    return json.dumps(text, ensure_ascii=False)
