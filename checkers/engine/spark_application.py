"""Lifetime of a JVM with one Spark context: starts it, opens sessions, ends it and removes its files.

The start takes seconds, so a pytest session keeps one JVM. Each ``Spark`` engine is a session with its own views.

For a large history that one machine can read, Spark's tasks answer the queries by key. ``DuckDBInSpark`` runs the
remaining queries in this process, on the same files. These queries are small or simple, and Spark would need a tenth of
a second or more to plan and compile each.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from assay.checkers.engine.base import Engine, EngineUnavailable, T
from assay.checkers.engine.duck import DuckDB
from assay.checkers.engine.spark import JVM_ERRORS, Spark, find_reason
from assay.checkers.engine.spark_settings import (
    LOCAL,
    LOG4J,
    SHARED,
    SMALL_ROWS,
    build_session_settings,
    build_settings,
)

if TYPE_CHECKING:
    from assay.harness.core.history import HistoryReader

MEMORY: Final = "1GB"
"""Memory that DuckDB may take in this process before it spills. The driver and the tasks need memory, too."""


class DuckDBInSpark(DuckDB):
    """DuckDB engine that owns the session ``spark`` and partitions histories with it."""

    name = "spark"

    def __init__(self, spark: Spark, *, memory: str = MEMORY) -> None:
        super().__init__(memory=memory, kept_values=0)
        self._spark = spark

    def ask_each_part(
        self, history: HistoryReader, question: Callable[[Engine], T], progress: Callable[[int, int], None]
    ) -> list[T] | None:
        return self._spark.ask_parts(self, history, question, progress)

    def close(self) -> None:
        super().close()
        self._spark.close()


DRIVER_MEMORY: Final = "4g"


class SparkApplication:
    """A running Spark. Raises ``EngineUnavailable`` with the JVM's output if it does not start.

    - ``memory``: memory of the driver, which does all the work in local mode
    - ``quick``: the application judges only small histories. Optimised code would not pay for their few queries.

    Use it as a context manager, or close it, to end the JVM and remove its files. pyspark allows one at a time in a
    process.
    """

    def __init__(self, master: str | None = None, *, memory: str = DRIVER_MEMORY, quick: bool = False) -> None:
        self.master = master or LOCAL
        self.quick = quick and self.master.startswith("local")
        if SparkContext._active_spark_context is not None:
            raise EngineUnavailable("this process runs Spark already; close that one first")
        self._folder = Path(tempfile.mkdtemp(prefix="assay-spark-"))
        self._log = self._folder / "jvm.log"
        self._gateway: Any = None
        self._context: SparkContext | None = None
        self._session: SparkSession | None = None
        try:
            self._start(memory)
        except (PySparkException, Py4JError, OSError) as error:
            why, lines = find_reason(error), self._last_lines()
            self.close()
            raise EngineUnavailable(f"Spark did not start with master {self.master}: {why}{lines}") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def engine(self, *, effects: int | None = None) -> Spark:
        """Returns an engine with a new session. ``effects``: number of effects, if known; small histories have other
        settings."""
        return Spark(self.session(effects=effects), large=effects is None or effects >= SMALL_ROWS)

    def judging_engine(self, *, effects: int, readable: bool) -> Spark | DuckDBInSpark:
        """Returns the engine for a history. ``readable``: this machine can read it, so DuckDB runs the remaining
        queries."""
        spark = self.engine(effects=effects)
        return DuckDBInSpark(spark) if readable and effects >= SMALL_ROWS and spark.can_partition() else spark

    def session(self, *, effects: int | None = None) -> SparkSession:
        """Returns a plain pyspark session, for work other than judging."""
        assert self._session is not None, "closed"
        session = self._session.newSession()
        for name, value in build_session_settings(self.master, effects).items():
            session.conf.set(name, value)
        return session

    def close(self) -> None:
        """Ends the JVM and removes its files. Idempotent."""
        self._session = None
        if self._context is not None:
            with suppress(*JVM_ERRORS):
                self._context.stop()
            self._context = None
        if self._gateway is not None:
            _end_gateway(self._gateway)
            self._gateway = None
        logging.getLogger().removeFilter(_is_not_of_py4j)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, memory: str) -> None:
        (self._folder / "log4j2.properties").write_text(LOG4J)
        logging.getLogger().addFilter(_is_not_of_py4j)
        conf = SparkConf(loadDefaults=False)
        for name, value in (*SHARED.items(), *build_settings(self.master, memory, self._folder, self.quick).items()):
            conf.set(name, value)
        with self._log.open("wb") as log, _launch_environment():
            self._gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, {"stdout": log, "stderr": log, "cwd": str(self._folder)}
            )
        self._context = SparkContext(gateway=self._gateway, conf=conf)
        if self.master.startswith("local"):
            # Python functions run in this interpreter with its import path, unless the environment names another one.
            self._context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)
            self._context.environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
        # pyspark would print a traceback when the JVM ends. The next call reports the end in one line.
        accumulators: Any = self._context._accumulatorServer
        accumulators.handle_error = lambda request, address: None
        self._session = SparkSession(self._context)

    def _last_lines(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        return "" if not lines else "\n  " + "\n  ".join(lines[-10:])


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Returns False for py4j's log records, because py4j logs each failed call with a traceback and then raises it."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _launch_environment() -> Iterator[None]:
    """Hides arguments for ``spark-submit``, such as packages to download, and names the Spark that is launched.

    Without ``SPARK_HOME``, pyspark would launch a Spark next to the current folder, which may be a stranger's.
    """
    names = ("PYSPARK_SUBMIT_ARGS", "SPARK_HOME")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.pop("PYSPARK_SUBMIT_ARGS", None)
    os.environ.setdefault("SPARK_HOME", str(_find_installed_spark()))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


def _find_installed_spark() -> Path:
    """Returns the folder of the Spark that belongs to pyspark: a distribution that pip has downloaded, or its own."""
    package = Path(pyspark.__file__).resolve().parent
    places = (package / "spark-distribution", package, package.parents[1])  # the last one is a checkout of Spark
    return next((place for place in places if (place / "bin" / "spark-submit").is_file()), package)


def _end_gateway(gateway: Any) -> None:
    """Ends the JVM by closing its standard input; pyspark would keep it for the next context."""
    with suppress(*JVM_ERRORS):
        gateway.shutdown()
    SparkContext._active_spark_context = None  # pyspark keeps it if the JVM has ended by itself
    SparkContext._gateway = None
    SparkContext._jvm = None
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
