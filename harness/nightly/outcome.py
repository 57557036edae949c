"""Classifies the end of an attempt: its exit code, runs and output determine the outcome and its cause.

If the verdict of a run is fail, the attempt has failed, no matter how its process ended. For a canary, such a run means
that its defect was detected. Problems of the machine and of pytest have outcomes of their own. So a machine in trouble
never counts as a failure of the system, nor as a pass.

A night that was killed leaves ``running.json``. The runs of the attempt that it names show whether the attempt failed.
"""

import re
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pytest

from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.core.files import read_json_if_valid, require_regular
from assay.harness.nightly.night_record import (
    AttemptOutcome,
    AttemptResult,
    CellKind,
    MatrixCell,
    Night,
    NightFolder,
    RunningAttempt,
)
from assay.harness.nightly.subprocess_runner import AttemptEnd
from assay.harness.run import store
from assay.harness.run.settings import DOCKER

LONGEST: Final = 300
"""Maximum characters of a cause."""
NO_SPACE: Final = re.compile(r"^.*(?:\[Errno (?:28|122)\]|No space left on device).*$", re.MULTILINE)
NO_DOCKER: Final = re.compile(r"no Docker engine answers: .*|the Docker engine rejected the call or broke off: .*")
"""The messages of ``assay.cluster.docker.engine``."""
CAUSES: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (r"^(?:FAILED|ERROR) \S+ - (.+)$", r"^ERROR: (.+)$", r"^INTERNALERROR> (\S.*)$", r"^E +(.+)$")
)
"""Lines of pytest that name a cause, the best pattern first. The last line that matches a pattern is used."""
SKIPPED: Final = re.compile(r"^SKIPPED \[\d+\] \S+ (.*)$", re.MULTILINE)
FOUND_LINE: Final = re.compile(r"^(FOUND .*)$", re.MULTILINE)
"""The first line of a search's finding."""
NOT_COLLECTED: Final = re.compile(r"errors? during collection")
PASSED: Final = re.compile(r"\b[1-9]\d* passed\b")
NOT_RUN: Final = re.compile(r"^.*\b[1-9]\d* (?:skipped|deselected)\b.*$", re.MULTILINE)
"""A line of pytest that counts tests which were not run."""
CUT_SHORT: Final = re.compile(r"; then (?!interrupted: )(.*)")
"""Matches a text of ``_describe_end`` if something other than the user or the budget cut a failing attempt short."""
SEARCHED: Final = re.compile(r"^assay: (?:a search|\d+ searches) found nothing\b", re.MULTILINE)
"""The line of ``plugin.pass_remarks`` for searches without a finding, which leave no run."""
LOG_TAIL: Final = 4 * 1024 * 1024
"""Bytes that are read from the end of a log, which may be as large as the disk."""


@dataclass(frozen=True)
class SeenRun:
    """A run of the attempt: its verdict, the forbidden anomalies that were found, and the problem that ended it."""

    verdict: str | None
    anomalies: tuple[str, ...] = ()
    problem: str = ""

    def is_skipped(self, reasons: Sequence[str]) -> bool:
        """Returns whether the run has no verdict because it was aborted before it began, or its test was skipped.

        ``reasons``: the reasons of the skipped tests, as pytest printed them.
        """
        first = self.problem.partition("\n")[0]
        return self.verdict is None and bool(first) and (first == store.ABORTED or any(first in one for one in reasons))


@dataclass(frozen=True)
class MachineState:
    """State of the machine, queried only to find a cause."""

    disk_full: Callable[[], bool]
    docker_answers: Callable[[], bool]


HEALTHY: Final = MachineState(lambda: False, lambda: True)
"""A machine without problems, for an attempt whose end has another, known cause."""


def is_made_by(run: Path, process: str) -> bool:
    """Returns whether this process made the run. Other sessions may use the same store.

    ``process``: the text of an owner, because two processes in different containers may have the same id.
    """
    info = store.read_info(run)
    return info is not None and info.is_made_by(process)


