"""Encodes a history's operations as arrays of integers, key by key.

Equal operations of one key are encoded once: the texts of each column are numbered, equal rows of numbers are one
*class*, and the model encodes each class once. So parsing JSON is cheap if values repeat. If the model reads the
process of a call (``Call.process``), the operations of each process are a class of their own. If it reads a time, each
operation is a class of its own.

Values and actions are numbered within their key, in the order in which its operations were called. So the result for a
key depends only on its own operations.

Operations with outcome fail did not happen, and reads with outcome info have no result. Both are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from assay.checkers.linearizability.model import (
    TIMES,
    Action,
    Call,
    Model,
    ModelError,
    Origin,
    Values,
    calling_model,
    require_action,
)
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
else:
    np, pa = LazyModule("numpy"), LazyModule("pyarrow")

COLUMNS: Final = ("index", "process", "f", "key", "argument", "result", "call", "ret", "outcome")
FOREVER: Final = 2**63 - 1
"""Stands for the missing ``ret`` of an operation of unknown outcome."""
LONGEST_SHOWN: Final = 60
"""Maximum number of characters of a displayed value; longer values are cut."""


def describe_key(key: str | None) -> str:
    """Returns the key in words."""
    return "the history" if key is None else f"key {key}"


@dataclass(frozen=True)
class KeyHistory:
    """The encoded operations of one key, sorted by call. Each array has one entry per operation."""

    model: Model
    key: str | None
    index: Ints
    """The operation's ``index`` in the history."""
    process: Ints
    call: Ints
    ret: Ints
    """``FOREVER`` if the outcome is info."""
    action: Ints
    """An index into ``actions``."""
    actions: list[Action]
    texts: list[str]
    """For each action, an operation that performs it, in words."""
    values: Values
    """The texts of the numbers by which actions name values."""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def name(self) -> str:
        """The key in words."""
        return describe_key(self.key)

    def describe_operation(self, row: int) -> str:
        """Returns the operation in that row of the arrays, in words."""
        call, ret = (f"{int(time) / 1e9:.9g} s" for time in (self.call[row], self.ret[row]))
        ended = "never known to return" if self.ret[row] == FOREVER else f"returned at {ret}"
        process = f"process {int(self.process[row])}" if self.process[row] >= 0 else "unnamed process"
        details = f"operation {int(self.index[row])}, {process}, called at {call}, {ended}"
        return f"{self.texts[int(self.action[row])]} ({details})"


@dataclass(frozen=True)
class EncodedHistory:
    """The encoded operations of all keys, sorted by key and then by call. Each array has one entry per operation."""

    model: Model
    index: Ints
    process: Ints
    key: Ints
    """An index into ``keys``."""
    call: Ints
    ret: Ints
    action: Ints
    """An index into ``actions``."""
    keys: list[str | None]
    """Keys with encoded operations, ordered by the lowest index of any of their operations."""
    values: list[Values]
    """A list with one entry per key."""
    bounds: list[int]
    """The first row of each key, and the end of the last key's rows."""
    actions: list[Action]
    """The distinct actions, sorted by key."""
    texts: list[str]
    first: list[int]
    """The first action of each key, and the number of all actions."""

    def __len__(self) -> int:
        return len(self.index)

    def length(self, number: int) -> int:
        """Returns the number of operations of a key."""
        return self.bounds[number + 1] - self.bounds[number]

    def history(self, number: int) -> KeyHistory:
        """Returns the history of one key."""
        rows = slice(self.bounds[number], self.bounds[number + 1])
        own = slice(self.first[number], self.first[number + 1])
        return KeyHistory(
            model=self.model,
            key=self.keys[number],
            index=self.index[rows],
            process=self.process[rows],
            call=self.call[rows],
            ret=self.ret[rows],
            action=self.action[rows] - own.start,
            actions=self.actions[own],
            texts=self.texts[own],
            values=self.values[number],
        )


