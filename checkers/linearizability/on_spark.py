"""Search of keys on Spark's executors, which read the operations themselves; the driver never holds them.

1. The view ``ops`` is shuffled by key once, into more parts than there are cores, longest keys first. A Python process
   takes all operations of one key at once (``applyInArrow``).
2. Each part is a job of its own, so its results are known at once, and a process that dies takes no other part along.
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
from assay.checkers.linearizability.key_result import Answer, search_history, to_died_result
from assay.checkers.linearizability.limits import DEFAULT, Limits
from assay.checkers.linearizability.model import Model, ModelError
from assay.checkers.linearizability.pool import Chunk
from assay.checkers.linearizability.scheduler import divide_into_chunks
from assay.checkers.linearizability.search import Progress, judge_by_zones
from assay.checkers.linearizability.summary import KeyOutcome, describe_count, summarize

if TYPE_CHECKING:
    from assay.checkers.engine.spark import Spark

PART: Final = 100_000
"""Approximate maximum of operations in a part, unless one key has more."""
PATIENCE: Final = 0.2
"""Seconds between two attempts to cancel running jobs."""

ASKED: Final = "select {} from ops".format(", ".join(map(quote, COLUMNS)))
KEYS: Final = """
    select key, count(*) as operations, min("index") as first from ops group by key order by first
"""
SAID: Final = pa.schema([pa.field("key", pa.string()), pa.field("said", pa.binary(), nullable=False)])
"""Result from an executor: a pickled ``KeyOutcome``, or a ``ModelError`` if an operation does not fit the model."""

Numbered = Generator[tuple[int, KeyOutcome]]
Rows = list[tuple[str | None, bytes]]
Spent = Mapping[str | None, float]
"""Seconds of each key's time that an earlier attempt used; a missing key has used none."""


@dataclass(frozen=True)
class HistoryKeys:
    """All keys of the history, numbered by the lowest index of their operations."""

    names: list[str | None]
    operations: list[int]
    """Number of operations per key, including those that do not count."""

    def __len__(self) -> int:
        return len(self.names)


def search_on_spark(
    spark: Spark, model: Model, *, limits: Limits = DEFAULT, progress: Progress = lambda what, done, total: None
) -> Judgement:
    """Judges the session's view ``ops`` like ``search``, with the same verdict and texts.

    If several operations do not fit the model, ``ModelError`` names one of the first key examined. Raises
    ``EngineUnavailable`` if the executors cannot load what they need, and ``EngineError`` if the operations cannot be
    read.
    """
    begun = time.perf_counter()
    keys = HistoryKeys([], [])
    found: dict[int, KeyOutcome] = {}
    interrupted = False
    try:
        _require_loadable(spark, model)
        keys = _read_keys(spark)
        done, total, what = 0, sum(keys.operations), f"searching {describe_count(keys)}"
        progress(what, 0, total)
        with closing(_SparkSearch(spark, model, keys).found(limits)) as every:
            for number, one in every:
                found[number] = one
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
        zone_seconds=min(seconds, sum(one.answer.seconds for one in counted.values() if one.zoned)),
        interrupted=interrupted,
    )


def _require_loadable(spark: Spark, model: Model) -> None:
    if find_spec("pandas") is None:
        raise EngineUnavailable(
            "Spark needs the package pandas to hand keys to Python: pip install 'pandas>=2.2,<3'; or search here with "
            "--engine=duckdb"
        )
    try:
        missing = next(filter(None, spark.everywhere(_find_missing, pickle.dumps(model))), None)
    except (EngineError, pickle.PicklingError, AttributeError, TypeError) as error:
        missing = str(error)
    if missing is not None:
        raise EngineUnavailable(
            f"Spark's executors cannot load the model {model.name}; install assay with all that it needs (pandas, "
            "too), and the model's module, where their Python (PYSPARK_PYTHON) finds them, or search here with "
            f"--engine=duckdb: {missing}"
        )


def _find_missing(model: bytes) -> str:
    """Runs on an executor. Returns what it cannot load, or an empty string."""
    try:
        import pandas  # noqa: F401 - Spark needs it to hand keys over

        import assay.checkers.linearizability.searcher  # noqa: F401 - loads what takes long

        pickle.loads(model)
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        return f"{type(error).__name__}: {error}"
    return ""


def _read_keys(spark: Spark) -> HistoryKeys:
    rows = spark.arrow(KEYS)
    return HistoryKeys(rows["key"].to_pylist(), rows["operations"].to_pylist())


