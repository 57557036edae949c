"""A consumer group at work: members join, leave, die and fall silent while records are sent, read and committed.

pytest workloads/test_group.py --nemesis=stop
pytest workloads/test_group.py --cluster=sim --nemesis=kill --repeat=60 --rate=100 -q

Whoever owns a partition reads on from what the group has committed. Each commit is judged as the write of a register
and in its generation, what members own in theirs, and what they read as what any reader of the log reads. At the end a
fresh group reads everything from the beginning, and the members that worked read on to the end from where they stand.
"""

from __future__ import annotations

from checkers.contract import forbid
from checkers.groups import CONSUMER_ANOMALIES, GROUP_ANOMALIES
from checkers.log import LOG_ANOMALIES
from checkers.ownership import OWNERSHIP_ANOMALIES
from checkers.register import REGISTER
from checkers.replicas import REPLICA_ANOMALIES
from harness.app.experiment import experiment
from harness.app.settings import Settings
from harness.core.generator import Generator
from system_under_test.deployment import Broker
from workloads.group_client import GroupClient
from workloads.group_drain import catch_up, drain
from workloads.group_operations import WORKERS, traffic

# Fewer partitions than members: some own nothing. What is acknowledged is on the disk, whatever becomes of the power.
SYSTEM = Broker(partitions=4, replication=3, min_insync=2, groups=(WORKERS,)).with_setting("flush.messages", "1")
CONTRACT = forbid(
    *LOG_ANOMALIES,
    *GROUP_ANOMALIES,
    *CONSUMER_ANOMALIES,
    *REGISTER.anomalies,
    *OWNERSHIP_ANOMALIES,
    *REPLICA_ANOMALIES,
    may_stall=["power-loss"],  # where all lose power nobody serves until it is back, and that is what is asked for
)


@experiment(system=SYSTEM, client=GroupClient, contract=CONTRACT, workers=True)
def test_group(settings: Settings) -> Generator:
    """Members share what was acknowledged, each partition with one owner, and nobody of an old generation commits."""
    keys, seconds = SYSTEM.keys(), CONTRACT.recovery_deadline
    return traffic(keys) | drain(keys, seconds=seconds) | catch_up(keys, seconds=seconds)
