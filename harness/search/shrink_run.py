"""``assay shrink RUN``: minimises the schedule of a stored failing run by repeating the run with pytest.

In the simulation a run is repeated with other seeds. On real nodes it is repeated with its own seed, because no two
runs are equal there anyway. Runs that fail are kept, and the last of them gets a report. Runs that pass are deleted.
"""

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.cluster.system import ZOOKEEPER_ROLE
from assay.harness.core.failure_rate import FailureRate
from assay.harness.core.files import read_file, read_json
from assay.harness.core.history import HistoryError
from assay.harness.core.printable import count_noun
from assay.harness.run import store
from assay.harness.run.command_line import make_repeat_command
from assay.harness.run.settings import SIM, Settings
from assay.harness.run.store import RunInfo
from assay.harness.search.example import KINDS_FOUND_BY_SYSTEM, Example, SystemParts
from assay.harness.search.explore import with_other_seed
from assay.harness.search.shrink import OutOfTime, minimise, write_shrink_note
from assay.harness.stored.repeat_arguments import (
    RepetitionDeclined,
    build_repeat_arguments,
    find_test,
    read_run_settings,
)
from assay.harness.stored.replay import SCHEDULE, read_forbidden_anomalies, read_judgement, run_pytest
from assay.nemesis.schedule.schedule import ScheduleError, ScheduleRecord, decode_schedule, encode_schedule
from assay.nemesis.schedule.target import TargetKind
from assay.reports.page import render

FOLDER: Final = "shrinking"
"""The folder of the store that has the schedules of the runs that failed."""


@dataclass(frozen=True)
class ShrinkResult:
    """Result of shrinking a run.

    - ``before``: the example of the original run; ``rate_before``: its failure rate
    - ``rate_after``: the failure rate of the smallest example
    - ``wanted``: the anomalies of the original run; a run fails if it has one of them
    - ``minimal``: whether nothing more could be left out, and the result failed again
    - ``command``: repeats the smallest example
    - ``report``: the page of the last run that failed
    """

    example: Example
    before: Example
    wanted: frozenset[str]
    rate_before: FailureRate
    rate_after: FailureRate
    runs: int
    minimal: bool
    schedule: Path
    command: str
    report: Path
    parts: SystemParts

    def text(self) -> str:
        steps, before = len(self.example.schedule.all_steps), len(self.before.schedule.all_steps)
        shrunk = f"from {count_noun(before, 'step')} to {steps} in {count_noun(self.runs, 'run')}"
        return "\n".join(
            [
                f"{', '.join(sorted(self.wanted))}: {shrunk}" + ("" if self.minimal else " (not minimal)"),
                *(f"  {line}" for line in self.example.lines(self.parts)),
                f"failure rate: before {self.rate_before.format_brief()}, "
                f"after shrinking {self.rate_after.format_brief()}",
                f"schedule: {self.schedule}",
                f"replay: {self.command}",
                f"report: {self.report}",
            ]
        )


def shrink(
    path: Path,
    root: Path | None,
    replays: int,
    budget: float | None,
    note: Callable[[str], None],
    agreed: Callable[[str], bool] = lambda command: True,
) -> ShrinkResult:
    """Minimises the schedule of the run in the folder ``path``.

    ``replays``: number of runs that estimate the failure rate; ``budget``: seconds, None for no limit. ``agreed`` is
    called with the command before anything is executed. Raises ``FileNotFoundError`` if ``path`` is no run,
    ``HistoryError`` if there is nothing to shrink, and ``RepetitionDeclined`` if ``agreed`` returns false.
    """
    original = path.resolve()
    info = store.read_run(original)
    if info is None:
        raise FileNotFoundError(f"{path} is not a run's folder: there is no readable run.json in it")
    wanted = frozenset(read_forbidden_anomalies(original))
    if not wanted:
        raise HistoryError(f"{path}: no forbidden anomaly was found in this run, so there is nothing to shrink")
    command = ["pytest", *build_repeat_arguments(original, info)]
    settings, example = _read_example(original)
    if not agreed(shlex.join(command)):
        raise RepetitionDeclined
    root = original.parent.parent if root is None else root.resolve()
    runner = _Runner(info, find_test(original, info), settings, root, wanted, note, budget)
    try:
        rate = runner.estimate_rate(example, replays)
    except OutOfTime:
        tried = runner.tried
        raise HistoryError(
            f"{path}: --budget={budget:g} ended after {tried.runs} of {replays} replays; {tried.failed} of them "
            f"failed. Shrinking begins after all of them: give more seconds, or --replays={max(tried.runs, 1)}"
        ) from None
    note(f"the original run fails {rate}" + (", with its own seed and others" if settings.cluster == SIM else ""))
    if not rate.failed:
        raise HistoryError(
            f"{path}: none of {rate.runs} replays failed with {', '.join(sorted(wanted))}; --replays=N tries more"
        )
    small, finished = minimise(example, rate.count_repetitions(), runner.reproduce)
    last = runner.estimate_rate(small, replays, unlimited=True)
    found = root / "found"
    found.mkdir(parents=True, exist_ok=True)
    schedule = store.choose_schedule_path(
        found, store.schedule_name(original.name, wanted), encode_schedule(small.schedule)
    )
    repeated = make_repeat_command(runner.test, small.settings(settings, schedule))
    assert runner.failing is not None, "a replay of the original run failed"
    minimal = finished and last.failed > 0
    parts = read_parts(original, runner.failing)
    write_shrink_note(
        runner.failing, example, small, parts, runs=runner.runs, first=str(rate), last=str(last), minimal=minimal
    )
    report = render(runner.failing)
    return ShrinkResult(small, example, wanted, rate, last, runner.runs, minimal, schedule, repeated, report, parts)


