"""Search for a failing run: batches of examples drawn by Hypothesis, steered by a corpus.

The corpus holds the examples that reached new features, or new code of the system. The steps of a search:

1. Hypothesis draws a batch. The corpus does not change during a batch, because Hypothesis must draw the same examples
   again from the same choices when it shrinks.
2. All examples of the batch are played and judged together. Then branches of played runs follow.
3. Hypothesis shrinks the first failure for a limited time. Then delta debugging shrinks it further.
4. The result is played twice more, to verify that the history is identical. It is also played with other seeds, to
   estimate how often it fails.

All choices come from one seed, so the search is repeatable, with two exceptions. The clock may end it, and Hypothesis
also draws from the constants in the code of loaded modules.
"""

import itertools
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, Protocol, runtime_checkable

import msgspec
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from assay.harness.core.failure_rate import MOST_REPETITIONS, FailureRate
from assay.harness.run.attempt import ReportPolicy
from assay.harness.run.settings import Budget, derive_seed
from assay.harness.search.branch_faults import draw_branch_steps
from assay.harness.search.code_coverage.counter import CodePlace
from assay.harness.search.example import Example
from assay.harness.search.fork_player import DrawSteps
from assay.harness.search.fork_server import ForkPoint
from assay.harness.search.player import DIED, ENDLESS, PlayOutcome
from assay.harness.search.shrink import OutOfTime, minimise
from assay.harness.search.strategies import SearchSpace, draw_example
from assay.nemesis.schedule.schedule import FaultStep

BATCH: Final = 20
"""Maximum number of examples of a batch."""
FIRST_PORTIONS: Final = (1, 4)
"""Sizes of the first portions of the first batch. They are judged on their own, to find frequent failures early."""
BRANCHES_PER_BATCH: Final = 60
"""Maximum number of branches played after each batch."""
MOST_IDLE: Final = 10
"""The search ends after this many batches in a row without a new example."""
SHRINK_SECONDS: Final = 45.0
"""Seconds for shrinking by Hypothesis."""
MINIMISE_SECONDS: Final = 120.0
"""Seconds for delta debugging afterwards."""
RATE_RUNS: Final = 20
"""Number of other seeds with which the result is played."""


@dataclass
class FoundFailure:
    """A failure, shrunk or being shrunk. ``identical``: the histories of two more plays had the same ``digest``."""

    example: Example
    outcome: PlayOutcome
    rate: FailureRate | None
    """How often it fails with other seeds; None: not tried yet."""
    identical: bool
    finished: bool
    """Whether the shrinking was completed in time."""
    first: Example
    """The example before it was shrunk."""
    after: float
    """Seconds from the start of the search to the first failure."""
    examples: int
    """Number of examples played until the first failure."""
    plays: int = 0
    """Number of runs that the shrinking took."""


@dataclass
class Tally:
    """Counts of a search."""

    examples: int = 0
    states: int = 0
    """Number of features that were reached."""
    lines: int = 0
    """Lines of the system that were reached; 0 if they are not counted."""
    branches: int = 0
    corpus: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        code = f", {self.lines} lines and {self.branches} branches of the system" if self.lines else ""
        return (
            f"{self.examples} examples in {self.seconds:.0f} s ({verdicts or 'none ended'}); "
            f"{self.states} states reached{code}, {self.corpus} examples in the corpus"
        )


class _Failing(Exception):
    """Reports to Hypothesis that the example fails."""


class ExamplePlayer(Protocol):
    """Player of an explorer: ``Player``, or the faster ``ForkPlayer``."""

    def play(self, example: Example, *, reports: ReportPolicy = ReportPolicy.NEVER) -> PlayOutcome: ...

    def play_all(self, examples: Sequence[Example], enough: Callable[[], bool]) -> list[PlayOutcome]: ...


@runtime_checkable
class SupportsBranching(Protocol):
    """A player that can branch from runs that it has played."""

    def branch(
        self, rng: Random, draw_steps: DrawSteps, count: int, enough: Callable[[], bool]
    ) -> list[tuple[Example, PlayOutcome]]: ...


def _make_example_key(example: Example) -> bytes:
    return msgspec.json.encode(example)