def classify_killed(root: Path, folder: NightFolder, night: Night, running: RunningAttempt) -> AttemptResult:
    """Returns the result of an attempt whose night was killed. It has failed if one of its runs had failed by then."""
    result = running.result
    cell = next((one for one in night.cells if one.name == result.cell), None)
    runs = [run for run in store.list_runs(root) if is_made_by(run, running.owner)]
    if cell is None or not runs:
        return result
    ended = AttemptEnd(-signal.SIGKILL, AttemptOutcome.INTERRUPTED, result.detail)
    printed = ""
    with suppress(OSError):  # without its log, an attempt is classified by its runs alone
        printed = read_printed(folder.path / result.log)
    outcome, detail = classify(cell, ended, printed, list(map(read_seen_run, runs)), HEALTHY)
    names = tuple(str(run.relative_to(root)) for run in runs)
    return msgspec.structs.replace(result, outcome=outcome, detail=detail, runs=names)


def find_unrecorded(root: Path, folder: NightFolder, night: Night) -> AttemptResult | None:
    """Returns the attempt that a night has begun and not recorded yet. It is interrupted unless a run has failed.

    Raises ``OSError``.
    """
    running = folder.read_running()
    if (
        running is None
        or running.shrinks
        or any(one.started == running.result.started for one in folder.read_results())
    ):
        return None
    return classify_killed(root, folder, night, running)


def read_printed(log: Path) -> str:
    """Reads the end of an attempt's log. Raises ``OSError``."""
    require_regular(log)
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL))
        return file.read().decode(errors="replace")


def read_seen_run(run: Path) -> SeenRun:
    """Reads the verdict from a run's folder; a damaged verdict counts as none."""
    info = store.read_info(run)
    if info is None or info.verdict is None:
        return SeenRun(None, problem="" if info is None else info.problem or "")
    judgement = read_json_if_valid(run / "verdict.json", Judgement)
    return SeenRun(None) if judgement is None else SeenRun(info.verdict, tuple(judgement.violations))


def classify(
    cell: MatrixCell, ended: AttemptEnd, printed: str, runs: Sequence[SeenRun], machine: MachineState
) -> tuple[AttemptOutcome, str]:
    """Returns the outcome of an attempt, and its cause in one line. ``printed``: the output of pytest."""
    failing = [run for run in runs if run.verdict == Verdict.FAIL]
    anomalies = sorted({name for run in failing for name in run.anomalies})
    what = f"{', '.join(anomalies)} in {len(failing)} of {len(runs)} runs"
    if cell.defect is not None and any(not cell.expected or set(run.anomalies) & set(cell.expected) for run in failing):
        return AttemptOutcome.DETECTED, what
    if cell.defect is None and failing:
        return AttemptOutcome.FAIL, what + _describe_end(ended)
    searched = FOUND_LINE.search(printed) if cell.kind is CellKind.EXPLORE else None
    if searched:
        return AttemptOutcome.FAIL, _shorten(searched[1]) + _describe_end(ended)
    if ended.status == pytest.ExitCode.OK:
        return _classify_green(cell, printed, runs)
    trouble = _find_trouble(cell, ended, printed, runs, machine)
    if trouble is not None:
        return trouble
    if failing:
        return AttemptOutcome.MISSED, f"fails otherwise: {what}, and none of {', '.join(cell.expected)}"
    return AttemptOutcome.UNKNOWN, _find_cause(printed)


