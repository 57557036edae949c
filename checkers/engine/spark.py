"""Spark engine: runs the checks' SQL on a cluster, or on this machine for histories that are too large for DuckDB.

Each ``Spark`` is one session of a ``SparkApplication``. Tables are materialised with a local checkpoint, which needs no
shared disk. The checkpoint also cuts the plan: a query over ten tables is planned from these tables, not from the
files. For a large history, a table is materialised only when a query reads it, and tasks answer the queries by key
(``spark_parts``).
"""

from __future__ import annotations

import pickle
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from assay.checkers.engine.base import Engine, EngineError, Row, T, select_conforming, select_nothing, shorten
from assay.checkers.engine.duck import DuckDB
from assay.checkers.engine.lazy_relations import LazyEngine, LazyRelation
from assay.checkers.engine.parquet_stats import find_columns_with_values
from assay.checkers.engine.spark_parts import (
    AskTask,
    ShuffleTask,
    assign_parts,
    divide_into_ranges,
    find_missing_package,
    pack,
)
from assay.harness.core.history.data_sets import EFFECTS

if TYPE_CHECKING:
    from assay.harness.core.history import HistoryReader

VALIDATION_MEMORY: Final = "1GB"
"""Memory that DuckDB may take for validation. The driver needs memory, too."""

PROGRESS_INTERVAL: Final = 0.2
"""Seconds between two checks of a job's progress."""

JVM_ENDED: Final = "its JVM has ended"
CONTEXT_STOPPED: Final = "Spark has ended: its cluster, or another process, has stopped its context"
_TRACEBACK: Final = "Traceback (most recent call last):\n"
JVM_ERRORS: Final = (Py4JError, ConnectionError, EOFError)
"""Exceptions of a call whose JVM has ended, or that failed in the JVM."""


@contextmanager
def raising_engine_errors(what: str) -> Iterator[None]:
    """Raises ``EngineError`` for failures inside the block. ``what``: the query or action, for the message."""
    try:
        yield
    except (PySparkException, *JVM_ERRORS) as error:
        raise EngineError(f"Spark could not run {shorten(what)}: {find_reason(error)}") from error
    except UnboundLocalError as error:
        # PySpark's cleanup of a result raises it if the JVM ends before the result's socket is open.
        last = traceback.extract_tb(error.__traceback__)[-1]
        if "pyspark" not in Path(last.filename).parts:
            raise
        raise EngineError(f"Spark could not run {shorten(what)}: {JVM_ENDED}") from error


def find_reason(error: Exception) -> str:
    """Returns the reason in one line: the text of the JVM's exception, or of a Python task's exception.

    The text of py4j's own exception only names the method that was called.
    """
    if isinstance(error, (Py4JNetworkError, ConnectionError, EOFError)):
        return JVM_ENDED
    if type(error) is Py4JError and "Trace:" not in str(error):  # the JVM gave no answer
        return JVM_ENDED
    try:
        text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    except (Py4JError, OSError):  # the exception's text is in the JVM
        text = JVM_ENDED
    _, of_python, frames = str(text).rpartition(_TRACEBACK)
    if of_python:
        return next((line for line in frames.splitlines() if line[:1].strip()), "a Python task failed")
    return str(text).strip().partition("\n")[0]


