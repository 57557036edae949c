"""The partitioned log: concurrent sends and polls on every partition while nodes fail.

pytest workloads/test_log.py --nemesis=partition
pytest workloads/test_log.py --cluster=sim --nemesis=kill --repeat=300 -q
"""

from assay import LOG_ANOMALIES, Generator, Settings, experiment
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.broker_contract import build_contract
from assay.workloads.broker.log_client import LogClient
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import traffic
from assay.workloads.broker.mixes import LOG_MIXES

SYSTEM = Broker(partitions=4, replication=3, min_insync=2)
CONTRACT = build_contract(*LOG_ANOMALIES)


@experiment(system=SYSTEM, client=LogClient, contract=CONTRACT, mixes=LOG_MIXES)
def test_log(settings: Settings) -> Generator:
    """Acknowledged records are in the log once, in order, and equal on every replica."""
    keys = SYSTEM.keys()
    return traffic(keys) | drain(keys, seconds=CONTRACT.recovery_deadline)
