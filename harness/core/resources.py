"""``resources.json``: the memory and the disk space that a run used over time, in a bounded number of samples.

When a series has :data:`MOST_SAMPLES`, every second sample is dropped, and the interval doubles. So a run of eight
hours has as many samples as one of ten minutes, and all of them are evenly spaced.
"""

from typing import Final

import msgspec

FILE: Final = "resources.json"
HARNESS: Final = "harness"
"""Name of the harness's series of memory."""
RUN: Final = "run"
"""Name of the series of disk space that the run's folder uses."""
FIRST_INTERVAL: Final = 2.0
"""Seconds between the first samples."""
MOST_SAMPLES: Final = 400

Samples = list[tuple[float, int]]
"""Pairs of seconds since the run began, and bytes."""


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the file: samples by node. ``memory`` also has the harness, and ``disk`` the run's folder.

    Each node has the resident memory of its processes, and the space that the system's data folder occupies.
    """

    memory: dict[str, Samples] = {}
    disk: dict[str, Samples] = {}


class SampleSeries:
    """Samples of one value. ``interval``: the current number of seconds between two samples."""

    def __init__(self) -> None:
        self.interval = FIRST_INTERVAL
        self.samples: Samples = []

    def is_due(self, now: float) -> bool:
        return not self.samples or now - self.samples[-1][0] >= self.interval

    def add(self, now: float, value: int) -> None:
        self.samples.append((round(now, 3), value))
        if len(self.samples) > MOST_SAMPLES:
            del self.samples[1::2]
            self.interval *= 2
