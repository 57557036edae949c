"""Consumer groups of the old design: members join, read, commit and leave, and coordinate through ZooKeeper.

pytest workloads/test_zookeeper_group.py --nemesis=zookeeper-kill
pytest workloads/test_zookeeper_group.py --cluster=sim --nemesis=kill --repeat=60 --rate=100 -q

There are no generations. So the check for double ownership looks for times at which two members certainly held the same
partition. At the end all members leave and rejoin, so that new owners begin at the final offsets. Then a new group
reads all records from the beginning.
"""

from assay.checkers.groups.family import CONSUMER_ANOMALIES, GROUP_CONVERGENCE
from assay.checkers.groups.offsets import OFFSETS
from assay.checkers.groups.read_after_release import READS_AFTER_RELEASE
from assay.checkers.groups.split_views import SPLIT_VIEWS
from assay.checkers.log.family import LOG_ANOMALIES
from assay.harness.core.generator import Generator, mix, stagger
from assay.harness.core.operation import Operation
from assay.harness.run.settings import Settings
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.broker_contract import GROUPS_STALL, build_contract
from assay.workloads.broker.connector_client import ConnectorClient
from assay.workloads.broker.group_drain import drain, leave_and_rejoin
from assay.workloads.broker.group_mixes import ZOOKEEPER_MIXES, adapt_to_groups, list_subscribed, member_experiment
from assay.workloads.broker.group_operations import WORKERS, CommitPositions, LeaveGroup, PollGroup
from assay.workloads.broker.log_operations import End, Send
from assay.workloads.broker.mixes import OLD_GROUP_MIXES

SYSTEM = Broker(partitions=4, replication=3, min_insync=2).with_setting("flush.messages", "1")
LEAVE_SECONDS = 2.0
"""Average time between two members that leave."""
CONTRACT = build_contract(
    *LOG_ANOMALIES,
    *OFFSETS.anomalies,
    *CONSUMER_ANOMALIES,
    *READS_AFTER_RELEASE.anomalies,
    *SPLIT_VIEWS.anomalies,
    *GROUP_CONVERGENCE.anomalies,  # members retry for ever
    # A claim ends with its session (2 s). Members release within an operation (5 s), and retry at least every 1.5 s.
    # None of these steps waits for a member that is gone. So once a fault is healed, no partition may stay unowned.
    rebalance_deadline=10.0,
    may_stall=GROUPS_STALL,
).tolerate_under(
    "double-ownership",
    faults=["stop-consumer", "freeze", "clock", "zookeeper-pause"],
    because=(
        "the old design has no fence: a consumer that sleeps, or whose clock runs slow, believes that it owns its "
        "partitions until it looks at its clock again; and a ZooKeeper server that lags answers requests of sessions "
        "that the leading server has let expire"
    ),
)


@member_experiment(
    system=SYSTEM,
    client=ConnectorClient,
    contract=CONTRACT,
    mixes=(*adapt_to_groups(OLD_GROUP_MIXES, WORKERS), *ZOOKEEPER_MIXES),
)
def test_zookeeper_group(settings: Settings) -> Generator:
    """Members share the acknowledged records, each partition has one owner at a time, and no offset goes back."""
    keys = SYSTEM.keys()
    traffic = mix(
        Send.draw(keys), PollGroup.draw(WORKERS), CommitPositions.draw(WORKERS, keys), End.draw(keys),
        stagger(LEAVE_SECONDS, lambda context: Operation(LeaveGroup.f, argument={"group": WORKERS})),
        weights=(8, 8, 4, 1, 2),
    )  # fmt: skip
    shared = list_subscribed(SYSTEM, settings)
    return traffic | leave_and_rejoin(WORKERS) | drain(shared, seconds=CONTRACT.recovery_deadline)
