"""Deployment of PostgreSQL 15 as a primary with replicas, managed by Patroni 3.0 with ZooKeeper, in Docker.

The nodes install the packages from Debian. Patroni renews the primary's lease in ZooKeeper. If it cannot renew the
lease, it demotes the primary. After the lease has expired, the most advanced replica is promoted, and the old primary
is rewound to follow it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec
import requests

from assay import Cluster, Node, Software, System, zookeeper_servers
from assay.workloads.generic import sets
from assay.workloads.systems.postgresql_primary import PORT, create_replicated_table

REST, DATA, CONFIG = 8008, "/var/lib/postgresql/assay", "/etc/assay-patroni.yml"
SYNCHRONOUS = "synchronous_mode"
LEASE = 20
"""Seconds, the minimum that Patroni accepts."""
START = f"""
install -d -o postgres -g postgres -m 700 {DATA} /var/run/postgresql
cd / && exec setpriv --reuid=postgres --regid=postgres --init-groups patroni {CONFIG}"""
TABLE = "create table if not exists elements (element int primary key)"
USER = {"username": "assay", "password": "assay"}


@dataclass(frozen=True)
class Patroni(System):
    name: str = "patroni"
    roles: Sequence[str] = ("zookeeper", "server")
    failover: float = LEASE + 10.0
    """Seconds: the lease must expire before a replica is promoted."""
    synchronous: bool = False

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        return {SYNCHRONOUS: ("off", "on")}

    def with_setting(self, name: str, value: str) -> System:
        if name != SYNCHRONOUS or value not in ("off", "on"):
            raise ValueError(f"patroni has the setting {SYNCHRONOUS} here, off or on")
        return replace(self, synchronous=value == "on")

    def software(self, role: str) -> Software:
        packages = ("patroni", "postgresql-15", "python3-kazoo")
        return Software(packages=packages if role == "server" else ())

    def port(self, role: str) -> int:
        return PORT

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-ec", START]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        shared = {
            "ttl": LEASE, "loop_wait": 2, "retry_timeout": 3, SYNCHRONOUS: self.synchronous,
            "postgresql": {"use_pg_rewind": True, "parameters": {"wal_log_hints": "on"}},
        }  # fmt: skip
        config = {
            "scope": "assay", "name": node.name, "zookeeper": {"hosts": zookeeper_servers(cluster).split(",")},
            "restapi": {"listen": f"0.0.0.0:{REST}", "connect_address": f"{node.address}:{REST}"},
            "bootstrap": {"dcs": shared, "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}]},
            "postgresql": {
                "listen": f"0.0.0.0:{PORT}", "connect_address": f"{node.address}:{PORT}", "data_dir": DATA,
                "bin_dir": "/usr/lib/postgresql/15/bin", "pgpass": f"{DATA}.pgpass",
                "pg_hba": ["local all all trust", "host all all all trust", "host replication all all trust"],
                "authentication": {"superuser": USER, "replication": USER, "rewind": USER},
            },
        }  # fmt: skip
        return {CONFIG: msgspec.json.encode(config)}  # JSON is YAML

    async def ready(self, node: Node) -> bool:
        return await self._answers(node, "health")

    async def set_up(self, cluster: Cluster) -> None:
        await create_replicated_table([node.address for node in cluster.nodes if node.role == "server"], TABLE)

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        for node in cluster.nodes:
            if node.role == "server" and await self._answers(node, "primary"):
                return node
        return None

    def keys(self) -> Sequence[str]:
        return [sets.KEY]

    async def _answers(self, node: Node, what: str) -> bool:
        with suppress(requests.RequestException):
            return (await asyncio.to_thread(requests.get, f"http://{node.address}:{REST}/{what}", timeout=1)).ok
        return False
