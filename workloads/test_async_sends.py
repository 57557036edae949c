"""The log with asynchronous producers: the message sets of a client must be in the log in the order of sending.

pytest workloads/test_async_sends.py --nemesis=partition-one-way
pytest workloads/test_async_sends.py --cluster=sim --nemesis=kill,partition-one-way

A leader rejects a set if it has too few in-sync followers or is about to step down. The producer then sends the set
again after a back-off, while later sets of the same client wait behind it.
"""

from assay.checkers.log.family import LOG_ANOMALIES
from assay.checkers.log.order import SEND_SKIP
from assay.harness.core.generator import Generator, mix
from assay.harness.run.experiment import experiment
from assay.harness.run.settings import Settings
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.broker_contract import build_contract
from assay.workloads.broker.bursts import Burst
from assay.workloads.broker.log_client import LogClient
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import End, Poll
from assay.workloads.broker.mixes import LOG_MIXES

SYSTEM = Broker(partitions=4, replication=3, min_insync=2)
# Every set has one record. So the check send-skip, for the order of the values in one set, has no data.
CONTRACT = build_contract(*(anomaly for anomaly in LOG_ANOMALIES if anomaly != SEND_SKIP.anomaly))


@experiment(system=SYSTEM, client=LogClient, contract=CONTRACT, mixes=LOG_MIXES)
def test_async_sends(settings: Settings) -> Generator:
    """Acknowledged records are in the log once, in the order in which each client sent them."""
    keys = SYSTEM.keys()
    traffic = mix(Burst.draw(keys), Poll.draw(keys), End.draw(keys), weights=(9, 10, 1))
    return traffic | drain(keys, seconds=CONTRACT.recovery_deadline)
