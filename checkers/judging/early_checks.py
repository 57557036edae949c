"""Selects the checks that are valid while a run goes on.

A growing history has clients' operations as soon as they happen, even pending ones
(``assay.harness.core.history.live_manifest``). But events of servers, snapshots (``looks``) and the contents of disks
(``replicas``) come late. For example, the event log of an isolated server is read only after the heal. A check that
relies on the absence of an event, such as the deletion of a segment, would then accuse a correct system.

So a check is valid early if it reads none of these tables, neither directly nor through a view. All other checks wait
for the end of the run. Every word of a check's SQL that is the name of a view counts as a read of this view.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from assay.checkers.check import Check, Family, PreparedTables
from assay.checkers.engine import Engine
from assay.checkers.engine.empty_relations import find_all_words
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract

LATE_TABLES: Final = frozenset({"events", "replicas", "looks"})
"""Tables whose rows may arrive long after the time that they describe."""

LATE_NOTE: Final = "it reads what servers report, which may come late, so it is judged when the run is over"


def find_late_tables(engine: Engine, contract: Contract) -> frozenset[str]:
    """Returns the tables that are incomplete before the end of this run: ``LATE_TABLES``, and relations made from them.

    ``log_effects`` leaves out records that a power loss may have taken (``log.unflushed``). For that, it needs the
    events that say which servers were running. A power loss that is only intended has changed no read yet, because
    servers serve again only after it was injected.
    """
    return LATE_TABLES | {"log_effects"} if may_have_lost_records(engine, contract) else LATE_TABLES


def may_have_lost_records(engine: Engine, contract: Contract) -> bool:
    """Returns whether a power loss may have taken records from logs that the contract allows to be lost."""
    if contract.unflushed == 0:
        return False
    (row,) = engine.rows("select count(*) as lost from faults where loses_unsynced and phase <> 'intended'")
    return bool(row["lost"])


def is_judged_late(family: Family, check: Check, late: frozenset[str] = LATE_TABLES) -> bool:
    """Returns whether this anomaly can be judged only after the end of the run. ``late``: the incomplete tables."""
    return check.needs_end or check.anomaly in _find_late_anomalies(family, late)


def select_early_checks(family: Family, late: frozenset[str] = LATE_TABLES) -> Family:
    """Returns the family with only those checks that are valid while the run goes on."""
    return replace(family, checks=tuple(check for check in family.checks if not is_judged_late(family, check, late)))


@lru_cache(256)
def _find_late_anomalies(family: Family, late: frozenset[str]) -> frozenset[str]:
    """Returns the anomalies of the family whose checks read one of the tables ``late``, perhaps through a view."""
    if family.prepare is not None and not isinstance(family.prepare, PreparedTables) and not family.prepares_early:
        return frozenset(family.anomalies)
    families = (*FAMILIES, family)
    views = {view.name: view.sql for other in families for view in other.shared_views}
    views |= {view.name: view.sql for other in families for check in other.checks for view in check.views}
    return frozenset(
        check.anomaly
        for check in family.checks
        if late & find_all_words((family.applies, check.examined, *(view.sql for view in check.views)), views)
    )
