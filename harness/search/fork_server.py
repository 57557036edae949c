"""Fork server: the process that plays the examples of a search, and forks at points worth branching from.

It keeps everything in memory and loads neither Arrow nor NumPy nor DuckDB, because they start threads, and only a
process with one thread can fork safely. Runs go through a pipe to the process that judges.

A *fork point* is a fork of a run between two steps of its event loop, made when the run has reached a new state:

1. The fork waits and plays nothing itself.
2. For each branch it forks again. The child continues the run, with other random numbers and further faults.
3. A run with fork points waits for them at its end, because perhaps no other process would reap them.

The process that judges has one end of a connection to each process here, and to their supervisor. A process that waits
ends when its connection is closed. The supervisor kills all others. So no process outlives the search, even if the
search is killed.
"""

import asyncio
import gc
import math
import os
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, Final, NoReturn

from assay.cluster.operating_system import count_threads
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.core.history.in_memory import Columns, HistoryInMemory
from assay.harness.run.environments import cancel_tasks, close_loop
from assay.harness.run.experiment import Experiment, apply_mixes, resolve_random_mix
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.observers import CRASHED
from assay.harness.run.progress import SilentProgress
from assay.harness.run.registry import Registry
from assay.harness.run.settings import Settings
from assay.harness.run.store import InMemoryOutput
from assay.harness.run.trial import Trial, make_trial
from assay.harness.search.code_coverage.counter import CodePlace, CoverageCounter
from assay.harness.search.coverage_features import OnlineFeatures
from assay.harness.search.example import Example

MIN_GAP: Final = 0.1
"""Minimum seconds between two fork points of a run."""
NEW_CODE: Final = "new code"
"""The feature for lines or branches that no run had reached before. All of them share one feature: as separate
features, each would look rarer than any event.
"""
LAST_SECONDS: Final = 1.5
"""Seconds before the time limit in which no fork point is made, because too little of the run is left."""

EventOrigin = tuple[str | None, str | None, str | None]
"""A node, an event that it logged, and the key that the event is about."""
NO_ORIGIN: Final = (None, None, None)


@dataclass(frozen=True)
class PlayRequest:
    """Request to play an example from its start, or from a fork point with a new branch.

    - ``fork_points``: how many fork points the run may have, each with a feature that is not ``known``
    - ``code``: places of the system's code that other processes have reached, and the receiver may not know
    """

    example: Example
    fork_points: int = 0
    known: frozenset[str] = frozenset()
    code: tuple[CodePlace, ...] = ()


@dataclass(frozen=True)
class FinishedPlay:
    """A run that ended.

    - ``columns``: its history, by data set and column
    - ``features``: those that it reached, if it may have fork points
    """

    example: Example
    columns: Columns
    digest: str
    notes: tuple[str, ...]
    problem: str | None
    features: frozenset[str]
    seconds: float
    """Processor seconds that it took; for a branch, since the fork point."""
    code: frozenset[CodePlace] = frozenset()
    """Lines and branches of the system that this run was the first to reach, if they are counted."""
    event_count: int = 0
    """Number of timers set and packets sent since the start of the run, even in a branch. Unlike ``seconds`` it is the
    same each time the example is played.
    """

    @property
    def certainly_failed(self) -> bool:
        """Returns whether the run failed for certain: an invariant was violated, or a process crashed."""
        looks = self.columns["looks"]
        seen = looks[DATA_SETS["looks"].names.index("what")] if looks else ()
        return "broken" in seen or (self.problem is not None and CRASHED in self.problem)


@dataclass(frozen=True)
class FailedPlay:
    """A run that raised an exception: its traceback, and ``code`` as in :class:`FinishedPlay`."""

    text: str
    code: frozenset[CodePlace] = frozenset()


@dataclass(frozen=True)
class ForkPoint:
    """A waiting fork of a run, at ``at`` seconds of its main phase.

    ``features``: the new features that led to it. ``node``, ``event`` and ``key``: the logged event that led to the
    last of them; None if only code is new.
    """

    example: Example
    at: float
    features: tuple[str, ...]
    node: str | None = None
    event: str | None = None
    key: str | None = None
    event_count: int = 0
    """Events up to the fork point, counted as in :class:`FinishedPlay`."""


