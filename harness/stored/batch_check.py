"""Judges many stored runs together. Verdicts and texts are those of ``assay check``, which takes longer for each run.

Up to ``BATCH`` small histories are judged at once, in one database (``open_together``); a large history is judged
alone. On Spark each task judges one batch, and all tasks are one job. A large history has its own task. Tasks with
large histories start first, so that all executors end at about the same time. The executors need this package, the
modules of ``plugins``, and the files under the same paths.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from assay.checkers.engine import EngineError, Engines
from assay.checkers.engine.duck import DEFAULT_MEMORY
from assay.checkers.engine.spark_parts import PART_MEMORY
from assay.checkers.judging.cause_grouping import find_attribution
from assay.checkers.judging.verdict import Judgement
from assay.harness.core.history import HistoryError, HistoryReader
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.run.judging import SupportsOpen, open_together
from assay.harness.run.registry import Registry
from assay.harness.run.store import resolve_history
from assay.harness.stored.by_contract import StoredHistory, explain, judge_again, open_stored

BATCH: Final = 48
"""Maximum number of histories that are judged at once."""
SMALL_ROWS: Final = 100_000
"""Maximum rows of a history that is judged with others. A larger history gains nothing, because planning queries is a
small part of its cost.
"""
BATCH_ROWS: Final = 500_000
"""Maximum rows of all histories that are judged at once, because they are in memory together."""

TASK_BYTES: Final = 4 * 1024**2
"""Maximum bytes of the files of a Spark task with several histories. ``SMALL_ROWS`` rows take half of it."""

Progress = Callable[[int], None]
"""Called with the number of runs judged so far."""


@dataclass(frozen=True)
class BatchResult:
    """Result for one path: the judgement and its text. Without a judgement, ``text`` is the reason."""

    path: Path
    judgement: Judgement | None
    text: str


def judge_many(
    paths: Sequence[Path],
    engines: Engines,
    plugins: Sequence[str],
    progress: Progress = lambda done: None,
    *,
    trust_runs: bool = False,
) -> Iterator[BatchResult]:
    """Judges runs and history folders, each by its own contract, in the order of ``paths``.

    ``plugins`` are modules that add checks and models; ``trust_runs`` also imports the modules that runs name.

    Raises ``SettingsError`` for a plugin that adds nothing, and ``EngineUnavailable``. An error in one history, or in a
    user's check of it, becomes the text of its result.
    """
    registry = Registry.with_modules(plugins, trusts_runs=trust_runs)
    spark = engines.spark(0)  # 0 rows in the driver, because the tasks read the histories
    if spark is None:
        done = 0
        for batch in _split_into_batches(paths):
            for judged in _judge_batch(batch, engines, registry):
                done += 1
                progress(done)
                yield judged
        return
    # Absolute paths, because an executor has its own working folder.
    tasks = list(_divide_among_tasks([path.absolute() for path in paths]))
    arguments = [
        pickle.dumps(([paths[place].absolute() for place in task], tuple(plugins), trust_runs)) for task in tasks
    ]
    share = len(paths) / max(1, len(tasks))
    answers = spark.map_arguments(_judge_on_executor, arguments, lambda done: progress(round(done * share)))
    results: dict[int, BatchResult] = {}
    for task, answer in zip(tasks, answers, strict=True):
        results.update(zip(task, pickle.loads(answer), strict=True))
    for place, path in enumerate(paths):
        yield replace(results[place], path=path)


def _split_into_batches(paths: Sequence[Path]) -> Iterator[list[Path]]:
    remaining = iter(paths)
    while batch := list(islice(remaining, BATCH)):
        yield batch


def _divide_among_tasks(paths: Sequence[Path]) -> Iterator[list[int]]:
    """Yields the places in ``paths`` of each task's histories, the largest histories first."""
    sizes = list(map(_count_bytes, paths))
    task: list[int] = []
    for place in sorted(range(len(paths)), key=sizes.__getitem__, reverse=True):
        if task and (len(task) == BATCH or sum(sizes[other] for other in (*task, place)) > TASK_BYTES):
            yield task
            task = []
        task.append(place)
    if task:
        yield task


