"""Search of keys on Spark's executors, which read the operations themselves. The driver never holds them.

1. The view ``ops`` is shuffled by key once, into more parts than there are cores, longest keys first. A Python process
   gets all operations of one key at once (``applyInArrow``).
2. Each part (a :class:`Chunk` of keys) is a job of its own. So its results arrive as soon as it ends, and a process
   that dies loses no other part.
3. The keys of a failed part are requested again, in halves, until the key that kills its process is alone.

The executors' Python must be able to import this package, its dependencies and the model's module.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from assay.checkers.engine import EngineError, EngineUnavailable
from assay.checkers.engine.base import quote
from assay.checkers.judging.verdict import Judgement
from assay.checkers.linearizability.encode import COLUMNS, describe_key, encode
from assay.checkers.linearizability.key_result import ZONES, KeyResult, to_lost_result, to_unfinished_result
from assay.checkers.linearizability.key_search import search_history
from assay.checkers.linearizability.limits import DEFAULT, Limits
from assay.checkers.linearizability.model import Model, ModelError
from assay.checkers.linearizability.pool import Chunk
from assay.checkers.linearizability.scheduler import divide_into_chunks
from assay.checkers.linearizability.search import Progress, Report, judge_by_zones
from assay.checkers.linearizability.summary import describe_count, summarize

if TYPE_CHECKING:
    from assay.checkers.engine.spark import Spark

PART: Final = 100_000
"""Approximate maximum number of operations in a part, unless one key has more."""
CANCEL_INTERVAL: Final = 0.2
"""Seconds between two attempts to cancel running jobs."""

SELECT_OPERATIONS: Final = "select {} from ops".format(", ".join(map(quote, COLUMNS)))
SELECT_KEYS: Final = """
    select key, count(*) as operations, min("index") as first from ops group by key order by first
"""
RESULT_SCHEMA: Final = pa.schema([pa.field("key", pa.string()), pa.field("result", pa.binary(), nullable=False)])
"""Result from an executor: a pickled ``KeyResult``, or a ``ModelError`` if an operation does not fit the model."""

Results = Generator[tuple[int, KeyResult]]
"""Keys' results, by the number of the key."""
Rows = list[tuple[str | None, bytes]]
"""Rows of ``RESULT_SCHEMA``: key and pickled result."""
Spent = Mapping[str | None, float]
"""By key, the seconds that an earlier attempt used; 0 for a missing key."""


@dataclass(frozen=True)
class HistoryKeys:
    """All keys of the history, numbered by the lowest index of their operations."""

    names: list[str | None]
    operations: list[int]
    """Number of operations per key, including those that the model ignores: only the executors know which."""

    def __len__(self) -> int:
        return len(self.names)


def search_on_spark(
    spark: Spark,
    model: Model,
    *,
    limits: Limits = DEFAULT,
    progress: Progress = lambda what, done, total: None,
    report: Report = lambda finding: None,
) -> Judgement:
    """Judges the session's view ``ops`` like ``search``, with the same verdict and texts.

    Raises ``ModelError`` for an operation that does not fit the model, ``EngineUnavailable`` if the executors cannot
    load the model or a package, and ``EngineError`` if the operations cannot be read.
    """
    begun = time.perf_counter()
    keys = HistoryKeys([], [])
    found: dict[int, KeyResult] = {}
    interrupted = False
    try:
        _require_loadable(spark, model)
        rows = spark.arrow(SELECT_KEYS)
        keys = HistoryKeys(rows["key"].to_pylist(), rows["operations"].to_pylist())
        done, total, what = 0, sum(keys.operations), f"searching {describe_count(keys)}"
        progress(what, 0, total)
        with closing(_SparkSearch(spark, model, keys).search(limits)) as results:
            for number, result in results:
                found[number] = result
                if result.finding is not None:
                    report(result.finding)
                done += keys.operations[number]
                progress(what, done, total)
        if len(found) != len(keys):
            raise EngineError(f"Spark answered {len(found)} of {describe_count(keys)}")
    except KeyboardInterrupt:
        interrupted = True
    counted = {number: one for number, one in found.items() if one.operations}
    seconds = time.perf_counter() - begun
    return summarize(
        counted,
        keys=len(keys) - len(found) + len(counted),
        operations=sum(keys.operations),
        seconds=seconds,
        zone_seconds=min(seconds, sum(one.seconds for one in counted.values() if one.method == ZONES)),
        interrupted=interrupted,
    )


