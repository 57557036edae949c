"""EDN printed from values, and random histories with the operations that they stand for, for all tests of formats."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import strategies as st

from assay.harness.foreign.edn import Character, Keyword, Map, Set, Symbol, Tagged

ESCAPES = {"\t": "\\t", "\r": "\\r", "\n": "\\n", "\\": "\\\\", '"': '\\"'}


def edn(value: Any, random: Random | None = None) -> str:
    """``value`` as EDN text; with ``random`` in one of the many ways in which that may be written."""
    blank = (
        (lambda: random.choice([" ", ", ", "\n", " ; not this ] }\n", " #_ (a b) ", "\t"])) if random else lambda: " "
    )
    match value:
        case None:
            return "nil"
        case bool():
            return str(value).lower()
        case int():
            return f"{value}N" if random and random.random() < 0.3 else str(value)
        case float():
            return repr(value)
        case Decimal():
            return f"{value}M"
        case str():
            return '"' + "".join(_letter(letter, random) for letter in value) + '"'
        case Keyword(name):
            return f":{name}"
        case Symbol(name):
            return name
        case Character(text):
            return f"\\{text}" if not text.isspace() else {"\n": "\\newline", " ": "\\space", "\t": "\\tab"}[text]
        case Tagged(tag, inner):
            return f"#{tag}{blank()}{edn(inner, random)}"
        case Set(elements):
            return "#{" + blank().join(edn(one, random) for one in elements) + "}"
        case Map(pairs):
            return "{" + blank().join(f"{edn(key, random)}{blank()}{edn(one, random)}" for key, one in pairs) + "}"
        case tuple():
            brackets = "()" if random and random.random() < 0.5 else "[]"
            return brackets[0] + blank().join(edn(one, random) for one in value) + brackets[1]
    raise AssertionError(f"no EDN for {value!r}")


def _letter(letter: str, random: Random | None) -> str:
    if random and random.random() < 0.1:
        return "".join(f"\\u{unit:04x}" for unit in _units(letter))
    return ESCAPES.get(letter, letter)


def _units(letter: str) -> list[int]:
    data = letter.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0),  # there is one zero
    st.decimals(-1000, 1000, places=3).map(lambda value: value.normalize() or Decimal(0)),
    st.text('a"\\\t\n\r;é∞\U0001f600', max_size=8),
    st.sampled_from(["a", "b-1?", "c.d/e", "nilly", "*+!"]).map(Keyword),
    st.sampled_from(["a", "b-1?", "c.d/e", "nilly", "*+!"]).map(Symbol),
    st.sampled_from("abc \n\té∞").map(Character),
)


@st.composite
def values(draw: st.DrawFn, depth: int = 3) -> Any:
    """Any EDN value."""
    kind = draw(st.integers(0, 7)) if depth else 0
    if kind < 4:
        return draw(ATOMS)
    if kind == 7:
        return Tagged(draw(st.sampled_from(["inst", "jepsen.history.Op", "a/b"])), draw(values(depth - 1)))
    inner = draw(st.lists(values(depth - 1), max_size=4))
    if kind == 4:
        return tuple(inner)
    different = tuple({(type(one), repr(one)): one for one in inner}.values())
    if kind == 5:
        return Set(different)
    return Map(tuple((key, draw(values(depth - 1))) for key in different))


VALUES = values()


@dataclass
class Recorded:
    """A history as events, and its operations as rows of ``ops`` should have them, in the order of their calls."""

    events: list[dict[str, Any]] = field(default_factory=list)
    """``process`` None: the nemesis. ``time`` in nanoseconds."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    keyed: bool = False


MODEL = "cas-register"


