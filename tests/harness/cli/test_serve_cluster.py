"""While a cluster of ``assay up`` serves, its servers are watched."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from assay.cluster.node import NodeError, ProcessState
from assay.harness.cli import serve_cluster


class Unsteady:
    """A server that answers as it is set to."""

    name, role, address = "n1", "broker", "10.0.0.1"

    def __init__(self, answers: list[ProcessState | Exception]) -> None:
        self.answers = answers

    async def process(self) -> Any:
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(state=answer)


def watched(monkeypatch: pytest.MonkeyPatch, *answers: ProcessState | Exception) -> list[str]:
    """Returns what is said until Ctrl-C."""
    node, said = Unsteady(list(answers)), list[str]()
    monkeypatch.setattr(serve_cluster, "WATCH_SECONDS", 0.0)

    async def open_cluster(note: Callable[[str], None], *, track_logs: bool) -> Any:
        assert not track_logs, "no one reads how its logs grew"
        return SimpleNamespace(nodes=[node])

    async def nothing(*_: object, **__: object) -> None: ...

    monkeypatch.setattr(serve_cluster, "start_system", nothing)
    monkeypatch.setattr(serve_cluster, "servers", lambda cluster, system: cluster.nodes)
    monkeypatch.setattr(serve_cluster, "zookeeper_servers", lambda cluster: "")
    world: Any = SimpleNamespace(
        open=open_cluster, close=nothing, runtime=lambda: None, step=lambda what: contextlib.nullcontext()
    )
    system: Any = SimpleNamespace(port=lambda role: 9092)
    asyncio.run(serve_cluster._serve_until_signal(world, system, said.append, lambda addresses: None))
    return said


def test_a_server_that_cannot_be_asked_for_a_while_does_not_end_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = NodeError("n1: no connection")
    running, dead = ProcessState.RUNNING, ProcessState.DEAD
    assert watched(monkeypatch, running, lost, lost, running, dead, lost, dead) == [
        "state not known: n1: no connection",
        f"n1: its broker is {running}",
        f"n1: its broker is {dead}",
        "state not known: n1: no connection",
        f"n1: its broker is {dead}",
        "removing the cluster",
    ]


def test_a_server_that_runs_all_the_time_is_not_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, ProcessState.RUNNING, ProcessState.RUNNING) == ["removing the cluster"]


def test_what_is_no_trouble_of_a_node_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        watched(monkeypatch, ZeroDivisionError())
