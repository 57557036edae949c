"""The cluster of ``assay up``: started, watched, and removed at the first signal.

Any program that needs the system can use it, for example the test suites of other clients. If this machine cannot reach
the nodes' addresses, each port is forwarded to a port of 127.0.0.1.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol, runtime_checkable

from assay.cluster.deploy import start_system
from assay.cluster.node import Cluster, Node, NodeError, ProcessState, by_role, join_host_port
from assay.cluster.system import ZOOKEEPER_PORT, ZOOKEEPER_ROLE, System, zookeeper_servers
from assay.harness.run.environments import World, open_world
from assay.harness.run.interrupt import list_handled_signals
from assay.harness.run.settings import Settings
from assay.harness.run.system_on_network import SystemOnNetwork, start_worker
from assay.nemesis.schedule.target import servers

START_SECONDS: Final = 90.0
"""Maximum seconds until the system is ready."""
WATCH_SECONDS: Final = 5.0
"""Seconds between two looks at the servers' processes."""


@dataclass(frozen=True)
class NodeNetwork:
    """The network of nodes that this machine does not reach.

    - ``bootstrap``: the servers' addresses there
    - ``shell``: the command that opens a shell there
    - ``client``: the command that runs a client of an image there
    """

    bootstrap: str
    shell: str
    client: str


@dataclass(frozen=True)
class ClusterAddresses:
    """Addresses of the cluster, ``host:port`` joined by commas, as clients take them. ``zookeeper`` may be empty.

    ``network``: the network of the nodes, if the addresses are forwarded ports.
    """

    bootstrap: str
    zookeeper: str
    network: NodeNetwork | None = None


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
    run_id = f"up-{datetime.now(UTC):%Y%m%dt%H%M%S}-{os.getpid()}"
    on_network = SystemOnNetwork(system, None)
    world = open_world(on_network, settings, run_id=run_id)
    try:
        world.loop.run_until_complete(_serve_until_signal(world, on_network, note, on_start))
    finally:
        world.loop.close()


async def _serve_until_signal(
    world: World, system: SystemOnNetwork, note: Callable[[str], None], on_start: Callable[[ClusterAddresses], None]
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
    world: World, system: SystemOnNetwork, note: Callable[[str], None], on_start: Callable[[ClusterAddresses], None]
) -> None:
    """Serves forever, and reports each server that ends, comes back or does not answer."""
    cluster = await world.open(note, track_logs=False)
    with world.step("starting the process for clients"):
        worker = await start_worker(system, cluster, world.runtime)
    async with contextlib.AsyncExitStack() as stack:
        if worker is not None:
            stack.push_async_callback(worker.close)
        await start_system(system, cluster, START_SECONDS, note)
        nodes = servers(cluster, system)
        if worker is None:
            on_start(ClusterAddresses(_join_addresses(system, nodes), zookeeper_servers(cluster)))
        else:
            on_start(await _forward_ports(stack, system, cluster))
        await _watch_servers(nodes, note)


async def _watch_servers(nodes: Sequence[Node], note: Callable[[str], None]) -> None:
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


@runtime_checkable
class SupportsClientContainer(Protocol):
    """A cluster whose clients run in a container. ``docker_command``: begins a shell command that uses its engine."""

    client_container: str
    network_name: str
    docker_command: str


async def _forward_ports(
    stack: contextlib.AsyncExitStack, system: SystemOnNetwork, cluster: Cluster
) -> ClusterAddresses:
    """Forwards a port of 127.0.0.1 to each server, until ``stack`` is closed."""

    async def forward(node: Node, port: int) -> str:
        server = await system.forward_port(node, port)
        stack.callback(server.close)
        return join_host_port(*server.sockets[0].getsockname())

    bootstrap = [await forward(node, system.port(node.role)) for node in servers(cluster, system)]
    zookeeper = [await forward(node, ZOOKEEPER_PORT) for node in by_role(cluster, ZOOKEEPER_ROLE)]
    assert isinstance(cluster, SupportsClientContainer), "only a cluster with a container for clients has a worker"
    network = NodeNetwork(
        _join_addresses(system, servers(cluster, system)),
        f"{cluster.docker_command} exec -it {cluster.client_container} sh",
        f"{cluster.docker_command} run --rm -it --network={cluster.network_name} IMAGE COMMAND",
    )
    return ClusterAddresses(",".join(bootstrap), ",".join(zookeeper), network)


def _join_addresses(system: System, nodes: Iterable[Node]) -> str:
    return ",".join(join_host_port(node.address, system.port(node.role)) for node in nodes)