class Spark(LazyEngine):
    """A session of a ``SparkApplication``."""

    name = "spark"

    def __init__(self, session: SparkSession, *, large: bool = False) -> None:
        """``large``: tables that no query reads, or that have no rows, are skipped. Finding such tables takes time, so
        it pays only for a large history.
        """
        super().__init__()
        self._session = session
        self._large = large
        self._high_cardinality: set[str] = set()
        self._views: dict[str, None] = {}

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        files_by_columns: dict[tuple[tuple[str, str], ...], list[Path]] = {}
        for part in parts:
            files_by_columns.setdefault(_read_columns(part, schema), []).append(part)
        sources = []
        for number, (columns, paths) in enumerate(files_by_columns.items()):
            source = f"{name}_{number}"
            self._relations.prepare_redefinition(source)
            with raising_engine_errors(f"read {paths[0]}"):
                reader = self._session.read.option("__globPaths__", "false")
                reader = reader.schema(", ".join(f"`{column}` {kind}" for column, kind in columns))
                self._add_view(source, reader.parquet(*(f"file://{path.resolve()}" for path in paths)))
            self._relations.register_table(source, 1)  # the files may have rows
            sources.append(select_conforming(source, [column for column, _ in columns], schema))
        self.view(name, " union all ".join(sources) or select_nothing(schema))

    def table(self, name: str, sql: str, *, high_cardinality: bool = False) -> None:
        if high_cardinality:
            self._high_cardinality.add(name.lower())
        super().table(name, sql)
        if not self._large:
            self._relations.ensure(f"select * from {name}")

    def is_surely_empty(self, name: str) -> bool:
        return self._large and self._relations.is_surely_empty(name)

    def rows(self, sql: str) -> list[Row]:
        if self._large and self._relations.has_no_rows(sql):
            return []
        with raising_engine_errors(sql):
            return [row.asDict() for row in self._query(sql).collect()]

    def arrow(self, sql: str) -> pa.Table:
        with raising_engine_errors(sql):
            return self._query(sql).toArrow()

    def load(self, name: str, rows: pa.Table) -> None:
        self._relations.prepare_redefinition(name)
        with raising_engine_errors(f"load {name}"):
            whole = rows.combine_chunks()  # Spark 4.3 loses all rows after an empty chunk
            self._add_view(name, self._session.createDataFrame(whole).localCheckpoint(eager=True))
        self._relations.register_table(name, rows.num_rows)

    def _make(self, relation: LazyRelation) -> int | None:
        sql = str(relation.sql)
        if not relation.is_table:
            with raising_engine_errors(sql):
                self._session.sql(f"create or replace temporary view {relation.name} as {sql}")
            self._views[relation.name] = None
            return None
        with raising_engine_errors(sql):
            # Rows that do not fit into memory spill to the disk.
            table = self._plan(sql, high_cardinality=relation.name in self._high_cardinality).localCheckpoint(
                eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK
            )
            self._add_view(relation.name, table)
            return int(not (self._large and table.isEmpty()))

    def _query(self, sql: str) -> DataFrame:
        """Returns the query, after making the relations that it reads."""
        self._relations.ensure(sql)
        return self._plan(sql)

    def _plan(self, sql: str, *, high_cardinality: bool = False) -> DataFrame:
        self._session.conf.set("spark.sql.execution.bypassPartialAggregation", str(high_cardinality).lower())
        return self._session.sql(sql)

    def _add_view(self, name: str, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(name)
        self._views[name] = None

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once."""
        with raising_engine_errors("a count of its tasks"):
            return max(1, self._session.sparkContext.defaultParallelism)

    def require_running(self) -> None:
        """Raises ``EngineError`` if the JVM has ended, or if the cluster has stopped the context."""
        with raising_engine_errors("a test of its connection"):
            stopped = self._session.sparkContext._jsc.sc().isStopped()
        if stopped:
            raise EngineError(CONTEXT_STOPPED)

    def run_everywhere(self, function: Callable[[bytes], str], argument: bytes) -> list[str]:
        """Calls a module's function on the executors, once per task slot. Returns the results."""
        tasks = self.parallelism
        with raising_engine_errors(f"run {function.__module__}.{function.__name__}"):
            found: list[str] = self._session.sparkContext.parallelize([argument] * tasks, tasks).map(function).collect()
        return found

    def group_by_key(
        self,
        sql: str,
        key: str,
        function: Callable[[pa.Table], pa.Table],
        schema: pa.Schema,
        parts: Sequence[Sequence[str | None]],
    ) -> GroupedRows:
        """Calls ``function`` for each key of a query, with all rows of the key. Its results have the columns of
        ``schema``.

        Keys are texts. ``parts``: the wanted keys, each in one part. Other keys are skipped. Needs pandas in this
        process and on the executors.
        """
        keys = [one for part in parts for one in part]
        numbers = [number for number, part in enumerate(parts) for _ in part]
        divided = pa.table({"wanted": pa.array(keys, pa.string()), "part": pa.array(numbers, pa.int32())})
        with raising_engine_errors(sql):
            # An adaptive plan would run the whole shuffle in ``rdd`` below, instead of with the first part.
            self._session.conf.set("spark.sql.adaptive.enabled", "false")
            rows, part_of_key = self._query(sql), broadcast(self._session.createDataFrame(divided))
            partitioned = (
                rows.join(part_of_key, rows[key].eqNullSafe(part_of_key["wanted"]))
                .drop("wanted")
                .repartitionById(len(parts), col("part"))
            )
            return GroupedRows(partitioned.groupBy("part", key).applyInArrow(function, from_arrow_schema(schema)).rdd)

    def map_arguments(
        self, function: Callable[[bytes], bytes], arguments: Sequence[bytes], progress: Callable[[int], None]
    ) -> list[bytes]:
        """Calls a module's function for each argument, as one job on the executors with a task per argument.

        Returns the results. ``progress`` is called with the number of finished tasks. Ctrl-C ends the job.
        """
        description = f"run {function.__module__}.{function.__name__}"
        results = self._session.sparkContext.parallelize(arguments, len(arguments)).map(function)
        return self._collect(description, results, progress)

    def ask_each_part(
        self, history: HistoryReader, question: Callable[[Engine], T], progress: Callable[[int, int], None]
    ) -> list[T] | None:
        return self.ask_parts(self, history, question, progress) if self._large and self.can_partition() else None

    def can_partition(self) -> bool:
        """Returns whether tasks can judge parts. The nodes of a cluster may lack Python packages."""
        return self._local or not any(self.run_everywhere(find_missing_package, b""))

    def ask_parts(  # also called by `DuckDBInSpark`, which is then the ``engine``
        self,
        engine: Engine,
        history: HistoryReader,
        question: Callable[[Engine], T],
        progress: Callable[[int, int], None],
    ) -> list[T] | None:
        """Implements :meth:`ask_each_part`. ``engine``: has the history's tables, and ``effect_kinds`` (the numbers of
        effects by key and kind)."""
        if history.translation("effects") or history.in_memory("effects") is not None:
            return None  # the rows are not in files of the current format
        # A key belongs to a hash bucket, and a bucket to a part.
        sizes = engine.rows("select key, cast(sum(many) as bigint) as many from effect_kinds group by key")
        part_of_bucket, loads = assign_parts([(row["key"], row["many"]) for row in sizes], self.parallelism)
        # The largest part may have most of the rows. Other cores would idle during its task, so it gets more threads.
        share = max(loads) / max(1, sum(loads))
        threads = max(1, round(self.parallelism * share + 0.2)) if self._local else 1
        paths = history.paths("effects")
        ranges = divide_into_ranges(paths)
        parts = len(loads)
        total = len(ranges) + parts
        answers = (
            self._session.sparkContext.parallelize(ranges, len(ranges))
            .flatMap(ShuffleTask(tuple(find_columns_with_values(paths, EFFECTS.names)), part_of_bucket))
            .partitionBy(parts, int)
            .mapPartitions(AskTask(question, pack(engine.arrow("select * from faults")), threads))
        )
        return [pickle.loads(one) for one in self._collect("judge by key", answers, lambda done: progress(done, total))]

    def _collect(self, description: str, results: RDD[Any], progress: Callable[[int], None]) -> list[Any]:
        """Runs one job and returns all results. Ctrl-C ends the job."""
        context, group = self._session.sparkContext, f"assay-{uuid.uuid4()}"

        def run() -> list[Any]:
            context.setJobGroup(group, description, interruptOnCancel=True)
            return results.collect()

        with raising_engine_errors(description), ThreadPoolExecutor(1) as pool:
            done = pool.submit(run)
            try:
                while wait([done], timeout=PROGRESS_INTERVAL).not_done:
                    progress(self._count_completed(group))
            except BaseException:
                self.cancel()
                raise
            return done.result()

    def _count_completed(self, group: str) -> int:
        tracker = self._session.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    def cancel(self) -> None:
        """Cancels the jobs of all threads."""
        with raising_engine_errors("cancel jobs"):
            self._session.sparkContext.cancelAllJobs()

    def validation_engine(self) -> AbstractContextManager[Engine]:
        """Returns DuckDB if Spark is local, because DuckDB reads this machine's files faster with little memory."""
        return DuckDB(memory=VALIDATION_MEMORY, kept_values=0) if self._local else nullcontext(self)

    @property
    def _local(self) -> bool:
        return (self._session.sparkContext.master or "").startswith("local")

    def close(self) -> None:
        """Drops the views. The context's cleaner frees the tables once nothing refers to them."""
        with suppress(EngineError), raising_engine_errors("drop views"):  # the JVM may have ended
            for name in self._views:
                self._session.catalog.dropTempView(name)
        self._views.clear()


class GroupedRows:
    """Results of a function that is called with the rows of each key. All results of one key are in one part.

    The first request of a part shuffles the rows of all parts.
    """

    def __init__(self, rows: RDD[Any]) -> None:
        self._rows = rows

    def collect_part(self, number: int) -> list[Any]:
        """Returns the rows of a part, by a job of its own. Thread-safe."""
        with raising_engine_errors(f"make part {number} of the results by key"):
            return self._rows.context.runJob(self._rows, list, [number])


def _read_columns(part: Path, schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """Returns the columns of ``schema`` that a file has, with their types in Spark."""
    found = pq.read_schema(part)
    columns = []
    for field in schema:
        position = found.get_field_index(field.name)
        if position >= 0 and not pa.types.is_null(found.field(position).type):
            columns.append((field.name, _to_spark_type(found.field(position).type)))
    return tuple(columns)


def _to_spark_type(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_uint64(kind):
        return "decimal(20, 0)"
    if pa.types.is_integer(kind):
        return "bigint" if kind.bit_width == 64 or pa.types.is_uint32(kind) else "int"
    return "string"
