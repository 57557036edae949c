"""Initial values of registers: as the user gives them, and as a history suggests them.

``--initial=0`` is the initial value of all keys, and ``--initial=x=0`` that of key x. Values are JSON or EDN. The text
before the first ``=`` is a key, unless the whole begins as a value does: with a quote, a bracket, ``#`` or a backslash.

If a history has no legal order, its registers may have begun with another value than nil. A key suggests a value if its
first observation shows it, and no write of it was called before. Reads observe a value, and so
does a successful CAS: its expected value. The first observation is the one that returned first.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.linearizability import Model, ModelError
from assay.checkers.linearizability.model import InitialValues
from assay.harness.core.operation import Outcome
from assay.harness.core.printable import join_some
from assay.harness.foreign.edn import Symbol, find_unreadable, parse_first, to_json
from assay.harness.foreign.source import MalformedError, TextPosition
from assay.harness.run.settings import SettingsError
from assay.reports.evidence import Notation

VALUE_BEGINS: Final = tuple('"[{(#\\')
FIRST: Final = TextPosition(1, 1)
MOST_SUGGESTED: Final = 3
MOST_NAMED: Final = 5
COLUMNS: Final = ("f", "key", "argument", "result", "call", "ret", "outcome")


def read_values(text: str) -> list[Any]:
    """Reads JSON values or EDN values. Returns them as a history stores them, in JSON. Raises ``ValueError``."""
    try:
        found: list[Any] = json.loads(f"[{text}]", parse_constant=_reject_constant, parse_float=_parse_finite)
        json.dumps(found, ensure_ascii=False).encode()  # raises ValueError for half a character
    except (ValueError, RecursionError):
        found = _read_edn_values(f"[{text}]")  # which says what is wrong, if it cannot be read either
    return found


def _parse_finite(text: str) -> float:
    """Parses a number. Raises ``ValueError`` if it is too large, because JSON has no infinity."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")


def _read_edn_values(text: str) -> list[Any]:
    try:
        values, end = parse_first(Path("values"), text, FIRST)
    except MalformedError as error:
        raise ValueError(error.reason) from error
    if end != len(text):
        raise ValueError("a bracket is closed that was not opened")
    if (unreadable := find_unreadable(values)) is not None:
        raise ValueError(unreadable.reason)
    for value in values:
        if isinstance(value, Symbol):
            raise ValueError(f'{value.name} is a name; the string is "{value.name}"')
    found: list[Any] = json.loads(to_json(values))
    return found


def read_initial_values(given: Sequence[str]) -> InitialValues:
    """Reads the values of ``--initial``. Raises ``SettingsError``."""
    default: list[Any] = []
    by_key: dict[str, Any] = {}
    for text in given:
        key, equals, rest = text.partition("=")
        keyed = bool(equals) and not text.startswith(VALUE_BEGINS)
        try:
            values = read_values(rest if keyed else text)
            if len(values) != 1:
                raise ValueError(f"there are {len(values)} values, and there must be one")
        except ValueError as error:
            example = "give a value, such as 0, nil or '\"a\"', or a key and its value, such as x=0"
            raise SettingsError(f"--initial={text}: {example}: {error}") from error
        if key in by_key if keyed else default:
            whose = f"key {key}" if keyed else "every key"
            raise SettingsError(f"--initial={text}: {whose} has another initial value already")
        if keyed:
            by_key[key] = values[0]
        else:
            default = values
    return InitialValues(default[0] if default else None, by_key)


def require_keys(model: Model, ops: Iterable[pa.RecordBatch]) -> None:
    """Raises ``SettingsError`` if a key with an initial value of its own does not occur in the history."""
    wanted = set(model.initial_values.by_key)
    found: set[str | None] = set()
    for batch in ops if wanted else ():
        found.update(pc.unique(batch.column("key")).to_pylist())
    if missing := wanted - found:
        named = sorted(key for key in found if key is not None)
        has = f"only {join_some(named, MOST_NAMED)}" if named else "no keys"
        raise SettingsError(f"--initial gives values to {', '.join(sorted(missing))}, and the history has {has}")


def add_initial_values(model: Model, given: Sequence[str]) -> Model:
    """Returns the model with the values of ``--initial``. Raises ``SettingsError`` if the model takes none."""
    if not given:
        return model
    values, own = read_initial_values(given), model.initial_values
    if own.default is not None and values.default is not None:
        raise SettingsError(f"--initial gives a value, and so does --model={model.name}(...): choose one")
    default = own.default if values.default is None else values.default
    try:
        return model.with_initial(InitialValues(default, {**own.by_key, **values.by_key}))
    except ModelError as error:
        raise SettingsError(f"--initial is for registers and kv: {error}") from error


@dataclass
class _KeyStart:
    """The first observation of a key, and the first call of a write of each value. Values are JSON texts."""

    ret: int | None = None
    value: str = "null"
    written: dict[str, int] | None = None


def suggest_initial_values(
    ops: Iterable[pa.RecordBatch], judgement: Judgement, model: Model, notation: Notation
) -> str | None:
    """Returns a sentence that suggests ``--initial`` for failed registers, or None if no key suggests a value.

    ``notation`` turns the JSON of a value into the notation of the history.
    """
    if judgement.verdict is not Verdict.FAIL or not model.takes_initial:
        return None
    keys = {finding.key for finding in judgement.findings}
    found = {
        key: value
        for key, value in _find_first_values(ops).items()
        if (key in keys or key is None) and value != _to_text(model.initial_values.find(key))
    }
    if not found:
        return None
    key, value = next(iter(found.items()))
    shown = notation(value)
    if len(set(found.values())) == 1:
        options = [f"--initial={shown}"]
    else:
        options = [f"--initial={key}={notation(one)}" for key, one in list(found.items())[:MOST_SUGGESTED]]
    of_key = "" if key is None else f" of {key}"
    return (
        f"The first read{of_key} shows {shown}, which no one had written: if the register began with {shown}, say "
        f"{' '.join(map(shlex.quote, options))}"
    )


def _to_text(value: Any) -> str:
    return to_json(value) if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _find_first_values(ops: Iterable[pa.RecordBatch]) -> dict[str | None, str]:
    """Returns the first observed value of each key, as JSON, if no write of it was called before."""
    starts: dict[str | None, _KeyStart] = {}
    for batch in ops:
        columns = [batch.column(name).to_pylist() for name in COLUMNS]
        for f, key, argument, result, call, ret, outcome in zip(*columns, strict=True):
            if outcome == Outcome.FAIL:
                continue
            start = starts.setdefault(key, _KeyStart(written={}))
            observed, written = _read_operation(f, argument, result, outcome == Outcome.OK)
            if written is not None and start.written is not None:
                start.written[written] = min(call, start.written.get(written, call))
            if observed is not None and ret is not None and (start.ret is None or ret < start.ret):
                start.ret, start.value = ret, observed
    return {
        key: start.value
        for key, start in starts.items()
        if start.ret is not None and start.ret < (start.written or {}).get(start.value, start.ret + 1)
    }


def _read_operation(f: str, argument: str | None, result: str | None, ok: bool) -> tuple[str | None, str | None]:
    """Returns the value that an operation observed, and the value that it wrote, each as JSON or None."""
    if f in ("read", "get"):
        return (result or "null") if ok else None, None
    if f in ("write", "put"):
        return None, argument or "null"
    if f == "cas" and argument is not None and result != "false":
        pair = json.loads(argument)
        if isinstance(pair, list) and len(pair) == 2:
            return _to_text(pair[0]) if ok else None, _to_text(pair[1])
    return None, None
