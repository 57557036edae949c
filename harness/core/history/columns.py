"""Rows to columns: what the writer buffers, and how it becomes an Arrow batch.

Rows are kept as they come and turned over column by column, which costs a third of filling columns one value at a
time. JSON is made at once: an argument may change after it was recorded, and one that has no JSON form must fail
where it came from.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from assay.harness.core.history.schema import EFFECTS, OPS, HistoryError
from assay.harness.core.operation import Completed, Effect

OpRow = tuple[Completed, str, str | None]
"""The operation, its argument and its result as JSON."""
EffectRow = tuple[Completed, int, Effect]
"""The operation, the effect's order inside it, the effect."""

_encode = msgspec.json.Encoder().encode


def to_json(value: Any, what: str) -> str:
    """``value`` as JSON text. Raises ``HistoryError`` naming ``what`` when it is not plain data."""
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise HistoryError(
            f"{what} cannot be written as JSON ({error}): use numbers, text, lists, dicts or msgspec structs, "
            f"not {type(value).__name__}"
        ) from error


def op_row(completed: Completed) -> OpRow:
    argument, result = completed.operation.argument, completed.completion.result
    return (
        completed,
        "null" if argument is None else to_json(argument, f"argument of {completed.operation.f}"),
        None if result is None else to_json(result, f"result of {completed.operation.f}"),
    )


def ops_batch(rows: Sequence[OpRow]) -> pa.RecordBatch:
    all_completed = [row[0] for row in rows]
    operations = [completed.operation for completed in all_completed]
    completions = [completed.completion for completed in all_completed]
    return _batch(
        OPS,
        [
            [completed.index for completed in all_completed],
            [completed.process for completed in all_completed],
            [completed.worker for completed in all_completed],
            [operation.f for operation in operations],
            [operation.key for operation in operations],
            [row[1] for row in rows],
            [row[2] for row in rows],
            [completed.call for completed in all_completed],
            [completed.ret for completed in all_completed],
            [completion.outcome for completion in completions],
            [completion.error for completion in completions],
            [operation.phase for operation in operations],
            [completed.scheduled for completed in all_completed],
        ],
    )


def effects_batch(rows: Sequence[EffectRow]) -> pa.RecordBatch:
    """Rows of ``effects``."""
    all_completed = [row[0] for row in rows]
    effects = [row[2] for row in rows]
    return _batch(
        EFFECTS,
        [
            [completed.index for completed in all_completed],
            [row[1] for row in rows],
            [effect.request for effect in effects],
            [completed.process for completed in all_completed],
            [effect.key for effect in effects],
            [effect.kind for effect in effects],
            [effect.position for effect in effects],
            [effect.value for effect in effects],
            [effect.expected for effect in effects],
            [effect.leader_epoch for effect in effects],
            [effect.generation for effect in effects],
            [effect.token for effect in effects],
            [effect.owner for effect in effects],
            [effect.group for effect in effects],
            [effect.assignment for effect in effects],
            [effect.node for effect in effects],
            [effect.version for effect in effects],
            [effect.list_index for effect in effects],
            [effect.message_key for effect in effects],
            [effect.tombstone for effect in effects],
            [effect.timestamp for effect in effects],
            [effect.size for effect in effects],
            [effect.name for effect in effects],
            [effect.replicas for effect in effects],
            [effect.incarnation for effect in effects],
            [effect.source for effect in effects],
            [effect.client for effect in effects],
            [effect.retention_ms for effect in effects],
            [effect.max_wait_ms for effect in effects],
            [effect.waited_ms for effect in effects],
            [effect.empty for effect in effects],
            [completed.call for completed in all_completed],
            [completed.ret for completed in all_completed],
            [row[2].outcome or row[0].completion.outcome for row in rows],
            [row[2].error or row[0].completion.error for row in rows],
            [completed.operation.phase for completed in all_completed],
        ],
    )


def plain_batch(schema: pa.Schema) -> Callable[[Sequence[tuple[Any, ...]]], pa.RecordBatch]:
    """Makes batches of rows that are tuples in the schema's order."""

    def batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        return _batch(schema, [list(column) for column in zip(*rows, strict=True)])

    return batch


def _batch(schema: pa.Schema, columns: Sequence[list[Any]]) -> pa.RecordBatch:
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        try:
            array = pa.array(column, field.type)
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise HistoryError(f"column {field.name} of the history takes {field.type}: {error}") from error
        if array.null_count and not field.nullable:
            raise HistoryError(f"column {field.name} of the history must have a value in every row")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
