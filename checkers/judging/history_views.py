"""Registers a history's data sets in an engine, as views with exactly the columns of the format, and the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from assay.checkers.check import View, create_views
from assay.checkers.engine import Engine, EngineError, EngineExhausted
from assay.checkers.engine.base import quote_texts
from assay.checkers.exposure import EXPOSURE_BOUND
from assay.checkers.judging.contract import DEADLINES, Contract
from assay.checkers.judging.history_integrity import require_readable
from assay.checkers.objects.kinds import KIND_COUNTS, define_log_effects
from assay.checkers.times import NANOSECONDS
from assay.harness.core.history import HistoryError
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.core.printable import to_plain_line

if TYPE_CHECKING:
    from assay.harness.core.history import HistoryReader

OPTIONAL: Final = ("faults", "events", "replicas", "looks")
"""Data sets that a history of another tool may lack. A missing one counts as empty."""


def open_history(folder: Path, paths: Mapping[str, Sequence[Path]] | None = None) -> HistoryReader:
    """Opens a history for judging and reporting. Open it once and pass the reader to everything that reads it.

    ``paths``: the files of each data set; required only if the history is still being written.
    Raises ``HistoryError``, which names the file, if a data set is missing, damaged or has other columns.
    """
    from assay.harness.core.history import HistoryReader

    return HistoryReader(folder, optional=OPTIONAL, paths=paths)


def register_history(engine: Engine, folder: Path) -> HistoryReader:
    """Opens a history and makes its views: ``ops``, ``effects``, ``faults``, ``events``, ``replicas``, ``looks``, and
    ``effect_kinds``, the number of effects by key and kind.

    Raises ``HistoryError``, which names the file, if a data set is missing, damaged or has other columns.
    """
    reader = open_history(folder)
    register_data_sets(engine, reader)
    count_kinds(engine, engine)
    return reader


def register_data_sets(engine: Engine, reader: HistoryReader) -> None:
    """Makes the views of an open history. A history in an older format is translated."""
    from assay.harness.core.history.schema import SCHEMAS  # loads Arrow

    for name in DATA_SETS:
        loaded = reader.in_memory(name)
        if loaded is not None:
            if not engine.has_loaded(name):
                engine.load(name, loaded)
            continue
        texts = reader.translation(name)  # views that translate an older format; empty for the present one
        try:
            engine.register(f"stored_{name}" if texts else name, reader.paths(name), SCHEMAS[name].remove_metadata())
            create_views(engine, tuple(View(text.name, text.sql, keep=text.keep) for text in texts))
        except EngineExhausted:
            raise
        except EngineError as error:
            require_readable(reader)  # raises and names the file, unless only this engine's Parquet reader rejects it
            raise HistoryError(f"{reader.paths(name)[0].parent} cannot be read: {to_plain_line(error)}") from error


def count_kinds(engine: Engine, source: Engine) -> None:
    """Creates ``effect_kinds`` in ``engine``. ``source``: an engine with the same views, perhaps a faster one."""
    create_views(source, (KIND_COUNTS,))
    if source is not engine:
        engine.load(KIND_COUNTS.name, source.arrow(f"select * from {KIND_COUNTS.name}"))


def register_contract(engine: Engine, contract: Contract) -> None:
    """Registers views with the contract's values, so that the SQL of checks does not depend on the contract.

    Also registers ``exposure_bound`` (``checkers.exposure``) and ``log_effects`` (``objects.kinds``).
    """
    keys = ", ".join(f"({quote_key(key)})" for key in sorted(contract.compacted))
    none = "select cast(null as string) as key where 1 = 0"
    engine.view("log_compacted", f"with named (key) as (values {keys}) select key from named" if keys else none)
    engine.view(
        "log_declared",
        f"select {int(contract.linearizable_ends)} as linearizable_ends, {contract.unflushed} as unflushed, "
        f"{int(contract.dense_offsets)} as dense_offsets, {int(contract.lasting_tombstones)} as lasting_tombstones, "
        f"cast({_to_sql(contract.retention_ms)} as bigint) as retention_ms, "
        f"cast({_to_sql(contract.retention_bytes)} as bigint) as retention_bytes, "
        f"cast({int(contract.reading_deadline * NANOSECONDS)} as bigint) as reading_deadline, "
        f"cast({int(contract.clock_difference * NANOSECONDS)} as bigint) as clock_difference, "
        f"cast({int(contract.progress_deadline * NANOSECONDS)} as bigint) as progress_deadline",
    )
    engine.view(
        "group_declared",
        f"select {contract.within('rebalance_deadline')} as deadline, "
        f"{int(contract.fenced_by_requests)} as fenced_by_requests",
    )
    engine.view("exposure_bound", EXPOSURE_BOUND)
    engine.view("queue_declared", f"select {int(contract.linearizable_queues)} as linearizable_queues")
    engine.view("set_declared", f"select {int(contract.linearizable_sets)} as linearizable_sets")
    deadlines = ", ".join(f"{contract.within(name)} as {name}" for name in DEADLINES)
    engine.view("deadlines_declared", f"select {deadlines}")
    engine.view(
        "txn_declared",
        f"select '{contract.transaction_order}' as transaction_order, "
        f"{quote_texts([contract.transaction_level or ''])} as transaction_level, "
        f"cast({contract.transaction_seconds} as double) as transaction_seconds, "
        f"{int(contract.transaction_all_reads)} as transaction_all_reads",
    )
    define_log_effects(engine)


def _to_sql(number: int | None) -> str:
    return "null" if number is None else str(number)


def quote_key(text: str) -> str:
    """Returns a compacted key as SQL. Raises ``HistoryError`` if the engines would read the text in different ways."""
    try:
        return quote_texts([text])
    except ValueError as error:
        raise HistoryError(f"the contract's compacted key {error}; give the topic another name") from None
