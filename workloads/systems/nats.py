"""Deployment of NATS JetStream 2.9 in Docker, the leader of its stream, and connections to it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import requests
from nats.aio.client import Client as Connection
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from assay import Cluster, Node, Software, System
from assay.workloads.generic import sets

PORT, HTTP, ROUTES, DATA, CONFIG = 4222, 8222, 6222, "/var/lib/nats-assay", "/etc/assay-nats.conf"
TROUBLE = (NatsError, OSError, EOFError, TimeoutError)


async def connect(address: str) -> Connection:
    """Connects to a server. Raises one of ``TROUBLE``.

    The connection does not reconnect by itself, because it would choose other servers.
    """

    async def ignore(error: Exception) -> None:
        """Ignores an error, because each operation reports its own errors."""

    client = Connection()
    try:
        await client.connect(f"nats://{address}", connect_timeout=1, allow_reconnect=False, error_cb=ignore)
    except BaseException:
        await client.close()  # a server may have accepted the connection and not answered
        raise
    return client


@asynccontextmanager
async def open_stream(address: str, seconds: float) -> AsyncIterator[JetStreamContext]:
    client = await connect(address)
    try:
        yield client.jetstream(timeout=seconds)
    finally:
        await client.close()


@dataclass(frozen=True)
class JetStream(System):
    name: str = "nats"
    roles: Sequence[str] = ("server",)
    failover: float = 9.0
    """Seconds: the longest election timeout of JetStream's Raft. It cannot be configured."""

    def software(self, role: str) -> Software:
        return Software(packages=("nats-server",))

    def port(self, role: str) -> int:
        return PORT

    def data_folder(self, node: Node) -> str:
        return DATA

    def argv(self, node: Node) -> Sequence[str]:
        return ["nats-server", "--config", CONFIG]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        routes = ", ".join(f"nats://{one.address}:{ROUTES}" for one in cluster.nodes)
        lines = [f"server_name: {node.name}", f"listen: 0.0.0.0:{PORT}", f"http: 0.0.0.0:{HTTP}"]
        lines += [f"jetstream {{ store_dir: {DATA} }}"]
        lines += [f"cluster {{ name: assay, listen: 0.0.0.0:{ROUTES}, routes: [{routes}] }}"]
        return {CONFIG: "\n".join(lines).encode() + b"\n"}

    async def ready(self, node: Node) -> bool:
        health = await asyncio.to_thread(requests.get, f"http://{node.address}:{HTTP}/healthz", timeout=1)
        return health.ok

    async def set_up(self, cluster: Cluster) -> None:
        async with open_stream(f"{cluster.nodes[0].address}:{PORT}", 10) as stream:
            await stream.add_stream(name=sets.KEY, subjects=[sets.KEY], num_replicas=len(cluster.nodes))

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        for node in cluster.nodes:
            with suppress(*TROUBLE):
                async with open_stream(f"{node.address}:{PORT}", 1) as stream:
                    group = (await stream.stream_info(sets.KEY)).cluster
                    return next((one for one in cluster.nodes if group and one.name == group.leader), None)
        return None

    def keys(self) -> Sequence[str]:
        return [sets.KEY]
