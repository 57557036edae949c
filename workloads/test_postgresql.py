"""PostgreSQL 15 on one node, at each level of isolation. In Docker; nodes install it from Debian.

pytest workloads/test_postgresql.py --nodes=1 --nemesis=kill --nemesis-interval=15

What a level allows is tolerated by name, and reported with the reason: write skew at repeatable read, lost updates at
read committed (https://www.postgresql.org/docs/15/transaction-iso.html). Serializable allows nothing.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
from psycopg import IsolationLevel, errors

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
from assay.harness.core import transactions
from assay.workloads import bank, list_append

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
APPEND = """
insert into lists values (%s, array[%s::int])
on conflict (id) do update set elements = lists.elements || excluded.elements
"""


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
        async with await connect(node.address):
            return True

    async def set_up(self, cluster: Cluster) -> None:
        async with await connect(cluster.nodes[0].address) as session:
            await session.execute(TABLES)


async def connect(host: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(
        host=host, port=PORT, user="assay", dbname="postgres", connect_timeout=2
    )


class InsufficientFunds(Exception):
    """Nothing is moved."""


class Serializable:
    """One session; each operation is a transaction, and fails where the server breaks it off."""

    level: ClassVar = IsolationLevel.SERIALIZABLE

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.session = await connect(endpoint.address.partition(":")[0])
        await self.session.set_isolation_level(self.level)
        self.doing: dict[str, Callable[[Any], Awaitable[Any]]] = {
            list_append.TXN: self.txn,
            bank.OPEN: self.start,
            bank.TRANSFER: self.transfer,
            bank.READ: self.read,
        }

    async def invoke(self, operation: Operation) -> Completion:
        committing = False
        try:
            result = await self.doing[operation.f](operation.argument)
            committing = True
            await self.session.commit()
            return Completion(Outcome.OK, result)
        except (errors.SerializationFailure, errors.DeadlockDetected, InsufficientFunds) as error:
            await self.session.rollback()
            return Completion(Outcome.FAIL, error=type(error).__name__)
        except psycopg.OperationalError as error:
            unknown = committing or self.session.closed
            return Completion(Outcome.INFO if unknown else Outcome.FAIL, error=type(error).__name__)

    async def txn(self, micros: Sequence[Any]) -> list[Any]:
        done = []
        for f, key, value in micros:
            if f == "append":
                await self.session.execute(APPEND, (key, value))
            else:
                cursor = await self.session.execute("select elements from lists where id = %s", (key,))
                value = ((await cursor.fetchone()) or ([],))[0]
            done.append([f, key, value])
        return done

    async def start(self, _: None) -> None:
        for account in bank.ACCOUNTS:
            await self.session.execute("insert into accounts values (%s, %s)", (account, bank.BALANCE))

    async def transfer(self, argument: Sequence[Any]) -> None:
        """As an application does it that looks first, and then writes what it has worked out."""
        source, target, amount = argument
        there = await self.read(None)
        if there[source] < amount:
            raise InsufficientFunds
        for account, change in ((source, -amount), (target, amount)):
            new = there[account] + change
            await self.session.execute("update accounts set balance = %s where id = %s", (new, account))

    async def read(self, _: None) -> dict[str, int]:
        return dict(await (await self.session.execute("select id, balance from accounts")).fetchall())

    async def close(self) -> None:
        await self.session.close()

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return bank.effects(completed) if completed.operation.f != list_append.TXN else transactions.effects(completed)


class RepeatableRead(Serializable):
    level = IsolationLevel.REPEATABLE_READ


class ReadCommitted(Serializable):
    level = IsolationLevel.READ_COMMITTED


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
