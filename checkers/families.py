"""Every built-in family of checks, in the order in which they are judged.

Broken invariants come first, because they end a run. Otherwise the order only matters if one family reads the tables
of another:

- ``unflushed`` replaces ``log_effects`` by a table without the records that a power loss may have taken.
- ``register-cas`` reads the tables of ``register``. The families of transactions with a declared order read those of
  the family of transactions.

Append your own families: ``judge(..., families=(*FAMILIES, mine))``.
"""

from collections.abc import Iterable
from typing import Final

from assay.checkers.administration.lost_changes import LOST_CHANGES
from assay.checkers.administration.rejected_changes import REJECTED_CHANGES
from assay.checkers.check import Family
from assay.checkers.groups.expiry import EXPIRY
from assay.checkers.groups.family import GROUPS
from assay.checkers.groups.offsets import OFFSETS
from assay.checkers.judging.contract import NO_RECOVERY
from assay.checkers.judging.coverage import NO_RECOVERY_MEANING
from assay.checkers.liveness.client_progress import PROGRESS
from assay.checkers.liveness.family import LIVENESS
from assay.checkers.log.epochs import REPLICATION
from assay.checkers.log.family import LOG, REPORTED, STATEMENTS
from assay.checkers.log.replicas import REPLICAS
from assay.checkers.log.unflushed import UNFLUSHED
from assay.checkers.objects.banks import BANK
from assay.checkers.objects.counters import COUNTERS
from assay.checkers.objects.ids import UNIQUE_IDS
from assay.checkers.objects.max_registers import MAX_REGISTERS
from assay.checkers.objects.monotonic import MONOTONIC, MONOTONIC_REAL_TIME
from assay.checkers.objects.queues import LINEARIZABLE_QUEUES, QUEUES
from assay.checkers.objects.sets import LINEARIZABLE_SETS, SETS
from assay.checkers.register.family import REGISTER, REGISTER_CAS
from assay.checkers.servers.acknowledged_state import INSPECTION
from assay.checkers.servers.invariants import INVARIANTS
from assay.checkers.servers.leadership import OWNERSHIP
from assay.checkers.servers.process_exits import PROCESSES
from assay.checkers.transactions.family import TRANSACTION_FAMILIES

OBJECT_FAMILIES: Final = (COUNTERS, MAX_REGISTERS, SETS, QUEUES, UNIQUE_IDS, MONOTONIC)
FAMILIES: Final[tuple[Family, ...]] = (
    INVARIANTS,
    UNFLUSHED,
    LOG,
    STATEMENTS,
    REPORTED,
    REGISTER,
    REGISTER_CAS,
    *OBJECT_FAMILIES,
    MONOTONIC_REAL_TIME,
    BANK,
    LINEARIZABLE_QUEUES,
    LINEARIZABLE_SETS,
    *OWNERSHIP,
    *GROUPS,
    OFFSETS,
    EXPIRY,
    REJECTED_CHANGES,
    REPLICAS,
    *REPLICATION,
    LIVENESS,
    LOST_CHANGES,
    PROCESSES,
    PROGRESS,
    INSPECTION,
    *TRANSACTION_FAMILIES,
)


def list_meanings(families: Iterable[Family]) -> dict[str, str]:
    """Returns every anomaly that a judgement by these families can name, with its meaning."""
    checks = {check.anomaly: check.meaning for family in families for check in family.checks}
    return checks | {NO_RECOVERY: NO_RECOVERY_MEANING}
