"""Many stored runs in one pass: the verdicts and words of ``assay check`` for each, at a fraction of the price.

Histories are judged some dozens at once, in one database (``opened_together``), and large ones
alone. On Spark each task judges as many, from the files, so that a night of any size is one job; its executors
need this package, the modules of ``plugins``, and the files under the same paths.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from assay.checkers.engine import EngineError, Engines
from assay.checkers.judging.attribution import whose
from assay.checkers.judging.verdict import Judgement
from assay.harness.core.history import HistoryError, HistoryReader
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.run.judging import Opens, opened_together
from assay.harness.run.registry import Registry
from assay.harness.stored.by_contract import Stored, judge_again, open_stored
from assay.harness.stored.check_path import explained

TOGETHER: Final = 48
"""Histories at once."""
SMALL: Final = 100_000
"""Rows of a history that is judged with others; in a larger one they cost more than the planning of queries does."""
ROWS: Final = 500_000
"""Of the histories at once: all of them are in memory."""

Progress = Callable[[int], None]
"""Called with the number of runs that were judged."""


@dataclass(frozen=True)
class Judged:
    """Of one path: the judgement with what a user reads of it; without one, ``text`` says why there is none."""

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
) -> Iterator[Judged]:
    """Runs and history folders, each by its own contract, in the order of ``paths``.

    ``plugins``: modules that add checks and models. ``trust_runs``: import the modules that runs name.
    Raises ``SettingsError`` for a plugin that is none, and ``EngineUnavailable``; what is wrong with one history, or
    with a check of one's own over it, is what is said of it.
    """
    registry = Registry.with_modules(plugins, trusts_runs=trust_runs)
    spark = engines.spark(0)
    if spark is None:
        done = 0
        for batch in _batches(paths):
            for judged in _judged(batch, engines, registry):
                done += 1
                progress(done)
                yield judged
        return
    # An executor has a working folder of its own.
    asked = tuple(plugins), trust_runs
    tasks = [pickle.dumps(([path.absolute() for path in batch], *asked)) for batch in _batches(paths)]
    answers = spark.each(_on_executor, tasks, lambda done: progress(min(done * TOGETHER, len(paths))))
    judged_there = (one for answer in answers for one in pickle.loads(answer))
    for path, one in zip(paths, judged_there, strict=True):
        yield replace(one, path=path)


def _batches(paths: Sequence[Path]) -> Iterator[list[Path]]:
    rest = iter(paths)
    while batch := list(islice(rest, TOGETHER)):
        yield batch


def _on_executor(task: bytes) -> bytes:
    batch, plugins, trust_runs = pickle.loads(task)
    with Engines(threads=1, spark=False) as engines:
        return pickle.dumps(list(_judged(batch, engines, Registry.with_modules(plugins, trusts_runs=trust_runs))))


@dataclass(frozen=True)
class _Opened:
    path: Path
    stored: Stored
    history: HistoryReader
    rows: int = 0
    """That are in memory, to be judged with others; 0: it is judged alone."""


def _judged(paths: Sequence[Path], engines: Engines, registry: Registry) -> Iterator[Judged]:
    part: list[_Opened | Judged] = []
    for one in map(_opened, paths):
        if part and sum(map(_rows, part)) + _rows(one) > ROWS:
            yield from _together(part, engines, registry)
            part = []
        part.append(one)
    yield from _together(part, engines, registry)


def _together(opened: Sequence[_Opened | Judged], engines: Engines, registry: Registry) -> Iterator[Judged]:
    small = [one for one in opened if isinstance(one, _Opened) and one.rows]
    with ExitStack() as stack:
        opens: dict[Path, Opens] = {}
        with suppress(EngineError):  # such as for a text of one that is not UTF-8: alone each has its own words
            given = stack.enter_context(opened_together([one.history for one in small], engines))
            opens = {one.path: each for one, each in zip(small, given, strict=True)}
        for one in opened:
            if isinstance(one, Judged):
                yield one
                continue
            judged = _with_others(one, opens[one.path], registry) if one.path in opens else None
            yield judged or _alone(one.path, engines, registry)


def _with_others(one: _Opened, opens: Opens, registry: Registry) -> Judged | None:
    """What is wrong with a file, or with a check, is said of it alone, in the words that it then has."""
    try:
        return _explained(one, judge_again(one.stored, one.history, opens, registry))
    except Exception as error:
        if _why_not(error) is None:
            raise
        return None


def _why_not(error: Exception) -> str | None:
    """Why there is no judgement of a history; None for an error of this program, which ends it."""
    if (check := whose(error)) is not None:
        return f"{check}: {type(error).__name__}: {error}"
    return str(error) if isinstance(error, HistoryError | OSError | EngineError) else None


def _rows(one: _Opened | Judged) -> int:
    return one.rows if isinstance(one, _Opened) else 0


def _opened(path: Path) -> _Opened | Judged:
    try:
        stored = open_stored(path)
        history = stored.opened()
    except (HistoryError, OSError) as error:
        return Judged(path, None, str(error))
    rows = sum(history.rows(name) for name in DATA_SETS)
    if rows > SMALL or stored.seal is not None:
        return _Opened(path, stored, history)
    try:
        history.load()
    except Exception:  # noqa: BLE001 - a damaged file may raise anything; judged alone it is named
        return _Opened(path, stored, history)
    return _Opened(path, stored, history, rows)


def _alone(path: Path, engines: Engines, registry: Registry) -> Judged:
    try:
        stored = open_stored(path)
        history = stored.opened()
        judgement = judge_again(stored, history, engines, registry)
    except Exception as error:
        if (reason := _why_not(error)) is None:
            raise
        return Judged(path, None, reason)
    return Judged(path, judgement, explained(stored, history, judgement).text)


def _explained(one: _Opened, judgement: Judgement) -> Judged:
    return Judged(one.path, judgement, explained(one.stored, one.history, judgement).text)
