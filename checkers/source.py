"""Gives an engine a history's data sets, whoever wrote them, as views with exactly the columns of the format."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa

from checkers.contract import Contract
from checkers.engine import Engine
from harness.core.history import ADDED, SCHEMAS, HistoryReader

OPTIONAL: Final = ("faults", "events", "replicas")
"""Data sets that a history brought along may lack; they are empty then."""

_TYPES: Final = ((pa.types.is_int64, "bigint"), (pa.types.is_int32, "int"), (pa.types.is_boolean, "boolean"))


def register_history(engine: Engine, folder: Path) -> HistoryReader:
    """Makes the views ``ops``, ``effects``, ``faults``, ``events`` and ``replicas``.

    Raises ``HistoryError`` naming the file when a data set is missing, damaged or has other columns.
    """
    reader = HistoryReader(folder, optional=OPTIONAL)
    for name in SCHEMAS:
        if reader.paths(name):
            added = {column: sql_type(SCHEMAS[name].field(column).type) for column in ADDED.get(name, ())}
            engine.register(name, folder / name, added)
        else:
            engine.view(name, empty(SCHEMAS[name]))
    return reader


def empty(schema: pa.Schema) -> str:
    """SQL of a relation with these columns and no rows."""
    columns = ", ".join(f'cast(null as {sql_type(field.type)}) as {_quoted(field.name)}' for field in schema)
    return f"select {columns} where 1 = 0"


def register_contract(engine: Engine, contract: Contract) -> None:
    """What of the contract the checks' texts read, as views, so that the texts themselves never change."""
    literals = " union all ".join(f"select {_literal(key)} as key" for key in sorted(contract.compacted))
    engine.view("log_compacted", literals or "select cast(null as string) as key where 1 = 0")
    engine.view("log_declared", f"select {int(contract.linearizable_ends)} as linearizable_ends")


def sql_type(kind: pa.DataType) -> str:
    """The name that both engines know this type by."""
    return next((name for is_one, name in _TYPES if is_one(kind)), "string")


def _literal(text: str) -> str:
    if "\\" in text or "'" in text:
        raise ValueError(f"key {text!r} holds a quote or a backslash, which the two engines' SQL write differently")
    return f"'{text}'"


def _quoted(name: str) -> str:
    return f'"{name}"' if name == "group" else name