def _require_loadable(spark: Spark, model: Model) -> None:
    if find_spec("pandas") is None:
        raise EngineUnavailable(
            "Spark needs the package pandas to hand keys to Python: pip install 'pandas>=2.2,<3'; or search here with "
            "--engine=duckdb"
        )
    try:
        missing = next(filter(None, spark.run_everywhere(_find_missing, pickle.dumps(model))), None)
    except (EngineError, pickle.PicklingError, AttributeError, TypeError) as error:
        missing = str(error)
    if missing is not None:
        raise EngineUnavailable(
            f"Spark's executors cannot load the model {model.name}; install assay with all that it needs (pandas, "
            "too), and the model's module, where their Python (PYSPARK_PYTHON) finds them, or search here with "
            f"--engine=duckdb: {missing}"
        )


def _find_missing(model: bytes) -> str:
    """Runs on an executor. Returns why it cannot load the model or a package, or an empty string."""
    try:
        import pandas  # noqa: F401 - Spark needs it to hand keys over

        import assay.checkers.linearizability.searcher  # noqa: F401 - this import is slow

        pickle.loads(model)
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        return f"{type(error).__name__}: {error}"
    return ""


class _SparkSearch:
    """The search of all keys of one history."""

    def __init__(self, spark: Spark, model: Model, keys: HistoryKeys) -> None:
        self._spark = spark
        self._model = model
        self._keys = keys
        self._numbers = {name: number for number, name in enumerate(keys.names)}

    def search(self, limits: Limits) -> Results:
        """Yields each key's result, in any order.

        As on one machine (``scheduler``), each key first gets a first look. After that, keys are searched to their
        limits, unless a key is wrong.
        """
        look = limits.take_first_look() if len(self._keys) > 1 else None
        hard: dict[int, KeyResult] = {}  # keys that the first look did not decide
        wrong = False
        for number, result in self._search_all(range(len(self._keys)), look or limits):
            if look is not None and result.out_of_time:
                hard[number] = result
            else:
                wrong |= result.finding is not None
                yield number, result
        if hard and (limits.every_key or not wrong):
            with closing(self._search_all(list(hard), limits)) as results:
                for number, result in results:
                    del hard[number]
                    yield number, result
                    if result.finding is not None and not limits.every_key:
                        break
        for number, result in hard.items():
            yield number, to_unfinished_result(self._keys.names[number], result, limits.first_look)

    def _search_all(self, numbers: Sequence[int], limits: Limits) -> Results:
        """Yields the result of each key, in any order.

        First all keys are searched, each with a share of the memory. Keys that need more memory are then searched
        again, one by one.
        """
        if not numbers:
            return
        at_once = min(self._spark.parallelism, len(numbers))
        need_more_memory: list[tuple[int, float]] = []
        chunks = divide_into_chunks({number: self._keys.operations[number] for number in numbers}, at_once, PART)
        for number, result in self._run(chunks, limits.divide_by(at_once), at_once):
            if result.out_of_memory and at_once > 1:
                need_more_memory.append((number, result.seconds))
            else:
                yield number, result
        if need_more_memory:
            need_more_memory.sort()
            spent = {self._keys.names[number]: seconds for number, seconds in need_more_memory}
            yield from self._run([(number,) for number, _ in need_more_memory], limits, 1, spent)

    def _run(self, chunks: Sequence[Chunk], limits: Limits, at_once: int, spent: Spent | None = None) -> Results:
        """Runs a job per chunk, ``at_once`` in parallel. The keys of a failed chunk are requested again in halves.

        ``spent``: the seconds that earlier attempts of these keys used.
        """
        function = _make_function(self._model, limits, spent or {})
        threads = ThreadPoolExecutor(at_once)
        running: dict[Future[Rows], Chunk] = {}

        def begin(chunks: Sequence[Chunk]) -> None:
            rows = self._spark.group_by_key(
                SELECT_OPERATIONS, "key", function, RESULT_SCHEMA, list(map(self._list_names, chunks))
            )
            running.update((threads.submit(rows.collect_part, part), chunk) for part, chunk in enumerate(chunks))

        try:
            begin(chunks)
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    chunk = running.pop(future)
                    try:
                        rows = future.result()
                    except EngineError as error:
                        self._spark.require_running()  # if Spark itself has ended, the key is not the cause
                        if len(chunk) == 1:
                            yield chunk[0], self._to_lost_result(chunk[0], error)
                        else:
                            half = len(chunk) // 2
                            begin([chunk[:half], chunk[half:]])
                        continue
                    self._check_answered(chunk, rows)
                    for key, result in rows:
                        yield self._numbers[key], _unpickle_result(result)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            begun = [future for future in running if not future.cancelled()]  # ``wait`` ignores cancelled ones
            with suppress(EngineError):  # Spark may have ended
                while wait(begun, timeout=0).not_done:
                    self._spark.cancel()  # repeatedly, because a thread may be about to begin a job
                    wait(begun, timeout=CANCEL_INTERVAL)

    def _check_answered(self, chunk: Chunk, rows: Rows) -> None:
        """Raises ``EngineError`` for missing and repeated answers.

        A missing key would pass without a search. A repeated key was divided, so its results are wrong.
        """
        requested, answered = Counter(self._list_names(chunk)), Counter(key for key, _ in rows)
        if requested != answered:
            key = next(iter((requested - answered) or (answered - requested)))
            raise EngineError(
                f"Spark was asked for {describe_key(key)} {requested[key]} times and answered {answered[key]} times"
            )

    def _list_names(self, chunk: Chunk) -> list[str | None]:
        return [self._keys.names[number] for number in chunk]

    def _to_lost_result(self, number: int, error: EngineError) -> KeyResult:
        # All operations are counted. Only a model can say which of them count, and this process does not have them.
        return to_lost_result(self._keys.names[number], self._keys.operations[number], f"was lost: {error}")