def fork_single_threaded() -> int:
    """Forks this process, which must have one thread."""
    threads = count_threads()
    if threads != 1:
        raise RuntimeError(f"a process can be forked only with one thread; this process has {threads}")
    return os.fork()


class ForkServer:
    """Server loop of the playing process; ``counter`` measures the code coverage of the system."""

    def __init__(
        self,
        experiment: Experiment,
        base: Settings,
        registry: Registry,
        connection: Connection,
        counter: CoverageCounter | None = None,
    ) -> None:
        self._experiment = experiment
        self._base = base
        self._registry = registry
        self._connection = connection
        self._counter = counter
        self._branched = False
        """Whether this process is a child that plays a branch."""

    def serve(self) -> None:
        """Answers requests until the other end is closed."""
        if self._counter is not None:
            gc.unfreeze()  # the counter looks for functions among all objects
            self._counter.start()
        gc.freeze()
        while True:
            try:
                request = self._connection.recv()
            except EOFError:
                self._exit()
            answer = self._play(request)
            self._connection.send(answer)  # in a child, this is the connection of the branch
            if self._branched:
                self._exit()
            if self._counter is not None:
                self._counter.end_run()

    def _exit(self) -> NoReturn:
        """Waits for all children, and then ends this process."""
        self._connection.close()
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                os._exit(0)

    def _play(self, request: PlayRequest) -> FinishedPlay | FailedPlay:
        self._run = _Run(request, self._fork_at, self._counter)
        try:
            return self._run.play(self._experiment, self._base, self._registry)
        except Exception:  # noqa: BLE001 - the judging process raises it
            return FailedPlay(traceback.format_exc(), self._run.take_new_code())

    def _fork_at(self, fork_point: ForkPoint) -> None:
        """Forks the process between two steps of a run. Returns in the run itself, and in each child that plays a
        branch.
        """
        ours, theirs = Pipe()
        if fork_single_threaded() != 0:
            theirs.close()
            self._connection.send(fork_point)
            send_handle(self._connection, ours.fileno(), None)
            ours.close()
            return
        ours.close()
        self._connection.close()
        self._connection = theirs
        while True:
            try:
                request = theirs.recv()
                answers = Connection(recv_handle(theirs))
            except EOFError:
                self._exit()
            if fork_single_threaded() == 0:
                break
            answers.close()
        theirs.close()
        self._connection, self._branched = answers, True
        self._run.start_branch(request)


