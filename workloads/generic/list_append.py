"""List-append workload (as in Elle): transactions that append to lists and read them, for any system with transactions.

A client executes ``txn``, whose argument is a list of ``["append", key, value]`` and ``["r", key, null]``. The result
is the argument with the lists that were read. No transaction reads a key twice, because weak isolation levels may show
two states in one transaction. A client uses the ``effects`` of ``assay.harness.core.transactions``.
"""

from collections.abc import Sequence
from typing import Any, Final

from assay import TRANSACTION_ANOMALIES, Context, Contract, Generator, Operation, Phase, forbid, unfold

TXN: Final = "txn"
LISTS_AT_ONCE: Final = 3
"""Number of lists in use at a time."""
LONGEST: Final = 60
"""Number of transactions after which new lists replace the present ones. Reads return whole lists."""


def step(number: int, context: Context) -> tuple[Operation, int]:
    """Returns the next transaction. It reads, or appends to, each of one to three lists. Values are unique."""
    era = number // LONGEST  # each era has its own lists
    micros: list[list[Any]] = []  # the reads and appends of the transaction
    for place in range(LISTS_AT_ONCE):
        key = era * LISTS_AT_ONCE + (place + context.random_below(LISTS_AT_ONCE, salt=1)) % LISTS_AT_ONCE
        doing = context.random_below(3, salt=10 + place)
        if doing:
            micros.append(["append", key, number * LISTS_AT_ONCE + place] if doing == 1 else ["r", key, None])
    return Operation(TXN, argument=micros or [["r", era * LISTS_AT_ONCE, None]]), number + 1


def traffic() -> Generator:
    return unfold(step, 0) | [
        Operation(TXN, argument=[["r", key, None]], phase=Phase.DRAIN) for key in range(LISTS_AT_ONCE)
    ]


ALLOWED: Final = {
    "serializable": ((), ""),
    "snapshot isolation": (("G2-item",), "snapshot isolation allows write skew"),
    "read committed": (
        ("G-single", "G-nonadjacent", "G2-item", "internal"),
        "at read committed each statement sees what has been committed by then",
    ),
}
"""Anomalies that each isolation level allows (Adya), and the reason."""


def build_contract(level: str, *, may_stall: Sequence[str] = ()) -> Contract:
    """Returns the contract of an isolation level. ``may_stall``: faults under which no request is served."""
    contract = forbid(*TRANSACTION_ANOMALIES, may_stall=may_stall)
    allowed, because = ALLOWED[level]
    return contract.tolerate(*allowed, because=because) if allowed else contract
