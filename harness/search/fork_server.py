"""The process in which the examples of a search are played, and which forks where one of them is worth leaving.

It keeps everything in memory and loads neither Arrow nor NumPy nor DuckDB: they start threads, and a process is forked
with one thread only. What it played goes through a pipe to the process that judges.

A *moment* is a fork of a run between two steps of its loop, once the run has come to a state that is new. It stands
still and plays nothing itself: each time it is asked to it forks again, and the child goes on from there, with other
chance and further faults. A run that was left by moments waits for them at its end, since every process of this tree
is killed by the kernel as soon as the one that forked it is gone, no matter how that ended.
"""

import asyncio
import ctypes
import gc
import math
import os
import signal
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, Final, NoReturn

from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.core.history.in_memory import Columns, HistoryInMemory
from assay.harness.run.environments import cancel, close_loop
from assay.harness.run.experiment import Experiment, mixed, resolved
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.processes import CRASHED
from assay.harness.run.progress import Silent
from assay.harness.run.registry import Registry
from assay.harness.run.run_output import InMemory
from assay.harness.run.settings import Settings
from assay.harness.run.trial import Trial
from assay.harness.run.trial_factory import make_trial
from assay.harness.search.code_coverage.counter import Counter, Place
from assay.harness.search.example import Example
from assay.harness.search.online_features import Passing

PR_SET_PDEATHSIG: Final = 1
"""Of Linux: prctl(2)."""
APART: Final = 0.1
"""Seconds of a run between two moments of it."""
NEW_CODE: Final = "new code"
"""The word for having come to lines or branches that no run had. It is one word for all of them, since there are
thousands, of which each is new once: each by itself would be rarer than any event.
"""
LAST: Final = 1.5
"""Seconds before the time limit in which there is no moment: too little is left to be played."""

Where = tuple[str | None, str | None, str | None]
"""A node, an event that it wrote, and the key that this is about."""
NOWHERE: Final = (None, None, None)


@dataclass(frozen=True)
class Order:
    """To play an example from its start, or, sent to a moment, a branch of it. ``moments``: how many there may be, each
    with a word that is not ``known``. ``code``: what was reached elsewhere, of which the one who is asked may not know.
    """

    example: Example
    moments: int = 0
    known: frozenset[str] = frozenset()
    code: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Played:
    """A run that came to its end. ``words``: of the states that it came through, for a run that may be left."""

    example: Example
    columns: Columns
    digest: str
    notes: tuple[str, ...]
    problem: str | None
    words: frozenset[str]
    seconds: float
    """Of processor time that it took; of a branch, those since it left."""
    code: frozenset[Place] = frozenset()
    """What it was the first to reach of the system's lines and branches, as far as they are counted."""
    work: int = 0
    """How many timers were set and packets sent; of a branch, with what came before it. Unlike ``seconds`` the same in
    each play.
    """

    @property
    def alarming(self) -> bool:
        """Its judgement is known in the main: an invariant did not hold, or a process crashed."""
        looks = self.columns["looks"]
        seen = looks[DATA_SETS["looks"].names.index("what")] if looks else ()
        return "broken" in seen or (self.problem is not None and CRASHED in self.problem)


@dataclass(frozen=True)
class Broken:
    """What was raised instead; ``code`` as of a run that ended."""

    text: str
    code: frozenset[Place] = frozenset()


@dataclass(frozen=True)
class Moment:
    """A run stands here: ``at`` seconds of its main phase; ``words`` are new, and ``node`` wrote the ``event`` that led
    to the last of them, about ``key``; where only code is new none is known.
    """

    example: Example
    at: float
    words: tuple[str, ...]
    node: str | None = None
    event: str | None = None
    key: str | None = None
    work: int = 0
    """Up to here, as of :class:`Played`."""


def end_with(parent: int) -> None:
    """From now on the kernel kills this process when its parent is gone, even if that was killed itself."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # gone before the kernel knew
        os._exit(1)


def fork() -> int:
    """``os.fork``, of a process that has one thread; the child ends with it."""
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:
        raise RuntimeError(f"a run can be left only where there is one thread; this process has {len(threads)}")
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        end_with(parent)
    return child


class Stage:
    """Plays what it is sent, and counts by ``counter`` what it reaches of the system's code."""

    def __init__(
        self,
        experiment: Experiment,
        base: Settings,
        registry: Registry,
        connection: Connection,
        counter: Counter | None = None,
    ) -> None:
        self._experiment = experiment
        self._base = base
        self._registry = registry
        self._connection = connection
        self._counter = counter
        self._branched = False
        """Is this a child that goes on from a moment?"""

    def serve(self) -> None:
        """Until the other end is closed."""
        if self._counter is not None:
            gc.unfreeze()  # it looks for functions among all objects
            self._counter.start()
        gc.freeze()
        while True:
            try:
                order = self._connection.recv()
            except EOFError:
                self._leave()
            answer = self._perform(order)
            self._connection.send(answer)  # by now that of the branch, in a child
            if self._branched:
                self._leave()
            if self._counter is not None:
                self._counter.settle()

    def _leave(self) -> NoReturn:
        """Ends this process, after those that have left from here."""
        self._connection.close()
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                os._exit(0)

    def _perform(self, order: Order) -> Played | Broken:
        self._run = _Run(order, self._left_at, self._counter)
        try:
            return self._run.play(self._experiment, self._base, self._registry)
        except Exception:  # noqa: BLE001 - it is raised where the search is
            return Broken(traceback.format_exc(), self._run.code())

    def _left_at(self, moment: Moment) -> None:
        """Between two steps of a run: a child stays here. Returns in it, too, each time that it is to go on."""
        ours, theirs = Pipe()
        if fork() != 0:
            theirs.close()
            self._connection.send(moment)
            send_handle(self._connection, ours.fileno(), None)
            ours.close()
            return
        ours.close()
        self._connection.close()
        self._connection = theirs
        while True:
            try:
                order = theirs.recv()
                answering = Connection(recv_handle(theirs))
            except EOFError:
                self._leave()
            if fork() == 0:
                break
            answering.close()
        theirs.close()
        self._connection, self._branched = answering, True
        self._run.go_on(order)


