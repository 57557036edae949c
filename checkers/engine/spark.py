"""Spark engine: runs the checks' SQL if one machine's memory and disk do not suffice, and on clusters.

Each ``Spark`` is one session of a ``SparkApplication``. Tables are materialised with a local checkpoint. The checkpoint
cuts the plan, so that a view over ten tables is not planned from the files up again, and it needs no shared disk. For a
large history this happens when something reads the table, and tasks answer the queries by key (``spark_parts``).
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from assay.checkers.engine.base import Engine, EngineError, Row, T, select_conforming, select_nothing
from assay.checkers.engine.duck import DuckDB
from assay.checkers.engine.lazy_relations import LazyRelation, LazyRelations
from assay.checkers.engine.parquet_stats import has_values
from assay.checkers.engine.spark_errors import CONTEXT_STOPPED, raising_engine_errors
from assay.checkers.engine.spark_parts import (
    AskTask,
    SortTask,
    assign_places,
    divide_into_ranges,
    find_missing_package,
    pack,
)
from assay.harness.core.history.data_sets import EFFECTS

if TYPE_CHECKING:
    from assay.harness.core.history import HistoryReader

VALIDATION_MEMORY: Final = "1GB"
"""Memory that DuckDB may take next to the driver."""

PATIENCE: Final = 0.2
"""Seconds between two checks of a job's progress."""


