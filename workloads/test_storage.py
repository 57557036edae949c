"""The log's disks: acknowledged records survive damage on a minority of brokers, and a power loss on all brokers.

pytest workloads/test_storage.py --nemesis=truncate-tail,garbage-tail,corrupt
pytest workloads/test_storage.py --cluster=sim --nemesis=power-loss --nemesis-target=all

Every record is flushed before it is acknowledged (``flush.messages=1``), so a power loss must not lose any. In
``test_unflushed`` a partition is only flushed after every fortieth record.

Segments and index intervals are small, so that a run has many of each. Readers also read in the middle of the log
during the run, and in many places of the log at its end. All record sizes are small multiples of one unit. So a lookup
with a wrong position often finds a valid record there, and the answer is plausible but wrong.
"""

from collections.abc import Sequence

from assay.checkers.log.family import LOG_ANOMALIES
from assay.harness.core.generator import Generator, mix
from assay.harness.run.experiment import experiment
from assay.harness.run.settings import Settings
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.broker_contract import OUTAGES, build_contract
from assay.workloads.broker.log_client import LogClient
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_messages import Record
from assay.workloads.broker.log_operations import Glance, Send, traffic
from assay.workloads.broker.mixes import COMPACTION, LEADER_ONLY_TAILS, LOG_MIXES

SYSTEM = (
    Broker(partitions=4, replication=3, min_insync=2)
    .with_setting("flush.messages", "1")
    .with_setting("segment.bytes", "16384")
    .with_setting("index.interval.bytes", "128")
)
# If all brokers lose power, no request is served until they are back.
CONTRACT = build_contract(*LOG_ANOMALIES, may_stall=(*OUTAGES, "power-loss", "power-loss-in-fsync"))
UNIT = 48
"""Size in bytes of the smallest record on disk; other records are twice or three times as large."""
OVERHEAD = 34
"""Size in bytes of a record without key and value."""
POSITIONS = 400
"""Number of positions per partition at which readers read in the end."""
FLUSH_MESSAGES = 40


class StorageSend(Send):
    """Sends records with keys, so that each record is one, two or three units large."""

    @staticmethod
    def records(values: Sequence[int]) -> Sequence[Record]:
        return [(_make_key(value), str(value).encode()) for value in values]


class StorageClient(LogClient):
    verbs = (*LogClient.verbs, StorageSend)


def _make_key(value: int) -> bytes:
    """Returns a key that makes the record one, two or three units large, unless the value is too long."""
    return b"k" * (UNIT * (1 + value * 7919 % 3) - OVERHEAD - len(str(value)))


@experiment(system=SYSTEM, client=StorageClient, contract=CONTRACT, mixes=LOG_MIXES)
def test_storage(settings: Settings) -> Generator:
    """Acknowledged records survive damage to the disks of a minority, and a power loss on all brokers."""
    return _build_operations()


@experiment(
    system=SYSTEM.with_setting("flush.messages", str(FLUSH_MESSAGES)),
    client=StorageClient,
    contract=CONTRACT.tolerate_unflushed(FLUSH_MESSAGES),
    # In a compacted log, a loss cannot be distinguished from compaction. With the mix of leader-only tails, the last
    # records are not acknowledged. So in both cases the lost part of a log is unknown.
    mixes=tuple(one for one in LOG_MIXES if one not in (COMPACTION, LEADER_ONLY_TAILS)),
)
def test_unflushed(settings: Settings) -> Generator:
    """A power loss on all brokers may lose the last unflushed records of a partition, and no others."""
    return _build_operations()


def _build_operations() -> Generator:
    keys = SYSTEM.keys()
    return (
        mix(traffic(keys), Glance.draw(keys), weights=(9, 1))
        | drain(keys, seconds=CONTRACT.recovery_deadline)
        | Glance.draw_evenly(keys, each=POSITIONS, seconds=CONTRACT.recovery_deadline)
    )