class Explorer:
    """Search in one process. ``note`` receives progress lines; ``clock`` returns wall-clock seconds."""

    def __init__(
        self,
        player: ExamplePlayer,
        space: SearchSpace,
        budget: Budget,
        *,
        note: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._player = player
        self._space = space
        self._budget = budget
        self._note = note
        self._clock = clock
        self._began = self._failed_at = clock()
        self.on_found: Callable[[FoundFailure], None] = lambda found: None
        """Called with the first failure as it was drawn, then with each smaller one."""
        self.on_endless: Callable[[Example], None] = lambda example: None
        """Called with each example that did not end."""
        self.on_died: Callable[[Example], None] = lambda example: None
        """Called with each example whose playing process died."""
        self.on_progress: Callable[[Tally], None] = lambda tally: None
        self._corpus: list[Example] = []
        self.reached: Counter[str] = Counter()
        """Each feature, with the number of examples that reached it."""
        self.code: set[CodePlace] = set()
        """Each line and branch of the system that an example reached."""
        self._events: set[str] = set()
        self._outcomes: dict[bytes, PlayOutcome] = {}
        """The outcomes of all examples played, by :func:`_make_example_key`."""
        self._plays_before = 0
        """The number of examples played until the first failure."""
        self.tally = Tally()

    def run(self) -> FoundFailure | None:
        """Searches until a run fails, and returns this failure, shrunk.

        Returns None if the budget is used up, or no new examples can be drawn.
        """
        number = idle = 0
        try:
            while not self._is_over() and idle < MOST_IDLE:
                number += 1
                before = self.tally.examples
                failing = self._play_batch(number) or self._play_branches(number)
                if failing is not None:
                    return self._shrink(*failing)
                idle = 0 if self.tally.examples > before else idle + 1
        finally:
            self.tally.seconds = self._clock() - self._began
        return None

    def _is_over(self) -> bool:
        limit = self._budget.seconds
        if limit is not None and self._clock() - self._began >= limit:
            return True
        return self._budget.examples is not None and self.tally.examples >= self._budget.examples

    def _limit_examples(self, most: int) -> int:
        """Returns how many examples may still be played, at most ``most``."""
        limit = self._budget.examples
        return most if limit is None else min(most, limit - self.tally.examples)

    def _play_batch(self, number: int) -> tuple[Example, Example] | None:
        """Plays a batch. Returns its first failing example and the one that Hypothesis shrank it to, or None.

        All examples are drawn first, then played and judged together. Hypothesis draws them again, and shrinks, only if
        one fails.
        """
        drawing = draw_example(replace(self._space, events=tuple(sorted(self._events))), tuple(self._corpus))
        drawn: dict[bytes, Example] = {}

        def take(example: Example) -> None:
            drawn.setdefault(_make_example_key(example), example)

        self._draw(number, drawing, take, Phase.generate)
        new = [example for key, example in drawn.items() if key not in self._outcomes][: self._limit_examples(BATCH)]
        for portion in _split_batch(new, FIRST_PORTIONS if number == 1 else ()):
            first = self._learn_all(zip(portion, self._player.play_all(portion, self._is_over), strict=False))
            if first is not None:
                return self._shrink_by_hypothesis(number, drawing, first)
        return None

    def _play_branches(self, number: int) -> tuple[Example, Example] | None:
        """Plays branches of earlier runs. Returns the first failing example, or None.

        The example is returned twice, in the form of :meth:`_play_batch`, because Hypothesis shrinks no branches.
        """
        if not isinstance(self._player, SupportsBranching) or self._is_over():
            return None
        rng = Random(derive_seed(self._space.base.seed, "branches", number))
        first = self._learn_all(
            self._player.branch(rng, self._draw_branch_steps, self._limit_examples(BRANCHES_PER_BATCH), self._is_over)
        )
        return None if first is None else (first, first)

    def _draw_branch_steps(self, rng: Random, fork_point: ForkPoint) -> Sequence[FaultStep]:
        return draw_branch_steps(rng, fork_point, replace(self._space, events=tuple(sorted(self._events))))

    def _learn_all(self, played: Iterable[tuple[Example, PlayOutcome]]) -> Example | None:
        """Adds runs to the corpus and the tally, and returns the first example that failed."""
        first = None
        for example, outcome in played:
            self._record(example, outcome)
            self._learn(example, outcome)
            if outcome.failures and first is None:
                first = example
        if first is not None:
            self._failed_at, self._plays_before = self._clock(), len(self._outcomes)
            self._report(first, first)
            self._note(f"fails with {', '.join(sorted(self._outcomes[_make_example_key(first)].failures))}; shrinking")
        return first

    def _shrink_by_hypothesis(
        self, number: int, drawing: SearchStrategy[Example], first: Example
    ) -> tuple[Example, Example]:
        """Returns the failing example before and after shrinking. ``number``: of the batch, which is drawn again."""
        wanted = self._outcomes[_make_example_key(first)].failures
        failing = [first]

        def shrink(example: Example) -> None:
            known = self._outcomes.get(_make_example_key(example))
            if known is None:
                if self._clock() - self._failed_at > SHRINK_SECONDS:
                    return  # the time is up; only examples that are known to fail still count
                known = self._record(example, self._player.play(example))
            if known.failures & wanted:
                failing.append(example)
                self._report(first, example)
                raise _Failing

        try:
            self._draw(number, drawing, shrink, Phase.generate, Phase.shrink)
        except _Failing:
            return first, failing[-1]
        except Flaky:  # raised because an example that failed before now counts as passing: the time was up
            return first, min(failing, key=lambda example: len(example.schedule.all_steps))
        return first, first

    def _draw(
        self, number: int, drawing: SearchStrategy[Example], take: Callable[[Example], None], *phases: Phase
    ) -> None:
        """Calls ``take`` with the examples of a batch, which are the same each time."""

        @seed(derive_seed(self._space.base.seed, "explore", number))
        @settings(
            max_examples=BATCH,
            phases=phases,
            database=None,
            deadline=None,
            print_blob=False,
            report_multiple_bugs=False,
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        )
        @given(drawing)
        def batch(example: Example) -> None:
            take(example)

        batch()

    def _record(self, example: Example, outcome: PlayOutcome) -> PlayOutcome:
        self._outcomes[_make_example_key(example)] = outcome
        if outcome.verdict == ENDLESS:
            self._note(f"seed {example.seed} did not end; the search goes on without it")
            self.on_endless(example)
        elif outcome.verdict == DIED:
            self._note(f"the process that played seed {example.seed} died; the search goes on with another one")
            self.on_died(example)
        return outcome

    def _learn(self, example: Example, outcome: PlayOutcome) -> None:
        """Counts a run, and adds its example to the corpus if it reached something new."""
        self.tally.examples += 1
        self.tally.verdicts[outcome.verdict] = self.tally.verdicts.get(outcome.verdict, 0) + 1
        self._events |= outcome.events
        if outcome.states - self.reached.keys() or outcome.code:
            self._corpus.append(example.keep_steps(outcome.injected))
        self.reached.update(outcome.states)
        self.code |= outcome.code
        self.tally.states, self.tally.corpus = len(self.reached), len(self._corpus)
        self.tally.lines = sum(place.branch is None for place in self.code)
        self.tally.branches = len(self.code) - self.tally.lines
        self.tally.seconds = self._clock() - self._began
        self.on_progress(self.tally)

    def _report(self, first: Example, example: Example) -> None:
        """Reports a failure during the shrinking, which may be interrupted."""
        after, outcome = self._failed_at - self._began, self._outcomes[_make_example_key(example)]
        self.on_found(FoundFailure(example, outcome, None, False, False, first, after, self.tally.examples))

    def _shrink(self, first: Example, example: Example) -> FoundFailure:
        after, number = self._failed_at - self._began, self.tally.examples
        wanted = self._outcomes[_make_example_key(first)].failures
        rate = self._estimate_rate(example, wanted, MOST_REPETITIONS // 2)
        self._note(f"{len(example.schedule.all_steps)} steps after Hypothesis; with other seeds it fails {rate}")
        deadline = self._clock() + MINIMISE_SECONDS

        def reproduce(candidate: Example, repetitions: int) -> Example | None:
            for turn in range(repetitions):
                if self._clock() > deadline:
                    raise OutOfTime
                again = with_other_seed(candidate, turn)
                if self._find_failures(again) & wanted:
                    self._report(first, again)
                    return again
            return None

        smallest, finished = minimise(example, min(8, rate.count_repetitions()), reproduce)
        small = smallest.require_triggers()
        if not self._find_failures(small) & wanted:
            small = smallest
        rate = self._estimate_rate(small, wanted, RATE_RUNS)
        digests = [self._player.play(small).digest for _ in range(2)]
        outcome = self._player.play(small, reports=ReportPolicy.FAILED)
        identical, plays = digests == [outcome.digest] * 2, len(self._outcomes) - self._plays_before
        if not outcome.failures:  # not deterministic: report the failures seen before
            outcome = replace(outcome, failures=self._outcomes[_make_example_key(smallest)].failures)
        return FoundFailure(small, outcome, rate, identical, finished, first, after, number, plays)

    def _find_failures(self, example: Example) -> frozenset[str]:
        key = _make_example_key(example)
        if key not in self._outcomes:
            outcome = self._record(example, self._player.play(example))
            if outcome.folder is not None:
                shutil.rmtree(outcome.folder, ignore_errors=True)
        return self._outcomes[key].failures

    def _estimate_rate(self, example: Example, wanted: frozenset[str], runs: int) -> FailureRate:
        """Estimates how often the example fails with other seeds."""
        failed = sum(bool(self._find_failures(with_other_seed(example, turn)) & wanted) for turn in range(1, runs + 1))
        return FailureRate(failed, runs)


def with_other_seed(example: Example, turn: int) -> Example:
    """Returns the example with another seed, by ``turn``; turn 0 keeps its own seed."""
    return (
        example
        if turn == 0
        else msgspec.structs.replace(example, seed=derive_seed(example.seed, "again", turn) % 2**32)
    )


def _split_batch(drawn: Sequence[Example], sizes: Sequence[int]) -> Iterator[Sequence[Example]]:
    """Yields portions of these sizes, then the remaining examples. Empty portions are left out."""
    bounds = [0, *itertools.accumulate(sizes), max(len(drawn), sum(sizes))]
    yield from (drawn[low:high] for low, high in itertools.pairwise(bounds) if low < min(high, len(drawn)))
