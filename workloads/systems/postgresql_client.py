"""Client of PostgreSQL for ``bank`` and ``list_append``, with one session."""

from collections.abc import Sequence
from typing import Any, ClassVar

import psycopg
from psycopg import errors

from assay.workloads.systems.sql import SqlClient

TABLES = (
    "create table if not exists lists (id int primary key, elements int[] not null)",
    "create table if not exists accounts (id text primary key, balance int not null)",
)


class PostgresqlClient(SqlClient):
    """Client of the server at its endpoint. A subclass names the account."""

    level = "serializable"
    isolate = "set session characteristics as transaction isolation level {level}"
    errors = (psycopg.Error,)
    append = (
        "insert into lists values (%s, array[%s::int]) on conflict (id) "
        "do update set elements = lists.elements || excluded.elements"
    )
    tables: ClassVar[Sequence[str]] = TABLES
    port: ClassVar[int] = 5432
    user: ClassVar[str] = "postgres"
    password: ClassVar[str] = ""
    database: ClassVar[str] = "postgres"

    def connect(self, host: str) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=self.database,
            connect_timeout=2,
            tcp_user_timeout=4000,
        )

    def is_rolled_back(self, error: Exception) -> bool:
        return isinstance(error, errors.SerializationFailure | errors.DeadlockDetected)

    def decode_list(self, stored: list[int]) -> list[int]:
        return stored
