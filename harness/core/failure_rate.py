"""Failure probability of a test, estimated from repetitions."""

import math
from dataclasses import dataclass
from typing import Final

CERTAINTY: Final = 0.05
MOST_REPETITIONS: Final = 20
CONFIDENCE: Final = 1.959964
"""Standard deviations of a 95 % interval."""


@dataclass(frozen=True)
class FailureRate:
    """Failures among a number of runs."""

    failed: int
    of: int

    @property
    def probability(self) -> float:
        return self.failed / self.of if self.of else 0.0

    def interval(self) -> tuple[float, float]:
        """Returns the 95 % confidence interval (Wilson 1927)."""
        if not self.of:
            return 0.0, 1.0
        n, p, z = self.of, self.probability, CONFIDENCE
        middle, width = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)

    def repetitions(self) -> int:
        """Returns how many repetitions are needed to see at least one failure with a probability of 95 %."""
        if self.probability >= 1:
            return 1
        if self.probability <= 0:
            return MOST_REPETITIONS
        return min(MOST_REPETITIONS, math.ceil(math.log(CERTAINTY) / math.log(1 - self.probability)))

    def __str__(self) -> str:
        return f"{self.failed} of {self.of} times (95 % confidence interval: {self._interval_text()})"

    def brief(self) -> str:
        return f"{self.failed} of {self.of} ({self._interval_text()})"

    def _interval_text(self) -> str:
        low, high = self.interval()
        return f"{100 * low:.0f}-{100 * high:.0f} %"
