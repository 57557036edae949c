"""Engines: ``base`` (the Protocol and the SQL subset), ``duck``, ``spark`` (imported only when used), ``choice``."""

from assay.checkers.engine.base import INFINITY, Engine, EngineError, EngineUnavailable, Row
from assay.checkers.engine.choice import ENGINES, Engines
from assay.checkers.engine.duck import DuckDB

__all__ = ["ENGINES", "INFINITY", "DuckDB", "Engine", "EngineError", "EngineUnavailable", "Engines", "Row"]
