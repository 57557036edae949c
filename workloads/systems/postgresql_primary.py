"""Sessions to several PostgreSQL servers: a primary that accepts writes, and replicas that follow it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg

from assay import DeploymentError

PORT = 5432
STREAMING = "select count(*) from pg_stat_replication where state = 'streaming'"


def connect(hosts: Sequence[str]) -> psycopg.Connection[Any]:
    """Connects to the server that accepts writes. Raises ``psycopg.Error``."""
    for host in hosts:
        with suppress(psycopg.OperationalError):
            session = psycopg.connect(
                host=host, port=PORT, user="assay", dbname="postgres", connect_timeout=2, tcp_user_timeout=4000,
                autocommit=True,  # otherwise the first query would begin a transaction that is never committed
            )  # fmt: skip
            if _takes_writes(session):
                return session
            session.close()
    raise psycopg.OperationalError("no server takes writes")


def _takes_writes(session: psycopg.Connection[Any]) -> bool:
    try:
        return session.execute("select not pg_is_in_recovery()").fetchone() == (True,)
    except psycopg.Error:
        session.close()
        raise


async def create_replicated_table(hosts: Sequence[str], create_table: str) -> None:
    """Creates the table once there is a primary, and waits until all replicas follow. Raises ``DeploymentError``.

    ``create_table``: the SQL statement.
    """
    for _ in range(120):
        with suppress(psycopg.Error), connect(hosts) as session:
            session.execute(create_table)
            if session.execute(STREAMING).fetchone() == (len(hosts) - 1,):
                return
        await asyncio.sleep(0.5)
    raise DeploymentError("no primary of PostgreSQL has all replicas; see the log of each node")