def _classify_green(cell: MatrixCell, printed: str, runs: Sequence[SeenRun]) -> tuple[AttemptOutcome, str]:
    skipped = SKIPPED.search(printed)
    # A test that is skipped because this machine lacks something leaves a folder without a verdict.
    reasons = [found[1] for found in SKIPPED.finditer(printed)]
    judged = [run for run in runs if not (reasons and run.is_skipped(reasons))]
    if not judged and (reason := _explain_no_run(cell, printed)) is not None:
        return AttemptOutcome.SKIPPED, _shorten(skipped[1] if skipped else reason)
    unknown = sum(run.verdict not in (Verdict.PASS, Verdict.FAIL) for run in judged)
    if unknown:  # pytest passes with an expected failure or a retry
        return AttemptOutcome.UNKNOWN, f"pytest passed, but {unknown} of {len(runs)} runs did not pass"
    if cell.defect is not None:
        expected = ", ".join(cell.expected) or "a failure"
        return AttemptOutcome.MISSED, f"every run passes, but {expected} must be reported"
    return AttemptOutcome.PASS, ""


def _explain_no_run(cell: MatrixCell, printed: str) -> str | None:
    """Returns why an attempt without a judged run has tested nothing; None if a search passed.

    Other tests of the file may have passed, but they do not test the system.
    """
    if SEARCHED.search(printed):
        return None
    if not PASSED.search(printed):
        return "no test was run"
    if not_run := NOT_RUN.findall(printed):
        return f"no experiment was run: {not_run[-1].strip('= ')}"
    if cell.kind in (CellKind.RUN, CellKind.SCHEDULE):
        return "no experiment was run, only tests without one"
    return None


def _find_trouble(
    cell: MatrixCell, ended: AttemptEnd, printed: str, runs: Sequence[SeenRun], machine: MachineState
) -> tuple[AttemptOutcome, str] | None:
    """Returns what prevented a verdict, or None if pytest reports failed tests."""
    if ended.outcome_if_stopped is AttemptOutcome.INTERRUPTED:
        return AttemptOutcome.INTERRUPTED, ended.why
    verdicts = {run.verdict for run in runs} or {None}
    if None in verdicts:
        no_space = NO_SPACE.search(printed)
        if no_space or machine.disk_full():
            return AttemptOutcome.NO_DISK, _shorten(no_space[0] if no_space else "the disk of the store is full")
    if verdicts != {Verdict.FAIL}:  # even after a pass, the engine may have gone away during the clean-up
        no_docker = NO_DOCKER.search(printed)
        if no_docker or (cell.cluster == DOCKER and not machine.docker_answers()):
            return AttemptOutcome.NO_DOCKER, _shorten(
                no_docker[0] if no_docker else "no Docker engine answers any more"
            )
    if ended.outcome_if_stopped is not None:
        return ended.outcome_if_stopped, ended.why
    if ended.status < 0:
        return AttemptOutcome.CRASHED, f"killed by {_name_signal(-ended.status)}"
    match ended.status:
        case pytest.ExitCode.USAGE_ERROR | pytest.ExitCode.NO_TESTS_COLLECTED:
            return AttemptOutcome.BROKEN, _find_cause(printed)
        case pytest.ExitCode.INTERRUPTED if NOT_COLLECTED.search(printed):
            return AttemptOutcome.BROKEN, _find_cause(printed)
        case pytest.ExitCode.INTERRUPTED:
            return AttemptOutcome.CRASHED, "interrupted, and not by the night"
        case pytest.ExitCode.TESTS_FAILED:
            return None
    return AttemptOutcome.CRASHED, f"exit code {ended.status}: {_find_cause(printed)}"


def _find_cause(printed: str) -> str:
    for pattern in CAUSES:
        found = pattern.findall(printed)
        if found:
            return _shorten(found[-1])
    lines = printed.split("\n")
    return _shorten(next((line for line in reversed(lines) if line.strip()), "it printed nothing"))


def _describe_end(ended: AttemptEnd) -> str:
    """Describes an abnormal end of the process of a failing run; empty for a normal one."""
    if ended.outcome_if_stopped is not None:
        return f"; then {ended.outcome_if_stopped}: {ended.why}"
    if ended.status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return ""
    return f"; then killed by {_name_signal(-ended.status)}" if ended.status < 0 else f"; then exit code {ended.status}"


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _shorten(text: str) -> str:
    return " ".join(text.split())[:LONGEST]
