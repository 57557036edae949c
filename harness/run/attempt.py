"""A run as pytest or a script calls it: synchronous, with a folder, an environment and a verdict.

An attempt owns the environment's event loop from set-up to tear-down, and writes the run's files around :class:`Trial`:

1. ``run.json`` from the first moment, then ``settings.json``.
2. After the judgement ``verdict.json``, ``figures.json`` and ``report.html``.
"""

import contextlib
import enum
import functools
import gc
import hashlib
import platform
import secrets
import signal
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.checkers.engine import Engines
from assay.checkers.judging.contract import MAX_SECONDS, Contract
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.cluster.node import NodeError
from assay.cluster.owner import current_owner, find_parent, read_machine
from assay.cluster.system import DeploymentError
from assay.harness.core.history import HistoryReader
from assay.harness.core.interpreter_status import describe_with_location, find_location
from assay.harness.core.printable import format_size
from assay.harness.run import store
from assay.harness.run.environments import World, cancel_tasks, close_loop
from assay.harness.run.experiment import Experiment, apply_mixes, resolve_random_mix
from assay.harness.run.full_disk import is_full, translate_full_disk
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.judging import add_doubts, judge_run
from assay.harness.run.live_judging import FOUND_LIVE_ONLY, LiveJudge
from assay.harness.run.loop_watchdog import PATIENCE, LoopWatchdog, StandstillError
from assay.harness.run.node_logs import read_last_lines
from assay.harness.run.observers import read_clock_difference
from assay.harness.run.progress import Progress, RunTally, SilentProgress
from assay.harness.run.registry import Registry
from assay.harness.run.resource_recorder import ResourceRecorder, measure_folder, return_free_memory
from assay.harness.run.settings import Settings
from assay.harness.run.store import RunFolder, RunInfo
from assay.harness.run.trial import FaultUnavailableError, Trial, TrialEnd, make_trial
from assay.reports.coverage import describe_totals, list_count_properties
from assay.reports.evidence import look_up_evidence
from assay.reports.failure_text import FailureFooter, describe
from assay.reports.figures import FIGURES, measure_run

__all__ = [
    "Attempt",
    "FaultUnavailableError",
    "HistoryPolicy",
    "InfrastructureError",
    "ReportPolicy",
    "SkippedTooLateError",
]

MANY_OPERATIONS: Final = 100_000
"""Minimum number of operations of a simulated run whose cluster is removed before the run is judged. The disks of
shorter runs take less memory than the judge itself."""


class ReportPolicy(enum.Enum):
    """Which runs get an HTML page."""

    ALL = "all"
    FAILED = "failed"
    NEVER = "never"


class HistoryPolicy(enum.Enum):
    """Which runs keep their histories."""

    ALL = "all"
    FAILURES = "failures"


class InfrastructureError(Exception):
    """The cluster or the system on it could not be started, so nothing is known about the system's correctness."""


class SkippedTooLateError(Exception):
    """User code raised a skip or a similar exception after the run, so it was not judged. The message names it."""


