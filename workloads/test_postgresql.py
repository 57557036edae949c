"""PostgreSQL 15 on one node, at each level of isolation. In Docker; nodes install it from Debian.

pytest workloads/test_postgresql.py --nodes=1 --nemesis=none --nemesis=kill --nemesis-interval=8

What a level allows is tolerated by name, and reported with the reason: write skew at repeatable read, lost updates at
read committed (https://www.postgresql.org/docs/15/transaction-iso.html). Serializable allows nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors

from assay import Cluster, Generator, Node, Settings, Software, System, experiment
from assay.workloads import bank, list_append
from assay.workloads.sql import SqlClient

PORT, DATA = 5432, "/var/lib/postgresql/assay"
START = f"""
as="setpriv --reuid=postgres --regid=postgres --clear-groups /usr/lib/postgresql/15/bin"
install -d -o postgres -g postgres -m 700 {DATA} /var/run/postgresql
[ -f {DATA}/PG_VERSION ] || $as/initdb -D {DATA} -U assay -A trust -E UTF8 > /dev/null
exec $as/postgres -D {DATA} -c listen_addresses=* -c hba_file=/etc/assay-hba.conf
"""
TABLES = """
create table if not exists lists (id int primary key, elements int[] not null);
create table if not exists accounts (id text primary key, balance int not null)
"""


def connect(host: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=host, port=PORT, user="assay", dbname="postgres", connect_timeout=2, tcp_user_timeout=4000
    )


@dataclass(frozen=True)
class PostgreSQL(System):
    name: str = "postgresql"
    roles: Sequence[str] = ("server",)

    def software(self, role: str) -> Software:
        return Software(packages=("postgresql-15",))

    def port(self, role: str) -> int:
        return PORT

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-ec", START]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {"/etc/assay-hba.conf": b"host all all all trust\n"}

    async def ready(self, node: Node) -> bool:
        connect(node.address).close()
        return True

    async def set_up(self, cluster: Cluster) -> None:
        with connect(cluster.nodes[0].address) as session:
            session.execute(TABLES)


class Serializable(SqlClient):
    level = "serializable"
    isolate = "set session characteristics as transaction isolation level {level}"
    errors = (psycopg.Error,)
    append = (
        "insert into lists values (%s, array[%s::int]) on conflict (id) "
        "do update set elements = lists.elements || excluded.elements"
    )

    def connect(self, host: str) -> psycopg.Connection[Any]:
        return connect(host)

    def broken_off(self, error: Exception) -> bool:
        return isinstance(error, errors.SerializationFailure | errors.DeadlockDetected)

    def elements(self, stored: list[int]) -> list[int]:
        return stored


class RepeatableRead(Serializable):
    level = "repeatable read"


class ReadCommitted(Serializable):
    level = "read committed"


NODE = PostgreSQL()
ALONE = ("kill", "stop", "freeze", "partition")
"""Faults of the only node there is."""


@experiment(system=NODE, client=Serializable, contract=list_append.promised("serializable", may_stall=ALONE))
def test_lists_serializable(settings: Settings) -> Generator:
    """Some order of all transactions explains what they read."""
    return list_append.traffic()


@experiment(system=NODE, client=RepeatableRead, contract=list_append.promised("snapshot isolation", may_stall=ALONE))
def test_lists_repeatable_read(settings: Settings) -> Generator:
    return list_append.traffic()


@experiment(system=NODE, client=ReadCommitted, contract=list_append.promised("read committed", may_stall=ALONE))
def test_lists_read_committed(settings: Settings) -> Generator:
    return list_append.traffic()


@experiment(system=NODE, client=Serializable, contract=bank.promised("serializable", may_stall=ALONE))
def test_bank_serializable(settings: Settings) -> Generator:
    """Money moves, and none comes or goes."""
    return bank.traffic()


@experiment(system=NODE, client=ReadCommitted, contract=bank.promised("read committed", may_stall=ALONE))
def test_bank_read_committed(settings: Settings) -> Generator:
    return bank.traffic()
