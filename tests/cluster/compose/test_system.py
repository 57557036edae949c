"""Roles and jobs of a Compose file."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from assay import Compose, Settings
from assay.cluster.compose import system as module
from assay.cluster.compose.project import ComposeError, parse_project
from assay.cluster.docker.software import list_containers
from assay.cluster.naming import plan_nodes
from assay.cluster.node import CommandResult
from assay.harness.run.faults import plan_schedule
from assay.harness.run.settings import DOCKER
from assay.nemesis.schedule.catalogue import FaultCatalogue

FILE = Path("docker-compose.yml")
MIGRATED = {"condition": "service_completed_successfully"}


def make_system(monkeypatch: pytest.MonkeyPatch, services: dict[str, dict[str, Any]], **arguments: Any) -> Compose:
    found = {"services": {name: {"image": name, **settings} for name, settings in services.items()}}
    monkeypatch.setattr(module, "read_project", lambda file, profiles: parse_project(file, found, profiles))
    return Compose(FILE, **arguments)


SERVICES: dict[str, dict[str, Any]] = {
    "web": {"depends_on": {"migrate": MIGRATED, "cache": {"condition": "service_healthy"}}},
    "migrate": {"depends_on": ["db1", "db2"]},
    "db1": {},
    "cache": {},
    "db2": {"depends_on": {"chown": MIGRATED}},
    "chown": {},
    "seed": {"depends_on": ["web"]},
}


def test_a_service_for_whose_end_another_waits_is_a_job_and_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    system = make_system(monkeypatch, SERVICES, roles={"db": 5432, "web": 80}, jobs=["seed"])
    assert system.roles == ["db", "cache", "web"]
    assert system.node_counts == {"db": 2, "cache": 1, "web": 1}
    assert [(job.name, job.after) for job in system.jobs] == [("chown", None), ("migrate", "db"), ("seed", "web")]


class Healthy:
    """A node of a database that is healthy, and serves at a port of its image only once it is initialised."""

    name, role, index, address = "db1", "db", 1, "127.0.0.1"
    health_command = ("check",)

    def __init__(self, *ports: int) -> None:
        self.exposed_ports = ports
        self.status = 0

    async def run_in_image(self, argv: Any, *, environment: Any = None, timeout: float = 30.0) -> CommandResult:
        return CommandResult(self.status, "", "")


def test_a_healthy_service_is_ready_when_it_serves_at_a_port_of_its_image(monkeypatch: pytest.MonkeyPatch) -> None:
    system = make_system(monkeypatch, {"db": {}}, roles={})

    async def body() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        open_port, node = server.sockets[0].getsockname()[1], Healthy(1)
        assert not await system.ready(node), "its server has no network yet"
        monkeypatch.setattr(module, "PORT_SECONDS", 0.0)
        assert await system.ready(node), "a worker never serves"
        monkeypatch.undo()
        assert await system.ready(Healthy(1, open_port))
        assert await system.ready(Healthy())
        node.status = 1
        assert not await system.ready(node)
        server.close()

    asyncio.run(body())


def test_cut_links_are_between_nodes_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    system = make_system(monkeypatch, {"db": {}, "web": {}, "cache": {}}, roles={"web": 80})
    given = Settings(seed=1, cluster=DOCKER, nemesis=("partition-links",), nodes=1)
    steps = plan_schedule(system, given, FaultCatalogue.standard()).steps
    text = " ".join(f"{step.target} {step.parameters}" for step in steps)
    assert re.search(r"\b(db1|web1|cache1)\b", text)
    assert not re.search(r"\bn1\b", text)


def test_the_images_of_jobs_are_built_with_those_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    system = make_system(monkeypatch, SERVICES, roles={"db": 5432, "web": 80})
    nodes = plan_nodes(system.roles, system.node_counts, numbered_main=False)
    images = {node.name: container.image for node, container in list_containers(system, nodes).items()}
    assert images["the job migrate"] == "migrate"
    assert images["db2"] == "db2"


def test_a_job_cannot_serve_clients_and_an_unknown_job_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ComposeError, match=r"migrate ends before the run, because it is a job, so `roles`"):
        make_system(monkeypatch, SERVICES, roles={"migrate": 80}).roles  # noqa: B018 - reading it reads the file
    with pytest.raises(ComposeError, match=r"has no service sead, which `jobs` names; its services are .*seed"):
        make_system(monkeypatch, SERVICES, roles={"web": 80}, jobs=["sead"]).roles  # noqa: B018
