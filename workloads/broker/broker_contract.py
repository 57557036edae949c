"""The broker's contract, shared by all of its workloads.

Every contract forbids every anomaly that a check can find in a broker's history, because the broker makes the same
promises in each workload. Contracts differ mainly in which checks must have had data: ``ALWAYS_EXAMINED`` for every
run, and the checks that the workload and its mix name. Tolerated exceptions name the faults and the reason.
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
from assay.checkers.objects.queues import LINEARIZABLE_QUEUES
from assay.checkers.objects.sets import LINEARIZABLE_SETS
from assay.checkers.register.family import REGISTER_CAS
from assay.checkers.servers.acknowledged_state import INSPECTION
from assay.checkers.transactions.family import TRANSACTION_FAMILIES

NOT_OFFERED: Final = (
    *OBJECT_FAMILIES,
    LINEARIZABLE_QUEUES,
    LINEARIZABLE_SETS,
    REGISTER_CAS,
    FENCING,
    *TRANSACTION_FAMILIES,
)
"""Checks of features that the broker lacks: counters, sets, queues, conditional writes, leases, transactions."""
FORBIDDEN_ANOMALIES: Final = tuple(
    name for family in FAMILIES if family not in NOT_OFFERED for name in family.anomalies
)
ALWAYS_EXAMINED: Final = (
    *OWNERSHIP_ANOMALIES,
    *REPLICA_ANOMALIES,
    *REPLICATION_ANOMALIES,
    *LIVENESS_ANOMALIES,
    *INSPECTION.anomalies,
)
"""Checks that have data in every run of brokers: event logs, disks, and the snapshots after the run."""

OUTAGES: Final = ("outage", "outage-power-loss")
"""Faults that stop all servers for some seconds: no one serves, which is their purpose."""
GROUPS_STALL: Final = (*OUTAGES, "power-loss", "power-loss-in-fsync", "partition-leader-and-follower")
"""Faults under which groups and waiting readers cannot succeed until they are healed.

- If all servers lose power, no one serves until they are back.
- If two of three brokers are cut off from ZooKeeper and from the third, no record reaches two in-sync replicas. The two
  cannot shrink an in-sync set, and the third is alone in the sets that it leads.
"""
PATIENCE: Final = 2.2
"""Seconds: a client call (``READ_SECONDS``, ``CALL_SECONDS``), a back-off and a metadata request."""


def build_contract(
    *needed: str, may_stall: Sequence[str] = OUTAGES, rebalance_deadline: float | None = None
) -> Contract:
    """Forbids everything. ``needed``: checks for which a run must have data, beyond ``ALWAYS_EXAMINED``."""
    contract = forbid(
        *needed, *ALWAYS_EXAMINED, rebalance_deadline=rebalance_deadline, may_stall=may_stall, patience=PATIENCE
    ).forbid_also(*FORBIDDEN_ANOMALIES)
    return msgspec.structs.replace(contract, linearizable_ends=True, dense_offsets=True)
