"""Turns a history's operations into arrays of integers, key by key.

Operations that say the same in the same words are encoded once: a column's texts get numbers, equal rows of numbers are
one *class*, and the model sees each class once. So reading JSON costs next to nothing where values repeat.

What ended fail did not happen, and what ended info and reads only says nothing: both are left out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from checkers.linearizability.model import Action, Call, Model, ModelError, Values

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

COLUMNS: Final = ("index", "process", "f", "key", "argument", "result", "call", "ret", "outcome")
FOREVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Encoded:
    """All operations that count, sorted by key and then by call. One entry per operation in each array."""

    model: Model
    index: Ints
    """The operation's ``index`` in the history."""
    process: Ints
    key: Ints
    """A number into ``keys``."""
    call: Ints
    ret: Ints
    """``FOREVER`` where the outcome is info."""
    action: Ints
    """A number into ``actions``."""
    keys: list[str | None]
    actions: list[Action]
    texts: list[str]
    """Per action: an operation that does it, in words."""
    values: Values = field(default_factory=Values)

    def __len__(self) -> int:
        return len(self.index)

    def by_key(self) -> Iterator[tuple[str | None, slice]]:
        """Each key that has operations, and where they are."""
        bounds = [0, *(np.flatnonzero(np.diff(self.key)) + 1).tolist(), len(self)]
        for start, stop in pairwise(bounds) if len(self) else ():
            yield self.keys[int(self.key[start])], slice(start, stop)

    def named(self, row: int) -> str:
        """The operation in that row of the arrays, in words."""
        call, ret = (f"{int(time) / 1e9:.9g} s" for time in (self.call[row], self.ret[row]))
        ended = "never known to return" if self.ret[row] == FOREVER else f"returned at {ret}"
        told = f"operation {int(self.index[row])}, process {int(self.process[row])}, called at {call}, {ended}"
        return f"{self.texts[int(self.action[row])]} ({told})"


def encode(ops: pa.Table, model: Model) -> Encoded:
    """Raises ``ModelError`` naming the operation when the table, or an operation, does not fit."""
    missing = [name for name in COLUMNS if name not in ops.column_names]
    if missing:
        raise ModelError(f"the operations have no column {', '.join(missing)}")
    ops = ops.select(COLUMNS).combine_chunks()
    codes = {name: _numbered(ops[name]) for name in ("f", "key", "argument", "result", "outcome")}
    call, ret = _integers(ops["call"]), _integers(ops["ret"].fill_null(FOREVER))
    index = _integers(ops["index"])
    _check_times(index, call, ret, *codes["outcome"])
    combined = _classes([codes[name][0] for name in ("f", "argument", "result", "outcome")])
    _, first, group = np.unique(combined, return_index=True, return_inverse=True)
    values = Values()
    actions: dict[Action, int] = {}
    words: list[str] = []
    number = np.empty(len(first), dtype=np.int64)
    for place, row in enumerate(first.tolist()):
        texts = {name: texts[numbers[row]] for name, (numbers, texts) in codes.items()}
        action = _action(texts, model, values, int(index[row]))
        number[place] = -1 if action is None else actions.setdefault(action, len(actions))
        if len(actions) > len(words):
            words.append(_words(texts))
    numbers = number[group]
    kept = np.flatnonzero(numbers >= 0)
    kept = kept[np.lexsort((ret[kept], call[kept], codes["key"][0][kept]))]
    outcomes = codes["outcome"][1]
    info = np.array([text == "info" for text in outcomes], dtype=np.bool_)[codes["outcome"][0][kept]]
    return Encoded(
        model=model,
        index=index[kept],
        process=_integers(ops["process"])[kept],
        key=codes["key"][0][kept],
        call=call[kept],
        ret=np.where(info, FOREVER, ret[kept]),
        action=numbers[kept],
        keys=codes["key"][1],
        actions=list(actions),
        texts=words,
        values=values,
    )


def _action(texts: dict[str, str | None], model: Model, values: Values, index: int) -> Action | None:
    outcome = texts["outcome"]
    if outcome == "fail":
        return None
    if outcome not in ("ok", "info"):
        raise ModelError(f"operation {index} has the outcome {outcome!r}; it is ok, fail or info")
    argument, result = (_decoded(texts[name], name, index) for name in ("argument", "result"))
    known = outcome == "ok"
    call = Call(str(texts["f"]), argument, result if known else None, known, values)
    try:
        action = model.encode(call)
    except ModelError as error:
        raise ModelError(f"operation {index}: {error}") from error
    if action is None or (action.reads and not known):
        return None
    if model.compiled and not all(isinstance(part, int) for part in action[:3]):
        raise ModelError(f"operation {index}: the compiled model {model.name} gave {action}; its parts are integers")
    return action


def _words(texts: dict[str, str | None]) -> str:
    """``read() = 3``, ``write(5)``."""
    argument, result = (texts[name] or "null" for name in ("argument", "result"))
    shown = [text if len(text) <= 60 else f"{text[:50]}..." for text in (argument, result)]
    said = f"{texts['f']}({'' if argument == 'null' else shown[0]})"
    return said if result in ("null", argument) and argument != "null" else f"{said} = {shown[1]}"


def _decoded(text: str | None, name: str, index: int) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ModelError(f"operation {index}: its {name} {text!r} is not JSON: {error}") from error


def _numbered(column: pa.ChunkedArray) -> tuple[Ints, list[str | None]]:
    """Each row's text as a number, and the texts; null is a text of its own."""
    dictionary = column.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(dictionary, pa.ChunkedArray):
        dictionary = dictionary.combine_chunks()
    return np.asarray(dictionary.indices, dtype=np.int64), dictionary.dictionary.to_pylist()


def _integers(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _classes(columns: list[Ints]) -> Ints:
    """One number per row, equal where all columns are; renumbered after each column so that it cannot overflow."""
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
