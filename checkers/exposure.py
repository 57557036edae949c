"""Exposure: the number of a history's claims that later rows of the history could have contradicted.

A *claim* is an assertion that a check tests: for ``set-lost``, an acknowledged add. A claim is *exposed* if the history
has an observation that would contradict a false claim: a read of that set, called late enough. Without such an
observation a run cannot fail, so a needed check without exposed claims makes the verdict unknown.

An observation is late enough if it follows the claim and the last heal of a fault that may destroy data, stop processes
or cut links (``exposure_bound``). Special cases:

- A write of a transaction is observed by any read of another transaction (``at_any_time``), because a cycle of
  transactions needs no order of time.
- For checks of the system's state, each snapshot is a claim. It is exposed if it belongs to the last uninterrupted
  sequence of snapshots, because only this sequence is judged (``liveness.snapshots``).

These are no claims:

- data that the system may rightly remove: removed elements, and records that retention or compaction may delete
- a change of unknown outcome, because it may not have happened
- a value that was added more than once, because the second addition hides the loss of the first

Counts are additive over keys, so engines may count the keys separately.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from assay.checkers.engine import Row
from assay.checkers.judging.contract import ExposureMinimum
from assay.checkers.sql_idioms import total_of
from assay.checkers.times import format_seconds, shorten_times

LOW_SHARE: Final = 0.5
"""Share of exposed claims below which a run gets a warning."""
NO_BOUND: Final = -1
"""The value of ``exposure_bound`` if no fault of ``_IMPACTS`` was healed."""

_IMPACTS: Final = ("ends_process", "pauses_process", "cuts_links", "loses_unsynced", "damages_files")
"""Columns of ``faults`` with the impacts of faults that make earlier observations worthless. They are null in histories
of other tools."""

EXPOSURE_BOUND: Final = f"""
    select coalesce(max(time), {NO_BOUND}) as since from faults
    where phase = 'healed' and ({" or ".join(f"coalesce({name}, false)" for name in _IMPACTS)})
    """
"""SQL of the relation ``exposure_bound``: one row, whose ``since`` is the last heal of a fault of ``_IMPACTS``."""


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """Declares the claims of a check.

    ``rows``: SQL with one row per key, with the columns ``key``, ``claims`` and ``exposed``. It may read
    ``exposure_bound``.
    """

    rows: str
    nouns: str
    """Subjects of the claims, in the plural: ``elements``."""
    asserted: str
    """Participle that describes the subjects of claims: ``acknowledged``."""
    observed: str
    """Participle that describes the subjects of exposed claims: ``read``."""
    no_claims: str = ""
    """Clause that says why there are no claims: ``each element was added twice or removed``."""
    remedy: str = ""
    """Advice that exposes claims: ``add a final read (sets.final_reads())``.

    If the advice is empty, a lack of exposed claims never makes the verdict unknown, because a run need not use the
    feature that the check is about.
    """
    at_any_time: bool = False
    """An observation counts at any time. Then a low share is no warning, because most values are soon replaced."""
    each_key: bool = False
    """The check is about the final state, so a *blind* key (claims without observation) is a reason not to pass."""

    @property
    def totals(self) -> str:
        """SQL with one row: the columns of :class:`ExposureCount`."""
        blind = "claims > 0 and exposed = 0"
        return f"""
            select {total_of("claims")} as claims, {total_of("exposed")} as exposed,
                {total_of(f"case when {blind} then 1 else 0 end")} as blind_keys,
                min(case when {blind} then key end) as blind_key
            from ({self.rows}) as by_key
            """


@dataclass(frozen=True)
class ExposureCount:
    """Counts over all keys.

    ``blind_keys``: number of keys that have claims, but no exposed ones. ``blind_key``: the first of these keys.
    """

    claims: int
    exposed: int
    """How many of the claims the history could have contradicted."""
    blind_keys: int = 0
    blind_key: str | None = None


def read_count(row: Row) -> ExposureCount:
    """Returns the count in a row of ``Exposure.totals``."""
    return ExposureCount(int(row["claims"]), int(row["exposed"]), int(row["blind_keys"]), row["blind_key"])


def add_counts(counts: Iterable[ExposureCount]) -> ExposureCount:
    """Adds the counts of separate keys."""
    all_counts = list(counts)
    blind = [one.blind_key for one in all_counts if one.blind_key is not None]
    return ExposureCount(
        sum(one.claims for one in all_counts),
        sum(one.exposed for one in all_counts),
        sum(one.blind_keys for one in all_counts),
        min(blind, default=None),
    )


NOT_ENDED: Final = "the run did not come to its own end"
"""Stands in place of a remedy if the run was interrupted, because that explains what is missing."""


def describe_blindness(
    anomaly: str, declared: Exposure, count: ExposureCount, bound: int, *, ended: bool = True
) -> str | None:
    """Returns why the history could not have shown the anomaly, with the remedy; None if it could.

    ``bound``: the value of ``exposure_bound``. ``ended``: the run came to its own end.
    """
    if not declared.remedy:
        return None
    after = " afterwards" if bound == NO_BOUND else f" after the last fault was healed at {format_seconds(bound)}"
    if declared.at_any_time:
        after = ""
    if not count.claims:
        reason = declared.no_claims or f"no {declared.nouns} were {declared.asserted}"
    elif count.claims == 1 and not count.exposed:
        reason = f"of the {declared.nouns}, one was {declared.asserted}, and it was not {declared.observed}{after}"
    elif not count.exposed:
        reason = f"{count.claims} {declared.nouns} were {declared.asserted}, none was {declared.observed}{after}"
    elif declared.each_key and count.blind_keys:
        others = "" if count.blind_keys == 1 else f" and {count.blind_keys - 1} other keys"
        reason = (
            f"of the {declared.nouns} that were {declared.asserted} in {count.blind_key}{others}, none was "
            f"{declared.observed}{after}"
        )
    else:
        return None
    return shorten_times(f"{anomaly}: {reason}; {declared.remedy if ended else NOT_ENDED}")


def describe_low_share(anomaly: str, declared: Exposure, count: ExposureCount, *, ended: bool = True) -> str | None:
    """Returns a warning if the share of exposed claims is below ``LOW_SHARE``. ``ended``: as above."""
    if not declared.remedy or declared.at_any_time or count.exposed >= LOW_SHARE * count.claims:
        return None
    return (
        f"{anomaly}: only {count.exposed} of {count.claims} {declared.nouns} that were {declared.asserted} could have "
        f"been contradicted; {declared.remedy if ended else NOT_ENDED}"
    )


def describe_shortage(minimum: ExposureMinimum, count: ExposureCount, *, ended: bool = True) -> str | None:
    """Returns why fewer claims were exposed than the contract asks for; None if they suffice. ``ended``: as above."""
    wanted = max(minimum.count, math.ceil(minimum.share * count.claims))
    if count.exposed >= wanted:
        return None
    return (
        f"{minimum.anomaly}: the run could have contradicted {count.exposed} of {count.claims} claims, and the "
        f"contract asks for {wanted}; "
        + ("let the run last longer (--time-limit), or raise --rate" if ended else NOT_ENDED)
    )
