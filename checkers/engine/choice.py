"""Which engine judges a history, and the one Spark that a session shares.

``auto`` takes DuckDB up to ``FITS_ROWS`` effects and ``FITS_BYTES`` of Parquet, which one machine judges with some
gigabytes of memory and what it spills to its disk; beyond, Spark, if it is installed; and Spark whenever a master
is named.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Self

from assay.checkers.engine.base import Engine, EngineUnavailable
from assay.checkers.engine.duck import DEFAULT_MEMORY, SMALL_ROWS, DuckDB

if TYPE_CHECKING:
    from assay.checkers.engine.spark import Spark
    from assay.checkers.engine.spark_application import SparkApplication
    from assay.harness.core.history import HistoryReader

AUTO: Final = "auto"
DUCKDB: Final = "duckdb"
SPARK: Final = "spark"
ENGINES: Final = (AUTO, DUCKDB, SPARK)

FITS_ROWS: Final = 500_000_000
FITS_BYTES: Final = 16 * 1024**3
"""What DuckDB judges on one machine. Its tables take about as much disk again as three times the Parquet files."""

ONE_GROUP: Final = 122_880
"""DuckDB shares out a table by groups of so many rows: a history of one group has nothing for a second thread."""


class Engines:
    """Opens an engine for each history. Starts Spark with the first history that needs it and keeps it until closed.

    ``threads``, ``memory``: of DuckDB; no threads: one per core. Raises ``ValueError`` for a name that is none, or a
    master for DuckDB.
    """

    def __init__(
        self,
        engine: str = AUTO,
        *,
        spark_master: str | None = None,
        threads: int | None = None,
        memory: str = DEFAULT_MEMORY,
    ) -> None:
        if engine not in ENGINES:
            raise ValueError(f"no engine is called {engine!r}; there are {', '.join(ENGINES)}")
        if engine == DUCKDB and spark_master is not None:
            raise ValueError(f"a Spark master ({spark_master}) was given, but the engine is duckdb; use spark or auto")
        self._engine = engine
        self._master = spark_master
        self._threads = threads
        self._memory = memory
        self._application: SparkApplication | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def check(self) -> None:
        """Raises ``EngineUnavailable`` when Spark was asked for and what it needs is not installed."""
        if self._engine == SPARK or self._master is not None:
            _require()

    def pick(self, reader: HistoryReader) -> str:
        """``duckdb`` or ``spark``."""
        if self._engine != AUTO:
            return self._engine
        if self._master is not None:
            return SPARK
        return DUCKDB if fits(reader) or not _available() else SPARK

    def spark(self, rows: int) -> Spark | None:
        """A session for work that is no SQL, on so many rows, if Spark was asked for; else None.

        Raises ``EngineUnavailable`` when Spark is not installed.
        """
        return self._spark(rows) if self._engine == SPARK or self._master is not None else None

    @contextmanager
    def open(self, reader: HistoryReader) -> Iterator[Engine]:
        """An engine for this history alone. Raises ``EngineUnavailable`` when Spark is wanted and is not available."""
        if self.pick(reader) == SPARK:
            effects = reader.rows("effects")
            with self._application_for(effects).judging(effects=effects, here=fits(reader)) as engine:
                yield engine
        else:
            rows = reader.rows("effects")
            threads = 1 if rows <= ONE_GROUP and self._threads is None else self._threads
            with DuckDB(memory=self._memory, threads=threads, small=rows <= SMALL_ROWS) as duck:
                yield duck

    def close(self) -> None:
        """Ends Spark, if it was started. Idempotent."""
        if self._application is not None:
            self._application.close()
            self._application = None

    def _spark(self, effects: int) -> Spark:
        return self._application_for(effects).engine(effects=effects)

    def _application_for(self, effects: int) -> SparkApplication:
        _require()
        from assay.checkers.engine.spark_application import SparkApplication
        from assay.checkers.engine.spark_settings import SMALL_ROWS

        small = effects < SMALL_ROWS
        if self._application is not None and self._application.quick and not small:
            self.close()
        if self._application is None:
            self._application = SparkApplication(self._master, quick=small)
        return self._application


def _available() -> bool:
    try:
        _require()
    except EngineUnavailable:
        return False
    return True


def _require() -> None:
    if find_spec("pyspark") is None:
        raise EngineUnavailable("Spark needs the package pyspark: pip install pyspark; or use --engine=duckdb")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise EngineUnavailable(
            "Spark needs Java 17 or later, and there is no java on the PATH; install a JRE "
            "(apt-get install openjdk-17-jre-headless), or use --engine=duckdb"
        )


def fits(reader: HistoryReader) -> bool:
    """Whether DuckDB on this machine is expected to judge it."""
    size = sum(path.stat().st_size for name in ("ops", "effects") for path in reader.paths(name))
    return reader.rows("effects") <= FITS_ROWS and size <= FITS_BYTES