@dataclass
class Attempt:
    """A run; call ``set_up``, ``run`` and ``tear_down``.

    - ``test``: the pytest node id. ``command``: repeats the run.
    - ``reports``: which runs get an HTML page.
    - ``histories``: which runs keep their histories.
    - ``engines``: the session's engines, which judge the run.
    - ``patience``: real seconds that a step of the simulation may take.
    """

    experiment: Experiment
    settings: Settings
    test: str
    command: str
    progress: Progress = field(default_factory=SilentProgress)
    interrupt: Interrupt = field(default_factory=Interrupt)
    reports: ReportPolicy = ReportPolicy.ALL
    histories: HistoryPolicy = HistoryPolicy.ALL
    engines: Engines = field(default_factory=Engines)
    registry: Registry = field(default_factory=Registry.standard)
    patience: float = PATIENCE
    judgement: Judgement | None = None
    _folder: RunFolder | None = None
    _world: World | None = None
    _watchdog: LoopWatchdog | None = None
    _trial: Trial | None = None
    _tally: RunTally = field(default_factory=RunTally)
    _live_judge: LiveJudge | None = None
    _removal_error: Exception | None = None
    """The error of the removal of a simulated cluster. It is raised by ``tear_down``, after the verdict."""
    _info: RunInfo | None = None

    def __post_init__(self) -> None:
        self.settings = resolve_random_mix(self.experiment, self.settings)
        self.experiment = apply_mixes(self.experiment, self.settings)

    @property
    def folder(self) -> RunFolder:
        assert self._folder is not None, "set_up comes first"
        return self._folder

    @property
    def _loop_watchdog(self) -> LoopWatchdog:
        """The watchdog of the world's loop. No method of a whole run keeps it, because it keeps the world in memory."""
        assert self._watchdog is not None, "set_up comes first"
        return self._watchdog

    @property
    def interrupted(self) -> bool:
        """Whether a user interrupted the run, so that the session must end."""
        return self.interrupt.by_user

    @property
    def digest(self) -> str | None:
        """The digest of the history, once the run has ended."""
        return None if self._info is None else self._info.digest

    @property
    def problem(self) -> str | None:
        """Problems of the run that are not in the history."""
        return None if self._info is None else self._info.problem

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for the author of the client on a run that passed, once the run has ended."""
        if self.judgement is None or self.judgement.verdict is not Verdict.PASS or self._info is None:
            return ()
        return (*self._info.remarks, *self.judgement.warnings)

    @property
    def operation_counts(self) -> list[tuple[str, str]]:
        """The operations by outcome, of all kinds and of each kind; empty if the run was not judged."""
        return [] if self.judgement is None else list_count_properties(self.judgement)

    @property
    def pass_summary(self) -> tuple[int, int, Path, str] | None:
        """If the run passed: the number of operations, the number of checks that had data, the folder, and the
        operations by outcome.
        """
        judgement = self.judgement
        if judgement is None or judgement.verdict is not Verdict.PASS:
            return None
        checks = sum(one.rows > 0 for one in judgement.examined)
        return judgement.operations, checks, self.folder.path, describe_totals(judgement)

    @property
    def removal(self) -> tuple[int, str, Path] | None:
        """The bytes of the removed history, the remaining files in words, and the folder; None if it was kept."""
        if self._info is None or not self._info.history_removed:
            return None
        path = self.folder.path
        logs = measure_folder(self.folder.logs)
        remaining = ["verdict", *(["page"] if (path / "report.html").exists() else []), "schedule"]
        remaining += [f"logs ({format_size(logs)})"] if logs else []
        return self._info.history_removed, f"{', '.join(remaining[:-1])} and {remaining[-1]}", path

    def set_up(self) -> None:
        """Starts the cluster and the system.

        Raises :class:`InfrastructureError`, :class:`FaultUnavailableError`, :class:`FullDiskError`, and exceptions of
        the test's function.
        """
        with translate_full_disk(self.settings.store):
            self._set_up()

    def _set_up(self) -> None:
        settings = self.settings
        started = datetime.now(UTC)
        folder = self._folder = store.create_run_folder(settings.store, self.test, started)
        self._info = RunInfo(
            test=self.test,
            status=store.RUNNING,
            started=started.isoformat(),
            owner=str(current_owner()),
            parent=str(find_parent() or ""),
            machine=read_machine(),
            seed=settings.seed,
            cluster=settings.cluster,
            nemesis=settings.nemesis_id,
            command=self.command,
            in_use=True,
        )
        folder.write_run(self._info)
        try:
            trial = self._trial = make_trial(
                self.experiment,
                settings,
                folder,
                self.registry,
                run_id=make_run_id(folder.path),
                interrupt=self.interrupt,
                progress=self.progress,
            )
            self._tally = trial.tally
            if settings.watch:
                trial.live_judge = self._live_judge = LiveJudge(
                    folder.path, self.progress, trial.tally, self.interrupt, settings.fail_fast
                )
            trial.resources = ResourceRecorder(folder.path, trial.system)
            world, self.experiment = trial.world, trial.experiment
            self._world = world
            watchdog = self._watchdog = LoopWatchdog(world.loop, self.progress.note, self.patience)
            trial.prepare()
        except Exception as error:
            self._end(store.ERROR, problem="".join(traceback.format_exception(error)))
            raise
        try:
            watchdog.run(trial.set_up())
        except FaultUnavailableError as error:
            self._end(store.ERROR, problem=str(error))
            raise
        except Exception as error:  # user code of a system may raise anything
            self._end(store.ERROR, problem="".join(traceback.format_exception(error)))
            raise InfrastructureError(
                f"the cluster did not start: {explain_start_failure(error)}\n"
                f"{self._describe_last_logs(watchdog, trial, error)}"
            ) from error
        folder.write_json("settings.json", self._describe_settings(trial))

    def run(self) -> str | None:
        """Runs and judges the trial. Returns None if the verdict is pass, else the failure text.

        If user code skips the test after the run's first operation, the run is judged as interrupted.

        Raises :class:`FullDiskError`, :class:`SkippedTooLateError`, and exceptions of a generator or of a broken
        harness.
        """
        # A request to stop must not cut off the report or the failure text, which may take seconds.
        with translate_full_disk(self.settings.store), self.interrupt.recording_requests(self._record_forced_end):
            try:
                return self._run()
            except BaseException as error:
                if self._hides_failure(error):  # raised by a check that the user wrote
                    raise SkippedTooLateError(f"the judgement was not completed: {describe_skip(error)}") from error
                raise

    def _run(self) -> str | None:
        assert self._trial is not None
        assert self._world is not None, "set_up comes first"
        try:
            with translate_full_disk(self.settings.store):
                end = self._loop_watchdog.run(self._trial.run())
        except StandstillError as error:
            end = TrialEnd("", interrupted=True, notes=(str(error),), problems=(self._loop_watchdog.stack,))
            self._cancel_run(self._world)
        except BaseException as error:
            if not self._hides_failure(error):
                self._end(store.ERROR, problem=f"{type(error).__name__}: {error}")
                raise
            end = TrialEnd("", interrupted=True, notes=(describe_skip(error),))
        # Written before anything else: if a later step fails, `assay check` must still know all reasons against a pass.
        # `RunInfo` explains the fields.
        self._end(
            store.INTERRUPTED if end.interrupted else store.FINISHED,
            digest=end.digest or None,
            notes=end.notes,
            remarks=end.remarks,
            stood_still=end.stood_still,
            problem="; ".join(end.problems) or None,
        )
        described = dict(self._trial.cluster.description)
        with contextlib.suppress(StandstillError):  # the run was ended for another one
            self._loop_watchdog.run(self._trial.keep_logs())
        if self._trial.cluster.description != described:  # the cluster has measured the clocks once more
            self.folder.write_json("settings.json", self._describe_settings(self._trial))
        if not self._world.outlives_process and self._tally.operations >= MANY_OPERATIONS:
            self._remove_simulation()
        self.progress.note("checking the history")
        history = open_history(self.folder.history)
        judgement = self.judgement = self._judge_interruptibly(history, end)
        self.folder.write_json("verdict.json", judgement)
        self._update_info(verdict=judgement.verdict)
        self.folder.write_json(FIGURES, measure_run(history))
        passed = judgement.verdict is Verdict.PASS
        reported = self.reports is ReportPolicy.ALL or (self.reports is ReportPolicy.FAILED and not passed)
        report = self._write_report(history) if reported else ""
        if passed:
            self._remove_history(reported)
            return None
        footer = FailureFooter(self.settings.seed, self.command, report, end.digest, end.remarks)
        return describe(judgement, look_up_evidence(history, judgement), footer)

    def tear_down(self) -> None:
        """Removes the cluster unless it must be kept, and closes the loop. Idempotent."""
        world, self._world = self._world, None
        try:
            if world is not None:
                with self.interrupt.recording_requests(self._record_forced_end):
                    self._remove_cluster(world)
            if self._removal_error is not None:
                raise self._removal_error
        finally:
            self._watchdog = None
            self.progress.close()
            if self._folder is not None:
                self._folder.reserve.release()
            self._release()

    def _release(self) -> None:
        """Marks the run as ended and its files as no longer in use."""
        if self._info is None or not self._info.in_use:
            return
        if self._info.status == store.RUNNING:
            try:
                self._end(store.ERROR, problem=store.ABORTED, in_use=False)
            except OSError as error:
                if not is_full(error):  # a full disk has already ended the run, with a message of its own
                    raise
        else:
            with contextlib.suppress(OSError):  # the folder was deleted, or this process will soon have ended anyway
                self._update_info(in_use=False)

    def _remove_simulation(self) -> None:
        """Removes a simulated cluster before its history is judged, which needs the memory of the simulated disks."""
        world, self._world = self._world, None
        assert world is not None, "set_up comes first"
        try:
            self._remove_cluster(world)
        except Exception as error:  # noqa: BLE001 - of user code; the run must be judged all the same
            self._removal_error = error
        self._trial = self._watchdog = None
        del world
        gc.collect()
        return_free_memory()

    def _cancel_run(self, world: World) -> None:
        """Cancels the tasks of a run, which makes them heal active faults and write the history so far."""
        with contextlib.suppress(StandstillError), self._loop_watchdog.watching():
            cancel_tasks(world.loop, world.tasks())

    def _remove_cluster(self, world: World) -> None:
        watchdog = self._loop_watchdog
        # If the run was ended for code that never awaits, its copies in other processes are no further error.
        known = contextlib.suppress(StandstillError) if watchdog.stack else contextlib.nullcontext()
        try:
            with known, watchdog.watching():
                # After a second Ctrl-C the run's tasks still exist. Cancelling them makes them heal active faults.
                cancel_tasks(world.loop, world.tasks())
                if self._trial is not None:
                    world.loop.run_until_complete(self._trial.tear_down(keep=self._keeps_cluster()))
        finally:
            with known, watchdog.watching():
                close_loop(world.loop)

    def _describe_last_logs(self, watchdog: LoopWatchdog, trial: Trial, error: Exception) -> str:
        """Returns the last log lines of the nodes before a start failed, and the folder with all logs."""
        with contextlib.suppress(Exception):  # an unreadable log must not hide the error that it should explain
            watchdog.run(trial.keep_logs())
        return "\n".join([*read_last_lines(self.folder.logs, str(error)), f"the run's folder: {self.folder.path}"])

    def _hides_failure(self, error: BaseException) -> bool:
        """Returns whether pytest would not count this exception as a failure, although the run has made operations."""
        return is_good_end(error) and self._tally.operations > 0

    def _record_forced_end(self, number: signal.Signals) -> None:
        if self._info is not None and self._info.status == store.RUNNING:
            self._end(store.ERROR, problem=f"interrupted twice: ended at once by {number.name}")

    def _keeps_cluster(self) -> bool:
        failed = self.judgement is None or self.judgement.verdict is not Verdict.PASS
        return self.settings.keep_cluster == "always" or (self.settings.keep_cluster == "failed" and failed)

    def _judge_interruptibly(self, history: HistoryReader, end: TrialEnd) -> Judgement:
        """Judges the history. If a request to stop arrives during the checks, returns their findings so far.

        If it arrives at another time, such as while an engine starts, all checks are made.
        """
        try:
            with self.interrupt.raising_requests():
                return self._judge(history, end)
        except KeyboardInterrupt:
            if not self.interrupt.by_user:
                raise
            return self._judge(history, end)

    def _judge(self, history: HistoryReader, end: TrialEnd) -> Judgement:
        judgement = judge_run(
            history,
            self._read_contract(),
            self.engines,
            self.registry,
            interrupted=end.interrupted,
            complete=history.closing_note is not None,
            notes=end.notes,
            stood_still=end.stood_still,
            progress=lambda what, done, total: None,  # with a callback, an interrupt keeps the findings so far
            of_session=True,
        )
        live = self._live_judge
        if live is None or not live.found or judgement.verdict is Verdict.FAIL:
            return judgement
        return add_doubts(judgement, [f"{', '.join(sorted(live.found))}: {FOUND_LIVE_ONLY}"])

    def _read_contract(self) -> Contract:
        """Returns the experiment's contract. Clocks that were measured to be wrong widen its ``clock_difference``."""
        contract = self.experiment.contract
        measured = 0.0 if self._trial is None else read_clock_difference(self._trial.cluster)
        if measured <= contract.clock_difference:
            return contract
        widened = min(contract.clock_difference + measured, MAX_SECONDS - 1.0)
        return msgspec.structs.replace(contract, clock_difference=widened)

    def _remove_history(self, reported: bool) -> None:
        """Removes the history of a run that passed, if the session wants that.

        The history is kept if the requested page is missing, or if a defect was switched on and the run missed it.

        The removal is recorded in ``run.json`` first. If this process is killed between the two steps, the complete
        history is still there and is read.
        """
        keep = self.histories is HistoryPolicy.ALL or self.settings.defect is not None
        if keep or (reported and not (self.folder.path / "report.html").exists()):
            return
        try:
            self._update_info(history_removed=max(1, measure_folder(self.folder.history)))
            self.folder.remove_history()
        except OSError as error:
            self.progress.note(f"the history was not removed: {error}")
            if self.folder.history.exists():
                self._update_info(history_removed=0)

    def _write_report(self, history: HistoryReader) -> str:
        """Writes the report. Returns its path, or the reason for its absence, which must not affect the verdict."""
        from assay.reports.page import render  # imports bokeh, which takes as long as a short run

        try:
            return str(render(self.folder.path, history))
        except Exception as error:  # noqa: BLE001 - shown to the user and kept with the run
            reason = f"not written, {type(error).__name__}: {error}; `assay report {self.folder.path}` tries again"
            self._update_info(problem=reason if is_full(error) else "".join(traceback.format_exception(error)))
            self.progress.note(f"report {reason}")
            return reason

    def _describe_settings(self, trial: Trial) -> dict[str, Any]:
        """Returns the content of ``settings.json``: everything needed to repeat the run, and the versions used."""
        system = trial.system
        return {
            "schema_version": store.SCHEMA_VERSION,
            "settings": asdict(self.settings),
            "experiment": self.experiment.name,
            "system": {
                "name": system.name,
                "roles": list(system.roles),
                "keys": list(system.keys()),
                "is": repr(system),
            },
            "contract": msgspec.to_builtins(self._read_contract()),
            "extensions": self.registry.extensions(),
            "extension_modules": list(self.registry.sources),
            "nodes": {node.name: node.role for node in (*trial.cluster.nodes, *trial.cluster.spares)},
            "cluster": dict(trial.cluster.description),
            "versions": dict(read_versions()),
        }

    def _end(self, status: str, **fields: Any) -> None:
        """Marks the run as ended and makes it the latest."""
        origin = None if self._trial is None else self._trial.origin
        self._update_info(status=status, ended=datetime.now(UTC).isoformat(), origin=origin, **fields)
        for folder in self.folder.publish():
            self.progress.note(
                f"{folder} is in the place of the link to the latest run: remove it, it does not lead to this run"
            )

    def _update_info(self, **fields: Any) -> None:
        """Updates these fields of ``run.json`` (see :class:`RunInfo`)."""
        assert self._info is not None
        self._info = msgspec.structs.replace(self._info, **fields)
        self.folder.write_run(self._info)


