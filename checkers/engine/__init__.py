"""Where the checks' SQL runs: one text, two engines.

Read ``base`` first: what an engine is, and the rules of the SQL subset. ``duck`` is DuckDB in this process; it makes
what is read (``deferred``), and nothing that cannot have rows (``needs``); ``together`` asks many small histories at
once. ``spark`` is one session of Spark, ``spark_application`` the JVM behind it, with ``spark_settings`` and
``spark_errors``. Of large histories its tasks ask DuckDB what can be asked key by key (``spark_parts``), and
``spark_beside`` asks the rest here. ``choice`` picks the engine of a history, and imports Spark only when it is used.
Imported by checks, by reports (DuckDB) and by the harness; imports ``harness.core.history``.
"""

from assay.checkers.engine.base import INFINITY, Engine, EngineError, EngineExhausted, EngineUnavailable, Row
from assay.checkers.engine.choice import ENGINES, Engines
from assay.checkers.engine.duck import DuckDB

__all__ = [
    "ENGINES", "INFINITY", "DuckDB", "Engine", "EngineError", "EngineExhausted", "EngineUnavailable", "Engines", "Row",
]  # fmt: skip
