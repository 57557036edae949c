"""What the broker promises of every log, on top of what a workload forbids."""

from collections.abc import Sequence
from typing import Final

import msgspec

from assay.checkers.contract import Contract
from assay.checkers.inspection import INSPECTION

OUTAGES: Final = ("outage", "outage-power-loss")
"""All servers are down for some seconds: no one serves, and that is the purpose."""
GROUPS_STALL: Final = (*OUTAGES, "power-loss", "power-loss-in-fsync", "partition-leader-and-follower")
"""Faults that leave groups, and who waits for new records, nothing to succeed with until they are healed.

Where all servers lose power no one serves until it is back. Where two of three hear nothing of ZooKeeper or of the
third, no record reaches two replicas that are in sync: the two cannot shrink an in-sync set, and the third is alone in
those that it leads. Both are the purpose of these faults.
"""
PATIENCE: Final = 2.2
"""Seconds: a call of a client (``READ_SECONDS``, ``CALL_SECONDS``), and then a back-off and a look at who leads."""


def promised(contract: Contract, outages: Sequence[str] = OUTAGES) -> Contract:
    """The same contract with linearizable log ends, dense offsets and records in time, also over these outages."""
    forbidden = (*(contract.forbidden or ()), *INSPECTION.anomalies)
    may_stall = tuple(dict.fromkeys((*contract.may_stall, *outages)))
    return msgspec.structs.replace(
        contract,
        forbidden=forbidden,
        linearizable_ends=True,
        dense_offsets=True,
        may_stall=may_stall,
        patience=PATIENCE,
    )
