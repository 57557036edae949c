"""Verifies built-in defects: executes the documented run of each defect for many seeds, with and without the defect.

Each run is a pytest session of its own, with a store of its own, which contains the result. A session is *broken* if
its store has no judged run, or if its exit code contradicts its verdict. It never counts as a catch or as a pass.
"""

import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from assay.cluster.system import Defect
from assay.harness.cli.sessions import PATIENCE, PytestSession, SessionEnd, run_sessions
from assay.harness.cli.time_estimate import round_seconds
from assay.harness.run import store
from assay.harness.run.settings import SIM
from assay.harness.stored.replay import read_forbidden_anomalies, read_judgement

RATE: Final = "--rate=100"
"""The rate in the simulation, if a run names none. Without a rate there would be very many operations, because answers
take only a millisecond.
"""
SESSION: Final = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reports=never")
"""The beginning of each session's command."""


class SessionVerdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    BROKEN = "broken"


class SessionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a session.

    - ``came``: the verdict. The field keeps this name because ``--json`` prints it.
    - ``reported``: the forbidden anomalies of its runs
    - ``problem``: why it is broken or unknown
    """

    seed: int
    came: SessionVerdict
    reported: tuple[str, ...]
    seconds: float
    cpu_seconds: float
    command: str
    """The command that repeats the session."""
    problem: str | None = None
    kept: str | None = None
    """The folder that holds its store."""


class DefectResult(msgspec.Struct, kw_only=True):
    """Results of the runs with one defect, and of the runs without it. Both are sorted by seed.

    After an interruption, some runs are missing.
    """

    name: str
    cluster: str
    expected: tuple[str, ...]
    runs: list[SessionResult]
    without: list[SessionResult]

    @property
    def hits(self) -> list[SessionResult]:
        """The runs that caught the defect: they failed with an anomaly that its description names."""
        return [
            run
            for run in self.runs
            if run.came is SessionVerdict.FAIL and not set(self.expected).isdisjoint(run.reported)
        ]

    @property
    def false_alarms(self) -> list[SessionResult]:
        """The runs without the defect that failed or broke."""
        return [run for run in self.without if run.came in (SessionVerdict.FAIL, SessionVerdict.BROKEN)]

    @property
    def reported(self) -> Counter[str]:
        """The number of runs that found each anomaly."""
        return Counter(anomaly for run in self.runs for anomaly in run.reported)

    @property
    def detection(self) -> tuple[float, float] | None:
        """CPU seconds and wall-clock seconds of the runs up to the first hit, in sequence; None without a hit."""
        hits = self.hits
        if not hits:
            return None
        spent = self.runs[: self.runs.index(hits[0]) + 1]
        return sum(run.cpu_seconds for run in spent), sum(run.seconds for run in spent)


def build_command(defect: Defect, cluster: str, seed: int, *, switched_on: bool) -> tuple[str, ...]:
    """Returns the pytest arguments. A run that names its own cluster stays there."""
    words = shlex.split(defect.run)
    added = [] if _find_option(words, "--cluster") else [f"--cluster={cluster}"]
    if find_cluster(defect, cluster) == SIM and not _find_option(words, "--rate"):
        added.append(RATE)
    if switched_on:
        added.append(f"--defect={defect.name}")
    return (*words, *added, f"--seed={seed}")


def find_cluster(defect: Defect, cluster: str) -> str:
    """Returns the cluster of the defect's run: its own, or the given one."""
    return _find_option(shlex.split(defect.run), "--cluster") or cluster


