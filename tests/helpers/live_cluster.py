"""A started cluster of containers and the loop that owns it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from assay.cluster.docker import DockerCluster

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


def run_of_its_own(name: str) -> str:
    """A run ID that no other process has, for example of tests of another checkout on the same engine."""
    return f"{name}-{os.getpid()}"


@contextmanager
def started(cluster: DockerCluster, state: Path) -> Iterator[Live]:
    """Starts a cluster whose journals are in ``state``, and takes it away in the end, also where it did not start."""
    loop = asyncio.new_event_loop()
    live = Live(cluster, loop, state)
    try:
        live.run(cluster.start())
        yield live
    finally:
        live.run(cluster.close())
        loop.close()
