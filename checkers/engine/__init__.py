"""Where the checks' SQL runs: one text, three engines.

Read ``base`` first: what an engine is, and the rules of the SQL subset. ``sqlite`` takes small histories, ``duck``
(DuckDB in this process) those that one machine can hold; ``footers`` says what Parquet files may have for them. Both
make what is read (``deferred``), and nothing that cannot have rows (``needs``); ``together`` asks many histories at
once, of DuckDB. ``spark`` is one session of Spark, ``spark_application`` the JVM behind it, with ``spark_settings``,
``spark_master`` (is it there?) and ``spark_errors``. For large histories, its tasks ask DuckDB
everything that is asked key by key (``spark_parts``), and ``spark_beside`` asks the rest here. ``choice`` picks the
engine of a history, and imports Spark only when it is used.
Imported by checks, by reports (DuckDB) and by the harness; imports ``harness.core.history``.
"""

from assay.checkers.engine.base import INFINITY, Engine, EngineError, EngineExhausted, EngineUnavailable, Row
from assay.checkers.engine.choice import ENGINES, Engines
from assay.checkers.engine.duck import DuckDB
from assay.checkers.engine.sqlite import SQLite

__all__ = [
    "ENGINES", "INFINITY", "DuckDB", "Engine", "EngineError", "EngineExhausted", "EngineUnavailable", "Engines", "Row",
    "SQLite",
]  # fmt: skip
