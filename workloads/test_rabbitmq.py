"""RabbitMQ 3.10: is a message that was confirmed delivered? In Docker; nodes install it from Debian.

pytest workloads/test_rabbitmq.py --rate=100 --nemesis=kill --nemesis=partition
pytest workloads/test_rabbitmq.py -k mirrored --rate=100 --nemesis=partition-isolate-leader --nemesis-interval=30

A quorum queue confirms what a majority has written. A mirrored one confirms what all mirrors have that it knows of: the
two sides of a partition know of themselves alone, and one of them is thrown away (``--set=partition-handling=``
``autoheal``, or ``pause_minority``; the default, ``ignore``, leaves both until an operator restarts one).
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import aiormq
import requests
from aiormq.abc import AbstractConnection
from aiormq.exceptions import AMQPError, ChannelInvalidStateError
from pamqp.commands import Basic

from assay import (
    Cluster,
    Completed,
    Completion,
    Effect,
    Endpoint,
    Generator,
    Node,
    Operation,
    Outcome,
    Settings,
    Software,
    System,
    experiment,
)  # fmt: skip
from assay.workloads import queues

PORT, HTTP, DATA, CONFIG, USER = 5672, 15672, "/var/lib/rabbitmq-assay", "/etc/assay-rabbitmq", ("assay", "assay")
TROUBLE, SECONDS = (AMQPError, ChannelInvalidStateError, OSError, TimeoutError), 3.0
"""For which a client waits for an answer; and what may come in its place."""
QUORUM, MIRRORED = "quorum", "mirrored"
HANDLING = {"partition-handling": ("ignore", "pause_minority", "autoheal")}
START = f"""
export RABBITMQ_NODENAME=rabbit@{{address}} RABBITMQ_USE_LONGNAME=true RABBITMQ_MNESIA_BASE={DATA} RABBITMQ_LOGS=-
export RABBITMQ_CONFIG_FILE={CONFIG} RABBITMQ_ENABLED_PLUGINS_FILE={CONFIG}.plugins HOME=/root
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-setcookie assay -kernel net_ticktime 4"
exec /usr/lib/rabbitmq/bin/rabbitmq-server
"""
DEFINED = {
    "users": [{"name": USER[0], "password": USER[1], "tags": "administrator"}],
    "vhosts": [{"name": "/"}],
    "permissions": [{"user": USER[0], "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
    "policies": [{"vhost": "/", "name": "all", "pattern": MIRRORED, "apply-to": "queues",
                  "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}],
}  # fmt: skip


async def connect(address: str) -> AbstractConnection:
    """Raises one of ``TROUBLE``."""
    async with asyncio.timeout(SECONDS):
        return await aiormq.connect(f"amqp://{':'.join(USER)}@{address}/?heartbeat=2")


@dataclass(frozen=True)
class RabbitMQ(System):
    name: str = "rabbitmq"
    roles: Sequence[str] = ("server",)
    failover: float = 6.0
    """Seconds: a node is away when it has not answered for ``net_ticktime``, and a quarter of it."""
    variants: Mapping[str, Sequence[str]] = field(default_factory=lambda: HANDLING)
    handling: str = "ignore"

    def with_setting(self, name: str, value: str) -> System:
        if name not in HANDLING:
            raise ValueError(f"rabbitmq has no setting {name} here; it has {', '.join(HANDLING)}")
        return replace(self, handling=value)

    def software(self, role: str) -> Software:
        return Software(packages=("rabbitmq-server",))

    def port(self, role: str) -> int:
        return PORT

    def data_folder(self, node: Node) -> str:
        return DATA

    def argv(self, node: Node) -> Sequence[str]:
        return ["bash", "-ec", START.format(address=node.address)]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        lines = [f"load_definitions = {CONFIG}.json", f"cluster_partition_handling = {self.handling}"]
        lines += ["cluster_formation.peer_discovery_backend = classic_config", "heartbeat = 2"]
        lines += [
            f"cluster_formation.classic_config.nodes.{number} = rabbit@{one.address}"
            for number, one in enumerate(cluster.nodes, 1)
        ]
        return {
            f"{CONFIG}.conf": "\n".join(lines).encode() + b"\n",
            f"{CONFIG}.json": json.dumps(DEFINED).encode(),
            f"{CONFIG}.plugins": b"[rabbitmq_management].\n",
        }

    async def ready(self, node: Node) -> bool:
        await (await connect(f"{node.address}:{PORT}")).close()
        return True

    async def set_up(self, cluster: Cluster) -> None:
        connection = await connect(f"{cluster.nodes[0].address}:{PORT}")
        channel = await connection.channel()
        await channel.queue_declare(MIRRORED, durable=True)
        await channel.queue_declare(QUORUM, durable=True, arguments={"x-queue-type": "quorum"})
        await connection.close()

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        for node in cluster.nodes:
            with suppress(requests.RequestException, KeyError):
                page = f"http://{node.address}:{HTTP}/api/queues/%2F/{key}"
                found = await asyncio.to_thread(requests.get, page, auth=USER, timeout=1)
                leader = found.json()["node"].partition("@")[2]
                return next((one for one in cluster.nodes if one.address == leader), None)
        return None

    def keys(self) -> Sequence[str]:
        return [QUORUM, MIRRORED]


class Elements:
    """Asks its own server. What it takes it acknowledges at once: what did not arrive is given out again."""

    async def open(self, endpoint: Endpoint, runtime: object) -> None:
        self.connection = await connect(endpoint.address)
        self.channel = await self.connection.channel()

    async def invoke(self, operation: Operation) -> Completion:
        queue, taken = str(operation.key), list[int]()
        try:
            async with asyncio.timeout(SECONDS):
                if operation.f == queues.ENQUEUE:
                    body, kept = b"%d" % operation.argument, Basic.Properties(delivery_mode=2)
                    await self.channel.basic_publish(body, routing_key=queue, properties=kept, mandatory=True)
                while operation.f != queues.ENQUEUE:
                    found = await self.channel.basic_get(queue)
                    if found.delivery_tag is None:
                        break
                    taken.append(int(found.body))
                    await self.channel.basic_ack(found.delivery_tag)
                    if operation.f == queues.DEQUEUE:
                        break
            return Completion(Outcome.OK, taken)
        except TROUBLE as error:
            return Completion(Outcome.INFO, taken, error=type(error).__name__)

    async def close(self) -> None:
        with suppress(*TROUBLE):
            async with asyncio.timeout(1):
                await self.connection.close()

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return queues.effects(completed)


@experiment(system=RabbitMQ(), client=Elements, contract=queues.at_least_once())
def test_quorum(settings: Settings) -> Generator:
    """What was confirmed is taken by someone, from a queue that a majority keeps."""
    return queues.traffic(QUORUM)


@experiment(system=RabbitMQ(), client=Elements, contract=queues.at_least_once())
def test_mirrored(settings: Settings) -> Generator:
    """What was confirmed is taken by someone, from a queue with a mirror on each node."""
    return queues.traffic(MIRRORED)
