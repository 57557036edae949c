"""Judges many stored runs in one pass, with the same verdicts and texts as ``assay check`` but at lower cost.

Some dozens of histories are judged at once, in one database (``opened_together``); a large history is judged alone. On
Spark each task judges one batch from the files, so any number of runs is one job. The executors need this package, the
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
from assay.checkers.judging.attribution import whose
from assay.checkers.judging.verdict import Judgement
from assay.harness.core.history import HistoryError, HistoryReader
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.run.judging import Opens, opened_together
from assay.harness.run.registry import Registry
from assay.harness.stored.by_contract import Stored, judge_again, open_stored
from assay.harness.stored.check_path import explained

TOGETHER: Final = 48
"""Histories that are judged at once."""
SMALL: Final = 100_000
"""Rows of a history that is judged with others. A larger one gains nothing, because planning queries costs it little.
"""
ROWS: Final = 500_000
"""Rows of the histories that are judged at once, because all of them are in memory."""

Progress = Callable[[int], None]
"""Called with the number of runs judged so far."""


@dataclass(frozen=True)
class Judged:
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
) -> Iterator[Judged]:
    """Judges runs and history folders, each by its own contract, in the order of ``paths``.

    ``plugins`` are modules that add checks and models; ``trust_runs`` also imports the modules that runs name.

    Raises ``SettingsError`` for a plugin that adds nothing, and ``EngineUnavailable``. An error in one history, or in a
    user's check of it, becomes the text of its result.
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
    # Absolute paths, because an executor has its own working folder.
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
    """Rows in memory, to be judged with others; 0: it is judged alone."""


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
        with suppress(EngineError):  # e.g. one text is not UTF-8: judged alone, each history has its own error
            given = stack.enter_context(opened_together([one.history for one in small], engines))
            opens = {one.path: each for one, each in zip(small, given, strict=True)}
        for one in opened:
            if isinstance(one, Judged):
                yield one
                continue
            judged = _with_others(one, opens[one.path], registry) if one.path in opens else None
            yield judged or _alone(one.path, engines, registry)


def _with_others(one: _Opened, opens: Opens, registry: Registry) -> Judged | None:
    """Judges a history together with others. Returns None on its errors: judged alone, it has the exact error text."""
    try:
        return _explained(one, judge_again(one.stored, one.history, opens, registry))
    except Exception as error:
        if _why_not(error) is None:
            raise
        return None


def _why_not(error: Exception) -> str | None:
    """Returns the reason why a history cannot be judged, or None for an error of this program."""
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
    except Exception:  # noqa: BLE001 - a damaged file may raise anything; judged alone, it gets its own error
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
