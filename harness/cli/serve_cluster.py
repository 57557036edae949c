"""The cluster of ``assay up``: started, watched, and removed at the first signal.

Any program that needs the system can use it, for example the test suites of other clients, because its addresses are
reachable from this machine.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from assay.cluster.deploy import start_system
from assay.cluster.node import Node, NodeError, ProcessState
from assay.cluster.system import System, zookeeper_servers
from assay.harness.run.environments import World, open_world
from assay.harness.run.interrupt import list_handled_signals
from assay.harness.run.settings import Settings
from assay.nemesis.schedule.target import servers

START_SECONDS: Final = 90.0
"""Maximum seconds until the system is ready."""
WATCH_SECONDS: Final = 5.0
"""Seconds between two looks at the servers' processes."""


@dataclass(frozen=True)
class ClusterAddresses:
    """Addresses of the cluster, ``host:port`` joined by commas, as clients take them. ``zookeeper`` may be empty."""

    bootstrap: str
    zookeeper: str


def serve_cluster(
    system: System,
    settings: Settings,
    note: Callable[[str], None],
    on_start: Callable[[ClusterAddresses], None],
) -> None:
    """Starts the cluster, calls ``on_start``, and removes the cluster at the first SIGINT, SIGTERM or SIGHUP.

    Raises ``NodeError`` or ``DeploymentError`` if it does not start.
    """
    # The process id distinguishes two clusters started in the same second.
    world = open_world(system, settings, run_id=f"up-{datetime.now(UTC):%Y%m%dt%H%M%S}-{os.getpid()}")
    try:
        world.loop.run_until_complete(_serve_until_signal(world, system, note, on_start))
    finally:
        world.loop.close()


async def _serve_until_signal(
    world: World, system: System, note: Callable[[str], None], on_start: Callable[[ClusterAddresses], None]
) -> None:
    """Serves until a failure or a signal. Further signals do not interrupt the removal of the cluster."""
    loop, served = asyncio.get_running_loop(), asyncio.ensure_future(_watch_cluster(world, system, note, on_start))
    signals = list_handled_signals()
    for number in signals:
        loop.add_signal_handler(number, served.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await served
    finally:
        note("removing the cluster")
        await world.close(keep=False)
        for number in signals:
            loop.remove_signal_handler(number)


async def _watch_cluster(
    world: World, system: System, note: Callable[[str], None], on_start: Callable[[ClusterAddresses], None]
) -> None:
    """Serves forever, and reports each server that ends, comes back or does not answer."""
    cluster = await world.open(note, track_logs=False)
    await start_system(system, cluster, START_SECONDS, note)
    nodes = servers(cluster, system)
    on_start(ClusterAddresses(_join_addresses(system, nodes), zookeeper_servers(cluster)))
    states: dict[str, ProcessState | None] = {node.name: ProcessState.RUNNING for node in nodes}
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        for node in nodes:
            try:
                state, problem = (await node.process()).state, ""
            except NodeError as error:  # users of the cluster may still reach it
                state, problem = None, str(error)
            if state is not states[node.name]:
                note(f"{node.name}: its {node.role} is {state}" if state else f"state not known: {problem}")
                states[node.name] = state


def _join_addresses(system: System, nodes: Iterable[Node]) -> str:
    return ",".join(f"{node.address}:{system.port(node.role)}" for node in nodes)
