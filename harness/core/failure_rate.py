"""Failure probability of a test, estimated from repetitions."""

import math
from dataclasses import dataclass
from typing import Final

MISS_PROBABILITY: Final = 0.05
"""Accepted probability that no repetition fails."""
MOST_REPETITIONS: Final = 20
"""Maximum number of repetitions that :meth:`FailureRate.count_repetitions` asks for."""
Z: Final = 1.959964
"""The standard score of a 95 % confidence interval."""


@dataclass(frozen=True)
class FailureRate:
    failed: int
    runs: int

    @property
    def probability(self) -> float:
        return self.failed / self.runs if self.runs else 0.0

    def confidence_interval(self) -> tuple[float, float]:
        """Returns the 95 % confidence interval (Wilson 1927)."""
        if not self.runs:
            return 0.0, 1.0
        n, p, z = self.runs, self.probability, Z
        middle, width = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)

    def count_repetitions(self) -> int:
        """Returns how many repetitions are needed to see at least one failure with a probability of 95 %."""
        if self.probability >= 1:
            return 1
        if self.probability <= 0:
            return MOST_REPETITIONS
        return min(MOST_REPETITIONS, math.ceil(math.log(MISS_PROBABILITY) / math.log(1 - self.probability)))

    def __str__(self) -> str:
        return f"{self.failed} of {self.runs} times (95 % confidence interval: {self._format_interval()})"

    def format_brief(self) -> str:
        return f"{self.failed} of {self.runs} ({self._format_interval()})"

    def _format_interval(self) -> str:
        low, high = self.confidence_interval()
        return f"{100 * low:.0f}-{100 * high:.0f} %"
