"""Deployment of etcd 3.4 in Docker. The nodes install it from Debian."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from assay import Cluster, Node, Software, System, by_role
from assay.workloads.systems.etcd_gateway import TROUBLE, ask, encode_text

PORT, PEERS, DATA = 2379, 2380, "/var/lib/etcd-assay"


@dataclass(frozen=True)
class Etcd(System):
    name: str = "etcd"
    roles: Sequence[str] = ("server",)
    failover: float = 1.5
    """Seconds until a new leader serves, derived from the election timeout below."""

    def software(self, role: str) -> Software:
        return Software(packages=("etcd-server",))

    def port(self, role: str) -> int:
        return PORT

    def data_folder(self, node: Node) -> str:
        return DATA

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-ec", "exec etcd $(cat /etc/assay-etcd)"]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        members = ",".join(f"{one.name}=http://{one.address}:{PEERS}" for one in by_role(cluster, "server"))
        urls = {"peer": PEERS, "client": PORT}
        lines = [f"--name={node.name} --data-dir={DATA}/member --initial-cluster={members}"]
        lines += ["--heartbeat-interval=50 --election-timeout=500"]
        lines += [f"--listen-{what}-urls=http://0.0.0.0:{port}" for what, port in urls.items()]
        lines += [f"--initial-advertise-peer-urls=http://{node.address}:{PEERS}"]
        lines += [f"--advertise-client-urls=http://{node.address}:{PORT}"]
        return {"/etc/assay-etcd": " ".join(lines).encode()}

    async def ready(self, node: Node) -> bool:
        return "header" in await asyncio.to_thread(ask, f"{node.address}:{PORT}", "kv/range", key=encode_text("ready"))

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        for node in by_role(cluster, "server"):
            with suppress(*TROUBLE):
                status = await asyncio.to_thread(ask, f"{node.address}:{PORT}", "maintenance/status")
                if status["header"]["member_id"] == status.get("leader"):
                    return node
        return None

    def keys(self) -> Sequence[str]:
        return ["registers"]
