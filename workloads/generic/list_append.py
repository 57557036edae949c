"""Transactions that append to lists and read them (Elle's list-append): for any system with transactions.

A client answers ``txn``, whose argument is a list of ``["append", key, value]`` and ``["r", key, null]``; its result is
the same with the lists that were read. No transaction reads a key twice, so that levels of isolation which may show two
states in one are not accused of it. Its ``effects`` are those of ``assay.harness.core.transactions``.
"""

from collections.abc import Sequence
from typing import Any, Final

from assay import TRANSACTION_ANOMALIES, Context, Contract, Generator, Operation, Phase, forbid, unfold

TXN: Final = "txn"
AT_ONCE: Final = 3
"""So many lists are in use at a time."""
LONGEST: Final = 60
"""Transactions until others take their place: reads show whole lists."""


def step(number: int, context: Context) -> tuple[Operation, int]:
    """One to three lists, each read or appended to; values are used once."""
    first = number // LONGEST
    micros: list[list[Any]] = []
    for place in range(AT_ONCE):
        key = first * AT_ONCE + (place + context.below(AT_ONCE, salt=1)) % AT_ONCE
        doing = context.below(3, salt=10 + place)
        if doing:
            micros.append(["append", key, number * AT_ONCE + place] if doing == 1 else ["r", key, None])
    return Operation(TXN, argument=micros or [["r", first * AT_ONCE, None]]), number + 1


def traffic() -> Generator:
    return unfold(step, 0) | [Operation(TXN, argument=[["r", key, None]], phase=Phase.DRAIN) for key in range(AT_ONCE)]


ALLOWED: Final = {
    "serializable": ((), ""),
    "snapshot isolation": (("G2-item",), "snapshot isolation allows write skew"),
    "read committed": (
        ("G-single", "G-nonadjacent", "G2-item", "internal"),
        "at read committed each statement sees what has been committed by then",
    ),
}
"""What each level of isolation lets happen (Adya, as in docs/reference/anomalies.md), and why."""


def promised(level: str, *, may_stall: Sequence[str] = ()) -> Contract:
    """``may_stall``: the faults under which no one is served."""
    contract = forbid(*TRANSACTION_ANOMALIES, may_stall=may_stall)
    allowed, because = ALLOWED[level]
    return contract.tolerate(*allowed, because=because) if allowed else contract