class _SparkSearch:
    def __init__(self, spark: Spark, model: Model, keys: HistoryKeys) -> None:
        self._spark = spark
        self._model = model
        self._keys = keys
        self._numbers = {name: number for number, name in enumerate(keys.names)}

    def found(self, limits: Limits) -> Numbered:
        """Yields each key, in any order: with a share of the memory, then one by one those that need more."""
        if not self._keys.names:
            return
        at_once = min(self._spark.parallelism, len(self._keys))
        narrow: list[tuple[int, float]] = []
        divided = divide_into_chunks(dict(enumerate(self._keys.operations)), at_once, PART)
        for number, one in self._run(divided, limits.among(at_once), at_once):
            if one.answer.out_of_memory and at_once > 1:
                narrow.append((number, one.answer.seconds))
            else:
                yield number, one
        if narrow:
            narrow.sort()
            spent = {self._keys.names[number]: seconds for number, seconds in narrow}
            yield from self._run([(number,) for number, _ in narrow], limits, 1, spent)

    def _run(self, divided: Sequence[Chunk], limits: Limits, at_once: int, spent: Spent | None = None) -> Numbered:
        """Runs a job per chunk, that many at once. The keys of a failed chunk are requested again in halves."""
        function = _make_function(self._model, limits, spent or {})
        threads = ThreadPoolExecutor(at_once)
        under_way: dict[Future[Rows], Chunk] = {}

        def begin(divided: Sequence[Chunk]) -> None:
            made = self._spark.by_key(ASKED, "key", function, SAID, list(map(self._names, divided)))
            under_way.update((threads.submit(made.part, part), chunk) for part, chunk in enumerate(divided))

        try:
            begin(divided)
            while under_way:
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    chunk = under_way.pop(future)
                    try:
                        rows = future.result()
                    except EngineError as error:
                        self._spark.require_running()  # its end is no key's fault
                        if len(chunk) == 1:
                            yield chunk[0], self._died(chunk[0], error)
                        else:
                            half = len(chunk) // 2
                            begin([chunk[:half], chunk[half:]])
                        continue
                    self._check_answered(chunk, rows)
                    for key, said in rows:
                        yield self._numbers[key], _unpickle_result(said)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            begun = [future for future in under_way if not future.cancelled()]  # ``wait`` ignores cancelled ones
            with suppress(EngineError):  # a Spark that is gone runs nothing
                while wait(begun, timeout=0).not_done:
                    self._spark.cancel()  # repeatedly, because a thread may be about to begin a job
                    wait(begun, timeout=PATIENCE)

    def _check_answered(self, chunk: Chunk, rows: Rows) -> None:
        """Rejects missing and repeated answers: a missing key would pass, a repeated one was judged in two halves."""
        asked, answered = Counter(self._names(chunk)), Counter(key for key, _ in rows)
        if asked != answered:
            key = next(iter((asked - answered) or (answered - asked)))
            raise EngineError(
                f"Spark was asked for {describe_key(key)} {asked[key]} times and answered {answered[key]} times"
            )

    def _names(self, chunk: Chunk) -> list[str | None]:
        return [self._keys.names[number] for number in chunk]

    def _died(self, number: int, error: EngineError) -> KeyOutcome:
        # All operations of the key, because only the model knows which of them count, and they are not available here.
        return KeyOutcome(self._keys.operations[number], to_died_result(self._keys.names[number], f"was lost: {error}"))


def _unpickle_result(said: bytes) -> KeyOutcome:
    found: KeyOutcome | ModelError = pickle.loads(said)
    if isinstance(found, ModelError):
        raise found
    return found


def _make_function(model: Model, limits: Limits, spent: Spent) -> Callable[[pa.Table], pa.Table]:
    task = pickle.dumps((model, limits, spent))

    def say(ops: pa.Table) -> pa.Table:
        return _search_key(task, ops)

    return say


def _search_key(task: bytes, ops: pa.Table) -> pa.Table:
    """Runs on an executor, for all operations of one key."""
    model, limits, spent = _load_task(task)
    key = ops["key"][0].as_py()
    said: KeyOutcome | ModelError
    try:
        said = _judge_key(ops, model, limits.after(spent.get(key, 0.0)))
    except ModelError as error:
        said = error
    return pa.table({"key": [key], "said": [pickle.dumps(said)]}, schema=SAID)


@lru_cache(maxsize=2)
def _load_task(task: bytes) -> tuple[Model, Limits, Spent]:
    loaded: tuple[Model, Limits, Spent] = pickle.loads(task)
    return loaded


def _judge_key(ops: pa.Table, model: Model, limits: Limits) -> KeyOutcome:
    begun = time.perf_counter()
    encoded = encode(ops, model)
    if not encoded.keys:
        return KeyOutcome(0, Answer())
    zoned, rest = judge_by_zones(encoded)
    if rest:
        return KeyOutcome(len(encoded), search_history(encoded.history(0), limits))
    return replace(zoned[0], answer=replace(zoned[0].answer, seconds=time.perf_counter() - begun))
