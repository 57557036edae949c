"""All checks of workloads, with the anomalies that they can find."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from assay.checkers.judging.verdict import Judgement
from assay.checkers.workload_checks import counters, kafka, phenomena, rows, visibility
from assay.checkers.workload_checks.workload_result import ALWAYS, NO_FIELDS, Fields, WorkloadAnomaly, WorkloadResult
from assay.harness.core.operation import Completed


@dataclass(frozen=True)
class WorkloadCheck:
    """A check of one workload, with the anomalies that it can find.

    ``check`` takes operations, further fields of their completions, and ``strict``: whether the history must also keep
    what the original checker does not ask for (``--linearizable``).
    """

    check: Callable[[Sequence[Completed], Fields, bool], WorkloadResult]
    anomalies: Mapping[str, WorkloadAnomaly]

    @property
    def meanings(self) -> Mapping[str, str]:
        """The meaning of each anomaly."""
        return {name: one.meaning for name, one in self.anomalies.items()}

    def judge(self, operations: Sequence[Completed], fields: Fields = NO_FIELDS, *, strict: bool = False) -> Judgement:
        """Judges operations whose values are plain JSON. Raises ``HistoryError`` for values that it cannot use."""
        begun = time.perf_counter()
        result = self.check(operations, fields, strict)
        return result.to_judgement(len(operations), self.anomalies, time.perf_counter() - begun)


CHECKS: Final[Mapping[str, WorkloadCheck]] = {
    "counter": WorkloadCheck(
        lambda done, fields, strict: counters.check_bounds(done),
        {
            counters.OUT_OF_BOUNDS: WorkloadAnomaly(
                "a counter was read below its certain sum, or above its possible sum",
                "acknowledged adds of another amount than 0",
                "if a read that was called later would be out of bounds without the add",
            )
        },
    ),
    "final-sum": WorkloadCheck(
        lambda done, fields, strict: counters.check_final_sums(done),
        {
            counters.WRONG_SUM: WorkloadAnomaly(
                "a final read of a counter is no sum of the certain and some possible adds",
                "acknowledged adds of another amount than 0",
                "if a final read would be no possible sum without the add",
            )
        },
    ),
    "kafka": WorkloadCheck(kafka.check_kafka, kafka.ANOMALIES),
    "causal-reverse": WorkloadCheck(
        lambda done, fields, strict: visibility.check_causal_reverse(done),
        {
            visibility.CAUSAL_REVERSE: WorkloadAnomaly(
                "a read shows a write, but not one that was acknowledged before its call",
                "reads that show a written value",
                "if another write had been acknowledged before the write of a shown value was called",
            ),
            visibility.FAILED_WRITE: WorkloadAnomaly(
                "a read shows a value whose write failed",
                "values whose writes failed",
                "if a read returned after the failed write was called",
            ),
            visibility.UNWRITTEN: WorkloadAnomaly(
                "a read shows a value that no write can have left by then", "reads of objects that were written", ALWAYS
            ),
        },
    ),
    "sequential": WorkloadCheck(
        lambda done, fields, strict: visibility.check_sequential(done),
        {
            visibility.NONSEQUENTIAL: WorkloadAnomaly(
                "a read found a later insert of a process, and then not an earlier one",
                "reads that found a part of a series",
                "if the series has an earlier part than the first that was found",
            )
        },
    ),
    "causal": WorkloadCheck(
        lambda done, fields, strict: visibility.check_causal(done, fields),
        {
            visibility.NONCAUSAL: WorkloadAnomaly(
                "an operation contradicts the causal order of its register",
                "reads that returned a value",
                "if a value other than the initial one had been written or read before",
            )
        },
    ),
    "rows": WorkloadCheck(rows.check_rows, rows.ANOMALIES),
    "dirty-reads": WorkloadCheck(
        lambda done, fields, strict: phenomena.check_dirty_reads(done), phenomena.DIRTY_READ_ANOMALIES
    ),
    "g2": WorkloadCheck(
        lambda done, fields, strict: phenomena.check_predicate_inserts(done), phenomena.PREDICATE_INSERT_ANOMALIES
    ),
}
"""The checks by name. ``harness.stored.workload_table`` names the check of each workload."""


def list_anomalies() -> dict[str, WorkloadAnomaly]:
    """Returns all anomalies of workloads by name, with their claims."""
    return {name: one for check in CHECKS.values() for name, one in check.anomalies.items()}
