"""Limits of numeric options: one row per option, of pytest and of the ``assay`` command.

A value beyond its limit is a mistake, and would fill the memory or the disk before anything starts. Values that are
merely large are accepted. This also rejects overflows, infinities and loops of a billion steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DAY: Final = 86_400.0
LONG: Final = 100 * DAY
"""Seconds of the longest run, search or night."""


@dataclass(frozen=True)
class Limit:
    """The minimum and maximum of one option. ``remedy``: what to do instead of a larger value."""

    least: float
    most: float
    what: str
    remedy: str = ""

    def wrong(self, option: str, text: str, value: float) -> str | None:
        """Returns an error if this value is out of range; else None."""
        if self.least <= value <= self.most:
            return None
        least, most = (f"{number:,.0f}" if number >= 1 else f"{number:g}" for number in (self.least, self.most))
        remedy = f"; {self.remedy}" if self.remedy and value > self.most else ""
        return f"{option}={text} must be between {least} and {most} {self.what}".rstrip() + remedy


COUNT: Final = Limit(1, 10**9, "")
SECONDS: Final = Limit(1e-3, LONG, "seconds")
MORE_NODES: Final = "one machine holds no more nodes of a role"

LIMITS: Final[Mapping[str, Limit]] = {
    "--nodes": Limit(1, 200, "nodes", MORE_NODES),
    "--zookeepers": Limit(1, 100, "nodes", MORE_NODES),
    "--workers": Limit(1, 200, "nodes", MORE_NODES),
    "--partitions": Limit(1, 10_000, "partitions"),
    "--concurrency": Limit(1, 10_000, "workers", "each worker has a client of its own: raise --rate instead"),
    "--rate": Limit(1e-3, 1e6, "operations per second"),
    "--time-limit": SECONDS,
    "--operation-timeout": Limit(1e-3, DAY, "seconds"),
    "--drain-limit": SECONDS,
    "--nemesis-interval": Limit(1e-2, LONG, "seconds", "--nemesis=none injects nothing"),
    "--repeat": Limit(1e-3, LONG, "repetitions, or seconds", "`assay nightly` repeats a matrix night after night"),
    "--explore": Limit(1e-3, 10**9, "examples, or seconds"),
    "--seed": Limit(0, 2**63 - 1, ""),
    "--seeds": Limit(1, 100_000, "seeds"),
    "--clients": Limit(0, 100_000, "clients"),
    "--keys": Limit(0, 10_000_000, "keys"),
    "--port": Limit(0, 65_535, ""),
    "--keep": Limit(0, 10**9, "runs"),
    "--older-than": Limit(0, 100_000, "days"),
}
"""Options that are missing here have the limits of ``COUNT`` or ``SECONDS``."""

MOST_FAULTS: Final = 50_000
"""Injections of one run."""
MOST_TESTS: Final = 50_000
"""Tests that one session collects. pytest needs some seconds and 100 MB for this many."""
MOST_NODES: Final = 240
"""Nodes of a run in all roles. The network of a run has 244 addresses, and some faults add nodes."""


def wrong_number(option: str, text: str, value: float, otherwise: Limit) -> str | None:
    """Returns an error if the value of an option is out of range; else None. ``--nodes=ROLE`` has the limits of
    ``--nodes``.
    """
    return LIMITS.get(option.partition("=")[0], otherwise).wrong(option, text, value)


def too_many_faults(interval: float, time_limit: float) -> str | None:
    """Returns an error if a fault every ``interval`` seconds makes too many faults; else None."""
    if (number := time_limit / interval) <= MOST_FAULTS:
        return None
    return (
        f"--nemesis-interval={interval:g} with --time-limit={time_limit:g} makes {number:,.0f} faults; a run has at "
        f"most {MOST_FAULTS:,}: raise --nemesis-interval or lower --time-limit"
    )


def too_many_nodes(counts: Mapping[str, int]) -> str | None:
    """Returns an error if a run has too many nodes; else None."""
    if (number := sum(counts.values())) <= MOST_NODES:
        return None
    each = ", ".join(f"{role}={count}" for role, count in counts.items())
    return f"{number} nodes ({each}) are more than the {MOST_NODES} that a run has at most: lower --nodes"


def too_many_tests(number: int, repeat: str) -> str | None:
    """Returns an error if pytest would collect too many tests; else None."""
    if number <= MOST_TESTS:
        return None
    return (
        f"--repeat={repeat} makes more than {MOST_TESTS:,} tests of those that are named (a time counts as a round per "
        "second), and pytest collects them all before the first one runs: name fewer tests, or repeat for a shorter "
        "time; `assay nightly --budget=TIME` repeats a whole matrix for hours"
    )
