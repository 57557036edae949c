"""All checks of workloads, with the anomalies that they can find."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from assay.checkers.judging.verdict import Judgement
from assay.checkers.workload_checks import counters, kafka, phenomena, visibility
from assay.checkers.workload_checks.answer import Answer
from assay.harness.core.operation import Completed


@dataclass(frozen=True)
class WorkloadCheck:
    """A check of one workload. ``meanings``: the anomalies that it can find, each with a clause."""

    check: Callable[[Sequence[Completed]], Answer]
    meanings: Mapping[str, str]

    def judge(self, operations: Sequence[Completed]) -> Judgement:
        """Judges operations whose values are plain JSON. Raises ``HistoryError`` for values that it cannot use."""
        begun = time.perf_counter()
        answer = self.check(operations)
        return answer.to_judgement(len(operations), self.meanings, time.perf_counter() - begun)


CHECKS: Final[Mapping[str, WorkloadCheck]] = {
    "counter": WorkloadCheck(
        counters.check_bounds,
        {counters.OUT_OF_BOUNDS: "a counter was read below its certain sum, or above its possible sum"},
    ),
    "final-sum": WorkloadCheck(
        counters.check_final_sums,
        {counters.WRONG_SUM: "a final read of a counter is no sum of the certain and some possible adds"},
    ),
    "kafka": WorkloadCheck(kafka.check_kafka, kafka.MEANINGS),
    "causal-reverse": WorkloadCheck(
        visibility.check_causal_reverse,
        {visibility.CAUSAL_REVERSE: "a read shows a write, but not one that was acknowledged before its call"},
    ),
    "sequential": WorkloadCheck(
        visibility.check_sequential,
        {visibility.NONSEQUENTIAL: "a read found a later insert of a process, and then not an earlier one"},
    ),
    "causal": WorkloadCheck(
        visibility.check_causal,
        {visibility.NONCAUSAL: "an operation contradicts the causal order of its register"},
    ),
    "dirty-reads": WorkloadCheck(
        phenomena.check_dirty_reads,
        {
            phenomena.DIRTY_READ: "a value was read whose write failed, or which no strong read has",
            phenomena.LOST_INSERT: "an acknowledged value is in no strong read",
            phenomena.DIVERGED: "strong reads disagree",
        },
    ),
    "g2": WorkloadCheck(
        phenomena.check_predicate_inserts,
        {phenomena.PREDICATE_SKEW: "two inserts succeeded, although each one excludes the other by a predicate"},
    ),
}
"""The checks by the name of their question."""
