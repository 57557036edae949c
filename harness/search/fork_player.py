"""Plays examples in a fork server and judges them in this process, without any file on disk.

The outcomes equal those of :class:`~assay.harness.search.player.Player`. That player runs in this process, keeps the
run in a folder, and is used for every run that is shown to a user.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from random import Random
from typing import Final

from assay.checkers.judging.verdict import Judgement, Verdict
from assay.cluster.system import SupportsTurningPoints
from assay.harness.core.history.reader import InMemoryHistoryReader
from assay.harness.run.attempt import ReportPolicy
from assay.harness.run.judging import UnjudgedRun, judge_together
from assay.harness.run.loop_watchdog import PATIENCE
from assay.harness.run.systems import apply_settings, complete_contract, with_defect
from assay.harness.search.archive import Archive, ArchiveEntry
from assay.harness.search.code_coverage.counter import CodePlace, CoverageCounter
from assay.harness.search.code_coverage.source import SourceModule
from assay.harness.search.coverage_features import RunFeatures
from assay.harness.search.example import Example, SystemParts
from assay.harness.search.fork_server import FailedPlay, FinishedPlay, ForkPoint, ForkServer, PlayRequest
from assay.harness.search.fork_supervisor import ForkSupervisor
from assay.harness.search.player import DIED, ENDLESS, Player, PlayOutcome, make_outcome_without_history, to_outcome
from assay.nemesis.schedule.schedule import Branch, FaultStep

FORK_POINTS_PER_RUN: Final = 6
"""Maximum number of fork points of one run."""
TURNING_POINT_FACTOR: Final = 4.0
"""Factor on the weight of a fork point at a turning point of the system: an event at which another node takes charge.
"""
UNKNOWN_FACTOR: Final = 0.25
"""Factor on the weight of the fork points of a run judged unknown. Its branches are usually unknown, too, for the same
reason.
"""
MAX_DEPTH: Final = 2
"""Maximum depth of branches: a branch of a branch has depth 2."""

MAX_DEATHS: Final = 5
"""If this many processes die in a row, each with another run, the search ends. The cause is then no single run."""

DrawSteps = Callable[[Random, ForkPoint], Sequence[FaultStep]]
"""Draws the faults of a branch that starts at the fork point."""

DISCONNECTED: Final = (OSError, RuntimeError)
"""Exceptions of ``send_handle`` if the other process is gone. On macOS the receiver acknowledges the handle, and a
missing acknowledgement is a RuntimeError."""


@dataclass(frozen=True)
class WaitingProcess:
    """A process that waits at a fork point; closing the connection ends it."""

    fork_point: ForkPoint
    connection: Connection
    known: int
    """Number of covered places that the process knows: the first ones in the order of discovery."""


PlayedRun = FinishedPlay | PlayOutcome
"""A run to be judged, or the outcome of one that left no history to judge."""


class ForkServerError(Exception):
    """No process can play: each new one died, or none can be started."""


class ForkPlayer:
    """Plays examples in a fork server, from construction until ``close``. It is not thread-safe.

    Lines and branches of ``modules`` are counted. ``uniform_weights``: see :class:`Archive`. A run that takes longer
    than ``patience`` seconds is killed, with all fork points of its process. If the process dies by itself, a new one
    plays the next example.
    """

    def __init__(
        self,
        player: Player,
        *,
        modules: Sequence[SourceModule] = (),
        uniform_weights: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        self._player = player
        self._patience = patience
        system = player.experiment.deployed_system()
        self._turning_points = frozenset(system.turning_points if isinstance(system, SupportsTurningPoints) else ())
        self._supervisor = ForkSupervisor(
            lambda end: ForkServer(
                player.experiment, player.base, player.registry, end, CoverageCounter(modules) if modules else None
            )
        )
        self._server = self._supervisor.start()
        self._archive: Archive[WaitingProcess] = Archive(uniform_weights=uniform_weights)
        self._covered: dict[CodePlace, None] = {}
        """Lines and branches that were covered, in the order of discovery by this process."""
        self._server_knows = 0
        """How many of them the fork server knows."""
        self._deaths = 0
        """Processes that died in a row."""
        self.cpu_seconds = 0.0
        """Processor seconds that the runs took in other processes."""

    def close(self) -> None:
        """Ends all processes. Idempotent."""
        self._drop_fork_points()
        self._server.close()
        self._supervisor.close()

    def play(self, example: Example, *, reports: ReportPolicy = ReportPolicy.NEVER) -> PlayOutcome:
        """Plays one example. With reports it is played in this process, and its folder is kept if it fails."""
        if reports is not ReportPolicy.NEVER:
            return self._player.play(example, reports=reports)
        (outcome,) = self._judge_all([self._play_from_start(example)])
        return outcome

    def play_all(self, examples: Sequence[Example], enough: Callable[[], bool]) -> list[PlayOutcome]:
        """Plays each example once and judges the runs together. The search may branch from them later.

        It stops early if ``enough`` returns true or a run has certainly failed.
        """
        played: list[PlayedRun] = []
        for example in examples:
            if enough() or _has_last_failed(played):
                break
            played.append(self._play_from_start(example, FORK_POINTS_PER_RUN))
        return self._judge_all(played)

    def branch(
        self, rng: Random, draw_steps: DrawSteps, count: int, enough: Callable[[], bool]
    ) -> list[tuple[Example, PlayOutcome]]:
        """Plays ``count`` branches of earlier runs and judges them together.

        It stops early if no fork point is left, ``enough`` returns true or a run has certainly failed.
        """
        examples: list[Example] = []
        played: list[PlayedRun] = []
        while len(played) < count and not enough() and not _has_last_failed(played):
            entry = self._archive.choose(rng)
            if entry is None:
                break
            fork_point = entry.item.fork_point
            steps = draw_steps(rng, fork_point)
            example = fork_point.example.with_branch(Branch(fork_point.at, rng.getrandbits(32), tuple(steps)))
            run = self._play_branch(entry, example)
            if run is not None:
                examples.append(example)
                played.append(run)
        return list(zip(examples, self._judge_all(played), strict=True))

    def _play_from_start(self, example: Example, fork_points: int = 0) -> PlayedRun:
        """Plays an example from its start, in the fork server."""
        try:
            self._request(example, fork_points)
        except OSError:  # the process died while it was idle
            self._restart()
            self._request(example, fork_points)
        return self._receive(self._server, example)

    def _request(self, example: Example, fork_points: int) -> None:
        known = self._archive.known_features if fork_points else frozenset()
        self._server.send(PlayRequest(example, fork_points, known, tuple(self._covered)[self._server_knows :]))
        self._server_knows = len(self._covered)

    def _play_branch(self, entry: ArchiveEntry[WaitingProcess], example: Example) -> PlayedRun | None:
        """Plays a branch. Returns None if the process of the fork point is gone; the fork point is dropped then."""
        fork_points = FORK_POINTS_PER_RUN if len(example.schedule.branches) < MAX_DEPTH else 0
        ours, theirs = Pipe()
        try:
            code = tuple(self._covered)[entry.item.known :]
            entry.item.connection.send(PlayRequest(example, fork_points, self._archive.known_features, code))
            send_handle(entry.item.connection, theirs.fileno(), None)
        except DISCONNECTED:
            self._archive.drop(entry)
            entry.item.connection.close()
            return None
        finally:
            theirs.close()
        with contextlib.closing(ours):
            return self._receive(ours, example)

    def _drop_fork_points(self) -> None:
        self._close_all(self._archive.clear())

    def _receive(self, connection: Connection, example: Example) -> PlayedRun:
        """Waits for the run, and archives its fork points."""
        fork_points: list[WaitingProcess] = []
        try:
            run = self._await_run(connection, example, fork_points)
            if isinstance(run, FinishedPlay):
                while fork_points:
                    self._archive_fork_point(fork_points.pop(0), run)
            return run
        finally:
            self._close_all(fork_points)  # the run did not end normally

    def _await_run(self, connection: Connection, example: Example, fork_points: list[WaitingProcess]) -> PlayedRun:
        """Waits for the run and returns it. Adds its fork points to ``fork_points``."""
        deadline = time.monotonic() + self._patience
        try:
            while True:
                if not connection.poll(max(0.0, deadline - time.monotonic())):
                    return self._replace_endless()
                answer = connection.recv()
                if not isinstance(answer, ForkPoint):
                    break
                fork_points.append(WaitingProcess(answer, Connection(recv_handle(connection)), len(self._covered)))
        except (EOFError, OSError):  # OSError: in the middle of a message
            return self._replace_dead(example)
        self._deaths = 0
        self._covered |= dict.fromkeys(sorted(answer.code, key=str))
        if isinstance(answer, FailedPlay):
            # Played again in this process, the run raises its exception here, or leaves a folder that shows it.
            return replace(self._player.play(example), code=answer.code)
        assert isinstance(answer, FinishedPlay)
        self._archive.record_visits(answer.features)
        self.cpu_seconds += answer.seconds
        return answer

    def _archive_fork_point(self, waiting: WaitingProcess, run: FinishedPlay) -> None:
        fork_point = waiting.fork_point
        favour = TURNING_POINT_FACTOR if fork_point.event in self._turning_points else 1.0
        self._close_all(
            self._archive.add(waiting, fork_point.features, favour, 1 + run.event_count - fork_point.event_count)
        )

    def _close_all(self, waiting: Iterable[WaitingProcess]) -> None:
        for process in waiting:
            process.connection.close()

    def _replace_endless(self) -> PlayOutcome:
        """Kills a run that takes too long, because its code may never wait. Returns its outcome."""
        self._restart()
        return make_outcome_without_history(ENDLESS)

    def _replace_dead(self, example: Example) -> PlayOutcome:
        """Starts a new fork server, unless too many died in a row. Returns the outcome of the run."""
        self._deaths += 1
        if self._deaths >= MAX_DEATHS:
            parts = SystemParts.of(self._player.experiment.system)
            played = "\n  ".join((f"seed {example.seed}", *example.lines(parts)))
            raise ForkServerError(
                f"each process that played one of {MAX_DEATHS} examples died (is memory used up?), the last of:\n"
                f"  {played}"
            )
        self._restart()
        return make_outcome_without_history(DIED)

    def _restart(self) -> None:
        """Replaces the fork server; all fork points are lost with the old one."""
        self._drop_fork_points()
        self._server.close()
        try:
            self._server, self._server_knows = self._supervisor.start(), 0
        except DISCONNECTED as error:
            raise ForkServerError(f"the supervisor of the fork servers is gone: {error}") from error

    def _judge_all(self, runs: Sequence[PlayedRun]) -> list[PlayOutcome]:
        played = [run for run in runs if isinstance(run, FinishedPlay)]
        features = [RunFeatures.of(run.columns) for run in played]
        outcomes = map(_add_code, played, features, self._judge(played, features))
        judged = [run if isinstance(run, PlayOutcome) else next(outcomes) for run in runs]
        doubtful = [
            run.example
            for run, outcome in zip(runs, judged, strict=True)
            if isinstance(run, FinishedPlay) and outcome.verdict == Verdict.UNKNOWN
        ]
        self._archive.disfavour(lambda waiting: waiting.fork_point.example in doubtful, UNKNOWN_FACTOR)
        return judged

    def _judge(self, played: Sequence[FinishedPlay], features: Sequence[RunFeatures]) -> list[Judgement]:
        player = self._player
        system = with_defect(player.experiment.system, player.base.defect)
        runs = []
        for run, found in zip(played, features, strict=True):
            variant = apply_settings(system, run.example.configuration)
            contract = complete_contract(player.experiment.contract, variant)
            # Some steps may be left out because their events never came, but a run without any fault proves nothing.
            idle = () if found.injected or not run.example.schedule.all_steps else ("no fault of it was injected",)
            runs.append(UnjudgedRun(InMemoryHistoryReader(run.columns), contract, (*run.notes, *idle)))
        return judge_together(runs, player.engines, player.registry)


def _has_last_failed(played: Sequence[PlayedRun]) -> bool:
    """Returns whether the last run certainly failed. Then it is judged before the next run is played."""
    return bool(played) and isinstance(played[-1], FinishedPlay) and played[-1].certainly_failed


def _add_code(run: FinishedPlay, features: RunFeatures, judgement: Judgement) -> PlayOutcome:
    return replace(to_outcome(judgement, run.problem, run.digest, features), code=run.code)
