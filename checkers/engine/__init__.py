"""Runs the SQL of the checks: one SQL text, three engines.

- ``base``: the interface of an engine, and the rules of the common SQL subset
- ``sqlite``: engine for small histories
- ``duck``: DuckDB in this process, for histories that one machine can hold
- ``spark``: engine for histories that are too large for one machine: a session of Spark. ``spark_application``: the
  JVM of all sessions. ``spark_settings``: its settings
- ``spark_parts``: large histories on Spark, partitioned by key, with DuckDB in its tasks
- ``engine_selection``: chooses the engine for a history; imports Spark only when it is used
- ``lazy_relations``: base class of the engines, which creates a relation only when a query reads it
- ``empty_relations``: finds relations that must be empty
- ``parquet_stats``: reads column statistics from Parquet footers
- ``batch``: many histories in one database

The package imports ``harness.core.history``; checks, reports (DuckDB) and the harness import it.
"""

from assay.checkers.engine.base import INFINITY, Engine, EngineError, EngineExhausted, EngineUnavailable, Row
from assay.checkers.engine.duck import DuckDB
from assay.checkers.engine.engine_selection import ENGINES, Engines
from assay.checkers.engine.sqlite import SQLite

__all__ = [
    "ENGINES", "INFINITY", "DuckDB", "Engine", "EngineError", "EngineExhausted", "EngineUnavailable", "Engines", "Row",
    "SQLite",
]  # fmt: skip