def is_good_end(error: BaseException) -> bool:
    """Returns whether pytest does not count an exception as a failure: a skip, ``pytest.xfail`` or an exit with 0."""
    import unittest

    import pytest

    if isinstance(error, pytest.exit.Exception):
        return error.returncode == 0
    return isinstance(error, pytest.skip.Exception | pytest.xfail.Exception | unittest.SkipTest)


def describe_skip(error: BaseException) -> str:
    """Returns the reason against a pass for a run that user code skipped after it had begun."""
    return f"the test's code raised {describe_with_location(error)}, when the run had made operations"


def explain_start_failure(error: Exception) -> str:
    """Returns the error on one line; with file and line if the user's code failed, such as ``ready``."""
    if isinstance(error, NodeError | DeploymentError | StandstillError):
        return f"{error}{find_location(error.__cause__)}"
    return f"{type(error).__name__}: {error}{find_location(error)}"


def make_run_id(folder: Path) -> str:
    """Returns a name for this run's containers and networks, from its folder: ``20260102t030405.678z-9f86d0``.

    The names sort by time. The random digits separate runs that start at the same moment, in two stores or of two
    tests.
    """
    return f"{folder.name.lower()}-{secrets.token_hex(3)}"


PACKAGES: Final = ("assay", "duckdb", "docker", "kazoo", "msgspec", "numpy", "paramiko", "pyarrow", "pytest")
SOURCES: Final = ("harness", "cluster", "nemesis", "workloads", "checkers", "reports", "system_under_test")


@functools.cache
def read_versions() -> Mapping[str, str]:
    """Returns the versions of this project, Python, the kernel and the packages that may influence a result."""
    found = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "source": digest_sources(Path(__file__).parents[2]),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def digest_sources(root: Path) -> str:
    """Returns 16 hexadecimal digits of a SHA-256 over the project's Python files.

    Like a commit id it identifies the code, but it includes changes that are not committed.
    """
    digest = hashlib.sha256()
    for name in SOURCES:
        for path in sorted((root / name).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
