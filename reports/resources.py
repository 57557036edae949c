"""Memory and disk space over a run, for its page: lines of the plot, and sentences about growth.

Growth compares the medians of the second and the last quarter of a run. The first quarter counts as warm-up. Medians
are hardly changed by the low values after a restart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from assay.harness.core.resources import HARNESS, MOST_SAMPLES, RUN, Resources, Samples
from assay.reports.leadership import natural_sort_key

MEGABYTE: Final = 1_000_000
HOUR: Final = 3600.0
LEAST_SECONDS: Final = 600.0
"""Minimum length of a run whose growth is stated. In a shorter run most growth is warm-up."""
MOST_LINES: Final = 24
"""Maximum number of lines in a panel, the largest ones."""


@dataclass(frozen=True)
class ResourceLine:
    """The samples of one node, of the harness (``HARNESS``) or of the run's folder (``RUN``).

    ``growth``: MB per hour, if it is known.
    """

    name: str
    samples: Samples
    growth: float | None

    @property
    def label(self) -> str:
        return "run's folder" if self.name == RUN else self.name

    @property
    def most(self) -> float:
        """The largest value, in MB."""
        return max(value for _, value in self.samples) / MEGABYTE


@dataclass(frozen=True)
class ResourceLines:
    """The lines of both panels. ``simulated``: hours are simulated ones."""

    memory: tuple[ResourceLine, ...] = ()
    disk: tuple[ResourceLine, ...] = ()
    simulated: bool = False

    @property
    def sentences(self) -> tuple[str, ...]:
        """Describes the panels: the largest values, and the growth."""
        sentences = [
            f"{title}: {', '.join(map(self._describe, lines))}."
            for title, lines in (("Largest resident memory", self.memory), ("Largest disk space", self.disk))
            if lines
        ]
        if any(one.growth is not None for one in (*self.memory, *self.disk)):
            sentences.append("Growth is that of the median from the second quarter of the run to the last.")
        return tuple(sentences)

    def _describe(self, line: ResourceLine) -> str:
        hour = "simulated hour" if self.simulated else "hour"
        growth = "" if line.growth is None else f" ({line.growth:+,.1f} MB per {hour})"
        most = f"{line.most:,.1f}" if line.most >= 1 else f"{line.most:.2g}"
        return f"{line.label} {most} MB{growth}"


def build_lines(resources: Resources | None, simulated: bool) -> ResourceLines:
    """Returns the lines; none for a run that has not recorded its resources."""
    if resources is None:
        return ResourceLines()
    memory, disk = _build(resources.memory, HARNESS), _build(resources.disk, RUN)
    return ResourceLines(memory, disk, simulated)


def compute_growth(samples: Sequence[tuple[float, int]]) -> float | None:
    """Returns the growth in MB per hour; None for a short run, and if a compared quarter has no samples."""
    if not samples:
        return None
    first, last = samples[0][0], samples[-1][0]
    quarter = (last - first) / 4
    if last - first < LEAST_SECONDS:
        return None
    second = [sample for sample in samples if quarter <= sample[0] - first < 2 * quarter]
    fourth = [sample for sample in samples if sample[0] - first >= 3 * quarter]
    if not second or not fourth:
        return None
    seconds = median(time for time, _ in fourth) - median(time for time, _ in second)
    grown = median(value for _, value in fourth) - median(value for _, value in second)
    return grown / MEGABYTE / (seconds / HOUR)


def _build(series: Mapping[str, Samples], head: str) -> tuple[ResourceLine, ...]:
    """Returns the lines of the largest series. ``head``: the line that comes first. A series of zeros has no line."""
    lines = [
        ResourceLine(name, _thin(sorted(samples)), compute_growth(sorted(samples)))
        for name, samples in series.items()
        if any(value > 0 for _, value in samples)
    ]
    largest = sorted(lines, key=lambda line: (line.name != head, -line.most))[:MOST_LINES]
    return tuple(sorted(largest, key=lambda line: (line.name != head, natural_sort_key(line.name))))


def _thin(samples: Samples) -> Samples:
    """Returns at most about ``2 * MOST_SAMPLES`` samples, because another program may have written the file."""
    return samples[:: 1 + len(samples) // (2 * MOST_SAMPLES)]


def order_names(lines: Iterable[ResourceLine], leaders: Sequence[str]) -> dict[str, int]:
    """Returns the position of each node's colour. ``leaders``: the nodes of the leadership panel, which come first."""
    others = (line.name for line in lines if line.name not in (HARNESS, RUN))
    return {name: position for position, name in enumerate(dict.fromkeys((*leaders, *others)))}
