"""Deployment of RabbitMQ 3.10 in Docker, the leaders of its queues, and connections to it."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import aiormq
import requests
from aiormq.exceptions import AMQPError, ChannelInvalidStateError

from assay import Cluster, Node, Software, System

PORT, HTTP, DATA, CONFIG, USER = 5672, 15672, "/var/lib/rabbitmq-assay", "/etc/assay-rabbitmq", ("assay", "assay")
TROUBLE, SECONDS = (AMQPError, ChannelInvalidStateError, OSError, TimeoutError), 3.0
"""The exceptions of an operation, and its timeout in seconds."""
QUORUM, MIRRORED = "quorum", "mirrored"
"""The names of the two queues."""
HANDLING = {"partition-handling": ("ignore", "pause_minority", "autoheal")}
START = f"""
export RABBITMQ_NODENAME=rabbit@{{address}} RABBITMQ_USE_LONGNAME=true RABBITMQ_MNESIA_BASE={DATA} RABBITMQ_LOGS=-
export RABBITMQ_CONFIG_FILE={CONFIG} RABBITMQ_ENABLED_PLUGINS_FILE={CONFIG}.plugins HOME=/root
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-setcookie assay -kernel net_ticktime 4"
exec /usr/lib/rabbitmq/bin/rabbitmq-server
"""
DEFINITIONS = {
    "users": [{"name": USER[0], "password": USER[1], "tags": "administrator"}], "vhosts": [{"name": "/"}],
    "permissions": [{"user": USER[0], "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
    "policies": [{"vhost": "/", "name": "all", "pattern": MIRRORED, "apply-to": "queues",
                  "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}],
}  # fmt: skip


async def connect(address: str) -> aiormq.abc.AbstractConnection:
    """Connects to a server. Raises one of ``TROUBLE``."""
    async with asyncio.timeout(SECONDS):
        return await aiormq.connect(f"amqp://{':'.join(USER)}@{address}/?heartbeat=2")


def is_cancelled() -> bool:
    """Returns whether the current task was asked to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@dataclass(frozen=True)
class RabbitMQ(System):
    name: str = "rabbitmq"
    roles: Sequence[str] = ("server",)
    failover: float = 6.0
    """Seconds: a node counts as down after ``net_ticktime`` plus a quarter of it without an answer."""
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
            f"{CONFIG}.json": json.dumps(DEFINITIONS).encode(),
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
