"""A cluster to play with: the broker on containers, until it is told to stop.

Everything else that needs a broker can be pointed at it, the test suites of other people's clients first of all: the
addresses are reachable from this machine, and topics are made when they are first asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from assay.cluster.deploy import start_system
from assay.cluster.node import Cluster, ProcessState, by_role
from assay.cluster.system import ZOOKEEPER_PORT
from assay.harness.run.settings import DOCKER, Settings
from assay.harness.run.worlds import World, open_world
from assay.system_under_test.deployment import BROKER, PORT, ZOOKEEPER, Broker

START_SECONDS: Final = 90.0
WATCH_SECONDS: Final = 5.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Addresses:
    """Where the cluster serves: ``host:port``, joined by commas, as clients take them."""

    bootstrap: str
    zookeeper: str


def up(
    system: Broker, nodes: int, zookeepers: int, note: Callable[[str], None], serving: Callable[[Addresses], None]
) -> None:
    """Starts the cluster, tells ``serving``, and takes it away at the first SIGINT or SIGTERM.

    Raises ``NodeError`` or ``DeploymentError`` when it does not come up.
    """
    settings = Settings(seed=0, cluster=DOCKER, nodes=nodes, zookeepers=zookeepers)
    world = open_world(system, settings, run_id=f"up-{datetime.now(UTC):%Y%m%dt%H%M%S}")
    try:
        world.loop.run_until_complete(_life(world, system, note, serving))
    finally:
        world.loop.close()


async def _life(
    world: World, system: Broker, note: Callable[[str], None], serving: Callable[[Addresses], None]
) -> None:
    """Serves until it fails or a signal comes; further signals do not keep it from clearing up."""
    loop, serve = asyncio.get_running_loop(), asyncio.ensure_future(_serve(world, system, note, serving))
    for number in SIGNALS:
        loop.add_signal_handler(number, serve.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await serve
    finally:
        note("taking the cluster away")
        await world.close(keep=False)
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _serve(
    world: World, system: Broker, note: Callable[[str], None], serving: Callable[[Addresses], None]
) -> None:
    """Never ends by itself once it serves; tells of each broker that ends or comes back."""
    cluster = await world.open(note)
    await start_system(system, cluster, START_SECONDS, note)
    serving(Addresses(_joined(cluster, BROKER, PORT), _joined(cluster, ZOOKEEPER, ZOOKEEPER_PORT)))
    states = {node.name: ProcessState.RUNNING for node in by_role(cluster, BROKER)}
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        for node in by_role(cluster, BROKER):
            state = (await node.process()).state
            if state is not states[node.name]:
                note(f"{node.name}: its broker is {state}")
                states[node.name] = state


def _joined(cluster: Cluster, role: str, port: int) -> str:
    return ",".join(f"{node.address}:{port}" for node in by_role(cluster, role))
