"""Judges a run in progress: judges its whole history again each time that it has grown.

A violation found early also exists in the complete history, because a judgement of the history so far assumes less (see
``assay.checkers.judging.early_checks``):

- Operations in progress have an unknown outcome.
- Facts that the rest of the run may excuse do not count yet.
- Checks of what the servers report are executed only at the end.

No state is kept between judgements, so only the engine needs memory. A judgement takes longer as the run grows. The
pause after each judgement is twice its duration, which leaves the machine mostly to the cluster. So violations late in
a long run are noticed later.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.checkers.engine import Engines
from assay.checkers.engine.parquet_stats import read_sizes
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Judgement
from assay.harness.core.files import SpecialFileError
from assay.harness.core.history import HistoryReader
from assay.harness.core.history.live_manifest import read_manifest
from assay.harness.run import store
from assay.harness.run.judging import judge_run
from assay.harness.run.registry import Registry
from assay.harness.run.settings import SettingsError
from assay.harness.stored.by_contract import explain, judge_again, open_stored
from assay.harness.stored.contracts import judge_without_contract
from assay.reports.evidence import look_up_evidence
from assay.reports.failure_text import FailureFooter, describe

POLL: Final = 0.2
"""Seconds between two checks for new parts of the history."""
SILENCE: Final = 60.0
"""Seconds without a new part of the history after which the wait is reported."""
PAUSE: Final = 2.0
"""The pause after a judgement, as a multiple of its duration."""
MOST_NAMED: Final = 3
"""Maximum number of runs in a wrong place that an error names."""
MEMORY: Final = "1GB"
"""Memory limit of the engine that judges the growing history."""


@dataclass(frozen=True)
class WatchJudgement:
    """Judgement of the history so far.

    - ``until``: seconds of the run that it covers
    - ``taken``: seconds that it took
    - ``text``: the judgement in words
    - ``ended``: whether it is the last one, of the whole run
    """

    until: float
    taken: float
    judgement: Judgement
    text: str
    ended: bool


class SilentRunError(Exception):
    """A run of another machine writes nothing, and only on that machine it is known whether its process still runs."""


def find_running_run(path: Path, on_special_file: Callable[[SpecialFileError], None] = lambda error: None) -> Path:
    """Returns the run to watch: the given run folder, or the newest running run of a store.

    ``on_special_file`` is called for each newer run of a store that cannot be read because of a special file. Raises
    ``SettingsError`` if no run is in progress.
    """
    if store.read_run(path) is not None:
        return path
    if not path.is_dir():
        raise SettingsError(f"{path} is neither a run nor a store of runs")
    runs = store.list_runs(path)
    for run in sorted(runs, key=lambda run: run.name, reverse=True):
        if (special := store.find_special_file(run)) is not None:
            on_special_file(special)
        elif store.is_active(run):
            return run
    overlooked = "".join(f"; {run}: {reason}" for run, reason in store.find_overlooked(path, runs)[:MOST_NAMED])
    raise SettingsError(f"no run goes on in {path}; start one, or give the folder of one that is over{overlooked}")


def watch_run(
    run: Path,
    engines: Engines,
    registry: Registry,
    sleep: Callable[[float], None] = time.sleep,
    on_silence: Callable[[str], None] = lambda text: None,
) -> Iterator[WatchJudgement]:
    """Yields judgements of a growing run. The last one is of the complete run, even if its process was killed.

    ``on_silence`` is called with a line of text each time that nothing has been written for ``SILENCE``. Raises the
    errors of ``open_stored`` and ``judge_again``, and :class:`SilentRunError`.
    """
    seen, waited = 0, 0.0
    while store.is_active(run):
        manifest = read_manifest(run / "history")
        if manifest is None or manifest.number == seen:  # the history has no new part
            sleep(POLL)
            waited += POLL
            if waited >= SILENCE:
                waited = 0.0
                _report_silence(run, on_silence)
            continue
        seen, waited = manifest.number, 0.0
        judged = _judge_so_far(run, engines, registry)
        if judged is not None:
            yield judged
            sleep(PAUSE * judged.taken)
    yield _judge_complete_run(run, engines, registry)


def _report_silence(run: Path, on_silence: Callable[[str], None]) -> None:
    """Reports that a run writes nothing. Raises :class:`SilentRunError` for a run of another machine."""
    info = store.read_info(run)
    if info is None:
        return
    text = f"{run} has written nothing for {SILENCE:.0f} s; it is the run of {info.describe_process()}"
    if info.is_elsewhere():
        raise SilentRunError(f"{text}; look there whether it still runs, and watch it again")
    on_silence(text)


def _judge_so_far(run: Path, engines: Engines, registry: Registry) -> WatchJudgement | None:
    """Judges the history so far. Returns None if the writer has replaced the files in progress meanwhile."""
    start = time.monotonic()
    stored = open_stored(run)
    if stored.live_manifest is None:
        return None
    with tempfile.TemporaryDirectory(prefix="assay-watch-") as copies:
        replaceable = set(
            stored.live_manifest.under_way.values()
        )  # files of unfinished operations, which each seal replaces
        try:
            paths = {
                name: [Path(shutil.copy(path, copies)) if path.name in replaceable else path for path in files]
                for name, files in stored.live_manifest.paths(stored.history).items()
            }
        except FileNotFoundError:
            return None
        history = open_history(stored.history, paths)
        missing = registry.find_missing_checks(stored.extensions, stored.load_command)
        judgement = judge_run(
            history,
            stored.contract,
            engines,
            registry,
            still_running=True,
            missing=missing,
            load_command=stored.load_command,
        )
        if stored.lost is not None:
            judgement = judge_without_contract(judgement, stored.lost)
        text = describe(judgement, look_up_evidence(history, judgement), FailureFooter())
        return WatchJudgement(_find_last_call(history), time.monotonic() - start, judgement, text, ended=False)


def _find_last_call(history: HistoryReader) -> float:
    """Returns the second at which the last operation was called."""
    # `read_sizes` has the largest value of each column of a file.
    return max((read_sizes(path)["call"] for path in history.paths("ops")), default=0) / 1e9


def _judge_complete_run(run: Path, engines: Engines, registry: Registry) -> WatchJudgement:
    start = time.monotonic()
    stored = open_stored(run)
    history = stored.open_complete_part()
    judged = explain(stored, history, judge_again(stored, history, engines, registry))
    taken = time.monotonic() - start
    return WatchJudgement(_find_last_call(history), taken, judged.judgement, judged.text, ended=True)
