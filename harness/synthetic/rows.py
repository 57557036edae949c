"""Converts arrays to Arrow batches of ``ops`` and ``effects``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from assay.harness.core.history import SCHEMAS, HistoryWriter
from assay.harness.synthetic.segments import Flags, Ints
from assay.harness.synthetic.timeline import FAIL, INFO, OUTCOMES, OperationArrays
from assay.harness.synthetic.values import compute_values_at

NONE: Final = pa.scalar(None, pa.string())

SUBS: Final = 1 << 20
"""Upper bound of the effects of an operation."""


@dataclass(frozen=True)
class MaskedColumn:
    """A column that is null in the rows whose ``mask`` is not set."""

    values: NDArray[Any]
    mask: Flags


@dataclass(frozen=True)
class DictionaryColumn:
    """A text column, encoded as indexes into ``names``. A negative code is null."""

    codes: NDArray[Any]
    names: Sequence[str] | pa.Array

    def at(self, places: Ints | Flags) -> DictionaryColumn:
        """Returns the rows at some places."""
        return DictionaryColumn(self.codes[places], self.names)

    def texts(self) -> pa.Array:
        """Returns the texts of all rows."""
        return _to_names(self.names).take(pa.array(self.codes.astype(np.int64), mask=self.codes < 0))

    def text(self, place: int) -> str:
        """Returns the text of a row."""
        return str(_to_names(self.names)[int(self.codes[place])])


Column: TypeAlias = NDArray[Any] | MaskedColumn | DictionaryColumn | pa.Array | str | int
"""A column. A single text or number stands for every row."""

Columns: TypeAlias = Mapping[str, Column]


@dataclass(frozen=True)
class Part:
    """Effects of one kind. ``at``: the place of each row's operation in the arrays, in ascending order.

    ``own``: further columns. ``outcome``: the outcomes of the effects if they differ from the operations'.
    """

    kind: str
    at: Ints
    key: DictionaryColumn
    own: Columns = field(default_factory=dict)
    sub: Ints | int = 0
    outcome: NDArray[np.int8] | None = None


def take_rows(column: Column, at: Ints) -> Column:
    """Returns the rows of a column at some places. A single value is returned as it is."""
    if isinstance(column, MaskedColumn):
        return MaskedColumn(column.values[at], column.mask[at])
    if isinstance(column, DictionaryColumn):
        return column.at(at)
    return column[at] if isinstance(column, np.ndarray) else column


@dataclass(frozen=True)
class Failures:
    """Errors of failed operations, encoded as indexes into ``names``. A negative code is no error."""

    codes: NDArray[Any]
    names: Sequence[str]


def build_batch(name: str, columns: Columns, length: int) -> pa.RecordBatch:
    """Returns a batch of the data set ``name``. Missing columns are null."""
    return pa.RecordBatch.from_arrays(
        [_to_array(columns.get(column.name), column.type, length) for column in SCHEMAS[name]], schema=SCHEMAS[name]
    )


def build_operations(
    ops: OperationArrays, keep: Flags, columns: Columns, phase: str = "main", failures: Failures | None = None
) -> pa.RecordBatch:
    """Returns rows of ``ops`` for the operations of ``keep``.

    ``columns`` (worker, f, key, argument, result) have entries for these operations only.
    """
    outcome = ops.outcome[keep]
    times: Columns = {
        "index": ops.index[keep],
        "process": ops.process[keep],
        "call": ops.call[keep],
        "ret": MaskedColumn(ops.ret[keep], np.asarray(outcome != INFO)),
        "phase": phase,
        **_build_outcome_columns(outcome, failures, keep),
    }
    return build_batch("ops", {**times, **columns}, len(outcome))


def write_effects(
    writer: HistoryWriter,
    ops: OperationArrays,
    parts: Sequence[Part],
    phase: str = "main",
    failures: Failures | None = None,
) -> None:
    """Writes effects of several kinds as one batch, ordered by operation."""
    parts = [part for part in parts if len(part.at)]
    if not parts:
        return
    at = np.concatenate([part.at for part in parts])
    sub = np.concatenate([np.broadcast_to(np.asarray(part.sub, np.int64), part.at.shape) for part in parts])
    order = np.argsort(at * SUBS + sub, kind="stable")  # fast: the parts are sorted already, so this is a merge
    kinds = np.repeat(np.arange(len(parts)), [len(part.at) for part in parts])
    outcome = np.concatenate([ops.outcome[part.at] if part.outcome is None else part.outcome for part in parts])
    at, outcome = at[order], outcome[order]
    columns: dict[str, Column] = {
        "op": ops.index[at],
        "sub": sub[order],
        "process": ops.process[at],
        "key": _join_column([part.key for part in parts], parts, order),
        "kind": DictionaryColumn(kinds[order], [part.kind for part in parts]),
        "call": ops.call[at],
        "ret": MaskedColumn(ops.ret[at], np.asarray(ops.outcome[at] != INFO)),
        "phase": phase,
        **_build_outcome_columns(outcome, failures, at),
    }
    for name in dict.fromkeys(name for part in parts for name in part.own):
        columns[name] = _join_column([part.own.get(name) for part in parts], parts, order)
    writer.batch("effects", build_batch("effects", columns, len(at)))


def to_json_numbers(values: NDArray[Any], mask: Flags | None = None) -> pa.Array:
    """Returns integers as JSON; ``null`` in the rows whose mask is not set."""
    text = pa.array(values).cast(pa.string())
    return text if mask is None else pc.if_else(pa.array(mask), text, "null")


def to_json_prefixes(count: NDArray[Any], mask: Flags) -> pa.Array:
    """Returns JSON lists of the first ``count`` elements; null in the rows whose mask is not set."""
    elements = [str(value) for value in compute_values_at(np.arange(int(count[mask].max(initial=0)))).tolist()]
    texts = pa.array([f"[{','.join(elements[:length])}]" for length in range(len(elements) + 1)], pa.string())
    return texts.take(pa.array(np.where(mask, count, 0), mask=~mask))


def to_worker_column(client: NDArray[Any], clients: int) -> DictionaryColumn:
    """Returns the column ``worker`` for client numbers."""
    return DictionaryColumn(client, [str(number) for number in range(clients)])


def _build_outcome_columns(outcome: NDArray[Any], failures: Failures | None, at: Any) -> Columns:
    """Returns the columns ``outcome`` and ``error``. ``at``: the place of each row in ``failures``."""
    code = -1 if failures is None else np.where(failures.codes[at] < 0, -1, failures.codes[at] + 1)
    error = np.where(outcome == INFO, 0, np.where(outcome == FAIL, code, -1))
    names = ["timeout", *(() if failures is None else failures.names)]
    return {"outcome": DictionaryColumn(outcome, OUTCOMES), "error": DictionaryColumn(error, names)}


def _join_column(columns: Sequence[Column | None], parts: Sequence[Part], order: Ints) -> Column:
    """Joins a column of all parts, and sorts it."""
    if any(isinstance(column, DictionaryColumn) for column in columns):
        return _join_texts(columns, parts, order)
    values, masks = [], []
    for column, part in zip(columns, parts, strict=True):
        length = len(part.at)
        if column is None:
            values.append(np.zeros(length, np.int64))
            masks.append(np.zeros(length, np.bool_))
        elif isinstance(column, MaskedColumn):
            values.append(column.values)
            masks.append(column.mask)
        else:
            values.append(np.broadcast_to(np.asarray(column), (length,)))
            masks.append(np.ones(length, np.bool_))
    mask = np.concatenate(masks)[order]
    whole = np.concatenate(values)[order]
    return whole if mask.all() else MaskedColumn(whole, mask)


def _join_texts(columns: Sequence[Column | None], parts: Sequence[Part], order: Ints) -> DictionaryColumn:
    """Joins a text column of all parts, with their names concatenated, and sorts it."""
    begins: dict[int, int] = {}
    names: list[pa.Array] = []
    codes, length = [], 0
    for column, part in zip(columns, parts, strict=True):
        if not isinstance(column, DictionaryColumn):
            codes.append(np.full(len(part.at), -1))
            continue
        if id(column.names) not in begins:
            begins[id(column.names)] = length
            names.append(_to_names(column.names))
            length += len(column.names)
        codes.append(np.where(column.codes < 0, -1, column.codes + begins[id(column.names)]))
    return DictionaryColumn(np.concatenate(codes)[order], names[0] if len(names) == 1 else pa.concat_arrays(names))


def _to_names(names: Sequence[str] | pa.Array) -> pa.Array:
    return names if isinstance(names, pa.Array) else pa.array(names, pa.string())


def _to_array(column: Column | None, kind: pa.DataType, length: int) -> pa.Array:
    if column is None:
        return pa.nulls(length, kind)
    if isinstance(column, str | int):
        return pa.repeat(pa.scalar(column, kind), length)
    if isinstance(column, MaskedColumn):
        return pa.array(column.values, kind, mask=~column.mask)
    if isinstance(column, DictionaryColumn):
        if len(column.codes) and not (column.codes >= 0).any():
            return pa.nulls(length, kind)
        return column.texts()
    if isinstance(column, pa.Array):
        return column
    return pa.array(column).cast(kind)
