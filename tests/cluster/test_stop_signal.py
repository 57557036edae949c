"""A system says by which signal its processes are asked to end, and its nodes ask by that one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paramiko import PKey

from assay.cluster.checked_methods import get_stop_signal
from assay.cluster.docker.cluster import DockerCluster
from assay.cluster.hosts.cluster import HostCluster
from assay.cluster.naming import PlannedNode
from assay.cluster.ssh import process
from assay.cluster.ssh.connection import Login
from assay.cluster.ssh.node import SshNode
from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, DeploymentError
from assay.workloads.systems.postgresql import PostgreSQL

from helpers.echo_system import Echo


class Interrupted(Echo):
    by: Any = signal.SIGINT

    def stop_signal(self, role: str) -> Any:
        return self.by


def test_it_is_the_one_that_the_system_names_for_a_role(tmp_path: Path) -> None:
    system = Interrupted(tmp_path)
    assert get_stop_signal(system, "broker") is signal.SIGINT
    assert get_stop_signal(PostgreSQL(), "server") is signal.SIGINT, (
        "its smart shutdown, at SIGTERM, waits for its clients"
    )


def test_it_is_sigterm_where_the_system_names_none_and_for_what_is_not_the_systems(tmp_path: Path) -> None:
    assert get_stop_signal(Echo(tmp_path), "broker") is signal.SIGTERM
    for role in (ZOOKEEPER_ROLE, CLIENT_ROLE):
        assert get_stop_signal(Interrupted(tmp_path), role) is signal.SIGTERM


@pytest.mark.parametrize("wrong", ["SIGINT", 2, None, signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT])
def test_what_ends_no_process_by_itself_is_named(tmp_path: Path, wrong: Any) -> None:
    system = Interrupted(tmp_path)
    system.by = wrong
    with pytest.raises(DeploymentError, match=r"^stop_signal\('broker'\) returned .* such as signal.SIGINT"):
        get_stop_signal(system, "broker")


ITEM, LOGIN = PlannedNode("n1", "broker", 1, 0), Login("192.0.2.1", "root", PKey(), PKey())
NO_JOURNAL: Any = None


class Known:
    """How a host is reached."""

    address = LOGIN.address

    def login(self) -> Login:
        return LOGIN

    def ports(self) -> set[int]:
        return {LOGIN.port}


def in_docker(system: Echo, folder: Path) -> SshNode:
    cluster = DockerCluster(system, {"broker": 1}, run_id="run", seed=1, state_dir=folder)
    return cluster._create_ssh_node(ITEM, LOGIN, NO_JOURNAL)


def on_a_host(system: Echo, folder: Path) -> SshNode:
    cluster: Any = HostCluster(system, {"broker": 1}, hosts=folder, run_id="run", seed=1, state_dir=folder)
    cluster._addresses = {ITEM.name: Known()}
    node: SshNode = cluster._create_ssh_node(ITEM, NO_JOURNAL)
    return node


@pytest.mark.parametrize("made", [in_docker, on_a_host])
def test_a_real_node_asks_its_main_process_by_it(made: Callable[[Echo, Path], SshNode], tmp_path: Path) -> None:
    run: list[str] = []

    async def note(command: str, *, stdin: bytes = b"", timeout: float = 0) -> str:
        run.append(command)
        return ""

    node: Any = made(Interrupted(tmp_path), tmp_path)
    node.shell, node.sidecars = note, ["agent"]
    asyncio.run(node.terminate())
    asyncio.run(node.part("main").terminate())
    asyncio.run(node.part("agent").terminate())
    asked, other = process.terminate_command(by=signal.SIGINT), process.terminate_command("agent")
    assert asked != process.terminate_command()
    assert run == [asked, process.tolerate_missing(other), asked, other]
