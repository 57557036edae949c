"""Leaders and controllers: at most one of each per epoch, and no broker goes back to an older controller.

Topics are created and deleted while clients write to a permanent log. So every controller must elect leaders, and every
leader must append records. Each fault of a controller or leader causes a new epoch.

``test_moves`` moves the log's own partitions between brokers and elects their preferred leaders.

pytest workloads/test_controller.py --nemesis=stop --nemesis-target=controller
pytest workloads/test_controller.py -k moves --nodes=4 --nemesis=kill
pytest workloads/test_controller.py --replay=schedules/zombie-controller.json --time-limit=50 --defect=zombie-controller
"""

from assay.checkers.log.family import LOG_ANOMALIES
from assay.harness.core.generator import Generator, mix, stagger
from assay.harness.run.experiment import experiment
from assay.harness.run.settings import Settings
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.broker_contract import build_contract
from assay.workloads.broker.controller_churn import ControllerClient, churn, moves
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import traffic
from assay.workloads.broker.mixes import LOG_MIXES

SYSTEM = Broker(partitions=4, replication=3, min_insync=2)
# ``may_stall`` allows a fault on all servers at once. A power loss of all is not allowed: an acknowledged record of a
# short-lived topic may have only one copy, which is lost if it is not on disk yet.
CONTRACT = build_contract(*LOG_ANOMALIES, may_stall=("outage",))
CHANGE_SECONDS = 0.15
"""Average seconds between changes. Each change costs ZooKeeper about ten writes and every broker a request."""
MOVE_SECONDS = 0.5
"""Average seconds between moves."""


@experiment(system=SYSTEM, client=ControllerClient, contract=CONTRACT, mixes=LOG_MIXES)
def test_controller(settings: Settings) -> Generator:
    """Each epoch has at most one leader and at most one controller, under every fault."""
    keys = SYSTEM.keys()
    return mix(traffic(keys), stagger(CHANGE_SECONDS, churn())) | drain(keys, seconds=CONTRACT.recovery_deadline)


@experiment(system=SYSTEM, client=ControllerClient, contract=CONTRACT, mixes=LOG_MIXES)
def test_moves(settings: Settings) -> Generator:
    """No record is lost while replicas move between brokers and preferred leaders are elected."""
    keys = SYSTEM.keys()
    moving = stagger(MOVE_SECONDS, moves(keys, settings.nodes, SYSTEM.replication))
    return mix(traffic(keys), moving) | drain(keys, seconds=CONTRACT.recovery_deadline)
