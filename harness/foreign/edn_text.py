"""EDN values as canonical JSON: equal values have equal texts, different values have different texts.

Numbers, strings, booleans and nil become those of JSON. Vectors and lists become arrays, sets sorted arrays. Other
values become an object with one entry that names the type: ``{"keyword":"a"}``, ``{"map":[[k,v]]}``.
"""

import json
from decimal import Decimal
from typing import Any

from assay.harness.foreign.edn import Character, Keyword, Map, Set, Symbol, Tagged


def to_json(value: Any) -> str:
    if value is None:
        return "null"
    if type(value) is int and -(2**63) <= value < 2**63:
        return str(value)
    return json.dumps(_to_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def to_name(value: Any) -> str:
    """Returns a value as a name: a string itself, a keyword without its colon, everything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Keyword | Symbol):
        return value.name
    return to_json(value)


def _to_plain(value: Any) -> Any:
    match value:
        case tuple():
            return [_to_plain(element) for element in value]
        case Set(elements):
            return sorted((_to_plain(element) for element in elements), key=_sort_key)
        case Keyword(name):
            return {"keyword": name}
        case Symbol(name):
            return {"symbol": name}
        case Character(text):
            return {"char": text}
        case int() if type(value) is int and not -(2**63) <= value < 2**63:
            return {"integer": str(value)}
        case Decimal():
            return {"decimal": str(value)}
        case Map(pairs):
            return {"map": sorted(([_to_plain(key), _to_plain(one)] for key, one in pairs), key=_sort_key)}
        case Tagged(tag, inner):
            return {f"#{tag}": _to_plain(inner)}
        case _:
            return value


def _sort_key(plain: Any) -> tuple[bool, int | float, str]:
    """Sort key: numbers first, by size."""
    number = type(plain) in (int, float)
    return not number, plain if number else 0, json.dumps(plain)
