"""Plays examples in the simulation, in this process. Only runs with failures leave a folder."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from assay.checkers.engine import Engines
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.run.attempt import Attempt, InfrastructureError, ReportPolicy
from assay.harness.run.experiment import Experiment
from assay.harness.run.observers import CRASHED
from assay.harness.run.registry import Registry
from assay.harness.run.settings import Settings
from assay.harness.search.code_coverage.counter import CodePlace
from assay.harness.search.coverage_features import RunFeatures
from assay.harness.search.example import Example

CRASH = "crash"
"""A process of the system ended by an exception. Contracts need not forbid it."""
NOT_STARTED = "not-started"
"""The system could not be started. It is a failure of its own, so that a crash is not shrunk to a cluster too small to
start.
"""

ENDLESS = "endless"
"""Stands for a verdict if the run did not end and was killed."""
DIED = "died"
"""Stands for a verdict if the process that played the run died."""


@dataclass(frozen=True)
class PlayOutcome:
    """Result of playing one example.

    - ``failures``: names of the forbidden anomalies found, and ``crash`` or ``not-started``
    - ``digest``: the digest of the history
    - ``states``: the features that the run reached; ``events``: the event names in its logs (see ``RunFeatures``)
    - ``injected``: the numbers, from 1, of the steps that were injected
    - ``folder``: the folder of the run, kept only if there are failures
    - ``text``: the report of a failure, or the error of a run that did not start
    - ``problem``: the errors around the run, such as crashes, as one text
    - ``code``: lines and branches of the system that this run was the first to reach, if they are counted
    """

    verdict: str
    failures: frozenset[str]
    digest: str | None
    states: frozenset[str]
    events: frozenset[str]
    injected: frozenset[int]
    folder: Path | None
    text: str | None
    problem: str | None = None
    code: frozenset[CodePlace] = frozenset()


def to_outcome(judgement: Judgement, problem: str | None, digest: str | None, features: RunFeatures) -> PlayOutcome:
    """Returns the outcome of a run that ended, without its folder and text."""
    failures = set(judgement.violations)
    if problem is not None and CRASHED in problem:
        failures.add(CRASH)
    return PlayOutcome(
        verdict=str(judgement.verdict),
        failures=frozenset(failures),
        digest=digest,
        states=features.states,
        events=features.events,
        injected=features.injected,
        folder=None,
        text=None,
        problem=problem,
    )


def make_outcome_without_history(verdict: str) -> PlayOutcome:
    """Returns the outcome of a run without a history."""
    nothing: frozenset[str] = frozenset()
    return PlayOutcome(verdict, nothing, None, nothing, nothing, frozenset(), None, None)


@dataclass
class Player:
    """Plays examples in this process. ``scratch`` takes the schedules; runs go to the store of ``base``."""

    experiment: Experiment
    base: Settings
    scratch: Path
    engines: Engines
    registry: Registry = field(default_factory=Registry.standard)
    played: int = 0

    def play(self, example: Example, *, reports: ReportPolicy = ReportPolicy.NEVER) -> PlayOutcome:
        """Plays one run. Errors of the harness propagate, because they are no finding about the system."""
        self.played += 1
        self.scratch.mkdir(parents=True, exist_ok=True)
        schedule = self.scratch / f"schedule-{self.played}.json"
        settings = example.settings(self.base, schedule)
        attempt = Attempt(
            experiment=self.experiment,
            settings=settings,
            test=f"{self.experiment.name}-explore",
            command="",
            reports=reports,
            engines=self.engines,
            registry=self.registry,
        )
        try:
            attempt.set_up()
            text = attempt.run()
        except InfrastructureError as error:
            return replace(
                make_outcome_without_history("error"),
                failures=frozenset({NOT_STARTED}),
                folder=attempt.folder.path,
                text=str(error),
                problem=str(error),
            )
        finally:
            attempt.tear_down()
        outcome = self._read_outcome(attempt, text)
        if not outcome.failures:
            schedule.unlink()
            shutil.rmtree(attempt.folder.path)
        return outcome

    def play_all(self, examples: Sequence[Example], enough: Callable[[], bool]) -> list[PlayOutcome]:
        """Plays each example once; stops early if ``enough`` returns true."""
        outcomes: list[PlayOutcome] = []
        for example in examples:
            if enough():
                break
            outcomes.append(self.play(example))
        return outcomes

    def _read_outcome(self, attempt: Attempt, text: str | None) -> PlayOutcome:
        judgement = attempt.judgement
        assert judgement is not None, "a run that ended was judged"
        features = RunFeatures.of(open_history(attempt.folder.history))
        outcome = to_outcome(judgement, attempt.problem, attempt.digest, features)
        return replace(
            outcome,
            folder=attempt.folder.path if outcome.failures else None,
            text=text if judgement.verdict is Verdict.FAIL else None,
        )
