"""Many stored runs in one pass: the verdicts and words of ``assay check`` for each, at a fraction of the price.

On Spark each task judges some dozens, from the files, so that a night of any size is one job; its executors need this
package, the modules of ``plugins``, and the files under the same paths.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from assay.checkers.engine import EngineError, Engines
from assay.checkers.judge import whose
from assay.checkers.verdict import Judgement
from assay.harness.core.history import HistoryError
from assay.harness.run.registry import Registry
from assay.harness.stored.by_contract import judge_again, open_stored
from assay.harness.stored.check_path import explained

TOGETHER: Final = 48
"""Histories in a task of Spark."""

Progress = Callable[[int], None]
"""Called with the number of runs that were judged."""


@dataclass(frozen=True)
class Judged:
    """Of one path: the judgement with what a user reads of it; without one, ``text`` says why there is none."""

    path: Path
    judgement: Judgement | None
    text: str


def judge_many(
    paths: Sequence[Path], engines: Engines, plugins: Sequence[str], progress: Progress = lambda done: None
) -> Iterator[Judged]:
    """Runs and history folders, each by its own contract, in the order of ``paths``.

    ``plugins``: modules that add checks and models. Raises ``SettingsError`` for a plugin that is none, and
    ``EngineUnavailable``; what is wrong with one history, or with a check of one's own over it, is what is said of it.
    """
    registry = Registry.with_modules(plugins)
    spark = engines.spark(0)
    if spark is None:
        for done, path in enumerate(paths, 1):
            judged = _judged(path, engines, registry)
            progress(done)
            yield judged
        return
    # An executor has a working folder of its own.
    tasks = [pickle.dumps(([path.absolute() for path in batch], tuple(plugins))) for batch in _batches(paths)]
    answers = spark.each(_on_executor, tasks, lambda done: progress(min(done * TOGETHER, len(paths))))
    judged_there = (one for answer in answers for one in pickle.loads(answer))
    for path, one in zip(paths, judged_there, strict=True):
        yield replace(one, path=path)


def _batches(paths: Sequence[Path]) -> Iterator[list[Path]]:
    rest = iter(paths)
    while batch := list(islice(rest, TOGETHER)):
        yield batch


def _on_executor(task: bytes) -> bytes:
    batch, plugins = pickle.loads(task)
    registry = Registry.with_modules(plugins)
    with Engines(threads=1) as engines:
        return pickle.dumps([_judged(path, engines, registry) for path in batch])


def _judged(path: Path, engines: Engines, registry: Registry) -> Judged:
    try:
        stored = open_stored(path)
        history = stored.opened()
        judgement = judge_again(stored, history, engines, registry)
    except Exception as error:
        if (reason := _why_not(error)) is None:
            raise
        return Judged(path, None, reason)
    return Judged(path, judgement, explained(stored, history, judgement).text)


def _why_not(error: Exception) -> str | None:
    """Why there is no judgement of a history; None for an error of this program, which ends it."""
    if (check := whose(error)) is not None:
        return f"{check}: {type(error).__name__}: {error}"
    return str(error) if isinstance(error, HistoryError | FileNotFoundError | EngineError) else None
