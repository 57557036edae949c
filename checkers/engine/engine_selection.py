"""Chooses the engine for a history, and owns the Spark application that a session shares.

``auto`` chooses

- SQLite for some thousand rows (``is_small``),
- DuckDB up to ``FITS_ROWS`` effects and ``FITS_BYTES`` of Parquet, which a single machine can judge with some gigabytes
  of memory and its disk,
- Spark for more, if Spark is installed, and whenever a master is given.

Spark tries an unreachable master for minutes, without output. So the choice checks first whether the master answers.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Self

from assay.checkers.engine.base import Engine, EngineUnavailable
from assay.checkers.engine.duck import DEFAULT_MEMORY, DuckDB
from assay.checkers.engine.duck import SMALL_ROWS as FEW_EFFECTS
from assay.checkers.engine.parquet_stats import read_sizes
from assay.checkers.engine.sqlite import SQLite, is_available, require_sqlite
from assay.harness.core.history.data_sets import DATA_SETS

if TYPE_CHECKING:
    from assay.checkers.engine.spark import Spark
    from assay.checkers.engine.spark_application import SparkApplication
    from assay.harness.core.history import HistoryReader

STANDALONE: Final = "spark://"
"""Prefix of masters whose addresses are known: ``spark://host:port,host:port``."""
PORT: Final = "7077"
ANSWER_WITHIN: Final = 3.0
"""Seconds for all of the addresses together."""


def require_reachable(master: str | None) -> None:
    """Raises :class:`EngineUnavailable` for a standalone master if no address of it accepts a connection."""
    if master is None or not master.startswith(STANDALONE):
        return
    errors = []
    addresses = master.removeprefix(STANDALONE).split(",")
    for address in addresses:
        host, _, port = address.rpartition(":") if ":" in address else (address, "", PORT)
        try:
            with closing(socket.create_connection((host, int(port)), ANSWER_WITHIN / len(addresses))):
                return
        except (OSError, ValueError, OverflowError) as error:
            errors.append(f"{address}: {error}")
    raise EngineUnavailable(
        f"no Spark master answers at {master} ({'; '.join(errors)}); start one, or leave out --spark-master to run "
        "Spark on this machine alone"
    )


AUTO: Final = "auto"
SQLITE: Final = "sqlite"
DUCKDB: Final = "duckdb"
SPARK: Final = "spark"
ENGINES: Final = (AUTO, SQLITE, DUCKDB, SPARK)

SMALL_TABLES: Final = ("ops", "effects")
SMALL_ROWS: Final = 6_000
"""Maximum of rows in ``SMALL_TABLES`` for SQLite. A history with one sort of objects and nothing else is faster on
DuckDB from some three thousand rows on, any other from ten thousand on.
"""
SMALL_ROWS_IN_ALL: Final = 25_000
"""Maximum of rows in all tables. Few checks read servers' events, disks and answers."""
MAX_NUMBER: Final = 2**52
"""Largest whole numbers of a history for SQLite. SQLite would silently change a result beyond 64 bits, while DuckDB
raises an error.
"""
SUMMED_COLUMNS: Final = ("value", "zxid")
"""Columns that checks sum, which DuckDB and Spark do with more than 64 bits."""
MAX_SUMMED: Final = 2**48
"""Largest number in these columns, so that the sum over a small history fits into 64 bits."""

FITS_ROWS: Final = 500_000_000
FITS_BYTES: Final = 16 * 1024**3
"""Limit for DuckDB on one machine. Its tables need about three times the size of the Parquet files on disk."""

ONE_GROUP: Final = 122_880
"""DuckDB divides a table by groups of this many rows: a history of one group has no work for a second thread."""


