"""Isolation levels of PostgreSQL 15 on one node. In Docker; the node installs it from Debian.

pytest workloads/test_postgresql.py --nemesis=none --nemesis=kill --nemesis-interval=8

A contract tolerates the anomalies that its level allows, by name, and runs report them with the reason. Repeatable read
allows write skew, and read committed allows lost updates (https://www.postgresql.org/docs/15/transaction-iso.html).
Serializable allows no anomalies.
"""

from assay import Generator, Settings, experiment
from assay.workloads.generic import bank, list_append
from assay.workloads.systems.postgresql import PostgreSQL
from assay.workloads.systems.postgresql_client import PostgresqlClient


class Serializable(PostgresqlClient):
    user, tables = "assay", ()


class RepeatableRead(Serializable):
    level = "repeatable read"


class ReadCommitted(Serializable):
    level = "read committed"


NODE = PostgreSQL()
ALONE = (
    "kill", "stop", "freeze", "partition", "restart", "restart-rolling", "outage", "memory", "power-loss", "disk-full",
    "disk-error", "kill-in-fsync", "kill-in-write", "power-loss-in-fsync", "power-loss-in-write",
)  # fmt: skip
"""Faults that stall the only node."""


@experiment(system=NODE, client=Serializable, contract=list_append.build_contract("serializable", may_stall=ALONE))
def test_lists_serializable(settings: Settings) -> Generator:
    """Some order of all transactions explains what they read."""
    return list_append.traffic()


@experiment(
    system=NODE, client=RepeatableRead, contract=list_append.build_contract("snapshot isolation", may_stall=ALONE)
)
def test_lists_repeatable_read(settings: Settings) -> Generator:
    return list_append.traffic()


@experiment(system=NODE, client=ReadCommitted, contract=list_append.build_contract("read committed", may_stall=ALONE))
def test_lists_read_committed(settings: Settings) -> Generator:
    return list_append.traffic()


@experiment(system=NODE, client=Serializable, contract=bank.build_contract("serializable", may_stall=ALONE))
def test_bank_serializable(settings: Settings) -> Generator:
    """Money moves between accounts, and the total stays constant."""
    return bank.traffic()


@experiment(system=NODE, client=ReadCommitted, contract=bank.build_contract("read committed", may_stall=ALONE))
def test_bank_read_committed(settings: Settings) -> Generator:
    return bank.traffic()