def _count_bytes(path: Path) -> int:
    """Returns the bytes of a history's files. They are 0 if it cannot be read, which its judgement will say."""
    try:
        return sum(part.stat().st_size for part in resolve_history(path).rglob("*.parquet"))
    except OSError:
        return 0


def _judge_on_executor(argument: bytes) -> bytes:
    task, plugins, trust_runs = pickle.loads(argument)
    # A task has one core, and so its share of the executor's memory; histories that are judged together are small.
    memory = PART_MEMORY if len(task) == 1 else DEFAULT_MEMORY
    with Engines(threads=1, memory=memory, spark=False) as engines:
        return pickle.dumps(list(_judge_batch(task, engines, Registry.with_modules(plugins, trusts_runs=trust_runs))))


@dataclass(frozen=True)
class _OpenedHistory:
    """A history of ``judge_many`` with its reader."""

    path: Path
    stored: StoredHistory
    history: HistoryReader
    rows: int = 0
    """Rows in memory, to be judged with others; 0: it is judged alone."""


def _judge_batch(paths: Sequence[Path], engines: Engines, registry: Registry) -> Iterator[BatchResult]:
    """Judges histories, small ones together, up to ``BATCH_ROWS`` rows at a time."""
    part: list[_OpenedHistory | BatchResult] = []
    for one in map(_open, paths):
        if part and sum(map(_count_rows, part)) + _count_rows(one) > BATCH_ROWS:
            yield from _judge_together(part, engines, registry)
            part = []
        part.append(one)
    yield from _judge_together(part, engines, registry)


def _judge_together(
    opened: Sequence[_OpenedHistory | BatchResult], engines: Engines, registry: Registry
) -> Iterator[BatchResult]:
    small = [one for one in opened if isinstance(one, _OpenedHistory) and one.rows]
    with ExitStack() as stack:
        engines_of: dict[Path, SupportsOpen] = {}
        # An error, such as a text that is not UTF-8, is ignored here: judged alone, each history gets its own error.
        with suppress(EngineError):
            opened_engines = stack.enter_context(open_together([one.history for one in small], engines))
            engines_of = {one.path: each for one, each in zip(small, opened_engines, strict=True)}
        for one in opened:
            if isinstance(one, BatchResult):
                yield one
                continue
            judged = _judge(one, engines_of[one.path], registry) if one.path in engines_of else None
            if judged is None or judged.judgement is None:  # judged alone, it gets the exact error
                alone = _open(one.path, load=False)
                judged = alone if isinstance(alone, BatchResult) else _judge(alone, engines, registry)
            yield judged


def _judge(one: _OpenedHistory, engines: SupportsOpen, registry: Registry) -> BatchResult:
    try:
        judgement = judge_again(one.stored, one.history, engines, registry)
        return BatchResult(one.path, judgement, explain(one.stored, one.history, judgement).text)
    except Exception as error:
        if (reason := _find_reason(error)) is None:
            raise
        return BatchResult(one.path, None, reason)


def _find_reason(error: Exception) -> str | None:
    """Returns the reason why a history cannot be judged, or None for an error of this program.

    An error in the SQL of a check is attributed to this check: ``in the check 'early-send'``.
    """
    if (check := find_attribution(error)) is not None:
        return f"{check}: {type(error).__name__}: {error}"
    return str(error) if isinstance(error, HistoryError | OSError | EngineError) else None


def _count_rows(one: _OpenedHistory | BatchResult) -> int:
    return one.rows if isinstance(one, _OpenedHistory) else 0


def _open(path: Path, *, load: bool = True) -> _OpenedHistory | BatchResult:
    """Opens a history. ``load``: also reads a small one into memory, to be judged with others."""
    try:
        stored = open_stored(path)
        history = stored.open_complete_part()
    except (HistoryError, OSError) as error:
        return BatchResult(path, None, str(error))
    rows = sum(history.rows(name) for name in DATA_SETS)
    # A running or killed run has a live manifest. It is judged alone, because only early checks are valid.
    if not load or rows > SMALL_ROWS or stored.live_manifest is not None:
        return _OpenedHistory(path, stored, history)
    try:
        history.load()
    except Exception:  # noqa: BLE001 - a damaged file may raise anything; judged alone, it gets its own error
        return _OpenedHistory(path, stored, history)
    return _OpenedHistory(path, stored, history, rows)
