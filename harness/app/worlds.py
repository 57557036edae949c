"""Where a run takes place: containers on an ordinary event loop, or everything in one simulated process.

A world gives a run its loop, its cluster and the runtime that clients get. In the simulation the harness, too, runs on
the simulated loop: its time limits and time-outs are virtual, so that a run is a function of its seed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from cluster.node import Cluster
from cluster.system import System
from harness.app.faults import node_counts
from harness.app.settings import DOCKER, SIM, Settings, derive


class World(Protocol):
    """One run's surroundings; ``loop`` is used from set-up to tear-down and closed by whoever made the world."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    async def open(self, note: Callable[[str], None]) -> Cluster:
        """Brings the nodes into being, with nothing running on them yet; ``note`` hears of long steps."""
        ...

    def runtime(self) -> Any:
        """What clients get: see ``system_under_test.runtime``."""
        ...


@dataclass(frozen=True)
class HarnessRuntime:
    """What a client outside of any node may ask for in a real world: chance and the time of day."""

    random: random.Random

    def wall_clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()


def default_cluster() -> tuple[str, str]:
    """``docker`` if an engine answers, else ``sim``; and why."""
    from cluster.doctor import engine_available

    if engine_available():
        return DOCKER, "a Docker engine answers"
    return SIM, "the simulation, as no Docker engine answers; `assay doctor` tells what is missing"


def open_world(system: System, settings: Settings, *, run_id: str) -> World:
    """The world that the settings name. ``run_id`` marks containers and networks."""
    if settings.cluster == SIM:
        return SimWorld(system, settings)
    return DockerWorld(system, settings, run_id)


class SimWorld:
    """The deterministic simulation."""

    def __init__(self, system: System, settings: Settings) -> None:
        from cluster.sim.loop import SimLoop

        self._system = system
        self._settings = settings
        self._loop = SimLoop(derive(settings.seed, "network"))
        self._cluster: Any = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    async def open(self, note: Callable[[str], None]) -> Cluster:
        from cluster.sim.cluster import SimCluster

        cluster = SimCluster(
            self._system, node_counts(self._system, self._settings), derive(self._settings.seed, "cluster")
        )
        await cluster.start()
        self._cluster = cluster
        return cluster

    def runtime(self) -> Any:
        return self._cluster.harness_runtime()


class DockerWorld:
    """Containers on a private network of this machine."""

    def __init__(self, system: System, settings: Settings, run_id: str) -> None:
        self._system = system
        self._settings = settings
        self._run_id = run_id
        self._loop = asyncio.new_event_loop()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    async def open(self, note: Callable[[str], None]) -> Cluster:
        from cluster.docker.cluster import DockerCluster
        from cluster.journal import state_folder

        cluster = DockerCluster(
            self._system,
            node_counts(self._system, self._settings),
            run_id=self._run_id,
            seed=derive(self._settings.seed, "cluster"),
            state_dir=state_folder(),
            progress=note,
        )
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        return cluster

    def runtime(self) -> Any:
        return HarnessRuntime(random.Random(derive(self._settings.seed, "client")))
