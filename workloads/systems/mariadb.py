"""Deployment of MariaDB 10.11 on one node in Docker, and sessions to it. The node installs MariaDB from Debian."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pymysql

from assay import BANK_ANOMALIES, Cluster, Node, NodeCounts, Software, System

PORT, DATA = 3306, "/var/lib/mysql/assay"
SNAPSHOT_OPTION = "innodb_snapshot_isolation"
"""Available since 10.11.8; older servers do not start with this option."""
VARIANTS = {SNAPSHOT_OPTION: ("OFF", "ON")}
"""Settings (``--set``) with their values."""
LOST_UPDATES = ("G-single", "G-nonadjacent", *BANK_ANOMALIES)
"""The anomalies that a lost update causes."""
START = f"""
install -d -o mysql -g mysql -m 700 {DATA} /run/mysqld
[ -d {DATA}/mysql ] || mariadb-install-db --no-defaults --user=mysql --datadir={DATA} > /dev/null
exec mariadbd --no-defaults --user=mysql --datadir={DATA} --bind-address=0.0.0.0 --skip-name-resolve \\
    --init-file=/etc/assay.sql"""
TABLES = """create database if not exists assay;
create user if not exists assay@'%';
grant all on assay.* to assay@'%';
create table if not exists assay.lists (id int primary key, elements text not null);
create table if not exists assay.accounts (id varchar(9) primary key, balance int not null);
"""


def connect(host: str) -> Any:
    return pymysql.connect(host=host, port=PORT, user="assay", database="assay", connect_timeout=1, read_timeout=4)


@dataclass(frozen=True)
class MariaDB(System):
    name: str = "mariadb"
    roles: Sequence[str] = ("server",)
    node_counts: NodeCounts = field(default_factory=lambda: {"server": 1})
    variants: Mapping[str, Sequence[str]] = field(default_factory=lambda: VARIANTS)
    chosen: tuple[str, ...] = ()
    """Command line options of the chosen settings."""

    def with_setting(self, name: str, value: str) -> System:
        if name not in self.variants:
            raise ValueError(f"{self.name} has no setting {name} here; it has {', '.join(self.variants)}")
        return replace(self, chosen=(*self.chosen, f"--{name}={value}"))

    @property
    def rules_out(self) -> Sequence[str]:
        """The anomalies that must not occur: with snapshot isolation, lost updates, which repeatable read allows."""
        values = [text.partition("=")[2].upper() for text in self.chosen if text.startswith(f"--{SNAPSHOT_OPTION}=")]
        return LOST_UPDATES if values[-1:] in (["ON"], ["1"]) else ()

    def software(self, role: str) -> Software:
        return Software(packages=("mariadb-server",))

    def port(self, role: str) -> int:
        return PORT

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-ec", " ".join((START, *self.chosen))]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {"/etc/assay.sql": TABLES.encode()}

    async def ready(self, node: Node) -> bool:
        connect(node.address).close()
        return True