def _read_example(run: Path) -> tuple[Settings, Example]:
    settings = read_run_settings(run)
    try:
        record = decode_schedule(read_file(run / SCHEDULE), str(run / SCHEDULE))
    except (OSError, ScheduleError) as error:
        raise HistoryError(f"{run}: schedule.json cannot be read: {error}") from error
    schedule = record.as_planned() if isinstance(record, ScheduleRecord) else record
    return settings, Example.of(settings, schedule)


def read_parts(*runs: Path) -> SystemParts:
    """Returns whether the tested system has ZooKeeper, and which kinds of targets it lacks, as far as the runs tell.

    A system lacks a kind, such as a leader, if faults on it only ever struck a substitute (``fell_back``).
    """
    roles: set[str] = set()
    found: set[TargetKind] = set()
    missed: set[TargetKind] = set()
    for run in runs:
        try:
            roles.update(read_json(run / "settings.json", dict[str, Any])["system"]["roles"])
            record = decode_schedule(read_file(run / SCHEDULE), str(run / SCHEDULE))
        except (OSError, KeyError, TypeError, msgspec.MsgspecError, ScheduleError):
            continue
        struck = [done for done in record.resolved if done.targets] if isinstance(record, ScheduleRecord) else []
        for done in struck:
            (missed if done.detail.get("fell_back") else found).add(done.step.target.kind)
    return SystemParts(not roles or ZOOKEEPER_ROLE in roles, KINDS_FOUND_BY_SYSTEM & (missed - found))


@dataclass
class _Runner:
    """Runs examples with pytest, and counts the runs that fail with a wanted anomaly."""

    original: RunInfo
    test: str
    base: Settings
    root: Path
    wanted: frozenset[str]
    note: Callable[[str], None]
    budget: float | None
    runs: int = 0
    failing: Path | None = None
    """The last run that failed."""
    tried: FailureRate = field(default_factory=lambda: FailureRate(0, 0))
    """The failure rate of the latest estimate, which may not be complete yet."""
    _began: float = field(default_factory=time.monotonic)

    def estimate_rate(self, example: Example, runs: int, *, unlimited: bool = False) -> FailureRate:
        self.tried = FailureRate(0, 0)
        for turn in range(runs):
            so_far = f", {self.tried.failed} of {turn} failed" if turn else ""
            self.note(f"estimating the failure rate: run {turn + 1} of {runs}{so_far}")
            failed = self.fails(self._vary_seed(example, turn), unlimited=unlimited)
            self.tried = FailureRate(self.tried.failed + failed, turn + 1)
        return self.tried

    def reproduce(self, example: Example, repetitions: int) -> Example | None:
        for turn in range(repetitions):
            variant = self._vary_seed(example, turn)
            if self.fails(variant):
                steps = len(example.schedule.all_steps)
                self.note(f"still fails with {steps} step{'s' * (steps != 1)} (run {self.runs})")
                return variant
        return None

    def _vary_seed(self, example: Example, turn: int) -> Example:
        return with_other_seed(example, turn) if self.base.cluster == SIM else example

    def fails(self, example: Example, *, unlimited: bool = False) -> bool:
        """Runs the example once, and returns whether it fails with one of the wanted anomalies."""
        if not unlimited and self.budget is not None and time.monotonic() - self._began > self.budget:
            raise OutOfTime
        self.runs += 1
        schedule = self._create_schedule_file()
        argv = shlex.split(make_repeat_command(self.test, example.settings(self.base, schedule)))[1:]
        done = run_pytest(["-q", *argv, "--reports=never"], self.root, self.original, quietly=True)
        if done.run is None:
            schedule.unlink()
            raise HistoryError(f"pytest ended with {done.status} and left no run: {done.printed[-2000:].strip()}")
        failed = bool(read_forbidden_anomalies(done.run) & self.wanted)
        if failed:
            self.failing = done.run
        deleted = [self._delete_passed(run) for run in ([] if failed else [done.run]) + list(done.others)]
        if not failed and all(deleted):
            schedule.unlink()
        return failed

    def _delete_passed(self, run: Path) -> bool:
        """Deletes a run that was judged and did not fail. Otherwise prints why it is kept, and returns False."""
        found = read_forbidden_anomalies(run)
        if found or read_judgement(run) is None:
            other = "" if found & self.wanted else f", not with {', '.join(sorted(self.wanted))}"
            ended = f"failed with {', '.join(sorted(found))}{other}" if found else "has no verdict"
            self.note(f"kept: {run}, which {ended}")
            return False
        shutil.rmtree(run)
        return True

    def _create_schedule_file(self) -> Path:
        """Creates a new file for the schedule of a run, because the command of a kept run names its file."""
        folder = self.root / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(".json", "run-", folder)
        os.close(handle)
        return Path(path)
