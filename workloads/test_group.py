"""Consumer groups: members join, leave, die and fall silent while records are sent, read and committed.

pytest workloads/test_group.py --nemesis=stop
pytest workloads/test_group.py --cluster=sim --nemesis=kill --repeat=60 --rate=100 -q

The owner of a partition continues to read at the group's committed offset. The checks judge

- each commit as the write of a register, and by its generation
- the partitions that members own in each generation
- the records that members read, as for any reader of the log

At the end a new group reads all records from the beginning, and the earlier members read to the end.
"""

from assay.checkers.groups.family import CONSUMER_ANOMALIES, GROUP_ANOMALIES, GROUP_CONVERGENCE
from assay.checkers.log.family import LOG_ANOMALIES
from assay.checkers.register.family import REGISTER
from assay.harness.core.generator import Generator
from assay.harness.run.settings import Settings
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.broker_contract import GROUPS_STALL, build_contract
from assay.workloads.broker.group_client import GroupClient
from assay.workloads.broker.group_drain import catch_up, drain, stay_in_group
from assay.workloads.broker.group_mixes import (
    GROUP_MIXES,
    adapt_to_groups,
    list_owned,
    list_subscribed,
    member_experiment,
)
from assay.workloads.broker.group_operations import WORKERS, traffic
from assay.workloads.broker.mixes import LOG_MIXES

# There are fewer partitions than members, so some own nothing. Acknowledged data survives a power loss.
SYSTEM = Broker(partitions=4, replication=3, min_insync=2, groups=(WORKERS,)).with_setting("flush.messages", "1")
CONTRACT = build_contract(
    *LOG_ANOMALIES,
    *GROUP_ANOMALIES,
    *CONSUMER_ANOMALIES,
    *GROUP_CONVERGENCE.anomalies,
    *REGISTER.anomalies,
    may_stall=GROUPS_STALL,
)
MIXES = (*adapt_to_groups(LOG_MIXES, WORKERS), *GROUP_MIXES)


def build_group_traffic(settings: Settings) -> Generator:
    """Returns traffic and a drain, after which the members catch up and stay; for any design with a coordinator."""
    shared, seconds = list_subscribed(SYSTEM, settings), CONTRACT.recovery_deadline
    main = traffic(SYSTEM.keys(), owned=list_owned(SYSTEM, settings))
    return main | drain(shared, seconds=seconds) | catch_up(shared, seconds=seconds) | stay_in_group()


@member_experiment(system=SYSTEM, client=GroupClient, contract=CONTRACT, mixes=MIXES)
def test_group(settings: Settings) -> Generator:
    """Members share the records, each partition has one owner, and no member of an old generation commits."""
    return build_group_traffic(settings)
