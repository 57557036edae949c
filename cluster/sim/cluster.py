"""A simulated cluster: nodes of each role on one simulation loop, with its own ZooKeeper servers.

Names (``cluster/naming.py``) and addresses depend only on the number of nodes of each role. Addresses are assigned in
order from 198.18.0.2. Each random source (a disk, latencies of fsync, an incarnation's ``random``) is seeded by the
run's seed and the name of its use. So a new use does not change the other sources.
"""

import asyncio
import posixpath
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from assay.cluster.checked_methods import get_start_command, get_system_files, list_written_paths
from assay.cluster.naming import find_main_role, make_node_name
from assay.cluster.sim.disk import SimDisk
from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.node import Crash, SimNode
from assay.cluster.sim.process import Process
from assay.cluster.sim.runtime import EPOCH, SimRuntime
from assay.cluster.sim.zookeeper import server
from assay.cluster.sim.zookeeper.ensemble import Ensemble
from assay.cluster.system import ZOOKEEPER_ROLE, System

FIRST_ADDRESS = 2
"""Number of the first node's address, 198.18.0.2."""


class SimCluster:
    """A simulated cluster. Satisfies ``assay.cluster.node.Cluster``. It must be created in a running ``SimLoop``.

    - ``counts``: number of nodes of each role
    - ``spares``: number of additional nodes of the main role that wait to join
    - ``crashes``: processes that ended by an exception
    """

    def __init__(self, system: System, counts: Mapping[str, int], seed: int, spares: int = 0) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, SimLoop):
            raise TypeError(f"a simulated cluster runs on a SimLoop, not on {type(loop).__name__}")
        self._loop = loop
        self._system = system
        self._seed = seed
        self._closed = False
        self.crashes: list[Crash] = []
        self._nodes: list[SimNode] = []
        self._spares: list[SimNode] = []
        self._prepared: set[str] = set()
        """Names of the nodes to which the system's files were written, before their first start."""
        for role, count in counts.items():
            for index in range(1, count + 1):
                self._nodes.append(self._create_node(role, index, make_node_name(system.roles, role, index)))
        main = find_main_role(system.roles)
        if main is not None:
            members = counts.get(main, 0)
            for index in range(members + 1, members + 1 + spares):
                self._spares.append(self._create_node(main, index, make_node_name(system.roles, main, index)))
        hosts = [node.host for node in self._nodes if node.role == ZOOKEEPER_ROLE]
        self.zookeeper = Ensemble(loop.network, hosts, lambda: EPOCH + loop.time())
        self._harness_runtimes = 0

    def _create_node(self, role: str, index: int, name: str) -> SimNode:
        number = FIRST_ADDRESS + len(self._nodes) + len(self._spares)
        host = self._loop.network.add_host(name, f"198.18.{number // 250}.{number % 250}")
        disk = SimDisk(self._loop.random_sources.source(f"{self._seed} {name} disk"))
        return SimNode(self._loop, host, role, index, disk, self._run_main_process, self.crashes)

    @property
    def kind(self) -> str:
        return "sim"

    @property
    def nodes(self) -> Sequence[SimNode]:
        return self._nodes

    @property
    def spares(self) -> Sequence[SimNode]:
        return self._spares

    @property
    def epoch(self) -> float:
        """ZooKeeper's wall clock at loop time 0, in seconds since 1970."""
        return EPOCH

    @property
    def description(self) -> Mapping[str, str]:
        return {"kind": self.kind, "seed": str(self._seed)}

    def watch(self, on_line: Callable[[str, str], None]) -> None:
        """Calls ``on_line`` with node name and line, for each existing and each future line of the event logs."""
        for node in (*self._nodes, *self._spares):
            node.log.watch(partial(on_line, node.name))

    async def start(self) -> None:
        """Does nothing, because the nodes are created with the cluster. Real clusters have the same method."""

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for node in (*self._nodes, *self._spares):
            await node.thaw()
            await node.kill()
            await node.end_second()
            node.log.close()
            self._loop.network.heal(node.host)
            self._loop.network.remove_host(node.host)

    def harness_runtime(self) -> SimRuntime:
        """Creates a runtime for a client of the harness. Such a client is on no node, and no fault cuts it off."""
        self._harness_runtimes += 1
        label = f"{self._seed} harness {self._harness_runtimes}"
        return SimRuntime(
            label=label,
            random_sources=self._loop.random_sources,
            process=None,
            disk=SimDisk(self._loop.random_sources.source(f"{label} disk")),
            clock=lambda: EPOCH + self._loop.time(),
            event_log=_discard_line,
            host_name="harness",
        )

    async def _run_main_process(self, node: SimNode, process: Process) -> int:
        if node.role == ZOOKEEPER_ROLE:
            return await server.serve(self.zookeeper)
        if node.name not in self._prepared:
            self._prepared.add(node.name)
            for path, data in get_system_files(self._system, node, self).items():
                await node.write_file(path, data)
        for path in list_written_paths(self._system, node):
            node.disk.make_folder(posixpath.dirname(path))
        runtime = SimRuntime(
            label=f"{self._seed} {process.incarnation}",
            random_sources=self._loop.random_sources,
            process=process,
            disk=node.disk,
            clock=lambda: EPOCH + self._loop.time() + node.clock_offset,
            event_log=node.event_writer(process),
            host_name=node.name,
        )
        try:
            return await self._system.entry(runtime, get_start_command(self._system, node))
        except SystemExit as exit_request:  # otherwise it would end the whole simulation
            return exit_request.code if isinstance(exit_request.code, int) else int(exit_request.code is not None)


def _discard_line(line: str) -> None:
    """Discards a line: the harness's own event log has no reader."""
