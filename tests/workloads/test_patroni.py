"""The workload of PostgreSQL with Patroni: its configuration, and what becomes of errors; on sessions made up."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import msgspec
import psycopg
import pytest

from assay.harness.core.operation import Completion, Operation, Outcome
from assay.workloads.generic import sets
from assay.workloads.systems.patroni import CONFIG, Patroni
from assay.workloads.test_patroni import PatroniElements


class Session:
    """Holds ``elements``; ``trouble`` is raised instead of any answer."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.elements: list[int] = []
        self._trouble = trouble

    def transaction(self) -> Any:
        return nullcontext()

    def execute(self, query: str, given: list[int] | None = None) -> list[tuple[int]]:
        if self._trouble is not None:
            raise self._trouble
        self.elements += given or []
        return [(element,) for element in self.elements]


def asked(session: Session, f: str, argument: int | None = None) -> Completion:
    client: Any = PatroniElements()
    client.session = session
    completion: Completion = client.invoke(Operation(f, sets.KEY, argument))
    return completion


def test_what_is_added_is_read() -> None:
    session = Session()
    assert asked(session, sets.ADD, 5) == Completion(Outcome.OK)
    assert asked(session, sets.READ).result == [5]


@pytest.mark.parametrize("f", [sets.ADD, sets.READ])
def test_after_an_error_another_session_looks_for_the_primary(f: str) -> None:
    """Also after a read: a session that is kept would go on with a server that takes no writes any more."""
    assert asked(Session(psycopg.OperationalError("gone")), f, 5).outcome is Outcome.INFO


@pytest.mark.parametrize(("value", "synchronous"), [("on", True), ("off", False)])
def test_a_commit_waits_for_a_replica_if_that_is_set(value: str, synchronous: bool) -> None:
    node: Any = SimpleNamespace(name="n1", address="198.18.0.1", role="server")
    keeper = SimpleNamespace(name="zk1", address="198.18.0.9", role="zookeeper")
    cluster: Any = SimpleNamespace(nodes=[keeper, node])
    system: Any = Patroni().with_setting("synchronous_mode", value)
    config = msgspec.json.decode(system.files(node, cluster)[CONFIG])
    assert config["bootstrap"]["dcs"]["synchronous_mode"] is synchronous
    assert config["zookeeper"]["hosts"] == ["198.18.0.9:2181"]
    assert config["name"] == "n1"


def test_another_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="synchronous_mode"):
        Patroni().with_setting("fsync", "off")