@st.composite
def histories(draw: st.DrawFn, most: int = 24) -> Recorded:
    """A history of CAS registers, with nemesis and crashes; values need not make sense."""
    recorded = Recorded(keyed=draw(st.booleans()))
    clients = [0, 1, 2]
    open_rows: dict[int, int] = {}
    time = 0
    for position in range(draw(st.integers(1, most))):
        time += draw(st.integers(0, 3))
        if draw(st.integers(0, 9)) == 0:
            recorded.events.append({"process": None, "type": "info", "f": "start", "value": None, "time": time})
            continue
        client = draw(st.integers(0, 2))
        process = clients[client]
        if process not in open_rows:
            f = draw(st.sampled_from(["read", "write", "cas"]))
            value = {"read": None, "write": draw(VALUE), "cas": (draw(VALUE), draw(VALUE))}[f]
            key = draw(st.sampled_from([1, "a b", "x"])) if recorded.keyed else None
            event = {"process": process, "type": "invoke", "f": f, "key": key, "value": value, "time": time}
            open_rows[process] = len(recorded.rows)
            recorded.rows.append(
                {
                    "index": position, "process": process, "worker": str(process), "f": f,
                    "key": None if key is None else str(key), "argument": _json(value), "result": None,
                    "position": position, "time": time, "end": None, "outcome": "info", "error": None,
                }
            )  # fmt: skip
        else:
            row = recorded.rows[open_rows.pop(process)]
            call = next(
                event for event in reversed(recorded.events) if (event["process"], event["type"]) == (process, "invoke")
            )
            kind = draw(st.sampled_from(["ok", "ok", "fail", "info"]))
            value = draw(VALUE) if kind == "ok" and row["f"] == "read" else call["value"]
            error = draw(st.sampled_from([None, Keyword("timed-out"), "it, broke"])) if kind != "ok" else None
            event = {**call, "type": kind, "value": value, "error": error, "time": time}
            row["outcome"] = kind
            row["error"] = error.name if isinstance(error, Keyword) else error
            if kind == "ok":
                row["result"] = None if value is None else _json(value)
            if kind == "info":
                clients[client] += 3
            else:
                row["end"] = (position, time)
        recorded.events.append(event)
    return recorded


VALUE = st.one_of(st.integers(0, 4), st.sampled_from(["x", "a\tb", "é"]))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_edn(
    recorded: Recorded, *, vector: bool, times: bool = False, indexes: bool = False, tag: str | None = None
) -> str:
    """``history.edn``."""
    printed = []
    for position, event in enumerate(recorded.events):
        value = event["value"]
        if recorded.keyed and event["process"] is not None:
            value = (event["key"], value)
        pairs = [
            ("process", Keyword("nemesis") if event["process"] is None else event["process"]),
            ("type", Keyword(event["type"])),
            ("f", Keyword(event["f"])),
            ("value", value),
        ]
        if event.get("error") is not None:
            pairs.append(("error", event["error"]))
        if times:
            pairs.append(("time", event["time"]))
        if indexes:
            pairs.append(("index", position))
        one: Any = Map(tuple((Keyword(name), said) for name, said in pairs))
        printed.append(edn(one if tag is None else Tagged(tag, one)))
    text = "\n".join(printed) + "\n"
    return f"[{text}]\n" if vector else text


def as_log(recorded: Recorded, noise: bool = True) -> str:
    """Lines of a ``jepsen.log``."""
    lines = ["INFO  jepsen.core - Worker 0 starting"] if noise else []
    for number, event in enumerate(recorded.events):
        value = event["value"]
        if recorded.keyed and event["process"] is not None:
            value = (event["key"], value)
        process = ":nemesis" if event["process"] is None else event["process"]
        words = [f"{process}", f":{event['type']}", f":{event['f']}", edn(value)]
        if event.get("error") is not None:
            words.append(edn(event["error"]))
        prefix = ["INFO  jepsen.util - ", "2022-11-22 01:02:03,456{GMT}\tINFO\t[jepsen worker 0] jepsen.util: "][
            number % 2
        ]
        lines.append(prefix + ("\t" if number % 3 else " ").join(words))
        if noise and number % 4 == 0:
            lines.append("WARN  something else - 0 :invoked nothing")
    return "\n".join(lines) + "\n"