def _find_option(words: Sequence[str], option: str) -> str | None:
    """Returns the value of ``--option=value`` or ``--option value``, or None if the option is not given."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following
    return None


def verify(
    defects: Sequence[Defect],
    seeds: Sequence[int],
    cluster: str,
    root: Path,
    *,
    keep: bool,
    jobs: int,
    session_timeout: float,
    note: Callable[[str], None],
) -> tuple[list[DefectResult], bool]:
    """Runs all sessions in folders of ``root``. A session may last ``session_timeout`` seconds.

    With ``keep``, all runs are kept there; otherwise only broken runs, and failed runs without a defect. If several
    defects have the same run, its session without a defect is executed once. The second result is False if a signal
    interrupted the sessions.
    """
    results = [
        DefectResult(
            name=one.name, cluster=find_cluster(one, cluster), expected=tuple(one.anomalies), runs=[], without=[]
        )
        for one in defects
    ]  # fmt: skip
    uses: dict[tuple[str, ...], list[tuple[DefectResult, int, bool]]] = {}
    """Command -> (result, seed, whether the defect is switched on), for each result that needs this command."""
    for defect, result in zip(defects, results, strict=True):
        for switched_on in (True, False):
            for seed in seeds:
                argv = build_command(defect, cluster, seed, switched_on=switched_on)
                uses.setdefault(argv, []).append((result, seed, switched_on))
    sessions = {
        PytestSession((*SESSION, *argv, f"--store={root / str(number) / 'store'}"), root / str(number)): argv
        for number, argv in enumerate(uses, 1)
    }
    done, start = 0, time.monotonic()
    note(f"{len(sessions)} runs, {jobs} at a time, in {root}")

    def add_result(session: PytestSession, end: SessionEnd) -> None:
        nonlocal done
        done += 1
        argv = sessions[session]
        verdict, reported, problem = _judge_session(session, end)
        first, seed, switched_on = uses[argv][0]
        kept = keep or verdict is SessionVerdict.BROKEN or (verdict is SessionVerdict.FAIL and not switched_on)
        run = SessionResult(
            seed=seed, came=verdict, reported=reported, seconds=end.seconds, cpu_seconds=end.cpu_seconds,
            command=shlex.join(("pytest", *argv)), problem=problem, kept=str(session.folder) if kept else None,
        )  # fmt: skip
        if not kept:
            shutil.rmtree(session.folder)
        for result, _, switched_on in uses[argv]:
            runs = result.runs if switched_on else result.without
            runs.append(run)
            runs.sort(key=lambda one: one.seed)
        outcome = "caught" if switched_on and run in first.hits else verdict
        found = f" ({', '.join(reported)})" if reported else ""
        reason = f": {problem}" if problem else ""
        remaining = (time.monotonic() - start) / done * (len(sessions) - done)
        note(
            f"{done} of {len(sessions)}{f', about {round_seconds(remaining)} left' if remaining else ''}: "
            f"{first.name if switched_on else f'without {first.name}'}, seed {seed}: "
            f"{outcome}{found}, {end.cpu_seconds:.0f} s of CPU, {end.seconds:.0f} s{reason}"
        )

    complete = run_sessions(
        sessions, jobs, session_timeout, add_result,
        lambda running: note(f"stopping; still running: {running}; they heal and check, {sum(PATIENCE):.0f} s at most"),
        lambda running, left: note(f"waiting for {running} to heal and check, for {left:.0f} s at most"),
    )  # fmt: skip
    if not complete:
        kept_folders = {run.kept for result in results for run in (*result.runs, *result.without)}
        for session in sessions:
            if session.folder.exists() and str(session.folder) not in kept_folders:
                shutil.rmtree(session.folder)
    return results, complete


def _judge_session(session: PytestSession, end: SessionEnd) -> tuple[SessionVerdict, tuple[str, ...], str | None]:
    """Returns the worst verdict of the session's runs, the forbidden anomalies, and why it is broken or unknown."""

    def make_broken(reason: str) -> tuple[SessionVerdict, tuple[str, ...], str]:
        return SessionVerdict.BROKEN, (), f"{reason}; its last lines: {session.read_last_lines(3) or 'none'}"

    if end.code is None:
        return make_broken(f"it was still running after {end.seconds:.0f} s")
    if end.code not in (0, 1):  # pytest's codes for passed and for failed tests
        return make_broken(
            f"pytest was killed by signal {-end.code}" if end.code < 0 else f"pytest ended with {end.code}"
        )
    verdicts, reported, reasons = set[SessionVerdict](), set[str](), list[str]()
    for folder in store.list_runs(session.folder / "store"):
        info, judgement = store.read_info(folder), read_judgement(folder)
        if info is None or info.status != store.FINISHED or info.verdict is None:
            return make_broken(f"a run has no verdict ({(info and info.problem) or 'it did not end'})")
        if judgement is None:
            return make_broken("a run has no verdict (verdict.json cannot be read)")
        verdicts.add(SessionVerdict(info.verdict))
        if info.verdict == SessionVerdict.FAIL:
            reported |= read_forbidden_anomalies(folder)
        reasons += [" ".join(reason.split()) for reason in judgement.unknown]
    if not verdicts:
        return make_broken("it left no run")
    worst = next(one for one in (SessionVerdict.FAIL, SessionVerdict.UNKNOWN, SessionVerdict.PASS) if one in verdicts)
    if (worst is SessionVerdict.PASS) != (end.code == 0):
        return make_broken(f"pytest ended with {end.code}, and the verdict is {worst}")
    return worst, tuple(sorted(reported)), "; ".join(reasons) if worst is SessionVerdict.UNKNOWN else None
