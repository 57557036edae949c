"""The workload of etcd: what its gateway is asked, what becomes of answers and errors, and how members are set up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay.harness.core.operation import Operation, Outcome
from assay.workloads import test_etcd as etcd
from assay.workloads.systems import etcd_registers
from assay.workloads.systems.etcd_gateway import encode_text

Asked = list[tuple[str, dict[str, Any]]]


def client(monkeypatch: pytest.MonkeyPatch, answer: Any, **options: Any) -> tuple[etcd.EtcdRegisters, Asked]:
    """Returns a client that gets this answer, or this error, whatever it asks, and its requests."""
    asked: Asked = []

    def ask(address: str, what: str, **request: Any) -> Any:
        asked.append((what, request))
        if isinstance(answer, Exception) and len(asked) > 1:
            raise answer
        return answer

    monkeypatch.setattr(etcd_registers, "ask", ask)
    made = etcd.EtcdRegisters()
    made.open(SimpleNamespace(address="n1:2379", options=options), None)  # type: ignore[arg-type]
    return made, asked


def test_a_read_is_of_what_is_stored_and_linearizable_unless_asked_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = client(monkeypatch, {"kvs": [{"value": encode_text(7)}]})
    assert made.invoke(Operation("read", "r0")).result == 7
    assert asked[-1] == ("kv/range", {"key": encode_text("r0")})
    made, asked = client(monkeypatch, {}, **{etcd.STALE.name: True})
    assert made.invoke(Operation("read", "r0")).result is None
    assert asked[-1] == ("kv/range", {"key": encode_text("r0"), "serializable": True})


@pytest.mark.parametrize("done", [True, False])
def test_a_cas_says_whether_it_was_done(monkeypatch: pytest.MonkeyPatch, done: bool) -> None:
    made, asked = client(monkeypatch, {"succeeded": True} if done else {})
    completion = made.invoke(Operation("cas", "r0", [1, 2]))
    assert (completion.outcome, completion.result) == (Outcome.OK, done)
    what, request = asked[-1]
    assert what == "kv/txn"
    assert request["compare"] == [{"key": encode_text("r0"), "target": "VALUE", "value": encode_text(1)}]
    assert request["success"] == [{"requestPut": {"key": encode_text("r0"), "value": encode_text(2)}}]


@pytest.mark.parametrize(("f", "outcome"), [("read", Outcome.FAIL), ("write", Outcome.INFO), ("cas", Outcome.INFO)])
def test_of_a_change_without_an_answer_it_is_not_known(
    monkeypatch: pytest.MonkeyPatch, f: str, outcome: Outcome
) -> None:
    made, _ = client(monkeypatch, TimeoutError())
    completion = made.invoke(Operation(f, "r0", [1, 2] if f == "cas" else 1))
    assert (completion.outcome, completion.error) == (outcome, "TimeoutError")


def test_members_know_each_other_and_their_own_addresses() -> None:
    nodes = [SimpleNamespace(name=f"n{number}", address=f"198.18.0.1{number}", role="server") for number in (1, 2, 3)]
    nodes.append(SimpleNamespace(name="client1", address="198.18.0.21", role="client"))
    cluster: Any = SimpleNamespace(nodes=nodes)
    ((path, data),) = etcd.Etcd().files(nodes[1], cluster).items()  # type: ignore[arg-type]
    assert path in etcd.Etcd().argv(nodes[1])[-1]  # type: ignore[arg-type]
    words = data.decode().split()
    members = "n1=http://198.18.0.11:2380,n2=http://198.18.0.12:2380,n3=http://198.18.0.13:2380"
    assert {"--name=n2", f"--initial-cluster={members}", "--advertise-client-urls=http://198.18.0.12:2379"} <= set(
        words
    )
