"""The family of register checks: unique writes, reads, and CAS operations that chain values together.

``views`` describes how a workload records itself. The checks are exact: the history of a key is linearizable iff the
key has no finding. There are two exceptions, in which violations may be missed:

- Versions order a key's values only if every value of the key has a version. Otherwise they are ignored, and a
  violation that only versions show is missed.
- Failed CAS operations that do not return the current value are dropped.

``lost-update`` is a family of its own, so that a history without CAS is not reported as lacking data.
"""

from typing import Final

from assay.checkers.check import Family, PreparedByIteration
from assay.checkers.register.chains import UNCLEAR_KEYS, make_tables
from assay.checkers.register.order import STALE_READ
from assay.checkers.register.values import FUTURE_READ, LOST_UPDATE, MISSING_WRITER
from assay.checkers.register.views import ROWS
from assay.checkers.sql_idioms import total_of

_APPLIES: Final = f"""
    select {total_of("many")} as examined from effect_kinds
    where kind in"""

PREPARED: Final = PreparedByIteration(make_tables, UNCLEAR_KEYS)
"""Prepares every table that the checks read."""

REGISTER: Final = Family(
    name="register",
    views=(ROWS,),
    checks=(MISSING_WRITER, FUTURE_READ, STALE_READ),
    applies=f"{_APPLIES} ('register-write', 'register-read', 'register-cas', 'commit', 'fetched')",
    prepare=PREPARED,
    prepares_early=True,  # `prepare` may run while the run goes on
    by_key=True,
)

REGISTER_CAS: Final = Family(
    name="register-cas", checks=(LOST_UPDATE,), applies=f"{_APPLIES} ('register-cas')", by_key=True
)
"""Must come after ``REGISTER``, whose tables it reads."""

REGISTER_ANOMALIES: Final = (*REGISTER.anomalies, *REGISTER_CAS.anomalies)
