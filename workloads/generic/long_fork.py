"""Long-fork workload (as in Jepsen): single writes and reads of a few keys, for any system with transactions.

Each key is written once, in a transaction of its own. Its group of ``GROUP`` keys is read soon after. A long fork is a
pair of reads that see two of these writes in opposite orders. Parallel snapshot isolation allows it, snapshot isolation
does not. The check reports it as ``G-nonadjacent``, with a claim that begins with "long fork".

A client executes ``txn``, whose argument is a list of ``["w", key, value]`` and ``["r", key, null]``. The result is the
argument with the values that were read. A client uses the ``effects`` of ``assay.harness.core.transactions``.
"""

from collections.abc import Sequence
from typing import Any, Final

from assay import TRANSACTION_ANOMALIES, Context, Contract, Generator, Operation, Phase, forbid, unfold

TXN: Final = "txn"
LEVELS: Final = ("serializable", "snapshot isolation", "parallel snapshot isolation")
GROUP: Final = 3
"""Number of keys that are read together."""
LIST_ANOMALIES: Final = ("duplicate-elements", "incompatible-order")
LONG_FORK_ANOMALIES: Final = tuple(anomaly for anomaly in TRANSACTION_ANOMALIES if anomaly not in LIST_ANOMALIES)
"""Anomalies that transactions on registers can show."""


def read_group(key: int) -> list[list[Any]]:
    """Returns the reads of all keys in the group of ``key``."""
    first = key - key % GROUP
    return [["r", one, None] for one in range(first, first + GROUP)]


def step(number: int, context: Context) -> tuple[Operation, int]:
    """Returns the next operation: a write, or a read of the group that was written last or of the group before."""
    if context.random_below(2, salt=1) or not number:
        return Operation(TXN, argument=[["w", number, 1]]), number + 1
    back = GROUP * context.random_below(2, salt=2)
    return Operation(TXN, argument=read_group(max(0, number - 1 - back))), number


def traffic() -> Generator:
    return unfold(step, 0) | [Operation(TXN, argument=read_group(0), phase=Phase.DRAIN)] * 3


def build_contract(level: str, *, may_stall: Sequence[str] = ()) -> Contract:
    """Returns the contract of an isolation level (one of ``LEVELS``). Raises ``ValueError`` for another level.

    ``may_stall``: faults under which no request is served.
    """
    if level not in LEVELS:
        raise ValueError(f"unknown isolation level {level}; use one of {', '.join(LEVELS)}")
    contract = forbid(*LONG_FORK_ANOMALIES, may_stall=may_stall)
    if level != "parallel snapshot isolation":
        return contract
    because = "under parallel snapshot isolation, reads at different sites may see writes in different orders"
    return contract.tolerate("G-nonadjacent", because=because)
