"""One cluster of the echo system for the tests of a module."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from echo_system import Echo

from cluster.docker import DockerCluster
from cluster.doctor import engine_available

T = TypeVar("T")


@dataclass
class Live:
    """A started cluster and the loop that owns it."""

    cluster: DockerCluster
    loop: asyncio.AbstractEventLoop
    state: Path

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 60))

    def node(self, name: str) -> Any:
        return next(node for node in self.cluster.nodes if node.name == name)


@pytest.fixture(scope="session")
def engine_needed() -> None:
    if not engine_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` tells what is missing")


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Echo:
    return Echo(tmp_path_factory.mktemp("echo"))


@pytest.fixture(scope="module")
def live(engine_needed: None, echo: Echo, state: Path) -> Iterator[Live]:
    loop = asyncio.new_event_loop()
    cluster = DockerCluster(echo, {"zookeeper": 1, "broker": 2}, run_id="test-echo", seed=1, state_dir=state)
    started = Live(cluster, loop, state)
    try:
        started.run(cluster.start())
        yield started
    finally:
        started.run(cluster.close())
        loop.close()
