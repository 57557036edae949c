"""Leaders and controllers: one of each per epoch, and no broker goes back to an older controller.

Topics come and go while clients write to a log that stays, so that every controller has leaders to elect and every
leader something to append. Faults do the rest: each controller and each leader that they hit costs an epoch.

In ``test_moves`` it is the log's own partitions that are moved between brokers, and led by the first of their replicas.

pytest workloads/test_controller.py --nemesis=stop --nemesis-target=controller
pytest workloads/test_controller.py -k moves --nodes=4 --nemesis=kill
pytest workloads/test_controller.py --replay=schedules/zombie-controller.json --time-limit=50 --defect=zombie-controller
"""

from assay.checkers.log.family import LOG_ANOMALIES
from assay.harness.core.generator import Generator, mix, stagger
from assay.harness.run.experiment import experiment
from assay.harness.run.settings import Settings
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.broker_contract import promised
from assay.workloads.broker.controller_churn import churn, moves
from assay.workloads.broker.controller_client import ControllerClient
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import traffic
from assay.workloads.broker.mixes import LOG_MIXES

SYSTEM = Broker(partitions=4, replication=3, min_insync=2)
# One copy of a record is enough for the topics that come and go, and it may be with the one that loses its power.
CONTRACT = promised(*LOG_ANOMALIES, may_stall=("outage",))
CHANGES_EVERY = 0.15
"""Seconds, on average: each change of a topic costs ZooKeeper some ten writes and every broker a request."""

MOVES_EVERY = 0.5


@experiment(system=SYSTEM, client=ControllerClient, contract=CONTRACT, mixes=LOG_MIXES)
def test_controller(settings: Settings) -> Generator:
    """One leader and one controller per epoch, under every fault."""
    keys = SYSTEM.keys()
    return mix(traffic(keys), stagger(CHANGES_EVERY, churn())) | drain(keys, seconds=CONTRACT.recovery_deadline)


@experiment(system=SYSTEM, client=ControllerClient, contract=CONTRACT, mixes=LOG_MIXES)
def test_moves(settings: Settings) -> Generator:
    """Replicas go from broker to broker, leaders back to where they belong, and no record is lost on the way."""
    keys = SYSTEM.keys()
    moving = stagger(MOVES_EVERY, moves(keys, settings.nodes, SYSTEM.replication))
    return mix(traffic(keys), moving) | drain(keys, seconds=CONTRACT.recovery_deadline)