class _Run:
    """One example while it is played."""

    def __init__(self, order: Order, left_at: Callable[[Moment], None], counter: Counter | None = None) -> None:
        self.order = order
        self._left_at = left_at
        self._counter = counter
        if counter is not None:
            counter.know(order.code)
            counter.on_new = self.new_code
        self._passing = Passing()
        self._words: set[str] = set()
        self._fresh: list[str] = []
        self._moments = 0
        self._where: Where = NOWHERE
        """Node, event and key of the latest event that led to one of the fresh words."""
        self._latest = -math.inf
        self._began = time.process_time()
        self._trial: Trial | None = None

    def play(self, experiment: Experiment, base: Settings, registry: Registry) -> Played:
        example = self.order.example
        settings = resolved(experiment, example.varied(base))
        history = _Watched(self) if self.order.moments else HistoryInMemory()
        trial = self._trial = make_trial(
            mixed(experiment, settings),
            settings,
            InMemory(history),
            registry,
            run_id="memory",
            interrupt=Interrupt(),
            progress=Silent(),
        )
        trial.meant = example.schedule
        loop: Any = trial.world.loop
        try:
            trial.prepare()
            loop.run_until_complete(trial.set_up())
            ended = loop.run_until_complete(trial.run())
        finally:
            try:
                cancel(loop, trial.world.tasks())
                loop.run_until_complete(trial.tear_down(keep=False))
            finally:
                close_loop(loop)
        problem = "; ".join(ended.problems) or None
        return Played(
            self.order.example,
            history.columns(),
            ended.digest,
            ended.notes,
            problem,
            frozenset(self._words),
            time.process_time() - self._began,
            self.code(),
            loop.scheduled,
        )

    def code(self) -> frozenset[Place]:
        """What has been new in the system's code."""
        return frozenset() if self._counter is None else self._counter.take()

    def fault(self, number: int, name: str, phase: str) -> None:
        self._passing.fault(number, name, phase)

    def event(self, row: tuple[Any, ...]) -> None:
        """If it has led to a new state, the run may be left as soon as nothing more is to be done at this moment."""
        _, node, _, _, event, key, epoch, _, _, _, value, *_ = row
        words = set(self._passing.event(node, event, key, epoch, value))
        new = words - self._words - self.order.known
        self._words |= words
        self._may_leave(new, (node, event, key))

    def new_code(self) -> None:
        """The same of a line or a branch, in the middle of the system's code."""
        if self._trial is not None and self._trial.tally.stage == "main" and NEW_CODE not in self._fresh:
            self._words.add(NEW_CODE)
            self._may_leave({NEW_CODE})

    def _may_leave(self, new: Collection[str], where: Where | None = None) -> None:
        if new and self._trial is not None and self._trial.tally.stage == "main" and self._moments < self.order.moments:
            if not self._fresh:
                world = self._trial.world
                world.between_steps(world.loop.time(), self._leave)
            self._fresh += sorted(new)
            self._where = where or self._where

    def _leave(self) -> None:
        fresh, self._fresh = tuple(self._fresh), []
        where, self._where = self._where, NOWHERE
        assert self._trial is not None
        conductor, limit = self._trial.conductor, self._trial.settings.time_limit
        loop: Any = self._trial.world.loop
        if not (conductor.began and self._latest + APART <= conductor.elapsed < limit - LAST):
            return
        at = self._moment()
        if at is None or self._trial.tally.stage != "main":
            return
        self._moments += 1
        self._latest = conductor.elapsed
        self._left_at(Moment(self.order.example, at, fresh, *where, work=loop.scheduled))

    def _moment(self) -> float | None:
        """Now, in seconds of the main phase, such that a run that is to branch then does so exactly here."""
        assert self._trial is not None
        loop: Any = self._trial.world.loop
        began, now, following = self._trial.conductor.began, loop.time(), loop.following()
        at = math.ceil((now - began) * 1e6) / 1e6
        if not now <= began + at < following:
            at = now - began
            while began + at < now:
                at = math.nextafter(at, math.inf)
        return at if now <= began + at < following else None

    def go_on(self, order: Order) -> None:
        """In a child that was forked here: by the last branch of the example."""
        assert self._trial is not None
        asyncio._set_running_loop(self._trial.world.loop)  # asyncio knows a running loop by the process, too
        self.order, self._moments, self._latest = order, 0, self._trial.conductor.elapsed
        if self._counter is not None:
            self._counter.forget_new()
            self._counter.know(order.code)
            self._words.discard(NEW_CODE)
        self._began = time.process_time()
        self._trial.conductor.branch(order.example.schedule.branches[-1])


class _Watched(HistoryInMemory):
    """The rows of a run that may be left."""

    def __init__(self, run: _Run) -> None:
        super().__init__()
        self._run = run

    def _row(self, name: str, row: tuple[Any, ...]) -> None:
        super()._row(name, row)
        if name == "events":
            self._run.event(row)
        elif name == "faults":
            self._run.fault(row[0], row[1], row[3])
