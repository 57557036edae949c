"""Judges operations by a model: those of a foreign file, or the ``ops`` of a history folder.

Registers whose values are integers, each of them written once, go through the SQL checks, which name the anomaly
(stale-read, lost-update, ...). Everything else goes through the search for a linearization, on Spark if requested.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.engine import EngineError, Engines, EngineUnavailable
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_integrity import require_unchanged
from assay.checkers.judging.history_views import OPTIONAL, register_data_sets
from assay.checkers.judging.judge import ProgressCallback, judge
from assay.checkers.judging.validate import validate
from assay.checkers.judging.verdict import Judgement
from assay.checkers.linearizability import Limits, Model, ModelError, search
from assay.checkers.linearizability.models import is_builtin
from assay.checkers.linearizability.search import Report
from assay.harness.core.history import SCHEMAS, HistoryError, HistoryReader
from assay.harness.core.operation import Outcome
from assay.harness.core.printable import count_noun
from assay.harness.foreign.pairing import UNNAMED
from assay.harness.run.judging import OBSERVING_OPERATIONS, UNOBSERVED, add_doubts
from assay.harness.stored.effects_from_ops import write_register_history

if TYPE_CHECKING:
    from assay.checkers.engine.spark import Spark

SQL_MODELS: Final = ("register", "cas-register")
READING_OPERATIONS: Final = ("read", "get")
"""Operations of the built-in models that change no state. If no other one succeeded, their results prove little."""
Operations: TypeAlias = pa.Table | HistoryReader
"""Operations of a file of another tool, or of a history folder."""
BATCH: Final = 1_000_000
"""Number of operations of a file that are handled at once."""


def open_stored_operations(path: Path) -> HistoryReader:
    """Opens a history folder, or a Parquet file with operations, and validates them. Raises ``HistoryError``."""
    if path.is_file():
        reader = HistoryReader(path.parent, paths={name: [path] if name == "ops" else [] for name in SCHEMAS})
    else:
        reader = HistoryReader(path, optional=(*OPTIONAL, "effects"))
    require_unchanged(reader)
    with Engines(spark=False).open(reader) as engine:
        register_data_sets(engine, reader)
        validate(engine, reader, complete=False)
    _require_json_values(reader)
    return reader


def _require_json_values(reader: HistoryReader) -> None:
    """Rejects values that are no JSON, because the validation for SQL checks does not parse them but models do."""
    for ops in reader.batches("ops"):
        for column in ("argument", "result"):
            for text in pc.unique(ops[column]).to_pylist():
                try:
                    if text is not None:
                        msgspec.json.decode(text)
                except (msgspec.DecodeError, RecursionError) as error:
                    row = pc.index(ops[column], text).as_py()
                    raise HistoryError(
                        f"{reader.folder / 'ops'}: {column} of operation {ops['index'][row]} is no JSON: {error}"
                    ) from error


def judge_by_model(
    ops: Operations,
    model: Model,
    engines: Engines,
    progress: ProgressCallback,
    limits: Limits,
    report: Report = lambda finding: None,
) -> Judgement:
    """Judges whether ``ops`` are linearizable by ``model``. Raises ``HistoryError`` for operations unknown to the
    model.

    ``KeyboardInterrupt`` ends the search with the result so far. ``report`` receives each finding of a search at once.
    """
    custom = not is_builtin(model)
    if model.name in SQL_MODELS and not custom:
        with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
            history = write_register_history(iterate_batches(ops), Path(folder) / "history", model.initial_values)
            if history is not None:
                contract = Contract(minimum_operations=0)
                with engines.open(history) as engine:
                    judgement = judge(history, contract, engine, progress=progress, requires_exposure=False)
                return add_doubts(judgement, find_doubts(ops))
    if not isinstance(ops, HistoryReader):
        ops = name_clients(ops)
    spark = engines.spark(ops.rows("ops") if isinstance(ops, HistoryReader) else ops.num_rows)
    if spark is None:
        ops = _to_table(ops)
    judgement = _judge_by_search(ops, model, spark, progress, limits, report)
    return add_doubts(judgement, find_doubts(ops, custom=custom))


def name_clients(ops: pa.Table) -> pa.Table:
    """Returns the operations of a file of another tool with their processes as in the file; -1 for none.

    Each operation that follows one of unknown outcome in its process is a process of its own in ``ops``. But the
    client behind these processes, which may own a lock, stays the same.
    """
    named = pc.not_equal(ops["worker"], UNNAMED)
    process = pc.if_else(named, ops["worker"], "-1").cast(pa.int32())
    return ops.set_column(ops.schema.get_field_index("process"), ops.schema.field("process"), process)


def _to_table(ops: Operations) -> pa.Table:
    return ops.table("ops") if isinstance(ops, HistoryReader) else ops


def iterate_batches(ops: Operations) -> Iterable[pa.RecordBatch]:
    """Yields the operations in batches."""
    return ops.batches("ops") if isinstance(ops, HistoryReader) else ops.to_batches(max_chunksize=BATCH)


def find_doubts(ops: Operations, *, custom: bool = False) -> list[str]:
    """Returns the reasons why a history without anomalies still cannot pass.

    ``custom``: the model is the user's, so it is unknown which operations can contradict others.
    """
    reasons = find_missing_successes(ops)
    if reasons or custom:
        return reasons
    observed = called = succeeded = 0
    for batch in iterate_batches(ops):
        ok = pc.equal(batch["outcome"], Outcome.OK.value)
        observed += pc.sum(pc.and_(ok, pc.is_in(batch["f"], pa.array(OBSERVING_OPERATIONS)))).as_py() or 0
        changes = pc.invert(pc.is_in(batch["f"], pa.array(READING_OPERATIONS)))
        called += pc.sum(changes).as_py() or 0
        succeeded += pc.sum(pc.and_(ok, changes)).as_py() or 0
    if not observed:
        reasons.append(UNOBSERVED)
    if called and not succeeded:
        reasons.append(f"none of {count_noun(called, 'operation')} that can change the state succeeded")
    return reasons


def find_missing_successes(ops: Operations) -> list[str]:
    """Returns a reason if the history is empty or no operation succeeded.

    It replaces ``minimum_operations`` of a contract, which such a history lacks.
    """
    rows = succeeded = 0
    for batch in iterate_batches(ops):
        rows += batch.num_rows
        succeeded += pc.sum(pc.equal(batch["outcome"], Outcome.OK.value)).as_py() or 0
    if succeeded:
        return []
    return [f"none of {count_noun(rows, 'operation')} succeeded" if rows else "the history is empty"]


def _judge_by_search(
    ops: Operations,
    model: Model,
    spark: Spark | None,
    progress: ProgressCallback,
    limits: Limits,
    report: Report,
) -> Judgement:
    try:
        if spark is None:
            return search(_to_table(ops), model, limits=limits, progress=progress, report=report)
        from assay.checkers.linearizability.on_spark import search_on_spark

        with spark:
            if isinstance(ops, HistoryReader):
                spark.register("ops", ops.paths("ops"), SCHEMAS["ops"])
            else:
                spark.load("ops", ops)
            return search_on_spark(spark, model, limits=limits, progress=progress, report=report)
    except EngineUnavailable:
        raise
    except EngineError as error:
        raise EngineUnavailable(f"{error}; ask again, or search here with --engine=duckdb") from error
    except ModelError as error:
        raise HistoryError(f"the operations are not those of {model.name}: {error}") from error