class _Run:
    """Run of an example."""

    def __init__(
        self, request: PlayRequest, fork_at: Callable[[ForkPoint], None], counter: CoverageCounter | None = None
    ) -> None:
        self.request = request
        self._fork_at = fork_at
        self._counter = counter
        if counter is not None:
            counter.add_known(request.code)
            counter.on_new = self.add_new_code
        self._online = OnlineFeatures()
        self._features: set[str] = set()
        self._new_features: list[str] = []
        self._fork_points = 0
        self._origin: EventOrigin = NO_ORIGIN
        """Node, event and key of the latest event that led to one of the new features."""
        self._last_fork_point = -math.inf
        self._began = time.process_time()
        self._trial: Trial | None = None

    def play(self, experiment: Experiment, base: Settings, registry: Registry) -> FinishedPlay:
        example = self.request.example
        settings = resolve_random_mix(experiment, example.vary(base))
        history = _ReportingHistory(self) if self.request.fork_points else HistoryInMemory()
        trial = self._trial = make_trial(
            apply_mixes(experiment, settings),
            settings,
            InMemoryOutput(history),
            registry,
            run_id="memory",
            interrupt=Interrupt(),
            progress=SilentProgress(),
        )
        trial.schedule = example.schedule
        loop: Any = trial.world.loop
        try:
            trial.prepare()
            loop.run_until_complete(trial.set_up())
            ended = loop.run_until_complete(trial.run())
        finally:
            try:
                cancel_tasks(loop, trial.world.tasks())
                loop.run_until_complete(trial.tear_down(keep=False))
            finally:
                close_loop(loop)
        problem = "; ".join(ended.problems) or None
        return FinishedPlay(
            self.request.example,
            history.columns(),
            ended.digest,
            ended.notes,
            problem,
            frozenset(self._features),
            time.process_time() - self._began,
            self.take_new_code(),
            loop.scheduled,
        )

    def take_new_code(self) -> frozenset[CodePlace]:
        """Returns and clears the places of the system's code that were covered for the first time."""
        return frozenset() if self._counter is None else self._counter.take_new()

    def add_fault(self, number: int, name: str, phase: str) -> None:
        self._online.add_fault(number, name, phase)

    def add_event(self, row: tuple[Any, ...]) -> None:
        """Records an event. If it has a new feature, a fork point may follow after the loop's current step."""
        _, node, _, _, event, key, epoch, _, _, _, value, *_ = row
        features = {*self._online.add_event(node, event, key, epoch, value), self._online.count_feature(event)}
        new = features - self._features - self.request.known
        self._features |= features
        self._plan_fork_point(new, (node, event, key))

    def add_new_code(self) -> None:
        """Records that new code was covered. This is called in the middle of the system's code."""
        if self._trial is not None and self._trial.tally.stage == "main" and NEW_CODE not in self._new_features:
            self._features.add(NEW_CODE)
            self._plan_fork_point({NEW_CODE})

    def _plan_fork_point(self, new: Collection[str], origin: EventOrigin | None = None) -> None:
        trial = self._trial
        if new and trial is not None and trial.tally.stage == "main" and self._fork_points < self.request.fork_points:
            if not self._new_features:
                trial.world.call_between_events(trial.world.loop.time(), self._make_fork_point)
            self._new_features += sorted(new)
            self._origin = origin or self._origin

    def _make_fork_point(self) -> None:
        new_features, self._new_features = tuple(self._new_features), []
        origin, self._origin = self._origin, NO_ORIGIN
        assert self._trial is not None
        conductor, limit = self._trial.conductor, self._trial.settings.time_limit
        loop: Any = self._trial.world.loop
        if not (conductor.start_time and self._last_fork_point + MIN_GAP <= conductor.elapsed < limit - LAST_SECONDS):
            return
        at = self._find_branch_time()
        if at is None or self._trial.tally.stage != "main":
            return
        self._fork_points += 1
        self._last_fork_point = conductor.elapsed
        self._fork_at(ForkPoint(self.request.example, at, new_features, *origin, event_count=loop.scheduled))

    def _find_branch_time(self) -> float | None:
        """Returns the current time in seconds of the main phase, with which a replay branches exactly here; or None.

        The time is rounded to microseconds, unless the rounded time is after the next timer.
        """
        assert self._trial is not None
        loop: Any = self._trial.world.loop
        began, now, next_timer = self._trial.conductor.start_time, loop.time(), loop.next_timer_time()
        at = math.ceil((now - began) * 1e6) / 1e6
        if not now <= began + at < next_timer:
            at = now - began
            while began + at < now:
                at = math.nextafter(at, math.inf)
        return at if now <= began + at < next_timer else None

    def start_branch(self, request: PlayRequest) -> None:
        """Continues with the last branch of the example, in a child that was forked here."""
        assert self._trial is not None
        asyncio._set_running_loop(self._trial.world.loop)  # needed because asyncio stores the running loop per process
        self.request, self._fork_points, self._last_fork_point = request, 0, self._trial.conductor.elapsed
        if self._counter is not None:
            self._counter.discard_new()
            self._counter.add_known(request.code)
            self._features.discard(NEW_CODE)
        self._began = time.process_time()
        self._trial.conductor.begin_branch(request.example.schedule.branches[-1])


class _ReportingHistory(HistoryInMemory):
    """History in memory that reports events and faults to a run that may have fork points."""

    def __init__(self, run: _Run) -> None:
        super().__init__()
        self._run = run

    def _row(self, name: str, row: tuple[Any, ...]) -> None:
        super()._row(name, row)
        if name == "events":
            self._run.add_event(row)
        elif name == "faults":
            self._run.add_fault(row[0], row[1], row[3])
