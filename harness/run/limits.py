"""Limits of numeric options: one row per option, of pytest and of the ``assay`` command.

A value beyond its limit must be a mistake, because it would fill the memory or the disk. Values that are merely large
are accepted. The limits also prevent overflows, infinities and loops of a billion steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DAY: Final = 86_400.0
LONG: Final = 100 * DAY
"""Seconds of the longest run, search or night."""


@dataclass(frozen=True)
class OptionLimit:
    """The minimum and maximum of one option. ``remedy``: what to do instead of a larger value."""

    minimum: float
    maximum: float
    unit: str
    remedy: str = ""

    def explain_violation(self, option: str, text: str, value: float) -> str | None:
        """Returns an error if this value is out of range; else None."""
        if self.minimum <= value <= self.maximum:
            return None
        ends = (f"{number:,.0f}" if number >= 1 else f"{number:g}" for number in (self.minimum, self.maximum))
        remedy = f"; {self.remedy}" if self.remedy and value > self.maximum else ""
        return f"{option}={text} must be between {' and '.join(ends)} {self.unit}".rstrip() + remedy


COUNT: Final = OptionLimit(1, 10**9, "")
SECONDS: Final = OptionLimit(1e-3, LONG, "seconds")
MORE_NODES: Final = "one machine holds no more nodes of a role"

LIMITS: Final[Mapping[str, OptionLimit]] = {
    "--nodes": OptionLimit(1, 200, "nodes", MORE_NODES),
    "--zookeepers": OptionLimit(1, 100, "nodes", MORE_NODES),
    "--workers": OptionLimit(1, 200, "nodes", MORE_NODES),
    "--partitions": OptionLimit(1, 10_000, "partitions"),
    "--concurrency": OptionLimit(1, 10_000, "workers", "each worker has a client of its own: raise --rate instead"),
    "--rate": OptionLimit(1e-3, 1e6, "operations per second"),
    "--time-limit": SECONDS,
    "--operation-timeout": OptionLimit(1e-3, DAY, "seconds"),
    "--drain-limit": SECONDS,
    "--nemesis-interval": OptionLimit(1e-2, LONG, "seconds", "--nemesis=none injects nothing"),
    "--repeat": OptionLimit(
        1e-3, LONG, "repetitions, or seconds", "`assay nightly` repeats a matrix night after night"
    ),
    "--explore": OptionLimit(1e-3, 10**9, "examples, or seconds"),
    "--seed": OptionLimit(0, 2**63 - 1, ""),
    "--seeds": OptionLimit(1, 100_000, "seeds"),
    "--clients": OptionLimit(0, 100_000, "clients"),
    "--keys": OptionLimit(0, 10_000_000, "keys"),
    "--port": OptionLimit(0, 65_535, ""),
    "--keep": OptionLimit(0, 10**9, "runs"),
    "--older-than": OptionLimit(0, 100_000, "days"),
}
"""An option that is missing here has the limits of ``COUNT`` or ``SECONDS``."""

MOST_FAULTS: Final = 50_000
"""Injections of one run."""
MOST_TESTS: Final = 50_000
"""Tests that one session collects. pytest needs some seconds and 100 MB for this many."""
DATA_SET_LOCK: Final = 60.0
"""Seconds that a command waits for another command that has locked a data set of many nights."""
MOST_NODES: Final = 240
"""Nodes of a run in all roles. The network of a run has 244 addresses, and some faults add nodes."""


def check_number(option: str, text: str, value: float, otherwise: OptionLimit) -> str | None:
    """Returns an error if the value of an option (``--nodes``, ``--nodes=ROLE``) is out of range; else None."""
    return LIMITS.get(option.partition("=")[0], otherwise).explain_violation(option, text, value)


def check_fault_count(interval: float, time_limit: float) -> str | None:
    """Returns an error if a fault every ``interval`` seconds makes too many faults; else None."""
    if (number := time_limit / interval) <= MOST_FAULTS:
        return None
    return (
        f"--nemesis-interval={interval:g} with --time-limit={time_limit:g} makes {number:,.0f} faults; a run has at "
        f"most {MOST_FAULTS:,}: raise --nemesis-interval or lower --time-limit"
    )


def check_node_count(counts: Mapping[str, int]) -> str | None:
    """Returns an error if a run has too many nodes; else None."""
    if (number := sum(counts.values())) <= MOST_NODES:
        return None
    each = ", ".join(f"{role}={count}" for role, count in counts.items())
    return f"{number} nodes ({each}) are more than the {MOST_NODES} that a run has at most: lower --nodes"


def check_test_count(number: int, repeat: str) -> str | None:
    """Returns an error if pytest would collect too many tests; else None."""
    if number <= MOST_TESTS:
        return None
    return (
        f"--repeat={repeat} makes more than {MOST_TESTS:,} tests (for a time: one round of the named tests for each "
        "second), and pytest collects them all before the first one runs: name fewer tests, or repeat for a shorter "
        "time; `assay nightly --budget=TIME` repeats a whole matrix for hours"
    )
