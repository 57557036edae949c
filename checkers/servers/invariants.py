"""An invariant of the system's own that did not hold at some moment of a run.

In the simulation, the harness asserts invariants at each event of a node's log. It writes these rows into ``looks``,
with look 0:

- ``asserted``: the name of an ``invariant`` and how often it was evaluated (``assertions``).
- ``broken``: an invariant that did not hold, with the system's sentence (``claim``), the ``node`` and the ``key``.

The run ends there. So a client may not have noticed anything, and checks of the end of a run do not apply.
"""

from typing import Final

from assay.checkers.check import Check, Evidence, Explanation, Table, epoch_of, family_of, offset_of
from assay.checkers.engine import Row
from assay.checkers.judging.contract import BROKEN_INVARIANT
from assay.checkers.sql_idioms import select_first
from assay.checkers.times import seconds

CUT: Final = "select count(*) as examined from looks where what = 'broken'"
"""More than 0: the run was ended before its own end."""


def _explain_broken_invariant(row: Row, _: Evidence) -> Explanation:
    about = []
    if row["position"] is not None:
        about.append(offset_of(row["key"], row["position"]))
    elif row["epoch"] is not None:
        about.append(epoch_of(row["key"], row["epoch"]))
    claim = f"At {seconds(row['moment'])} on {row['node']}, the invariant {row['invariant']} was broken: {row['claim']}"
    return Explanation(claim, (), 0, row["moment"], about=tuple(about))


BROKEN: Final = Check(
    anomaly=BROKEN_INVARIANT,
    meaning="what the system says must hold at every instant did not",
    views=(
        Table(
            "found_broken_invariant",
            "select key, time as moment, node, invariant, claim, epoch, position from looks where what = 'broken'",
        ),
    ),
    evidence=select_first("found_broken_invariant", "moment, invariant, key, node"),
    examined="select coalesce(sum(assertions), 0) as examined from looks where what = 'asserted'",
    explain=_explain_broken_invariant,
    optional=True,
)

INVARIANTS: Final = family_of(BROKEN, applies="looks where what in ('asserted', 'broken')", beside=True)
