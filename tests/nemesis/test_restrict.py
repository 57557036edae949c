"""A fault that strikes one role needs no ability of servers of other roles."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from assay.cluster.node import NodeError
from assay.nemesis.faults.abilities import Ability
from assay.nemesis.faults.process import ServerFault, restrict
from assay.nemesis.schedule.target import parse_target


class Lack(Ability):
    def __init__(self) -> None:
        pass

    async def explain_lack(self, cluster: Any, nodes: Any) -> str | None:
        return next((f"{node.name} has no volume" for node in nodes if node.role == "web"), None)


class Flood(ServerFault):
    name = "flood"
    abilities = (Lack(),)


class Server:
    def __init__(self, role: str) -> None:
        self.name, self.role = f"{role}1", role

    async def process(self) -> None:
        if self.role == "cache":
            raise NodeError("cache1 does not answer")


def probe(*roles: str, target: str | None) -> str | None:
    system: Any = SimpleNamespace(roles=roles)
    cluster: Any = SimpleNamespace(nodes=[Server(role) for role in roles])
    fault: Any = Flood()
    parsed = None if target is None else parse_target(target)
    restricted: Any = restrict(fault, parsed)
    return asyncio.run(restricted.probe(cluster, system))


@pytest.mark.parametrize("target", [None, "one", "one:web"])
def test_a_server_that_the_fault_may_strike_needs_its_abilities(target: str | None) -> None:
    assert probe("db", "web", target=target) == "web1 has no volume"


def test_a_server_of_another_role_needs_no_ability_of_the_fault() -> None:
    assert probe("db", "web", "cache", target="one:db") is None
    assert "cache1 does not answer" in str(probe("db", "cache", target="one:cache"))
