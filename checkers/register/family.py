"""The family of register checks: unique writes, reads, and CAS operations that chain values together.

``views`` says how a workload records itself. A key without a finding has a linearizable history, and one with
a finding has none: these checks are exact, but for versions in a key where some value has none (they do not order it)
and failed CAS operations that do not return the current value (they are dropped). ``lost-update`` is a family of its
own, so that a history without a CAS owes no data for it.
"""

from typing import Final

from assay.checkers.check import Family, Rounds
from assay.checkers.register.chains import UNCLEAR, make
from assay.checkers.register.order import STALE_READ
from assay.checkers.register.values import FUTURE_READ, LOST_UPDATE, MISSING_WRITER
from assay.checkers.register.views import ROWS
from assay.checkers.sql_idioms import total_of

_APPLIES: Final = f"""
    select {total_of("many")} as examined from effect_kinds
    where kind in"""

PREPARED: Final = Rounds(make, UNCLEAR)
"""Every table that the checks read."""

REGISTER: Final = Family(
    name="register",
    views=(ROWS,),
    checks=(MISSING_WRITER, FUTURE_READ, STALE_READ),
    applies=f"{_APPLIES} ('register-write', 'register-read', 'register-cas', 'commit', 'fetched')",
    prepare=PREPARED,
    prepares_early=True,
    by_key=True,
)

REGISTER_CAS: Final = Family(
    name="register-cas", checks=(LOST_UPDATE,), applies=f"{_APPLIES} ('register-cas')", by_key=True
)
"""After ``REGISTER``, whose tables it reads."""

REGISTER_ANOMALIES: Final = (*REGISTER.anomalies, *REGISTER_CAS.anomalies)
"""Everything that these checks can report."""
