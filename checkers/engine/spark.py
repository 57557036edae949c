"""Spark: the same SQL text where one machine's memory and disk do not suffice, and on clusters.

``SparkApplication`` is one JVM with one Spark context; it takes seconds to start, so a pytest session keeps one.
Each ``Spark`` engine is a session of its own in it, with its own views. Tables are materialised with a local
checkpoint: it cuts the plan, so that a view over ten tables is not planned from the files up again, and needs no
shared disk.

Locally, Spark keeps to itself: loopback only, no UI, no package resolution, all its files in one temporary folder that
is removed in the end. Any other master (standalone, YARN, Kubernetes) is passed through, and what the settings of that
cluster say (``spark-defaults.conf``, ``SPARK_CONF_DIR``) is left alone; the history must then lie where all its nodes
can read it.

Small histories are judged without generated code: compiling Java for each of some hundred tiny queries takes ten times
as long as running them. Of large ones, what turns out to be small is judged in this process; ``names`` tells why.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import RDD, SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from assay.checkers.engine.base import Engine, EngineError, EngineUnavailable, Row, conformed, empty
from assay.checkers.engine.duck import DuckDB
from assay.checkers.engine.names import Names

LOCAL: Final = "local[2]"
_LOOPBACK: Final = ("spark://127.", "spark://localhost:")
DRIVER_MEMORY: Final = "4g"
VALIDATION_MEMORY: Final = "1GB"
FEW_MEMORY: Final = "512MB"
"""What DuckDB may take beside the driver: first to validate, then, once that is over, for tables of few rows."""
SMALL_ROWS: Final = 1_000_000
"""Histories with fewer effects are judged without generated code and without parallel shuffles."""

FEW_ROWS: Final = 50_000
"""Of a large history, a table with at most so many is kept in this process, and known to the optimizer."""

LEAST_PARTITIONS: Final = 4
PARTITION_ROWS: Final = 2_000_000
"""Shuffle partitions of a large history on this machine: so many effects each; a cluster's own setting counts there."""

SHARED: Final[Mapping[str, str]] = {
    "spark.app.name": "assay",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",  # "group" is a column here, a text in Spark's own dialect
    "spark.sql.caseSensitive": "false",
    # A checkpoint takes over constraints on columns that it has not, and a union of such ones then cannot be planned
    # (NoSuchElementException in UnionBase.rewriteConstraints, Spark 4.3). Inferred filters are all that is lost.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # What a function makes by key counts on either: keys would be shuffled out of the parts that were asked for, and
    # texts would come as another type.
    "spark.sql.requireAllClusterKeysForDistribution": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.parquet.enableVectorizedReader": "true",
    # Tables keep their rows serialised. Java's way takes three times as long, and so does this one if it has to find
    # out whether a row refers to itself.
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.referenceTracking": "false",
    "spark.kryo.classesToRegister": "org.apache.spark.sql.catalyst.expressions.UnsafeRow",
    "spark.kryoserializer.buffer.max": "2047m",  # what one task returns must fit
    # Some hundred queries that run once each: a hash map made for each costs more to compile than it saves.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
}
"""The meaning of the SQL, wherever it runs, and what suits so many queries."""

JVM_ENDED: Final = "its JVM has ended"
CONTEXT_STOPPED: Final = "Spark has ended: its cluster, or somebody else, has stopped its context"
LOST: Final = (Py4JError, ConnectionError, EOFError)
"""What a call raises whose JVM has ended, or that went wrong there."""

LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


