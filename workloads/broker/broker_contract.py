"""The broker's contract, shared by all of its workloads.

Every contract forbids every anomaly that a check can find in a broker's history, because the broker makes the same
promises in each workload. Contracts differ mainly in the checks that must have data: ``ALWAYS_EXAMINED`` in every run,
and the checks that the workload and its mix name. Tolerated exceptions name the faults and the reason.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from assay.checkers.families import FAMILIES, OBJECT_FAMILIES
from assay.checkers.groups.family import FENCING
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.liveness.family import LIVENESS_ANOMALIES
from assay.checkers.log.epochs import REPLICATION_ANOMALIES
from assay.checkers.log.replicas import REPLICA_ANOMALIES
from assay.checkers.objects.queues import LINEARIZABLE_QUEUES
from assay.checkers.objects.sets import LINEARIZABLE_SETS
from assay.checkers.register.family import REGISTER_CAS
from assay.checkers.servers.acknowledged_state import INSPECTION
from assay.checkers.servers.leadership import OWNERSHIP_ANOMALIES
from assay.checkers.transactions.family import TRANSACTION_FAMILIES
from assay.system_under_test.protocol.errors import ErrorCode as E
from assay.workloads.broker.log_names import format_error

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
"""Faults that stop all servers for some seconds, so that no request is served."""
GROUPS_STALL: Final = (*OUTAGES, "power-loss", "power-loss-in-fsync", "partition-leader-and-follower")
"""Faults under which groups and waiting readers cannot succeed until they are healed.

- If all servers lose power, no request is served until they are back.
- If two of three brokers are cut off from ZooKeeper and from the third, no record reaches two in-sync replicas. The two
  cannot shrink an in-sync set without ZooKeeper. The third can, but then it is alone in the sets that it leads.
"""
REFUSALS: Final = tuple(
    map(
        format_error,
        (
            E.OFFSET_OUT_OF_RANGE, E.CORRUPT_MESSAGE, E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_FETCH_SIZE,
            E.MESSAGE_TOO_LARGE, E.OFFSET_METADATA_TOO_LARGE, E.INVALID_TOPIC, E.RECORD_LIST_TOO_LARGE,
            E.INVALID_REQUIRED_ACKS, E.ILLEGAL_GENERATION, E.INCONSISTENT_GROUP_PROTOCOL, E.INVALID_GROUP_ID,
            E.UNKNOWN_MEMBER_ID, E.INVALID_SESSION_TIMEOUT, E.REBALANCE_IN_PROGRESS, E.INVALID_TIMESTAMP,
            E.TOPIC_ALREADY_EXISTS, E.INVALID_PARTITIONS, E.INVALID_REPLICATION_FACTOR, E.INVALID_REPLICA_ASSIGNMENT,
            E.INVALID_CONFIG, E.INVALID_REQUEST, E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.POLICY_VIOLATION,
        ),
    )
)  # fmt: skip
"""Error codes with which a broker that works rejects a request. Other codes mean that the broker cannot serve now."""
PATIENCE: Final = 2.2
"""Seconds after which every client has turned from a silent broker to another one: the limit of a client call
(``READ_SECONDS``, ``CALL_SECONDS``), a back-off and a metadata request."""


def build_contract(
    *needed: str, may_stall: Sequence[str] = OUTAGES, rebalance_deadline: float | None = None
) -> Contract:
    """Returns a contract that forbids all anomalies of the broker.

    ``needed``: checks for which a run must have data, in addition to ``ALWAYS_EXAMINED``. ``may_stall``: faults under
    which no client may be served. ``rebalance_deadline``: seconds that a partition may be without an owner.
    """
    contract = forbid(
        *needed,
        *ALWAYS_EXAMINED,
        rebalance_deadline=rebalance_deadline,
        may_stall=may_stall,
        patience=PATIENCE,
        refusals=REFUSALS,
    ).forbid_also(*FORBIDDEN_ANOMALIES)
    # Reported log ends are linearizable, and each offset of an uncompacted log has a record.
    return msgspec.structs.replace(contract, linearizable_ends=True, dense_offsets=True)
