"""Selects the checks that are valid while a run goes on.

A growing history has clients' actions as soon as they happen, and pending operations as such
(``assay.harness.core.history.live_manifest``). But servers' events, looks and disks come late: the event log of a
server that is cut off is read when the cut has healed. A check that concludes from the absence of an event (no one has
deleted this segment) would then accuse a correct system. So a check is early if it reads none of these tables, through
any view; the others wait for the end. The SQL texts decide: every word that is the name of a view counts as read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from assay.checkers.check import Check, Family, PreparedTables, View
from assay.checkers.engine import Engine
from assay.checkers.engine.empty_relations import find_all_words
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract

COME_LATE: Final = frozenset({"events", "replicas", "looks"})
"""Tables that may lack rows of a time long past."""

LATE: Final = "it reads what servers report, which may come late, so it is judged when the run is over"


def find_late_tables(engine: Engine, contract: Contract) -> frozenset[str]:
    """Returns the tables that are incomplete before the end of this run: ``COME_LATE``, and relations made from them.

    The allowed loss of a log is known once events say which servers lost power. A power loss that is only intended has
    taken nothing that anyone can have missed, because servers serve again only after it was injected.
    """
    return COME_LATE | {"log_effects"} if may_have_lost(engine, contract) else COME_LATE


def may_have_lost(engine: Engine, contract: Contract) -> bool:
    """Returns whether a power loss may have taken from logs what the contract allows."""
    if contract.unflushed == 0:
        return False
    (row,) = engine.rows("select count(*) as lost from faults where loses_unsynced and phase <> 'intended'")
    return bool(row["lost"])


def is_judged_late(family: Family, check: Check, late: frozenset[str] = COME_LATE) -> bool:
    """Returns whether nothing can be said of this anomaly before the end of a run in which ``late`` comes late."""
    return check.needs_end or check.anomaly in _find_late_anomalies(family, late)


def select_early_checks(family: Family, late: frozenset[str] = COME_LATE) -> Family:
    """Returns the family with only those checks that are valid while the run goes on."""
    return replace(family, checks=tuple(check for check in family.checks if not is_judged_late(family, check, late)))


@lru_cache(256)
def _find_late_anomalies(family: Family, late: frozenset[str]) -> frozenset[str]:
    if family.prepare is not None and not isinstance(family.prepare, PreparedTables) and not family.prepares_early:
        return frozenset(family.anomalies)
    views = {view.name: view.sql for other in (*FAMILIES, family) for view in _list_views(other)}
    return frozenset(
        check.anomaly
        for check in family.checks
        if late & find_all_words((family.applies, check.examined, *(view.sql for view in check.views)), views)
    )


def _list_views(family: Family) -> Sequence[View]:
    prepared = family.prepare.tables if isinstance(family.prepare, PreparedTables) else ()
    return [*family.views, *prepared, *(view for check in family.checks for view in check.views)]
