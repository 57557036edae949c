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
from assay.harness.remote.network_worker import NetworkWorker
from assay.harness.run.system_on_network import SystemOnNetwork, start_worker

T = TypeVar("T")


@dataclass
class Live:
    """A started cluster and the loop that owns it. ``worker``: the process in the clients' container, if any."""

    cluster: DockerCluster
    loop: asyncio.AbstractEventLoop
    state: Path
    worker: NetworkWorker | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 60))

    def node(self, name: str) -> Any:
        return next(node for node in self.cluster.nodes if node.name == name)


def run_of_its_own(name: str) -> str:
    """A run ID that no other process has, for example of tests of another checkout on the same engine."""
    return f"{name}-{os.getpid()}"


@contextmanager
def started(cluster: DockerCluster, state: Path) -> Iterator[Live]:
    """Starts a cluster whose journals are in ``state``, and removes it in the end, also if it did not start.

    If this machine does not reach the nodes, the system's network calls and ``get_dial(node)`` go through a container.
    """
    loop = asyncio.new_event_loop()
    live = Live(cluster, loop, state)
    system = cluster._system = SystemOnNetwork(cluster._system, None)
    try:
        live.run(cluster.start())
        live.worker = live.run(start_worker(system, cluster, lambda: None))
        yield live
    finally:
        if live.worker is not None:
            live.run(live.worker.close())
        live.run(cluster.close())
        loop.close()
