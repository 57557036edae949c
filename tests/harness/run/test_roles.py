"""A system of several roles: how many nodes each has, whom clients talk to, and which of them a fault may hit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.contract import Contract
from assay.cluster.node import Cluster, Node
from assay.cluster.system import System
from assay.harness.core.client import Endpoint
from assay.harness.core.generator import Generator, repeat
from assay.harness.core.history import HistoryReader
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.run.attempt import Attempt, ReportPolicy
from assay.harness.run.experiment import Experiment
from assay.harness.run.faults import explain_inapplicable, plan_schedule
from assay.harness.run.registry import Registry
from assay.harness.run.settings import Settings
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.link_set import LINKS, read_links
from assay.nemesis.schedule.catalogue import FaultCatalogue

SENTINEL_PORT = 26379


class Watched(System):
    """Servers, and sentinels beside them that no client belongs to."""

    name, roles, client_roles = "watched", ("server", "sentinel"), ("server",)

    def port(self, role: str) -> int:
        return SENTINEL_PORT if role == "sentinel" else 6379

    def argv(self, node: Node) -> Sequence[str]:
        return [node.role]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    async def ready(self, node: Node) -> bool:
        return True

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        await asyncio.Event().wait()
        return 0


class Looking:
    seen: list[Endpoint]

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.seen.append(endpoint)

    async def invoke(self, operation: Operation) -> Completion:
        await asyncio.sleep(0.1)
        return Completion(Outcome.OK)

    async def close(self) -> None: ...

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return ()


class KillSentinel(Kill):
    name, roles = "kill-sentinel", ("sentinel",)


def played(root: Path, **settings: Any) -> tuple[list[Endpoint], set[str]]:
    """The endpoints of its clients, and the nodes that were hit."""

    def body(settings: Settings) -> Generator:
        return repeat(Operation("look", "x"))

    client = type("Client", (Looking,), {"seen": []})
    made = Experiment("test_it", Watched(), client, Contract(), body)
    given: dict[str, Any] = {"nodes": 2, "role_nodes": ("sentinel=3",), "nemesis_interval": 2.0} | settings
    chosen = Settings(seed=1, time_limit=30.0, store=root, **given)
    registry = Registry.extended(faults=[KillSentinel()])
    attempt = Attempt(made, chosen, "test_it", "pytest", reports=ReportPolicy.NEVER, registry=registry)
    try:
        attempt.set_up()
        attempt.run()
    finally:
        attempt.tear_down()
    faults = HistoryReader(attempt.folder.history).table("faults").to_pylist()
    hit = {name for row in faults if row["phase"] == "injected" for name in json.loads(row["targets"])}
    return client.seen, hit


def test_each_role_has_its_nodes_and_clients_belong_to_those_of_their_roles(tmp_path: Path) -> None:
    endpoints, _ = played(tmp_path)
    assert {endpoint.node for endpoint in endpoints} == {"n1", "n2"}
    (roles,) = {tuple((role, tuple(found)) for role, found in endpoint.roles.items()) for endpoint in endpoints}
    assert [(role, len(found)) for role, found in roles] == [("server", 2), ("sentinel", 3)]
    assert all(address.endswith(f":{SENTINEL_PORT}") for address in dict(roles)["sentinel"])
    assert all(len(endpoint.all) == 2 for endpoint in endpoints)


@pytest.mark.parametrize(
    "settings", [{"nemesis": ("kill",), "nemesis_target": "one:sentinel"}, {"nemesis": ("kill-sentinel",)}]
)
def test_a_fault_aimed_at_a_role_or_that_names_one_hits_no_other(tmp_path: Path, settings: dict[str, Any]) -> None:
    _, hit = played(tmp_path, **settings)
    assert len(hit) > 1
    assert hit <= {"sentinel1", "sentinel2", "sentinel3"}


def test_without_a_role_all_servers_may_be_hit(tmp_path: Path) -> None:
    _, hit = played(tmp_path, nemesis=("kill",), nemesis_target="one")
    assert hit & {"n1", "n2"}
    assert hit & {"sentinel1", "sentinel2", "sentinel3"}


@pytest.mark.parametrize("nemesis", ["mix", "partition-links"])
def test_nodes_that_are_drawn_by_name_are_there_and_of_every_role(nemesis: str) -> None:
    nodes = {"n1", "n2", "sentinel1", "sentinel2", "sentinel3"}
    named: set[str] = set()
    for seed in range(10):
        given = Settings(seed=seed, nodes=2, role_nodes=("sentinel=3",), nemesis=(nemesis,), time_limit=60.0)
        drawn = plan_schedule(Watched(), given, FaultCatalogue.standard())
        named |= {name for step in drawn.steps for name in step.target.names}
        named |= {end for step in drawn.steps for link in read_links(step.parameters.get(LINKS, "")) for end in link}
    assert named == nodes


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"role_nodes": ("sentinels=3",)},
            "watched has no such role; its roles are server, sentinel; did you mean sentinel?",
        ),
        ({"role_nodes": ("zookeeper=3",)}, "--zookeepers"),
        ({"role_nodes": ("client=3",)}, "--workers"),
        (
            {"nemesis": ("kill",), "nemesis_target": "one:proxy"},
            "has that role; the roles are server, sentinel",
        ),
    ],
)
def test_a_role_that_there_is_not_is_refused(given: dict[str, Any], said: str) -> None:
    reason = explain_inapplicable(Watched(), Settings(seed=1, **given), FaultCatalogue.standard())
    assert reason is not None
    assert said in reason
