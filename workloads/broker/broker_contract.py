"""What the broker promises: in each workload of ours everything, whatever it is about.

A promise holds wherever a history can show that it was broken, so every contract here forbids every anomaly that can be
found of a broker, and each mix of operations brings rows that more checks can judge. What differs is what a run must
have data for: ``RUNNING`` by itself, and what its workload, or its mix, certainly does. An exception is tolerated, and
the contract says under which faults, and why.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from assay.checkers.families import FAMILIES, OBJECT_FAMILIES
from assay.checkers.groups.family import FENCING
from assay.checkers.groups.ownership import OWNERSHIP_ANOMALIES
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.liveness.family import LIVENESS_ANOMALIES
from assay.checkers.log.epochs import REPLICATION_ANOMALIES
from assay.checkers.log.replicas import REPLICA_ANOMALIES
from assay.checkers.objects.emptiness import EMPTINESS
from assay.checkers.objects.snapshots import SNAPSHOTS
from assay.checkers.register.family import REGISTER_CAS
from assay.checkers.servers.acknowledged_state import INSPECTION
from assay.checkers.transactions.family import TRANSACTION_FAMILIES

NOT_OFFERED: Final = (*OBJECT_FAMILIES, EMPTINESS, SNAPSHOTS, REGISTER_CAS, FENCING, *TRANSACTION_FAMILIES)
"""Checks of what a broker has none of: counters, sets, queues, conditional writes, leases, transactions."""
PROMISES: Final = tuple(name for family in FAMILIES if family not in NOT_OFFERED for name in family.anomalies)
RUNNING: Final = (
    *OWNERSHIP_ANOMALIES,
    *REPLICA_ANOMALIES,
    *REPLICATION_ANOMALIES,
    *LIVENESS_ANOMALIES,
    *INSPECTION.anomalies,
)
"""What every run of brokers has data for: their event logs, their disks, and the looks when it is over."""

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


def promised(*needed: str, may_stall: Sequence[str] = OUTAGES, rebalance_deadline: float | None = None) -> Contract:
    """Forbids everything. ``needed``: what a run of this workload must have data for, in addition to ``RUNNING``."""
    contract = forbid(
        *needed, *RUNNING, rebalance_deadline=rebalance_deadline, may_stall=may_stall, patience=PATIENCE
    ).forbid_also(*PROMISES)
    return msgspec.structs.replace(contract, linearizable_ends=True, dense_offsets=True)