def encode(ops: pa.Table, model: Model) -> EncodedHistory:
    """Encodes a table of operations. Raises ``ModelError`` if the table or an operation does not fit the model."""
    missing = [name for name in COLUMNS if name not in ops.column_names]
    if missing:
        raise ModelError(f"the table of operations has no column {', '.join(missing)}")
    codes = {name: _number_texts(ops[name]) for name in ("f", "key", "argument", "result", "outcome")}
    call, ret = _read_integers(ops["call"]), _read_integers(ops["ret"].fill_null(FOREVER))
    index = _read_integers(ops["index"])
    codes["key"] = _order_by_first(*codes["key"], index)
    key = codes["key"][0]
    outcome, outcomes = codes["outcome"][0], codes["outcome"][1].to_pylist()
    _check_times(index, call, ret, outcome, outcomes)
    info = np.array([text == "info" for text in outcomes], dtype=np.bool_)[outcome]
    ret = np.where(info, FOREVER, ret)
    order = np.lexsort((index, ret, call, key))
    process = _read_integers(ops["process"])
    numbering = _ActionNumbering(model)

    def number_row(row: int) -> int:
        texts = {name: _read_text(texts, numbers[row]) for name, (numbers, texts) in codes.items()}
        end = int(ret[row])
        origin = Origin(int(process[row]), int(call[row]), None if end == FOREVER else end)
        return numbering.number(int(key[row]), texts, int(index[row]), origin)

    combined = _number_classes([codes[name][0][order] for name in ("key", "f", "argument", "result", "outcome")])
    numbers = _number_rows(combined, process[order], lambda place: number_row(int(order[place])), numbering)
    kept = numbers >= 0
    rows, numbers = order[kept], numbers[kept]
    starts = np.flatnonzero(np.diff(key[rows], prepend=-1))
    return EncodedHistory(
        model=model,
        index=index[rows],
        process=process[rows],
        key=np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(rows)))),
        call=call[rows],
        ret=ret[rows],
        action=numbers,
        keys=[_read_text(codes["key"][1], code) for code in key[rows][starts].tolist()],
        values=[numbering.values[code] for code in key[rows][starts].tolist()],
        bounds=[*starts.tolist(), len(rows)],
        actions=numbering.actions,
        texts=numbering.texts,
        first=[*(numbering.first[code] for code in key[rows][starts].tolist()), len(numbering.actions)],
    )


