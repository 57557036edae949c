"""Isolation levels of MariaDB 10.11 on one node. In Docker; the node installs it from Debian.

pytest workloads/test_mariadb.py --nemesis=none --nemesis=kill --nemesis-interval=8
pytest workloads/test_mariadb.py -k repeatable_read --set=innodb_snapshot_isolation=ON

Repeatable read, the default level, reads a snapshot but overwrites later changes, which loses updates. The contract
tolerates these anomalies by name, and runs report them (https://jepsen.io/analyses/mysql-8.0.34 shows them in MySQL).
With ``innodb_snapshot_isolation`` they are forbidden, and none is found.
"""

from typing import Any

import pymysql

from assay import BANK_ANOMALIES, Generator, Settings, experiment
from assay.workloads.generic import bank, list_append
from assay.workloads.systems.mariadb import MariaDB, connect
from assay.workloads.systems.sql import SqlClient

ROLLED_BACK = ((1020,), (1205,), (1213,))
"""Error codes of transactions that the server rolled back: a record changed after the read, lock timeout, deadlock."""


class Serializable(SqlClient):
    level = "serializable"
    errors = (pymysql.MySQLError, OSError)
    isolate = "set session transaction isolation level {level}"
    append = (
        "insert into lists values (%s, %s) on duplicate key update elements = concat(elements, ' ', values(elements))"
    )

    def connect(self, host: str) -> Any:
        return connect(host)

    def is_rolled_back(self, error: Exception) -> bool:
        return isinstance(error, pymysql.MySQLError) and error.args[:1] in ROLLED_BACK

    def decode_list(self, stored: str) -> list[int]:
        return [int(one) for one in stored.split()]


class RepeatableRead(Serializable):
    level = "repeatable read"


NODE = MariaDB()
KNOWN_LOST_UPDATES = (
    "without innodb_snapshot_isolation MariaDB writes over what has changed since its snapshot was taken"
)
ALONE = ("kill", "stop", "freeze", "partition")
"""Faults that stall the only node."""


@experiment(system=NODE, client=Serializable, contract=list_append.build_contract("serializable", may_stall=ALONE))
def test_lists_serializable(settings: Settings) -> Generator:
    """Some order of all transactions explains what they read."""
    return list_append.traffic()


LISTS = list_append.build_contract("snapshot isolation", may_stall=ALONE)


@experiment(
    system=NODE, client=RepeatableRead, contract=LISTS.tolerate("G-single", "G-nonadjacent", because=KNOWN_LOST_UPDATES)
)
def test_lists_repeatable_read(settings: Settings) -> Generator:
    return list_append.traffic()


@experiment(system=NODE, client=Serializable, contract=bank.build_contract("serializable", may_stall=ALONE))
def test_bank_serializable(settings: Settings) -> Generator:
    """Money moves between accounts, and the total stays constant."""
    return bank.traffic()


MONEY = bank.build_contract("serializable", may_stall=ALONE)


@experiment(system=NODE, client=RepeatableRead, contract=MONEY.tolerate(*BANK_ANOMALIES, because=KNOWN_LOST_UPDATES))
def test_bank_repeatable_read(settings: Settings) -> Generator:
    return bank.traffic()