class Spark:
    """A session of a ``SparkApplication``."""

    name = "spark"

    def __init__(self, session: SparkSession, *, large: bool = False) -> None:
        """``large``: it is worth checking each table, to skip tables that no query reads or that have no rows."""
        self._session = session
        self._large = large
        self._deferred = LazyRelations(self._make)
        self._high_cardinality: set[str] = set()
        self._expected: dict[str, pa.Table] = {}
        self._views: dict[str, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def register(self, name: str, parts: Sequence[Path], schema: pa.Schema) -> None:
        alike: dict[tuple[tuple[str, str], ...], list[Path]] = {}
        for part in parts:
            alike.setdefault(_read_columns(part, schema), []).append(part)
        sources = []
        for number, (columns, paths) in enumerate(alike.items()):
            source = f"{name}_{number}"
            self._deferred.redefine(source)
            with raising_engine_errors(f"read {paths[0]}"):
                reader = self._session.read.option("__globPaths__", "false")
                reader = reader.schema(", ".join(f"`{column}` {kind}" for column, kind in columns))
                self._known(source, reader.parquet(*(f"file://{path.resolve()}" for path in paths)))
            self._deferred.given(source, 1)
            sources.append(select_conforming(source, [column for column, _ in columns], schema))
        self.view(name, " union all ".join(sources) or select_nothing(schema))

    def view(self, name: str, sql: str) -> None:
        self._deferred.declare(name, sql, kept=False)

    def table(self, name: str, sql: str, *, high_cardinality: bool = False) -> None:
        if name in self._expected:
            self.load(name, self._expected[name])
            return
        if high_cardinality:
            self._high_cardinality.add(name.lower())
        self._deferred.declare(name, sql, kept=True)
        if not self._large:
            self._deferred.ensure(f"select * from {name}")

    def has_loaded(self, name: str) -> bool:
        return False

    def is_surely_empty(self, name: str) -> bool:
        return self._large and self._deferred.is_surely_empty(name)

    def rows(self, sql: str) -> list[Row]:
        if self._large and self._deferred.no_rows(sql):
            return []
        with raising_engine_errors(sql):
            return [row.asDict() for row in self._asked(sql).collect()]

    def arrow(self, sql: str) -> pa.Table:
        with raising_engine_errors(sql):
            return self._asked(sql).toArrow()

    def load(self, name: str, rows: pa.Table) -> None:
        self._deferred.redefine(name)
        with raising_engine_errors(f"load {name}"):
            whole = rows.combine_chunks()  # Spark 4.3 leaves out everything after an empty chunk
            self._known(name, self._session.createDataFrame(whole).localCheckpoint(eager=True))
        self._deferred.given(name, rows.num_rows)

    def _make(self, relation: LazyRelation) -> int | None:
        sql = str(relation.sql)
        if not relation.kept:
            with raising_engine_errors(sql):
                self._session.sql(f"create or replace temporary view {relation.name} as {sql}")
            self._views[relation.name] = None
            return None
        with raising_engine_errors(sql):
            # The disk takes what memory does not, as DuckDB's tables spill.
            made = self._planned(sql, high_cardinality=relation.name in self._high_cardinality).localCheckpoint(
                eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK
            )
            self._known(relation.name, made)
            return int(not (self._large and made.isEmpty()))

    def _asked(self, sql: str) -> DataFrame:
        """Returns the query, after making the relations that it reads."""
        self._deferred.ensure(sql)
        return self._planned(sql)

    def _planned(self, sql: str, *, high_cardinality: bool = False) -> DataFrame:
        self._session.conf.set("spark.sql.execution.bypassPartialAggregation", str(high_cardinality).lower())
        return self._session.sql(sql)

    def _known(self, name: str, made: DataFrame) -> None:
        made.createOrReplaceTempView(name)
        self._views[name] = None

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once."""
        return max(1, self._session.sparkContext.defaultParallelism)

    def require_running(self) -> None:
        """Raises ``EngineError`` if Spark itself has ended: its JVM, or its context, ended by its cluster."""
        with raising_engine_errors("find out whether it is there"):
            stopped = self._session.sparkContext._jsc.sc().isStopped()
        if stopped:
            raise EngineError(CONTEXT_STOPPED)

    def everywhere(self, function: Callable[[bytes], str], argument: bytes) -> list[str]:
        """Returns the results of a module's function on executors, called by as many tasks as run at once."""
        tasks = self.parallelism
        with raising_engine_errors(f"run {function.__module__}.{function.__name__}"):
            found: list[str] = self._session.sparkContext.parallelize([argument] * tasks, tasks).map(function).collect()
        return found

    def by_key(
        self,
        sql: str,
        key: str,
        function: Callable[[pa.Table], pa.Table],
        schema: pa.Schema,
        parts: Sequence[Sequence[str | None]],
    ) -> GroupedRows:
        """Returns what ``function`` makes of all rows that ``sql`` has of one key: rows of ``schema``. Keys are texts.

        ``parts``: the wanted keys, each in one part. Other keys are skipped. Needs pandas, here and on the executors.
        """
        keys = [one for part in parts for one in part]
        numbers = [number for number, part in enumerate(parts) for _ in part]
        divided = pa.table({"wanted": pa.array(keys, pa.string()), "part": pa.array(numbers, pa.int32())})
        with raising_engine_errors(sql):
            # An adaptive plan would run the whole shuffle here, in ``rdd``, instead of with the first part.
            self._session.conf.set("spark.sql.adaptive.enabled", "false")
            rows, placed = self._asked(sql), broadcast(self._session.createDataFrame(divided))
            sorted_out = (
                rows.join(placed, rows[key].eqNullSafe(placed["wanted"]))
                .drop("wanted")
                .repartitionById(len(parts), col("part"))
            )
            return GroupedRows(sorted_out.groupBy("part", key).applyInArrow(function, from_arrow_schema(schema)).rdd)

    def each(
        self, function: Callable[[bytes], bytes], arguments: Sequence[bytes], progress: Callable[[int], None]
    ) -> list[bytes]:
        """Returns the results of a module's function for each argument, as one job on the executors with a task for
        each.

        ``progress`` is called with the number of finished tasks. Ctrl-C ends the job.
        """
        what = f"run {function.__module__}.{function.__name__}"
        wanted = self._session.sparkContext.parallelize(arguments, len(arguments)).map(function)
        return self._ran(what, wanted, progress)

    def ask_each_part(
        self, history: HistoryReader, question: Callable[[Engine], T], progress: Callable[[int, int], None]
    ) -> list[T] | None:
        return self.parted(self, history, question, progress) if self._large and self.shares() else None

    def shares(self) -> bool:
        """Returns whether its tasks can load what they need to judge a part; a cluster's nodes may lack Python
        packages."""
        return self._local or not any(self.everywhere(find_missing_package, b""))

    def preset_tables(self, tables: Mapping[str, pa.Table]) -> None:
        self._expected.update(tables)

    def parted(
        self,
        here: Engine,
        history: HistoryReader,
        question: Callable[[Engine], T],
        progress: Callable[[int, int], None],
    ) -> list[T] | None:
        """Judges by key. ``here`` has the history's tables, and ``effect_kinds``."""
        if history.translation("effects") or history.in_memory("effects") is not None:
            return None  # the files do not have these rows
        sizes = here.rows("select key, cast(sum(many) as bigint) as many from effect_kinds group by key")
        of_bucket, loads = assign_places([(row["key"], row["many"]) for row in sizes], self.parallelism)
        # If one part has most of the rows, the other cores would idle during its task, so that task gets more threads.
        share = max(loads) / max(1, sum(loads))
        threads = max(1, round(self.parallelism * share + 0.2)) if self._local else 1
        paths = history.paths("effects")
        found = divide_into_ranges(paths)
        parts = len(loads)
        total = len(found) + parts
        wanted = (
            self._session.sparkContext.parallelize(found, len(found))
            .flatMap(SortTask(tuple(name for name in EFFECTS.names if has_values(paths, name)), of_bucket))
            .partitionBy(parts, int)
            .mapPartitions(AskTask(question, pack(here.arrow("select * from faults")), threads))
        )
        return [pickle.loads(one) for one in self._ran("judge by key", wanted, lambda done: progress(done, total))]

    def _ran(self, what: str, wanted: RDD[Any], progress: Callable[[int], None]) -> list[Any]:
        """Returns all of ``wanted``, by one job, which ends with Ctrl-C."""
        context, group = self._session.sparkContext, f"assay-{uuid.uuid4()}"

        def run() -> list[Any]:
            context.setJobGroup(group, what, interruptOnCancel=True)
            return wanted.collect()

        with raising_engine_errors(what), ThreadPoolExecutor(1) as pool:
            done = pool.submit(run)
            try:
                while wait([done], timeout=PATIENCE).not_done:
                    progress(self._completed(group))
            except BaseException:
                self.cancel()
                raise
            return done.result()

    def _completed(self, group: str) -> int:
        tracker = self._session.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    def cancel(self) -> None:
        """Cancels the jobs of all threads."""
        with raising_engine_errors("cancel jobs"):
            self._session.sparkContext.cancelAllJobs()

    def validation_engine(self) -> AbstractContextManager[Engine]:
        """DuckDB reads files of this machine in seconds, and these queries need next to no state."""
        return DuckDB(memory=VALIDATION_MEMORY, kept_cells=0) if self._local else nullcontext(self)

    @property
    def _local(self) -> bool:
        return (self._session.sparkContext.master or "").startswith("local")

    def close(self) -> None:
        """Drops the views. The context's cleaner frees the tables once nothing refers to them."""
        with suppress(EngineError), raising_engine_errors("drop views"):  # a JVM that has ended has none
            for name in self._views:
                self._session.catalog.dropTempView(name)
        self._views.clear()


class GroupedRows:
    """Rows that a function makes from those of each key, in parts: all rows of one key are in one part.

    The first part that is requested shuffles the rows for all.
    """

    def __init__(self, rows: RDD[Any]) -> None:
        self._rows = rows

    def part(self, number: int) -> list[Any]:
        """Returns the rows of a part, by a job of its own. Thread-safe."""
        with raising_engine_errors(f"make part {number} of what is made by key"):
            return self._rows.context.runJob(self._rows, list, [number])


def _read_columns(part: Path, schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """Returns the wanted columns that a part has, with the type that Spark reads them as."""
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
