"""Broken invariants: an invariant of the system itself did not hold at some moment of a run.

In the simulation, the harness asserts invariants at each event of a node's log. It writes these rows into ``looks``,
the table of snapshots, with look 0 because they belong to no snapshot:

- ``asserted``: the name of an ``invariant`` and how often it was evaluated (``assertions``).
- ``broken``: an invariant that did not hold, with the system's sentence (``claim``), the ``node`` and the ``key``.

The run ends at this moment. So clients may have noticed nothing, and checks of the end of a run do not apply.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, family_of
from assay.checkers.judging.contract import BROKEN_INVARIANT
from assay.checkers.sql_idioms import select_first

BROKEN_COUNT: Final = "select count(*) as examined from looks where what = 'broken'"
"""SQL: the number of invariants that were found broken. If there are any, the run was ended at once."""


BROKEN_INVARIANTS: Final = Check(
    anomaly=BROKEN_INVARIANT,
    meaning="an invariant that the system declares did not hold at some instant",
    violations="select key, time as moment, node, invariant, claim, epoch, position from looks where what = 'broken'",
    evidence=select_first("found_broken_invariant", "moment, invariant, key, node"),
    examined="select coalesce(sum(assertions), 0) as examined from looks where what = 'asserted'",
    claim="At {moment:time} on {node}, the invariant {invariant} was broken: {claim}",
    time="moment",
    about=("[offset {position} of {key}|leader epoch {epoch} of {key}|]",),  # subjects of a finding
    optional=True,  # a run without data for it may pass
)

INVARIANTS: Final = family_of(
    BROKEN_INVARIANTS, applies="looks where what in ('asserted', 'broken')", about_servers=True
)