class SparkApplication:
    """A running Spark. Raises ``EngineUnavailable`` with what the JVM said when it does not start.

    ``memory``: of the driver, which does all the work when local. ``quick``: for small histories only, whose queries
    run too rarely to be worth optimising machine code for. Use as a context manager, or close it: that ends the JVM and
    removes its files. There can be one at a time in a process, as pyspark has it.
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
            reason, told = _reason(error), self._told()
            self.close()
            raise EngineUnavailable(f"Spark did not start with master {self.master}: {reason}{told}") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def engine(self, *, effects: int | None = None) -> Spark:
        """A session of its own. ``effects``: how many rows the history has, if known; few are judged in another way."""
        large = effects is None or effects >= SMALL_ROWS
        return Spark(self.session(effects=effects), few_rows=FEW_ROWS if large else None)

    def session(self, *, effects: int | None = None) -> SparkSession:
        """The same as pyspark has it, for what is no history."""
        assert self._session is not None, "closed"
        session = self._session.newSession()
        for name, value in _session_settings(self.master, effects).items():
            session.conf.set(name, value)
        return session

    def close(self) -> None:
        """Idempotent."""
        self._session = None
        if self._context is not None:
            with suppress(*LOST):
                self._context.stop()
            self._context = None
        if self._gateway is not None:
            _end(self._gateway)
            self._gateway = None
        logging.getLogger().removeFilter(_not_of_py4j)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, memory: str) -> None:
        (self._folder / "log4j2.properties").write_text(LOG4J)
        logging.getLogger().addFilter(_not_of_py4j)
        conf = SparkConf(loadDefaults=False)
        for name, value in (*SHARED.items(), *_settings(self.master, memory, self._folder, self.quick).items()):
            conf.set(name, value)
        with self._log.open("wb") as log, _without_resolution():
            self._gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, {"stdout": log, "stderr": log, "cwd": str(self._folder)}
            )
        self._context = SparkContext(gateway=self._gateway, conf=conf)
        if self.master.startswith("local"):
            # Python functions run in this interpreter and find what it finds, unless something else is asked for.
            self._context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)
            self._context.environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
        # Nothing here counts with accumulators; that the JVM has ended is told by whatever asks it next, in one line.
        accumulators: Any = self._context._accumulatorServer
        accumulators.handle_error = lambda request, address: None
        self._session = SparkSession(self._context)

    def _told(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        return "" if not lines else "\n  " + "\n  ".join(lines[-10:])


class Spark:
    """One session of a ``SparkApplication``."""

    name = "spark"

    def __init__(self, session: SparkSession, *, few_rows: int | None = None) -> None:
        """``few_rows``: look at how large each table is, which pays where reading one twice takes long; those with at
        most so many rows are kept in this process."""
        self._session = session
        self._few_rows = few_rows
        self._few: DuckDB | None = None if few_rows is None else DuckDB(memory=FEW_MEMORY)
        self._names = Names()
        self._told: dict[str, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        if self._few is not None and sum(pq.read_metadata(part).num_rows for part in parts) <= (self._few_rows or 0):
            self._few.register(name, parts, schema)
            self._names.few(name, self._few.arrow(f"select * from {name}"))
            return
        alike: dict[tuple[tuple[str, str], ...], list[Path]] = {}
        for part in parts:
            alike.setdefault(_columns(part, schema), []).append(part)
        sources = []
        for number, (columns, paths) in enumerate(alike.items()):
            source = f"{name}_{number}"
            with _failures(f"read {paths[0]}"):
                reader = self._session.read.option("__globPaths__", "false")
                reader = reader.schema(", ".join(f"`{column}` {kind}" for column, kind in columns))
                self._known(source, reader.parquet(*(f"file://{path.resolve()}" for path in paths)))
            sources.append(conformed(source, [column for column, _ in columns], schema))
        self.view(name, " union all ".join(sources) or empty(schema))

    def view(self, name: str, sql: str) -> None:
        """Its text is looked at when something reads it."""
        self._names.view(name, sql)

    def table(self, name: str, sql: str, *, fine: bool = False) -> None:
        few = self._asked_of_few(sql)
        if few is not None:
            self.load(name, few.arrow(sql))
            return
        with _failures(sql):
            # The disk takes what memory does not, as DuckDB's tables spill.
            made = self._asked(sql, fine=fine).localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
            if self._few_rows is not None:
                first = made.limit(self._few_rows + 1).toArrow()
                if first.num_rows <= self._few_rows:
                    self._names.few(name, first)
                    return
            self._known(name, made)

    def rows(self, sql: str) -> list[Row]:
        few = self._asked_of_few(sql)
        if few is not None:
            return few.rows(sql)
        with _failures(sql):
            return [row.asDict() for row in self._asked(sql).collect()]

    def arrow(self, sql: str) -> pa.Table:
        few = self._asked_of_few(sql)
        if few is not None:
            return few.arrow(sql)
        with _failures(sql):
            return self._asked(sql).toArrow()

    def load(self, name: str, rows: pa.Table) -> None:
        if self._few_rows is not None and rows.num_rows <= self._few_rows:
            self._names.few(name, rows)
            return
        with _failures(f"take over {name}"):
            self._known(name, self._session.createDataFrame(rows).localCheckpoint(eager=True))

    def _asked_of_few(self, sql: str) -> DuckDB | None:
        """Who answers it, where it is asked of few rows alone."""
        if self._few is None or not self._names.has_few(sql):
            return None
        for name, relation in self._names.untold(sql, self._few.name):
            if relation.sql is not None:
                self._few.view(name, relation.sql)
            elif relation.rows is not None:
                self._few.load(name, relation.rows)
        return self._few

    def _asked(self, sql: str, *, fine: bool = False) -> DataFrame:
        """The query, once Spark knows what it reads.

        Few rows are constants there, of which the optimizer knows how many there are: joins with them need no shuffle,
        and those with none vanish.
        """
        for name, relation in self._names.untold(sql, self.name):
            with _failures(relation.sql or f"take over {name}"):
                if relation.sql is not None:
                    self._session.sql(f"create or replace temporary view {name} as {relation.sql}")
                elif relation.rows is not None:
                    self._session.createDataFrame(relation.rows).createOrReplaceTempView(name)
            self._told[name] = None
        self._session.conf.set("spark.sql.execution.bypassPartialAggregation", str(fine).lower())
        return self._session.sql(sql)

    def _known(self, name: str, made: DataFrame) -> None:
        made.createOrReplaceTempView(name)
        self._names.many(name, self.name)
        self._told[name] = None

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        return max(1, self._session.sparkContext.defaultParallelism)

    def require_running(self) -> None:
        """Raises ``EngineError`` where Spark itself has ended: its JVM, or, by its cluster's will, its context."""
        with _failures("tell whether it is there"):
            stopped = self._session.sparkContext._jsc.sc().isStopped()
        if stopped:
            raise EngineError(CONTEXT_STOPPED)

    def everywhere(self, function: Callable[[bytes], str], argument: bytes) -> list[str]:
        """What a function of a module says on executors, called by as many tasks as run at once."""
        tasks = self.parallelism
        with _failures(f"run {function.__module__}.{function.__name__}"):
            found: list[str] = self._session.sparkContext.parallelize([argument] * tasks, tasks).map(function).collect()
        return found

    def by_key(
        self,
        sql: str,
        key: str,
        function: Callable[[pa.Table], pa.Table],
        schema: pa.Schema,
        parts: Sequence[Sequence[str | None]],
    ) -> Grouped:
        """What ``function`` makes of all rows that ``sql`` has of one key: rows of ``schema``. For texts as keys.

        ``parts``: keys, each in one part; of others nothing is made. Needs pandas, here and on the executors.
        """
        keys = [one for part in parts for one in part]
        numbers = [number for number, part in enumerate(parts) for _ in part]
        divided = pa.table({"wanted": pa.array(keys, pa.string()), "part": pa.array(numbers, pa.int32())})
        with _failures(sql):
            # An adaptive plan would run the whole shuffle here, in ``rdd``, instead of with the first part.
            self._session.conf.set("spark.sql.adaptive.enabled", "false")
            rows, placed = self._asked(sql), broadcast(self._session.createDataFrame(divided))
            sorted_out = (
                rows.join(placed, rows[key].eqNullSafe(placed["wanted"]))
                .drop("wanted")
                .repartitionById(len(parts), col("part"))
            )
            return Grouped(sorted_out.groupBy("part", key).applyInArrow(function, from_arrow_schema(schema)).rdd)

    def cancel(self) -> None:
        """Ends what other threads run."""
        with _failures("cancel jobs"):
            self._session.sparkContext.cancelAllJobs()

    def validator(self) -> AbstractContextManager[Engine]:
        """Files of this machine are a matter of seconds for DuckDB: what is asked of them has next to no state."""
        local = (self._session.sparkContext.master or "").startswith("local")
        return DuckDB(memory=VALIDATION_MEMORY, kept_rows=0) if local else nullcontext(self)

    def close(self) -> None:
        """The context's cleaner frees what the tables took, once nothing refers to them."""
        with suppress(EngineError), _failures("drop views"):  # a JVM that has ended has none
            for name in self._told:
                self._session.catalog.dropTempView(name)
        self._told.clear()
        if self._few is not None:
            self._few.close()


