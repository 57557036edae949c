"""Isolation levels of MariaDB Galera 10.11, with three servers that all accept writes. In Docker.

pytest workloads/test_galera.py -k lists --nemesis=none --nemesis=partition
pytest workloads/test_galera.py -k lists --set=innodb_snapshot_isolation=ON
pytest workloads/test_galera.py -k elements --set=wsrep_sync_wait=1

If two transactions write the same row on two servers, one of them is rolled back at commit. Galera does not check rows
that a transaction only read. So updates are lost (https://aphyr.com/posts/327-jepsen-mariadb-galera-cluster), unless
``innodb_snapshot_isolation`` is on. A server may also lag behind commits that another server acknowledged. Its reads
are then stale, unless ``wsrep_sync_wait`` makes them wait.
"""

from collections.abc import Sequence

import pymysql

from assay import (
    BANK_ANOMALIES,
    SET_ANOMALIES,
    Completed,
    Completion,
    Effect,
    Generator,
    Operation,
    Outcome,
    Settings,
    experiment,
    forbid,
    mix,
    repeat,
    unfold,
)  # fmt: skip
from assay.workloads.generic import bank, list_append, sets
from assay.workloads.systems.galera import Galera
from assay.workloads.systems.sql import to_unknown
from assay.workloads.test_mariadb import KNOWN_LOST_UPDATES, RepeatableRead

CLUSTER = Galera()
NOT_READY = ((1047,),)
"""Error codes of a server outside the majority: the transaction did not begin."""


class GaleraSession(RepeatableRead):
    def is_rolled_back(self, error: Exception) -> bool:
        refused = isinstance(error, pymysql.MySQLError) and error.args[:1] in NOT_READY
        return refused or super().is_rolled_back(error)


LISTS = list_append.build_contract("snapshot isolation").tolerate(
    "G-single", "G-nonadjacent", because=KNOWN_LOST_UPDATES
)


@experiment(system=CLUSTER, client=GaleraSession, contract=LISTS)
def test_lists(settings: Settings) -> Generator:
    """Lost updates are known and tolerated; all other anomalies that snapshot isolation forbids are absent."""
    return list_append.traffic()


@experiment(
    system=CLUSTER,
    client=GaleraSession,
    contract=bank.build_contract("serializable").tolerate(*BANK_ANOMALIES, because=KNOWN_LOST_UPDATES),
)
def test_bank(settings: Settings) -> Generator:
    return bank.traffic()


class GaleraElements(GaleraSession):
    """Stores each element as a row."""

    def invoke(self, operation: Operation) -> Completion:
        try:
            if operation.f == sets.ADD:
                self.ask("insert into elements values (%s)", operation.argument)
                self.session.commit()
                return Completion(Outcome.OK)
            found = [element for (element,) in self.ask("select element from elements")]
            self.session.commit()
            return Completion(Outcome.OK, found)
        except self.errors as error:
            return self._roll_back("broken-off") if self.is_rolled_back(error) else to_unknown(error)

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return sets.effects(completed)


@experiment(system=CLUSTER, client=GaleraElements, contract=forbid(*SET_ANOMALIES))
def test_elements(settings: Settings) -> Generator:
    """Once a server has acknowledged an element, every server returns it."""
    return mix(unfold(sets.step, 0), repeat(Operation(sets.READ, sets.KEY))) | sets.final_reads()
