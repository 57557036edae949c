"""Fixtures that share a cluster of the echo system between the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.cluster.docker import DockerCluster
from assay.cluster.doctor import docker_available

from helpers.echo_system import Echo
from helpers.live_cluster import Live, run_of_its_own, started


@pytest.fixture(scope="session")
def engine_needed() -> None:
    if not docker_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Echo:
    return Echo(tmp_path_factory.mktemp("echo"))


@pytest.fixture(scope="module")
def live(engine_needed: None, echo: Echo, state: Path) -> Iterator[Live]:
    cluster = DockerCluster(
        echo, {"zookeeper": 1, "broker": 2}, run_id=run_of_its_own("test-echo"), seed=1, state_dir=state, spares=1
    )
    with started(cluster, state) as live:
        yield live