class Grouped:
    """Rows that a function makes of those of each key, in parts: all rows of one key are in one part.

    The first part that is asked for sorts out the rows for all.
    """

    def __init__(self, rows: RDD[Any]) -> None:
        self._rows = rows

    def part(self, number: int) -> list[Any]:
        """A job of its own. May be used by several threads at once."""
        with _failures(f"make part {number} of what is made by key"):
            return self._rows.context.runJob(self._rows, list, [number])


def _settings(master: str, memory: str, folder: Path, quick: bool) -> dict[str, str]:
    """What the JVM starts with."""
    settings = {
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    # Checks of many columns become methods too long for the JVM to compile unless told to.
    java = [
        "-XX:-UsePerfData",
        "-XX:-DontCompileHugeMethods",
        f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
    ]
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder),
            "spark.jars.ivy": str(folder / "ivy"),
        }
        java.append(f"-Djava.io.tmpdir={folder}")
        java.append("-XX:+UseSerialGC" if quick else "-XX:+UseParallelGC")
    elif master.startswith(_LOOPBACK):  # all workers are on this machine, too
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if quick:
        java.append("-XX:TieredStopAtLevel=1")
    else:  # Some hundred queries that run once each: code that is inlined less is compiled in half the time.
        java += ["-XX:MaxInlineLevel=5", "-XX:InlineSmallCode=1000"]
    return settings | {"spark.driver.extraJavaOptions": " ".join(java)}