def _unpickle_result(data: bytes) -> KeyResult:
    result: KeyResult | ModelError = pickle.loads(data)
    if isinstance(result, ModelError):
        raise result
    return result


def _make_function(model: Model, limits: Limits, spent: Spent) -> Callable[[pa.Table], pa.Table]:
    task = pickle.dumps((model, limits, spent))

    def search_key(ops: pa.Table) -> pa.Table:
        return _search_key(task, ops)

    return search_key


def _search_key(task: bytes, ops: pa.Table) -> pa.Table:
    """Runs on an executor, for all operations of one key."""
    model, limits, spent = _load_task(task)
    key = ops["key"][0].as_py()
    result: KeyResult | ModelError
    try:
        result = _judge_key(ops, model, limits.deduct(spent.get(key, 0.0)))
    except ModelError as error:
        result = error
    return pa.table({"key": [key], "result": [pickle.dumps(result)]}, schema=RESULT_SCHEMA)


@lru_cache(maxsize=2)
def _load_task(task: bytes) -> tuple[Model, Limits, Spent]:
    loaded: tuple[Model, Limits, Spent] = pickle.loads(task)
    return loaded


def _judge_key(ops: pa.Table, model: Model, limits: Limits) -> KeyResult:
    begun = time.perf_counter()
    encoded = encode(ops, model)
    if not encoded.keys:
        return KeyResult()
    by_zones, rest = judge_by_zones(encoded)  # `zones`: the fast method for registers with unique values
    if rest:
        return search_history(encoded.history(0), limits)
    return replace(by_zones[0], seconds=time.perf_counter() - begun)
