"""Deployment of PostgreSQL 15 on one node in Docker, and sessions to it. The node installs it from Debian."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from signal import SIGINT, Signals
from typing import Any

import psycopg

from assay import Cluster, Node, NodeCounts, Software, System
from assay.workloads.systems.postgresql_client import TABLES

PORT, DISK = 5432, "/var/lib/postgresql"
DATA = f"{DISK}/assay"
START = f"""
as="setpriv --reuid=postgres --regid=postgres --clear-groups /usr/lib/postgresql/15/bin"
install -d -o postgres -g postgres -m 700 {DATA} /var/run/postgresql
[ -f {DATA}/PG_VERSION ] || $as/initdb -D {DATA} -U assay -A trust -E UTF8 > /dev/null
exec $as/postgres -D {DATA} -c listen_addresses=* -c hba_file=/etc/assay-hba.conf
"""


def connect(host: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=host, port=PORT, user="assay", dbname="postgres", connect_timeout=2, tcp_user_timeout=4000
    )


@dataclass(frozen=True)
class PostgreSQL(System):
    name: str = "postgresql"
    roles: Sequence[str] = ("server",)
    node_counts: NodeCounts = field(default_factory=lambda: {"server": 1})

    def software(self, role: str) -> Software:
        return Software(packages=("postgresql-15",))

    def port(self, role: str) -> int:
        return PORT

    def stop_signal(self, role: str) -> Signals:
        return SIGINT  # after SIGTERM the server would wait until all clients have disconnected

    def data_folder(self, node: Node) -> str:
        return DISK

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-ec", START]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {"/etc/assay-hba.conf": b"host all all all trust\n"}

    async def ready(self, node: Node) -> bool:
        connect(node.address).close()
        return True

    async def set_up(self, cluster: Cluster) -> None:
        with connect(cluster.nodes[0].address) as session:
            for statement in TABLES:
                session.execute(statement)