def _session_settings(master: str, effects: int | None) -> dict[str, str]:
    """How the work is divided: by the size of the history, and, on a cluster, by Spark itself."""
    if effects is not None and effects < SMALL_ROWS:
        return {
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.files.maxPartitionBytes": "1g",
            "spark.sql.files.openCostInBytes": "0",
        }
    if not master.startswith("local"):
        return {}
    return {"spark.sql.shuffle.partitions": str(max(LEAST_PARTITIONS, (effects or 0) // PARTITION_ROWS))}


def _columns(part: Path, schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """The wanted columns that a part has, with the type that Spark reads them as."""
    found = pq.read_schema(part)
    columns = []
    for field in schema:
        position = found.get_field_index(field.name)
        if position >= 0 and not pa.types.is_null(found.field(position).type):
            columns.append((field.name, _stored(found.field(position).type)))
    return tuple(columns)


def _stored(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_uint64(kind):
        return "decimal(20, 0)"
    if pa.types.is_integer(kind):
        return "bigint" if kind.bit_width == 64 or pa.types.is_uint32(kind) else "int"
    return "string"


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j tells the root logger of each call that fails, with a traceback, before it raises what says the same."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _failures(what: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, *LOST) as error:
        text = " ".join(what.split())
        text = text if len(text) <= 200 else f"{text[:200]} ..."
        raise EngineError(f"Spark could not run {text}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """One line. py4j's own message tells the Python method that was called; the exception behind it what went wrong."""
    if isinstance(error, (Py4JNetworkError, ConnectionError, EOFError)):
        return JVM_ENDED
    try:
        told = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    except (Py4JError, OSError):  # the exception lies in the JVM
        told = JVM_ENDED
    return str(told).strip().partition("\n")[0]


@contextmanager
def _without_resolution() -> Iterator[None]:
    """``spark-submit`` takes arguments from the environment, packages to download among them; none are wanted."""
    before = os.environ.pop("PYSPARK_SUBMIT_ARGS", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _end(gateway: Any) -> None:
    """The JVM ends when its standard input does; pyspark would keep it for the next context."""
    with suppress(*LOST):
        gateway.shutdown()
    SparkContext._active_spark_context = None  # a context whose JVM has ended does not get so far itself
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