class Engines:
    """Opens an engine for each history. Starts Spark for the first history that needs it and keeps it until closed.

    ``threads`` and ``memory`` are DuckDB's; None threads means one per core. ``spark`` False: ``auto`` never chooses
    Spark, whatever the history's size. Raises ``ValueError`` for an unknown name, or for a master with another engine
    than Spark.
    """

    def __init__(
        self,
        engine: str = AUTO,
        *,
        spark_master: str | None = None,
        threads: int | None = None,
        memory: str = DEFAULT_MEMORY,
        spark: bool = True,
    ) -> None:
        if engine not in ENGINES:
            raise ValueError(f"no engine is called {engine!r}; choose one of {', '.join(ENGINES)}")
        if engine in (SQLITE, DUCKDB) and spark_master is not None:
            raise ValueError(f"a Spark master ({spark_master}) was given, but the engine is {engine}; use spark")
        self._engine = engine
        self._master = spark_master
        self._threads = threads
        self._memory = memory
        self._may_be_spark = spark
        self._application: SparkApplication | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def check(self) -> None:
        """Raises ``EngineUnavailable`` if the requested engine lacks what it needs."""
        if self._engine == SQLITE:
            require_sqlite()
        if self._engine == SPARK or self._master is not None:
            _require_spark()
        require_reachable(self._master)

    def pick(self, reader: HistoryReader) -> str:
        """Returns ``sqlite``, ``duckdb`` or ``spark``."""
        if self._engine != AUTO:
            return self._engine
        if self._master is not None:
            return SPARK
        if is_small(reader):
            return SQLITE
        return DUCKDB if not self._may_be_spark or fits_in_duckdb(reader) or not _is_spark_available() else SPARK

    def spark(self, rows: int) -> Spark | None:
        """Returns a session for non-SQL work on that many rows if Spark was requested, else None.

        Raises ``EngineUnavailable`` if Spark is not installed.
        """
        requested = self._engine == SPARK or self._master is not None
        return self._application_for(rows).engine(effects=rows) if requested else None

    @contextmanager
    def open(self, reader: HistoryReader, *, shared: bool = True) -> Iterator[Engine]:
        """Yields an engine for this history alone. Raises ``EngineUnavailable`` if Spark is wanted but not available.

        ``shared``: all checks use the common SQL subset. If they may not, SQLite is not chosen.
        """
        effects = reader.rows("effects")
        match self.pick(reader):
            case "spark":
                application, readable = self._application_for(effects), fits_in_duckdb(reader)
                with application.judging_engine(effects=effects, readable=readable) as engine:
                    yield engine
            case "sqlite" if shared:
                with SQLite() as lite:
                    yield lite
            case _:
                threads = 1 if effects <= ONE_GROUP and self._threads is None else self._threads
                few = effects <= FEW_EFFECTS and self._memory == DEFAULT_MEMORY  # these share a database
                with DuckDB(memory=self._memory, threads=threads, small=few) as duck:
                    yield duck

    def close(self) -> None:
        """Ends Spark, if it was started. Idempotent."""
        if self._application is not None:
            self._application.close()
            self._application = None

    def _application_for(self, effects: int) -> SparkApplication:
        _require_spark()
        from assay.checkers.engine.spark_application import SparkApplication
        from assay.checkers.engine.spark_settings import SMALL_ROWS as SMALL_TO_SPARK

        quick = effects < SMALL_TO_SPARK
        if self._application is not None and self._application.quick and not quick:
            self.close()
        if self._application is None:
            require_reachable(self._master)
            self._application = SparkApplication(self._master, quick=quick)
        return self._application


def _is_spark_available() -> bool:
    try:
        _require_spark()
    except EngineUnavailable:
        return False
    return True


def _require_spark() -> None:
    if find_spec("pyspark") is None:
        raise EngineUnavailable("Spark needs the package pyspark: pip install pyspark; or use --engine=duckdb")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise EngineUnavailable(
            "Spark needs Java 17 or later, and there is no java on the PATH; install a JRE "
            "(apt-get install default-jre-headless), or use --engine=duckdb"
        )


def is_small(reader: HistoryReader) -> bool:
    """Returns whether SQLite judges the history with equal results, and faster."""
    few = sum(map(reader.rows, SMALL_TABLES)) <= SMALL_ROWS and sum(map(reader.rows, DATA_SETS)) <= SMALL_ROWS_IN_ALL
    if not few or not is_available():
        return False
    return all(
        size <= (MAX_SUMMED if column in SUMMED_COLUMNS else MAX_NUMBER)
        for name in DATA_SETS
        for found in _read_sizes(reader, name)
        for column, size in found.items()
    )


def _read_sizes(reader: HistoryReader, name: str) -> Iterator[Mapping[str, float]]:
    """Yields, for each part of a table, the largest absolute value of each whole-number column."""
    table = reader.in_memory(name)
    if table is None:
        yield from map(read_sizes, reader.paths(name))
        return
    import pyarrow as pa
    import pyarrow.compute as pc

    for field in table.schema:
        if pa.types.is_integer(field.type):
            ends = pc.min_max(table.column(field.name)).as_py().values()
            yield {field.name: max(abs(end or 0) for end in ends)}


def fits_in_duckdb(reader: HistoryReader) -> bool:
    """Returns whether DuckDB on this machine is expected to judge it."""
    size = sum(path.stat().st_size for name in SMALL_TABLES for path in reader.paths(name))
    return reader.rows("effects") <= FITS_ROWS and size <= FITS_BYTES
