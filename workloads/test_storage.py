"""The log's disks: what was acknowledged survives damage on a minority, and the loss of power everywhere.

pytest workloads/test_storage.py --nemesis=truncate-tail,garbage-tail,corrupt
pytest workloads/test_storage.py --cluster=sim --nemesis=power-loss --nemesis-target=all

Every record is on the disk before it counts (``flush.messages=1``), so that no power loss may take any; in
``test_unflushed`` only every fortieth of a partition is. Segments and
index intervals are small, so that a run has many of each, and readers look into the middle of the log as well, all
through the run and all over the log at its end. Records have few sizes, multiples of the smallest: one that is led to
the wrong place finds another record there as often as not, and gets a valid answer rather than nonsense.
"""

from collections.abc import Sequence

from assay.checkers.log.family import LOG_ANOMALIES
from assay.harness.core.generator import Generator, mix
from assay.harness.run.experiment import experiment
from assay.harness.run.settings import Settings
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.broker_contract import OUTAGES, promised
from assay.workloads.broker.log_client import LogClient
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_messages import Record
from assay.workloads.broker.log_operations import glance, glances, traffic
from assay.workloads.broker.mixes import LOG_MIXES, TAILS
from assay.workloads.broker.topic_mixes import COMPACTION

SYSTEM = (
    Broker(partitions=4, replication=3, min_insync=2)
    .with_setting("flush.messages", "1")
    .with_setting("segment.bytes", "16384")
    .with_setting("index.interval.bytes", "128")
)
# Where all lose power none serves until it is back, and that is the purpose.
CONTRACT = promised(*LOG_ANOMALIES, may_stall=(*OUTAGES, "power-loss", "power-loss-in-fsync"))
UNIT = 48
"""Bytes of the smallest record on the disk; others are twice or three times as large."""
OVERHEAD = 34
"""Bytes of a record without key and value."""
PLACES = 400
"""At how many places of each partition readers look at the end."""
FLUSH_MESSAGES = 40


class StorageClient(LogClient):
    """Records that have a key of one of three lengths in addition to their value."""

    @staticmethod
    def records(values: Sequence[int]) -> Sequence[Record]:
        return [(_key(value), str(value).encode()) for value in values]


def _key(value: int) -> bytes:
    """As long as it takes to make the record one, two or three units large, unless the value is too long for that."""
    return b"k" * (UNIT * (1 + value * 7919 % 3) - OVERHEAD - len(str(value)))


@experiment(system=SYSTEM, client=StorageClient, contract=CONTRACT, mixes=LOG_MIXES)
def test_storage(settings: Settings) -> Generator:
    """What was acknowledged is there, also after damage to the disks of a minority, or a loss of power of all."""
    return _body()


@experiment(
    system=SYSTEM.with_setting("flush.messages", str(FLUSH_MESSAGES)),
    client=StorageClient,
    contract=CONTRACT.tolerate_unflushed(FLUSH_MESSAGES),
    # Of a compacted log it cannot be said where the loss of power cut it: what is not there may have been compacted.
    # Nor of one whose last records are of unknown fate: only a reported end says whether they were there.
    mixes=tuple(one for one in LOG_MIXES if one not in (COMPACTION, TAILS)),
)
def test_unflushed(settings: Settings) -> Generator:
    """Not every record is flushed: with everybody's power the last few of a partition may go, and no other."""
    return _body()


def _body() -> Generator:
    keys = SYSTEM.keys()
    return (
        mix(traffic(keys), glance(keys), weights=(9, 1))
        | drain(keys, seconds=CONTRACT.recovery_deadline)
        | glances(keys, each=PLACES, seconds=CONTRACT.recovery_deadline)
    )
