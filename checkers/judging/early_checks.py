"""Which checks say something true of a run that is not over.

What clients did is in a growing history as soon as it has happened, and what is under way is there as such
(``assay.harness.core.history.live_manifest``). But what servers reported, and what was looked at or read from disks,
comes late: the event log of a server that is cut off is read when the cut has healed. A check that takes the absence of
an event for a fact (no one has deleted this segment) would accuse a correct system then. So a check is early that reads
none of these data sets, by whatever view; and the others are left for the end. That is read from their texts: every
word that is the name of a view counts as read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from assay.checkers.check import Check, Family, Prepared, View
from assay.checkers.engine import Engine
from assay.checkers.engine.empty_relations import all_words
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract

COME_LATE: Final = frozenset({"events", "replicas", "looks"})
"""Data sets of which rows may be missing that are of a time long past."""

LATE: Final = "it reads what servers report, which may come late, so it is judged when the run is over"


def come_late(engine: Engine, contract: Contract) -> frozenset[str]:
    """What waits for the end of this run: ``COME_LATE``, and what is made of it before the checks read it.

    What a loss of power may take of a log is known once it is known who has lost it, which events say. One that is only
    intended has taken nothing that anyone can have missed: servers serve again after it was injected.
    """
    return COME_LATE | {"log_effects"} if may_have_lost(engine, contract) else COME_LATE


def may_have_lost(engine: Engine, contract: Contract) -> bool:
    """Whether a loss of power may have taken of logs what the contract lets it take."""
    if contract.unflushed == 0:
        return False
    (row,) = engine.rows("select count(*) as lost from faults where loses_unsynced and phase <> 'intended'")
    return bool(row["lost"])


def judged_late(family: Family, check: Check, late: frozenset[str] = COME_LATE) -> bool:
    """Whether nothing can be said of this anomaly before the run is over, in which ``late`` comes late."""
    return check.needs_end or check.anomaly in _late(family, late)


def early(family: Family, late: frozenset[str] = COME_LATE) -> Family:
    """The family with those checks alone that may be asked while the run goes on."""
    return replace(family, checks=tuple(check for check in family.checks if not judged_late(family, check, late)))


@lru_cache(256)
def _late(family: Family, late: frozenset[str]) -> frozenset[str]:
    if family.prepare is not None and not isinstance(family.prepare, Prepared) and not family.prepares_early:
        return frozenset(family.anomalies)
    views = {view.name: view.sql for other in (*FAMILIES, family) for view in _views(other)}
    return frozenset(
        check.anomaly
        for check in family.checks
        if late & all_words((family.applies, check.examined, *(view.sql for view in check.views)), views)
    )


def _views(family: Family) -> Sequence[View]:
    prepared = family.prepare.tables if isinstance(family.prepare, Prepared) else ()
    return [*family.views, *prepared, *(view for check in family.checks for view in check.views)]
