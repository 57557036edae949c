"""The workloads of MariaDB Galera: how the cluster begins, and what becomes of errors; on sessions made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from assay.harness.core.operation import Completion, Operation, Outcome
from assay.workloads import sets
from assay.workloads.galera_system import BEGIN, SETTINGS, Galera
from assay.workloads.test_galera import Elements


class Session:
    """Holds ``elements``; ``trouble`` is raised by the query, or the commit, of this name."""

    def __init__(self, trouble: Exception | None = None, at: str = "insert") -> None:
        self.elements: list[int] = []
        self._trouble, self._at = trouble, at
        self.commits = 0

    def cursor(self) -> Session:
        return self

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, query: str, given: tuple[int, ...]) -> None:
        self.description = query.startswith("select")
        if self._trouble is not None and query.startswith(self._at):
            raise self._trouble
        self.elements += given

    def fetchall(self) -> list[tuple[int]]:
        return [(element,) for element in self.elements]

    def commit(self) -> None:
        self.commits += 1
        if self._trouble is not None and self._at == "commit":
            raise self._trouble


def asked(session: Session, f: str, argument: int | None = None) -> Completion:
    client: Any = Elements()
    client.session = session
    completion: Completion = client.invoke(Operation(f, sets.KEY, argument))
    return completion


def test_what_is_added_is_read() -> None:
    session = Session()
    assert asked(session, sets.ADD, 5) == Completion(Outcome.OK)
    assert asked(session, sets.READ).result == [5]
    assert session.commits == 2, "a read that goes on in its transaction would see its old snapshot"


@pytest.mark.parametrize(
    ("error", "at", "outcome"),
    [
        (pymysql.OperationalError(1047, "WSREP has not yet prepared node"), "insert", Outcome.FAIL),
        (pymysql.OperationalError(1213, "Deadlock found"), "commit", Outcome.FAIL),
        (pymysql.OperationalError(2013, "Lost connection"), "commit", Outcome.INFO),
        (OSError("reset"), "insert", Outcome.INFO),
    ],
)
def test_an_add_failed_only_where_the_server_says_so(error: Exception, at: str, outcome: Outcome) -> None:
    assert asked(Session(error, at), sets.ADD, 5).outcome is outcome


def test_a_read_that_failed_has_no_effect() -> None:
    assert asked(Session(OSError("reset"), "select"), sets.READ).outcome is Outcome.FAIL


def test_the_first_server_alone_begins_the_cluster() -> None:
    nodes = [SimpleNamespace(name=f"n{number}", address=f"198.18.0.{number}") for number in (1, 2, 3)]
    cluster: Any = SimpleNamespace(nodes=nodes)
    files = [Galera().files(node, cluster) for node in nodes]  # type: ignore[arg-type]
    assert [bool(one[BEGIN]) for one in files] == [True, False, False]
    for node, one in zip(nodes, files, strict=True):
        text = one[SETTINGS].decode()
        assert "gcomm://198.18.0.1,198.18.0.2,198.18.0.3" in text
        assert f"wsrep_node_address = {node.address}" in text


def test_its_settings_are_those_of_mariadb_and_one_more() -> None:
    chosen = Galera().with_setting("wsrep_sync_wait", "1")
    assert "--wsrep_sync_wait=1" in chosen.argv(SimpleNamespace())[-1]  # type: ignore[arg-type]
    assert set(Galera().variants) == {"innodb_snapshot_isolation", "wsrep_sync_wait"}
    with pytest.raises(ValueError, match="innodb_snapshot_isolation"):
        Galera().with_setting("no_such_thing", "1")