def _number_rows(combined: Ints, process: Ints, number_row: Callable[[int], int], numbering: _ActionNumbering) -> Ints:
    """Returns the number of each row's action. ``combined`` has the class of each row.

    ``number_row`` is called for the first row of each class. If the model then reads a fact that differs within the
    class, the class is divided by this fact. Rows of one class lead to equal calls up to the first such read, so a fact
    that the first row does not read is read by no row.
    """
    _, first, group = np.unique(combined, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    numbers = np.empty(len(combined), dtype=np.int64)
    divided = np.zeros(len(first), dtype=np.bool_)
    by_class: Ints | None = None
    for place in np.argsort(first).tolist():
        number[place] = number_row(int(first[place]))
        if not numbering.used:
            continue
        divided[place] = True
        if by_class is None:
            by_class = np.argsort(group, kind="stable")
            ends = np.cumsum(np.bincount(group)).tolist()
        of_process: dict[int, int] = {}
        for row in by_class[ends[place - 1] if place else 0 : ends[place]].tolist():
            known = of_process.get(int(process[row]))
            if known is None:
                known = number_row(row)
                if TIMES not in numbering.used:
                    of_process[int(process[row])] = known
            numbers[row] = known
    return np.where(divided[group], numbers, number[group])


class _ActionNumbering:
    """Numbers the actions, one key after the other."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._known: dict[Action, int] = {}
        """The numbers of the actions of the present key."""
        self.actions: list[Action] = []
        self.texts: list[str] = []
        self.values: dict[int, Values] = {}
        self.first: dict[int, int] = {}
        """By key, the number of its first action."""
        self.used: set[str] = set()
        """The parts of ``Call.origin`` that the model read for the latest operation."""

    def number(self, key: int, texts: dict[str, str | None], index: int, origin: Origin) -> int:
        """Returns the number of an operation's action, or -1 if the operation is left out."""
        if key not in self.values:
            self._known = {}
            self.values[key] = Values(self._model.initial_values.find(texts["key"]))
            self.first[key] = len(self.actions)
        action = self._encode(texts, self.values[key], index, origin)
        if action is None:
            return -1
        number = self._known.setdefault(action, len(self.actions))
        if number == len(self.actions):
            self.actions.append(action)
            self.texts.append(_describe_operation(texts))
        return number

    def _encode(self, texts: dict[str, str | None], values: Values, index: int, origin: Origin) -> Action | None:
        outcome, model = texts["outcome"], self._model
        self.used = set()
        if outcome == "fail":
            return None
        if outcome not in ("ok", "info"):
            raise ModelError(f"operation {index} has the outcome {outcome!r}; it must be ok, fail or info")
        argument, result = (_decode(texts[name], name, index) for name in ("argument", "result"))
        known = outcome == "ok"
        call = Call(
            str(texts["f"]), argument, result if known else None, known, values, texts["key"], origin, self.used
        )
        try:
            with calling_model(model, f"f {call.f}"):
                encoded = model.encode(call)
                action = None if encoded is None else require_action(model, encoded)
        except ModelError as error:
            raise ModelError(f"operation {index}: {error}") from error
        if action is None or (action.reads and not known):
            return None
        return action


def _describe_operation(texts: dict[str, str | None]) -> str:
    """Returns texts such as ``read() = 3`` and ``write(5)``."""
    argument, result = (texts[name] or "null" for name in ("argument", "result"))
    shown = [text if len(text) <= LONGEST_SHOWN else f"{text[:50]}..." for text in (argument, result)]
    call = f"{texts['f']}({'' if argument == 'null' else shown[0]})"
    return call if result in ("null", argument) and argument != "null" else f"{call} = {shown[1]}"


def _decode(text: str | None, name: str, index: int) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ModelError(f"operation {index}: its {name} {text!r} is not JSON: {error}") from error


def _number_texts(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Returns each row's text as a number, and the texts; null is a text of its own."""
    dictionary = column.dictionary_encode(null_encoding="encode").combine_chunks()
    return np.asarray(dictionary.indices, dtype=np.int64), dictionary.dictionary


def _order_by_first(numbers: Ints, texts: pa.Array, index: Ints) -> tuple[Ints, pa.Array]:
    """Sorts the texts by the lowest index of their rows. The order of the table has no influence."""
    first = np.full(len(texts), FOREVER)
    np.minimum.at(first, numbers, index)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[numbers], texts.take(pa.array(order))


def _read_text(texts: pa.Array, number: int) -> str | None:
    text: str | None = texts[int(number)].as_py()
    return text


def _read_integers(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _number_classes(columns: list[Ints]) -> Ints:
    """Returns one number per row: equal for rows with equal columns. Renumbering after each column avoids overflow."""
    combined = np.zeros_like(columns[0])
    for column in columns:
        combined = combined * (int(column.max(initial=0)) + 1) + column
        _, combined = np.unique(combined, return_inverse=True)
    return combined


def _check_times(index: Ints, call: Ints, ret: Ints, outcome: Ints, outcomes: list[str | None]) -> None:
    ok = np.array([text == "ok" for text in outcomes], dtype=np.bool_)[outcome]
    for wrong, what in (
        (ok & (ret == FOREVER), "ended ok at no known time"),
        (ok & (ret < call), "ended before it began"),
    ):
        if wrong.any():
            raise ModelError(f"operation {int(index[np.argmax(wrong)])} {what}")
