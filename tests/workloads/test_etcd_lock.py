"""A set under etcd's lock: who holds it writes alone, unless the lease has ended meanwhile; on a gateway made up."""

from __future__ import annotations

from base64 import b64decode
from types import SimpleNamespace
from typing import Any

import pytest

from assay.harness.core.operation import Completion, Operation, Outcome
from assay.workloads.generic import locks, sets
from assay.workloads.systems import etcd_lock_client
from assay.workloads.systems.etcd_gateway import encode_text
from assay.workloads.systems.etcd_lock_client import FENCED, EtcdLockedSet

ADD = Operation(sets.ADD, sets.KEY, 7)
READ = Operation(sets.READ, sets.KEY)


class Gateway:
    """A lock, one key. ``failing``: what is asked then has no answer; a write is done all the same. ``waits``: for
    the lock, so many times as long as a lease lasts; the lock is granted without one, as etcd 3.4.23 does it.
    """

    def __init__(self, stored: str = "[]", failing: str = "", waits: float = 0.0) -> None:
        self.stored, self.failing, self.waits = stored, failing, waits
        self.leases, self.granted = set[str](), 0

    def ask(self, address: str, what: str, *, seconds: float = 1.0, **request: Any) -> dict[str, Any]:
        answer = getattr(self, what.replace("/", "_"))(**request)
        if what == self.failing:
            raise TimeoutError
        return dict(answer)

    def lease_grant(self, TTL: int) -> Any:
        self.granted += 1
        self.leases.add(str(self.granted))
        return {"ID": str(self.granted)}

    def lease_revoke(self, ID: str) -> Any:
        self.leases.discard(ID)
        return {}

    def lease_keepalive(self, ID: str) -> Any:
        return {"result": {"ID": ID, "TTL": "2"} if ID in self.leases else {"ID": ID}}

    def lock_lock(self, name: str, lease: str) -> Any:
        assert name == encode_text("lock")
        if self.waits > 1:
            self.leases.discard(lease)
        return {"key": encode_text(f"lock/{lease}")}

    def kv_range(self, key: str) -> Any:
        assert key == encode_text(sets.KEY)
        return {"kvs": [{"value": encode_text(self.stored)}]} if self.stored else {}

    def kv_txn(self, compare: list[Any], success: list[Any]) -> Any:
        there = {encode_text(f"lock/{lease}") for lease in self.leases}
        if any(one["key"] not in there for one in compare):
            return {}
        self.stored = b64decode(success[0]["requestPut"]["value"]).decode()
        return {"succeeded": True}


def client(monkeypatch: pytest.MonkeyPatch, gateway: Gateway, asleep: Any = None, *options: str) -> EtcdLockedSet:
    """``asleep`` happens while it thinks."""
    monkeypatch.setattr(etcd_lock_client, "ask", gateway.ask)
    monkeypatch.setattr(locks.time, "sleep", lambda _: asleep() if asleep else None)
    made = EtcdLockedSet()
    made.open(SimpleNamespace(address="n1:2379", options=options), None)  # type: ignore[arg-type]
    return made


def test_an_add_reads_and_writes_under_a_lock_that_it_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway("[3]")
    made = client(monkeypatch, gateway)
    assert made.invoke(ADD) == Completion(Outcome.OK)
    assert made.invoke(READ) == Completion(Outcome.OK, [3, 7])
    assert (gateway.granted, gateway.leases) == (1, set())
    assert client(monkeypatch, Gateway("")).invoke(READ) == Completion(Outcome.OK, [])


@pytest.mark.parametrize(
    ("options", "outcome", "stored"), [((), Completion(Outcome.OK), "[7]"), ((FENCED,), None, "[4]")]
)
def test_a_holder_that_slept_undoes_what_another_did_unless_its_writes_are_fenced(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], outcome: Completion | None, stored: str
) -> None:
    gateway = Gateway()

    def asleep() -> None:
        gateway.leases.clear()
        gateway.stored = "[4]"

    made = client(monkeypatch, gateway, asleep, *options)
    assert made.invoke(ADD) == (outcome or Completion(Outcome.FAIL, error="lock-lost"))
    assert gateway.stored == stored


@pytest.mark.parametrize(
    ("waits", "completion", "stored"),
    [(0.9, Completion(Outcome.OK), "[7]"), (1.1, Completion(Outcome.FAIL, error="LeaseEnded"), "[]")],
)
def test_a_client_whose_lease_ended_while_it_waited_does_not_hold_the_lock(
    monkeypatch: pytest.MonkeyPatch, waits: float, completion: Completion, stored: str
) -> None:
    gateway = Gateway(waits=waits)
    assert client(monkeypatch, gateway).invoke(ADD) == completion
    assert gateway.stored == stored


@pytest.mark.parametrize(
    ("failing", "outcome", "stored"),
    [
        ("lease/grant", Outcome.FAIL, "[]"),
        ("lock/lock", Outcome.FAIL, "[]"),
        ("lease/keepalive", Outcome.FAIL, "[]"),
        ("kv/range", Outcome.FAIL, "[]"),
        ("kv/txn", Outcome.INFO, "[7]"),
        ("lease/revoke", Outcome.OK, "[7]"),
    ],
)
def test_only_a_write_without_an_answer_is_not_known(
    monkeypatch: pytest.MonkeyPatch, failing: str, outcome: Outcome, stored: str
) -> None:
    gateway = Gateway()
    made = client(monkeypatch, gateway)
    gateway.failing = failing
    assert (made.invoke(ADD).outcome, gateway.stored) == (outcome, stored)
    assert bool(gateway.leases) is (failing in ("lease/grant", "kv/txn")), "a write that may arrive needs its lock"
