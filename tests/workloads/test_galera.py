"""The workloads of MariaDB Galera: how the cluster begins, and what becomes of errors; on sessions made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from assay.harness.core.operation import Completion, Operation, Outcome
from assay.workloads.generic import sets
from assay.workloads.systems.galera import BEGIN, SETTINGS, Galera
from assay.workloads.test_galera import GaleraElements


class Session:
    """Holds ``elements``, what was committed of them, and what a transaction adds to them or shows of them.

    ``trouble`` is raised by the query, the commit or the rollback of this name, ``times`` times.
    """

    def __init__(self, trouble: Exception | None = None, at: str = "insert", times: int = 9) -> None:
        self.elements: list[int] = []
        self._trouble, self._at, self._times = trouble, at, times
        self._added: list[int] = []
        self._shown: list[int] | None = None

    def cursor(self) -> Session:
        return self

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, query: str, given: tuple[int, ...]) -> None:
        self.description = query.startswith("select")
        self._stumble(query.partition(" ")[0])
        self._added += given
        if self._shown is None:
            self._shown = list(self.elements)

    def fetchall(self) -> list[tuple[int]]:
        assert self._shown is not None
        return [(element,) for element in self._shown]

    def commit(self) -> None:
        self._stumble("commit")
        self.elements += self._added
        self._over()

    def rollback(self) -> None:
        self._stumble("rollback")
        self._over()

    def _over(self) -> None:
        self._added, self._shown = [], None

    def _stumble(self, at: str) -> None:
        if self._trouble is not None and self._at == at and self._times > 0:
            self._times -= 1
            raise self._trouble


AWAY = pymysql.OperationalError(1047, "WSREP has not yet prepared node")


def asked(session: Session, f: str, argument: int | None = None) -> Completion:
    client: Any = GaleraElements()
    client.session = session
    completion: Completion = client.invoke(Operation(f, sets.KEY, argument))
    return completion


def test_what_is_added_is_read() -> None:
    session = Session()
    assert asked(session, sets.ADD, 5) == Completion(Outcome.OK)
    assert asked(session, sets.READ).result == [5]
    session.elements.append(6)
    assert asked(session, sets.READ).result == [5, 6], "a read that goes on in its transaction sees its old snapshot"


@pytest.mark.parametrize(
    ("error", "at", "outcome"),
    [
        (AWAY, "insert", Outcome.FAIL),
        (pymysql.OperationalError(1213, "Deadlock found"), "commit", Outcome.FAIL),
        (pymysql.OperationalError(2013, "Lost connection"), "commit", Outcome.INFO),
        (OSError("reset"), "insert", Outcome.INFO),
    ],
)
def test_an_add_failed_only_where_the_server_says_so(error: Exception, at: str, outcome: Outcome) -> None:
    assert asked(Session(error, at), sets.ADD, 5).outcome is outcome


def test_what_failed_is_not_committed_with_the_next() -> None:
    """A server that leaves the majority refuses the commit alone, and takes it when it is back."""
    session = Session(AWAY, "commit", times=1)
    assert asked(session, sets.ADD, 5).outcome is Outcome.FAIL
    assert asked(session, sets.ADD, 6).outcome is Outcome.OK
    assert asked(session, sets.READ).result == [6]


def test_a_read_that_failed_does_not_leave_its_snapshot_to_the_next() -> None:
    session = Session(AWAY, "commit", times=1)
    assert asked(session, sets.READ).outcome is Outcome.FAIL
    session.elements.append(5)
    assert asked(session, sets.READ).result == [5]


def test_a_session_that_is_gone_is_followed_by_another() -> None:
    """As of all outcomes that are unknown."""
    assert asked(Session(OSError("reset"), "select"), sets.READ).outcome is Outcome.INFO


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
