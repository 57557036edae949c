"""Chooses the engine for a history, and owns the Spark application that a session shares.

``auto`` chooses

- SQLite for some thousand rows (``is_small``),
- DuckDB up to ``FITS_ROWS`` effects and ``FITS_BYTES`` of Parquet, which one machine can judge,
- Spark for more, if Spark is installed, and whenever a master is given.

Spark retries an unreachable master for minutes without output. So the module first checks whether the master answers.
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
from assay.checkers.engine.duck import DEFAULT_MEMORY, RUN_MEMORY, RUN_MEMORY_EFFECTS, DuckDB
from assay.checkers.engine.duck import SMALL_ROWS as FEW_EFFECTS
from assay.checkers.engine.parquet_stats import read_sizes
from assay.checkers.engine.sqlite import SQLite, is_sqlite_available, require_sqlite
from assay.harness.core.history.data_sets import DATA_SETS

if TYPE_CHECKING:
    from assay.checkers.engine.spark import Spark
    from assay.checkers.engine.spark_application import SparkApplication
    from assay.harness.core.history import HistoryReader

STANDALONE: Final = "spark://"
"""Prefix of standalone masters, which have addresses: ``spark://host:port,host:port``."""
PORT: Final = "7077"
"""The default port of a standalone master."""
CONNECT_TIMEOUT: Final = 3.0
"""Total seconds to connect to the addresses of a master."""


def require_reachable(master: str | None) -> None:
    """Raises :class:`EngineUnavailable` if no address of a standalone master accepts a connection."""
    if master is None or not master.startswith(STANDALONE):
        return
    errors = []
    addresses = master.removeprefix(STANDALONE).split(",")
    for address in addresses:
        host, _, port = address.rpartition(":") if ":" in address else (address, "", PORT)
        try:
            with closing(socket.create_connection((host, int(port)), CONNECT_TIMEOUT / len(addresses))):
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
"""Maximum number of rows in ``SMALL_TABLES`` for SQLite.

DuckDB is faster for more than three thousand rows if the history has one kind of object only, and for more than ten
thousand rows in any other history.
"""
SMALL_ROWS_IN_ALL: Final = 25_000
"""Maximum number of rows in all tables for SQLite. Few checks read the other tables."""
MAX_NUMBER: Final = 2**52
"""Largest whole number in a history for SQLite. Beyond 64 bits, SQLite would silently change a result, while DuckDB
raises an error.
"""
SUMMED_COLUMNS: Final = ("value", "zxid")
"""Columns that checks sum. DuckDB and Spark sum them with more than 64 bits."""
MAX_SUMMED: Final = 2**48
"""Largest number in these columns for SQLite, so that the sum over a small history fits into 64 bits."""

FITS_ROWS: Final = 500_000_000
FITS_BYTES: Final = 16 * 1024**3
"""Limits for DuckDB on one machine. Its tables need about three times the size of the Parquet files on disk."""

ONE_GROUP: Final = 122_880
"""Rows in one row group of a DuckDB table. A history of one row group has no work for a second thread."""


class Engines:
    """Opens an engine for each history. The first history that needs Spark starts it; Spark then runs until ``close``.

    - ``threads``, ``memory``: options of DuckDB. If ``threads`` is None, there is one per core.
    - ``spark``: if False, ``auto`` never chooses Spark.

    Raises ``ValueError`` for an unknown name, and for a master with an engine other than Spark.
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
        """Returns a session for work other than checks, on ``rows`` rows, if Spark was requested; otherwise None.

        Raises ``EngineUnavailable`` if Spark is not installed.
        """
        requested = self._engine == SPARK or self._master is not None
        return self._application_for(rows).engine(effects=rows) if requested else None

    @contextmanager
    def open(self, reader: HistoryReader, *, common_sql: bool = True) -> Iterator[Engine]:
        """Yields an engine for this history alone. Raises ``EngineUnavailable`` if Spark is wanted but not available.

        ``common_sql``: all checks use the common SQL subset (``base``). If False, SQLite is not chosen.
        """
        effects = reader.rows("effects")
        match self.pick(reader):
            case "spark":
                application, readable = self._application_for(effects), fits_in_duckdb(reader)
                with application.judging_engine(effects=effects, readable=readable) as engine:
                    yield engine
            case "sqlite" if common_sql:
                with SQLite() as lite:
                    yield lite
            case _:
                threads = 1 if effects <= ONE_GROUP and self._threads is None else self._threads
                # Few effects need less than these limits, so such histories share a database.
                few = effects <= FEW_EFFECTS and self._memory in (DEFAULT_MEMORY, RUN_MEMORY)
                many = self._memory == RUN_MEMORY and effects > RUN_MEMORY_EFFECTS
                memory = DEFAULT_MEMORY if many else self._memory
                with DuckDB(memory=memory, threads=threads, small=few) as duck:
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

        quick = effects < SMALL_TO_SPARK  # such an application judges only small histories, so a large one replaces it
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
    """Returns whether the history suits SQLite: it is judged faster than by DuckDB, and its numbers are small
    enough."""
    few = sum(map(reader.rows, SMALL_TABLES)) <= SMALL_ROWS and sum(map(reader.rows, DATA_SETS)) <= SMALL_ROWS_IN_ALL
    if not few or not is_sqlite_available():
        return False
    return all(
        size <= (MAX_SUMMED if column in SUMMED_COLUMNS else MAX_NUMBER)
        for name in DATA_SETS
        for found in _read_sizes(reader, name)
        for column, size in found.items()
    )


def _read_sizes(reader: HistoryReader, name: str) -> Iterator[Mapping[str, float]]:
    """Yields, for each file of a data set, the largest absolute value of each whole-number column."""
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
    """Returns whether DuckDB on one machine can be expected to judge the history."""
    size = sum(path.stat().st_size for name in SMALL_TABLES for path in reader.paths(name))
    return reader.rows("effects") <= FITS_ROWS and size <= FITS_BYTES
