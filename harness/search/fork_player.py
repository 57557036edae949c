"""Plays examples in a fork server and judges them here, without any file on disk.

Its outcomes equal those of :class:`~assay.harness.search.player.Player`. That one plays in this process, keeps the run
in a folder, and is used for every run that is shown to a person.
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
from assay.harness.run.systems import apply_settings, complete_contract, with_defect
from assay.harness.search.archive import Archive, ArchiveEntry
from assay.harness.search.code_coverage.counter import CodePlace, CoverageCounter
from assay.harness.search.code_coverage.source import SourceModule
from assay.harness.search.coverage_features import RunFeatures
from assay.harness.search.example import Example
from assay.harness.search.fork_server import FailedPlay, FinishedPlay, ForkServer, Moment, PlayRequest
from assay.harness.search.fork_supervisor import ForkSupervisor
from assay.harness.search.player import DIED, ENDLESS, Player, PlayOutcome, make_outcome, make_outcome_without_history
from assay.nemesis.schedule.schedule import Branch, FaultStep

MOMENTS: Final = 6
"""Moments of one run at most."""
FAVOUR: Final = 4.0
"""Factor on the weight of a moment with a turning point of the system."""
DOUBTFUL: Final = 0.25
"""Factor on the weight of the moments of a run judged unknown. Such a run is mostly so broken that its branches show
nothing either.
"""
DEPTH: Final = 2
"""Branches of a run at most, each from the one before."""

PATIENCE: Final = 120.0
"""Real seconds that a run may take. Most take a few; a longer one is considered endless."""
DEATHS: Final = 5
"""Processes that may die in a row, each with another run. More deaths have another cause, such as lack of memory."""

Further = Callable[[Random, Moment], Sequence[FaultStep]]
"""Draws the faults of a branch that starts at the moment."""


@dataclass(frozen=True)
class WaitingProcess:
    """A process that waits at a moment; closing the connection ends it."""

    moment: Moment
    connection: Connection
    known: int
    """How many places of the code coverage, in the order of discovery, the process knows."""


class ForkServerError(Exception):
    """No process can play: each new one died, or none can be started."""


class ForkPlayer:
    """Plays examples in a fork server, from construction until ``close``. It is not thread-safe.

    Lines and branches of ``modules`` are counted. A run that takes longer than ``patience`` seconds is killed, with all
    moments of its process. If the process dies by itself, a new one plays the next example.
    """

    def __init__(
        self, player: Player, *, modules: Sequence[SourceModule] = (), uniform: bool = False, patience: float = PATIENCE
    ) -> None:
        self._player = player
        self._patience = patience
        system = player.experiment.deployed_system()
        self._turning_points = frozenset(system.turning_points if isinstance(system, SupportsTurningPoints) else ())
        self._stages = ForkSupervisor(
            lambda end: ForkServer(
                player.experiment, player.base, player.registry, end, CoverageCounter(modules) if modules else None
            )
        )
        self._stage = self._stages.start()
        self._archive: Archive[WaitingProcess] = Archive(uniform=uniform)
        self._code: dict[CodePlace, None] = {}
        """Lines and branches that were reached, in the order of discovery by this process."""
        self._stage_knows = 0
        """How many of them the fork server knows."""
        self._deaths = 0
        """Processes that died in a row."""
        self.seconds = 0.0
        """Processor seconds that the runs took in other processes."""

    def close(self) -> None:
        """Ends all processes. Idempotent."""
        self._leave_no_more()
        self._stage.close()
        self._stages.close()

    def play(self, example: Example, *, reports: ReportPolicy = ReportPolicy.NEVER) -> PlayOutcome:
        """Plays one example. With reports it is played in this process, and its folder is kept if it fails."""
        if reports is not ReportPolicy.NEVER:
            return self._player.play(example, reports=reports)
        self._order(example)
        (outcome,) = self._judged([self._answer(self._stage, example)])
        return outcome

    def play_all(self, examples: Sequence[Example], enough: Callable[[], bool]) -> list[PlayOutcome]:
        """Plays each example once and judges the runs together. The search may branch from them later.

        It stops early if ``enough`` returns true or a run is alarming.
        """
        played: list[FinishedPlay | PlayOutcome] = []
        for example in examples:
            if enough() or _is_last_alarming(played):
                break
            self._order(example, MOMENTS, self._archive.known)
            played.append(self._answer(self._stage, example))
        return self._judged(played)

    def branch(
        self, chance: Random, further: Further, count: int, enough: Callable[[], bool]
    ) -> list[tuple[Example, PlayOutcome]]:
        """Plays ``count`` branches of earlier runs and judges them together.

        It stops early if no moment is left, ``enough`` returns true or a run is alarming.
        """
        examples: list[Example] = []
        played: list[FinishedPlay | PlayOutcome] = []
        while len(played) < count and not enough() and not _is_last_alarming(played):
            kept = self._archive.choose(chance)
            if kept is None:
                break
            example = self._left(kept, chance, further)
            run = self._go_on(kept, example)
            if run is not None:
                examples.append(example)
                played.append(run)
        return list(zip(examples, self._judged(played), strict=True))

    def _order(self, example: Example, moments: int = 0, known: frozenset[str] = frozenset()) -> None:
        """Sends the order to play an example from its start."""
        try:
            self._send(example, moments, known)
        except OSError:  # the process died while it was idle
            self._start_again()
            self._send(example, moments, known)

    def _send(self, example: Example, moments: int, known: frozenset[str]) -> None:
        self._stage.send(PlayRequest(example, moments, known, tuple(self._code)[self._stage_knows :]))
        self._stage_knows = len(self._code)

    def _left(self, kept: ArchiveEntry[WaitingProcess], chance: Random, further: Further) -> Example:
        moment = kept.moment.moment
        steps = further(chance, moment)
        return moment.example.branching(Branch(moment.at, chance.getrandbits(32), tuple(steps)))

    def _go_on(self, kept: ArchiveEntry[WaitingProcess], example: Example) -> FinishedPlay | PlayOutcome | None:
        """Plays a branch. Returns None if the process of the moment is gone; the moment is dropped then."""
        moments = MOMENTS if len(example.schedule.branches) < DEPTH else 0
        ours, theirs = Pipe()
        try:
            code = tuple(self._code)[kept.moment.known :]
            kept.moment.connection.send(PlayRequest(example, moments, self._archive.known, code))
            send_handle(kept.moment.connection, theirs.fileno(), None)
        except OSError:
            self._archive.drop(kept)
            kept.moment.connection.close()
            return None
        finally:
            theirs.close()
        with contextlib.closing(ours):
            return self._answer(ours, example)

    def _leave_no_more(self) -> None:
        self._let_go(self._archive.clear())

    def _answer(self, connection: Connection, example: Example) -> FinishedPlay | PlayOutcome:
        left: list[WaitingProcess] = []
        try:
            run = self._awaited(connection, example, left)
            if isinstance(run, FinishedPlay):
                while left:
                    self._keep(left.pop(0), run)
            return run
        finally:
            self._let_go(left)  # the run did not end normally

    def _awaited(
        self, connection: Connection, example: Example, left: list[WaitingProcess]
    ) -> FinishedPlay | PlayOutcome:
        """Returns the run; its moments go into ``left``."""
        deadline = time.monotonic() + self._patience
        try:
            while True:
                if not connection.poll(max(0.0, deadline - time.monotonic())):
                    return self._endless()
                answer = connection.recv()
                if not isinstance(answer, Moment):
                    break
                left.append(WaitingProcess(answer, Connection(recv_handle(connection)), len(self._code)))
        except (EOFError, OSError):  # OSError: in the middle of a message
            return self._died(example)
        self._deaths = 0
        self._code |= dict.fromkeys(sorted(answer.code, key=str))
        if isinstance(answer, FailedPlay):
            # Playing it here raises the exception in this process, or leaves a folder that shows it.
            return replace(self._player.play(example), code=answer.code)
        assert isinstance(answer, FinishedPlay)
        self._archive.came_through(answer.words)
        self.seconds += answer.seconds
        return answer

    def _keep(self, standing: WaitingProcess, run: FinishedPlay) -> None:
        moment = standing.moment
        favour = FAVOUR if moment.event in self._turning_points else 1.0
        self._let_go(self._archive.add(standing, moment.words, favour, 1 + run.work - moment.work))

    def _let_go(self, gone: Iterable[WaitingProcess]) -> None:
        for standing in gone:
            standing.connection.close()

    def _endless(self) -> PlayOutcome:
        """Kills a run whose code never waits, because nothing else ends it."""
        self._start_again()
        return make_outcome_without_history(ENDLESS)

    def _died(self, example: Example) -> PlayOutcome:
        self._deaths += 1
        if self._deaths >= DEATHS:
            played = "\n  ".join((f"seed {example.seed}", *example.lines()))
            raise ForkServerError(
                f"each process that played one of {DEATHS} examples died (is memory used up?), the last of:\n  {played}"
            )
        self._start_again()
        return make_outcome_without_history(DIED)

    def _start_again(self) -> None:
        """Replaces the fork server; all moments are lost with the old one."""
        self._leave_no_more()
        self._stage.close()
        try:
            self._stage, self._stage_knows = self._stages.start(), 0
        except OSError as error:
            raise ForkServerError(f"the supervisor of the fork servers is gone: {error}") from error

    def _judged(self, runs: Sequence[FinishedPlay | PlayOutcome]) -> list[PlayOutcome]:
        played = [run for run in runs if isinstance(run, FinishedPlay)]
        steerings = [RunFeatures.of(run.columns) for run in played]
        outcomes = map(_make_outcome, played, steerings, self._judge(played, steerings))
        judged = [run if isinstance(run, PlayOutcome) else next(outcomes) for run in runs]
        doubtful = [
            run.example
            for run, outcome in zip(runs, judged, strict=True)
            if isinstance(run, FinishedPlay) and outcome.verdict == Verdict.UNKNOWN
        ]
        self._archive.disfavour(lambda standing: standing.moment.example in doubtful, DOUBTFUL)
        return judged

    def _judge(self, played: Sequence[FinishedPlay], steerings: Sequence[RunFeatures]) -> list[Judgement]:
        player = self._player
        runs = []
        for run, steering in zip(played, steerings, strict=True):
            variant = apply_settings(
                with_defect(player.experiment.system, player.base.defect), run.example.configuration
            )
            contract = complete_contract(player.experiment.contract, variant)
            # Steps that waited in vain do not count, but a run without any injected fault proves nothing.
            idle = () if steering.injected or not run.example.schedule.all_steps else ("no fault of it was injected",)
            runs.append(UnjudgedRun(InMemoryHistoryReader(run.columns), contract, (*run.notes, *idle)))
        return judge_together(runs, player.engines, player.registry)


def _is_last_alarming(played: Sequence[FinishedPlay | PlayOutcome]) -> bool:
    """Returns whether the last run must be judged before others are played."""
    return bool(played) and isinstance(played[-1], FinishedPlay) and played[-1].alarming


def _make_outcome(run: FinishedPlay, steering: RunFeatures, judgement: Judgement) -> PlayOutcome:
    return replace(make_outcome(judgement, run.problem, run.digest, steering), code=run.code)
