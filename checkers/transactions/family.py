"""The families of transaction checks: list-append and registers, after Adya and Elle.

``assay.harness.core.transactions`` describes how transactions are recorded. ``views`` explains the order of lists, and
``edges`` the dependencies between transactions.

- For lists the checks are exact: there is no finding iff some serial order of the committed transactions explains every
  read. If the contract declares an order of processes or of real time, the serial order must respect it.
- For registers the checks are sound: the order of versions is inferred only if it holds in every history. If the
  contract names an isolation level, ``checkers.isolation`` judges lists and registers exactly, within a time limit.

Lists are a family of their own, so that a history of registers is not reported as lacking data for them. Cycles with
edges of real time or of a process are families of their own, too: they count only if the contract declares that order
(``transaction_order``).
"""

from typing import Final

from assay.checkers.check import Family
from assay.checkers.engine import Engine
from assay.checkers.isolation.levels import LEVELS, ORDER_NAMES
from assay.checkers.sql_idioms import total_of
from assay.checkers.transactions.cycles import CYCLES, ORDERED_CYCLES, ORDERS, prepare_cycles
from assay.checkers.transactions.level import prepare_level
from assay.checkers.transactions.values import DUPLICATE_ELEMENTS, G1A, G1B, GARBAGE_READ, INCOMPATIBLE_ORDER, INTERNAL
from assay.checkers.transactions.views import ROWS

_CHECKS: Final = (G1A, G1B, GARBAGE_READ, INTERNAL, *CYCLES)
_LISTS: Final = (DUPLICATE_ELEMENTS, INCOMPATIBLE_ORDER)

# A row of `effect_kinds` is a kind of effects with their number (`many`). `txn_declared` has the contract's values.
_APPLIES: Final = f"""
    select {total_of("e.many")} as examined from effect_kinds e cross join txn_declared d"""


def prepare_declared(engine: Engine) -> list[str]:
    """Creates the tables of the transaction checks. If the contract names an isolation level, this level is judged
    instead of Adya's classes of cycles.
    """
    (declared,) = engine.rows("select transaction_level, transaction_seconds, transaction_all_reads from txn_declared")
    if not declared["transaction_level"]:
        return prepare_cycles(engine)
    return prepare_level(
        engine,
        declared["transaction_level"],
        declared["transaction_seconds"],
        all_reads=bool(declared["transaction_all_reads"]),
    )


TRANSACTIONS: Final = Family(
    name="transactions",
    views=(ROWS,),
    checks=_CHECKS,
    applies=f"{_APPLIES} where e.kind in ('txn-append', 'txn-write', 'txn-read')",
    prepare=prepare_declared,
    prepares_early=True,  # `prepare` may run while the run goes on
)

TRANSACTION_LISTS: Final = Family(
    name="transaction-lists", checks=_LISTS, applies=f"{_APPLIES} where e.kind = 'txn-append'"
)


def _list_levels(order: str) -> str:
    """Returns the names of the levels that contain the order, as SQL. ``strong-causal`` contains both orders."""
    names = (name for name, level in LEVELS.items() if order in {ORDER_NAMES[one] for one in level.orders})
    return ", ".join(f"'{name}'" for name in names)


TRANSACTION_ORDERS: Final = tuple(
    Family(
        name=f"transactions-{order}",
        checks=ORDERED_CYCLES[order],
        applies=f"""{_APPLIES}
            where e.kind in ('txn-append', 'txn-write', 'txn-read')
            and (d.transaction_order = '{order}' or d.transaction_level in ({_list_levels(order)}))
            """,
    )
    for order in ORDERS
)

TRANSACTION_FAMILIES: Final = (TRANSACTIONS, TRANSACTION_LISTS, *TRANSACTION_ORDERS)
"""In this order, because the first family creates the tables of all families."""

LEVEL_ANOMALIES: Final = (*TRANSACTIONS.anomalies, *(name for one in TRANSACTION_ORDERS for name in one.anomalies))
"""All anomalies that may refute an isolation level, besides those of lists."""

TRANSACTION_ANOMALIES: Final = (*TRANSACTIONS.anomalies, *TRANSACTION_LISTS.anomalies)
"""All anomalies that are reported if the contract declares no ``transaction_order``."""
