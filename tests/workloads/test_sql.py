"""The client of SQL databases: what becomes of errors, and which queries it makes; on a connection that is made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.run.experiment import find_experiment
from assay.harness.run.systems import apply_settings, complete_contract
from assay.workloads import test_galera, test_mariadb
from assay.workloads.generic import bank, list_append
from assay.workloads.systems.mariadb import LOST_UPDATES
from assay.workloads.systems.sql import SqlClient
from assay.workloads.test_mariadb import MariaDB
from assay.workloads.test_mariadb import Serializable as OfMariaDB
from assay.workloads.test_postgresql import Serializable as OfPostgreSQL


class Broken(Exception):
    """Rolled back by the database."""


class Lost(Exception):
    """The connection is gone."""


class Session:
    """Notes what it is asked; ``answers`` by the first words of a query, an exception is raised."""

    def __init__(self) -> None:
        self.answers, self.asked = dict[str, Any](), list[str]()

    def cursor(self) -> Any:
        return self

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, query: str, given: tuple[Any, ...]) -> None:
        self.asked.append(" ".join([query.split()[0], *map(str, given)]))
        self._answer = self.answers.get(query.split()[0], [])
        if isinstance(self._answer, Exception):
            raise self._answer

    @property
    def description(self) -> bool:
        return bool(self._answer)

    def fetchall(self) -> Any:
        return self._answer

    def commit(self) -> None:
        self.asked.append("commit")
        if isinstance(self.answers.get("commit"), Exception):
            raise self.answers["commit"]

    def rollback(self) -> None:
        self.asked.append("rollback")
        if "rollback" in self.answers:
            raise self.answers["rollback"]


class Client(SqlClient):
    level, isolate, append, errors = "serializable", "set {level}", "append", (Broken, Lost)

    def __init__(self, session: Session) -> None:
        self.given = session

    def connect(self, host: str) -> Any:
        assert host == "198.18.0.11"
        return self.given

    def is_rolled_back(self, error: Exception) -> bool:
        return isinstance(error, Broken)

    def decode_list(self, stored: Any) -> list[int]:
        return list(stored)


def done(operation: Operation, **answers: Any) -> tuple[Completion, list[str]]:
    session = Session()
    client = Client(session)
    client.open(SimpleNamespace(address="198.18.0.11:5432"), None)  # type: ignore[arg-type]
    assert session.asked == ["set", "commit"]
    session.asked.clear()
    session.answers = answers
    return client.invoke(operation), session.asked


TRANSFER = Operation(bank.TRANSFER, bank.BANK, ["0", "1", 5])


def test_a_transfer_looks_and_writes_what_it_has_worked_out() -> None:
    completion, asked = done(TRANSFER, select=[("0", 20), ("1", 3)])
    assert completion.outcome is Outcome.OK
    assert asked == ["select", "update 15 0", "update 8 1", "commit"]


def test_without_enough_money_nothing_is_moved() -> None:
    completion, asked = done(TRANSFER, select=[("0", 4), ("1", 3)])
    assert (completion.outcome, completion.error) == (Outcome.FAIL, "insufficient-funds")
    assert asked == ["select", "rollback"]


@pytest.mark.parametrize("shown", [[], [("0", 20)], [("1", 20)]])
def test_without_an_account_nothing_is_moved(shown: list[tuple[str, int]]) -> None:
    completion, asked = done(TRANSFER, select=shown)
    assert (completion.outcome, completion.error) == (Outcome.FAIL, "no-account")
    assert asked == ["select", "rollback"]


@pytest.mark.parametrize("where", ["select", "update", "commit"])
def test_what_the_database_has_broken_off_did_nothing_and_of_all_else_it_is_not_known(where: str) -> None:
    answers: dict[str, Any] = {"select": [("0", 20), ("1", 3)]}
    completion, asked = done(TRANSFER, **answers | {where: Broken("40001")})
    assert (completion.outcome, completion.error, asked[-1]) == (Outcome.FAIL, "broken-off", "rollback")
    completion, asked = done(TRANSFER, **answers | {where: Lost("gone")})
    assert (completion.outcome, completion.error) == (Outcome.INFO, "Lost: gone")
    assert "rollback" not in asked


@pytest.mark.parametrize("answers", [{"select": [("0", 4), ("1", 3)]}, {"select": Broken("40001")}])
def test_a_session_that_is_gone_when_it_is_rolled_back_is_followed_by_another(answers: dict[str, Any]) -> None:
    completion, _ = done(TRANSFER, **answers, rollback=Lost("gone"))
    assert (completion.outcome, completion.error) == (Outcome.INFO, "Lost: gone")


def test_a_slip_of_the_client_is_none_of_the_databases_errors() -> None:
    with pytest.raises(TypeError):
        done(Operation(bank.TRANSFER, bank.BANK, ["0", "1", "5"]), select=[("0", 20), ("1", 3)])


def test_lists_are_appended_to_and_read_in_order() -> None:
    operation = Operation(list_append.TXN, argument=[["append", 3, 9], ["r", 4, None], ["r", 5, None]])
    completion, asked = done(operation, select=[((1, 2),)])
    assert completion.result == [["append", 3, 9], ["r", 4, [1, 2]], ["r", 5, [1, 2]]]
    assert asked == ["append 3 9", "select 4", "select 5", "commit"]
    effects = Client.effects(Completed(0, 0, "w0", operation, completion, 0, 1))
    assert [effect.kind for effect in effects] == ["txn-append", "txn-read", "txn-read", "txn-read", "txn-read"]


def test_each_driver_says_what_was_broken_off_and_how_lists_are_stored() -> None:
    import psycopg
    import pymysql

    assert OfPostgreSQL().is_rolled_back(psycopg.errors.SerializationFailure())
    assert not OfPostgreSQL().is_rolled_back(psycopg.OperationalError("gone"))
    assert OfPostgreSQL().decode_list([1, 2]) == OfMariaDB().decode_list("1 2") == [1, 2]
    assert OfMariaDB().is_rolled_back(pymysql.err.OperationalError(1213, "deadlock"))
    assert not OfMariaDB().is_rolled_back(pymysql.err.OperationalError(2013, "lost connection"))
    assert not OfMariaDB().is_rolled_back(TimeoutError())


def test_a_setting_of_mariadb_is_one_that_it_has() -> None:
    chosen = MariaDB().with_setting("innodb_snapshot_isolation", "ON")
    assert chosen.argv(SimpleNamespace())[-1].endswith("--innodb_snapshot_isolation=ON")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no setting sync_binlog here; it has innodb_snapshot_isolation"):
        MariaDB().with_setting("sync_binlog", "1")


@pytest.mark.parametrize("test", [test_mariadb.test_lists_repeatable_read, test_mariadb.test_bank_repeatable_read,
                                  test_galera.test_lists, test_galera.test_bank])  # fmt: skip
def test_lost_updates_are_forbidden_of_mariadb_with_snapshot_isolation_alone(test: object) -> None:
    found = find_experiment(test)
    assert found is not None
    lost = set(found.contract.tolerated) & set(LOST_UPDATES)
    assert lost
    for settings, forbidden in [
        ([], False),
        (["innodb_snapshot_isolation=OFF"], False),
        (["innodb_snapshot_isolation=ON"], True),
        (["innodb_snapshot_isolation=ON", "innodb_snapshot_isolation=OFF"], False),
    ]:
        contract = complete_contract(found.contract, apply_settings(found.system, settings))
        assert {contract.forbids(name) for name in lost} == {forbidden}
        assert contract.tolerates("G2-item") is found.contract.tolerates("G2-item")
