"""The environment ("world") of a run: real machines on an ordinary event loop, or one simulated process.

A world provides the event loop, the cluster and the runtime of clients. In the simulation the harness runs on the
simulated loop, too. Its time limits are virtual, so that a run is a function of its seed.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from assay.cluster.log_excerpt import cut_log
from assay.cluster.naming import choose_log_names
from assay.cluster.node import Cluster, NodeError
from assay.cluster.rng import RandomSources
from assay.cluster.sim.process import ExitCalls
from assay.cluster.slow_steps import note_if_slow
from assay.cluster.system import ZOOKEEPER_ROLE, SupportsZooKeeperClient, System
from assay.harness.core.worker import abandon_task, exclude_abandoned
from assay.harness.remote.runtime import ClientRuntime
from assay.harness.run.faults import count_nodes
from assay.harness.run.settings import ATTACH, DOCKER, SIM, Settings, SettingsError, derive_seed
from assay.nemesis.faults.fault import Fault, count_spares, get_declaration, needs_disks

if TYPE_CHECKING:
    from assay.cluster.docker.cluster import DockerCluster
    from assay.cluster.hosts.attached import AttachedCluster
    from assay.cluster.hosts.cluster import HostCluster
    from assay.cluster.sim.cluster import SimCluster
    from assay.cluster.ssh.logs import LogGrowthRecorder
    from assay.harness.run.node_logs import SimLogs

    RealCluster = DockerCluster | HostCluster | AttachedCluster


END_SECONDS: Final = 90.0
"""Seconds that cancelled tasks may take. Some of them heal faults, each within a time limit of its own."""


class World(Protocol):
    """The environment of one run. ``loop`` is used from set-up to tear-down; the creator of the world closes it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def random_sources(self) -> RandomSources:
        """The source of all random numbers in this world that the seed determines."""

    def call_between_events(self, when: float, call: Callable[[], object]) -> object:
        """Calls ``call`` at the time ``when`` of the loop's clock. In the simulation, other events keep their order."""

    async def open(self, note: Callable[[str], None], *, track_logs: bool = True) -> Cluster:
        """Starts the nodes, without the system's processes. ``note`` is called at long steps.

        ``track_logs``: whether to track the growth of the nodes' text logs, for ``save_logs``.
        """

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Returns the harness's own unfinished tasks. Tasks of a simulated node end with the node."""

    def runtime(self) -> Any:
        """Returns the runtime of clients: ``random``, ``wall_clock()``, ``zookeeper(servers, session_timeout)``."""

    async def save_logs(self, folder: Path) -> list[str]:
        """Saves the nodes' logs below ``folder``. Returns descriptions of those that could not be read."""

    def step(self, what: str) -> AbstractContextManager[None]:
        """Shows a step of the harness by ``note`` of :meth:`open` if it takes long. Simulated steps take no time."""

    @property
    def outlives_process(self) -> bool:
        """Whether the cluster could go on after this process."""

    async def close(self, *, keep: bool) -> None:
        """Removes the cluster, or leaves it running if ``keep`` is true. Idempotent."""


def choose_default_cluster() -> tuple[str, str]:
    """Returns ``docker`` if an engine answers, else ``sim``, and the reason.

    Raises ``SettingsError`` if the user has chosen an engine that cannot run a cluster. A run in the simulation would
    then be mistaken for one in Docker.
    """
    from assay.cluster.docker_endpoint import EndpointError, resolve_endpoint
    from assay.cluster.doctor import find_docker_obstacle

    obstacle = find_docker_obstacle()
    try:
        endpoint = resolve_endpoint()
    except EndpointError as error:
        raise SettingsError(f"{error}; or give --cluster=sim for the simulation") from error
    if obstacle is None:
        return DOCKER, "a Docker engine answers" + ("" if endpoint.is_default else f" at {endpoint}")
    if not endpoint.is_default:
        raise SettingsError(f"{obstacle}; or give --cluster=sim for the simulation")
    return SIM, "the simulation, as no Docker engine answers; `assay doctor` says what is missing"


@dataclass(frozen=True)
class FaultRequirements:
    """Requirements that the faults of a run have for its cluster. The simulation needs to know only ``spares``."""

    own_disks: bool = False
    """Servers have disks of their own."""
    own_clocks: bool = False
    """Servers have clocks that can be wrong."""
    slow_disks: bool = False
    """Servers have disks that can be slow or fail."""
    own_memory: bool = False
    """Servers have limited memory."""
    spares: int = 0
    """Number of nodes that are not servers yet, but can join."""

    @classmethod
    def of_faults(cls, faults: Collection[Fault]) -> "FaultRequirements":
        return cls(
            own_disks=any(map(needs_disks, faults)),
            own_clocks=any(fault.impact.wrong_clock for fault in faults),
            slow_disks=any(get_declaration(fault, "slow_disks") for fault in faults),
            own_memory=any(get_declaration(fault, "own_memory") for fault in faults),
            spares=count_spares(faults),
        )


def open_world(system: System, settings: Settings, *, run_id: str, needs: FaultRequirements | None = None) -> World:
    """Creates the world that the settings name. ``run_id`` marks containers and networks."""
    needs = needs or FaultRequirements()
    if settings.cluster == SIM:
        return SimWorld(system, settings, needs.spares)
    if settings.cluster == ATTACH:
        from assay.cluster.hosts.attached import AttachedCluster

        return RealWorld(system, settings, partial(AttachedCluster, hosts=str(settings.hosts)))
    if settings.hosts is not None:
        from assay.cluster.hosts.cluster import HostCluster

        return RealWorld(system, settings, partial(HostCluster, hosts=settings.hosts, run_id=run_id))
    from assay.cluster.docker.cluster import DockerCluster

    return RealWorld(system, settings, partial(DockerCluster, run_id=run_id, clients=settings.clients, **asdict(needs)))


class SimWorld:
    """The deterministic simulation."""

    def __init__(self, system: System, settings: Settings, spares: int = 0) -> None:
        from assay.cluster.sim.loop import SimLoop

        self._system = system
        self._settings = settings
        self._spares = spares
        self.loop = SimLoop(derive_seed(settings.seed, "network"))
        self.random_sources = self.loop.random_sources
        self._cluster: SimCluster | None = None
        self._logs: SimLogs | None = None
        self._exit_calls = ExitCalls()
        """Lets ``os._exit`` of a simulated process end only that process."""

    def call_between_events(self, when: float, call: Callable[[], object]) -> object:
        self.loop.call_between_events(when, call)
        return None

    async def open(self, note: Callable[[str], None], *, track_logs: bool = True) -> Cluster:
        from assay.cluster.sim.cluster import SimCluster
        from assay.harness.run.node_logs import SimLogs

        self._logs = SimLogs(self.loop)
        self._logs.begin()
        self._exit_calls.begin(note)
        counts = count_nodes(self._system, self._settings)
        cluster = SimCluster(self._system, counts, derive_seed(self._settings.seed, "cluster"), self._spares)
        self._cluster = cluster
        await cluster.start()
        return cluster

    def tasks(self) -> list[asyncio.Task[Any]]:
        return self.loop.tasks_of(None)

    def runtime(self) -> Any:
        assert self._cluster is not None, "open comes first"
        return self._cluster.harness_runtime()

    async def save_logs(self, folder: Path) -> list[str]:
        """Saves all logs except event logs, because the history contains these."""
        if self._logs is not None:
            self._logs.save(folder)
        missing = []
        for node in () if self._cluster is None else (*self._cluster.nodes, *self._cluster.spares):
            paths = () if node.role == ZOOKEEPER_ROLE else self._system.logs(node)
            printed = [path.name for path in (folder / node.name).glob("*")]
            saved = choose_log_names((path for path in paths if path != self._system.event_log(node)), printed)
            for path, name in saved.items():
                try:
                    data = await node.read_file(path)
                except (OSError, NodeError) as error:
                    missing.append(f"{path} of {node.name}: {error}")
                    continue
                target = folder / node.name / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(cut_log(data))
        return missing

    def step(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()

    @property
    def outlives_process(self) -> bool:
        return False

    async def close(self, *, keep: bool) -> None:
        """Ends the cluster. It cannot be kept, because it ends with the process."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()
        self._exit_calls.end()
        if self._logs is not None:
            self._logs.end()


class RealWorld:
    """Machines on an ordinary event loop. ``make`` creates the cluster, not yet started."""

    def __init__(self, system: System, settings: Settings, make: Callable[..., "RealCluster"]) -> None:
        self._system = system
        self._settings = settings
        self._make = make
        self.loop = asyncio.new_event_loop()
        self.random_sources = RandomSources()
        self._cluster: RealCluster | None = None
        self._growth: LogGrowthRecorder | None = None
        self._exit_calls = ExitCalls()
        self._note: Callable[[str], None] = lambda text: None

    def call_between_events(self, when: float, call: Callable[[], object]) -> object:
        return self.loop.call_at(when, call)

    async def open(self, note: Callable[[str], None], *, track_logs: bool = True) -> Cluster:
        from assay.cluster.journal import state_folder

        self._exit_calls.begin(note)
        self._note = note
        self._cluster = self._make(
            self._system,
            count_nodes(self._system, self._settings),
            seed=derive_seed(self._settings.seed, "cluster"),
            state_dir=state_folder(),
            progress=note,
        )
        await self._cluster.start()
        if track_logs:
            self._track_logs(self._cluster)
        return self._cluster

    def _track_logs(self, cluster: Cluster) -> None:
        from assay.cluster.ssh.logs import LogGrowthRecorder
        from assay.cluster.ssh.node import SshNode

        nodes = [node for node in (*cluster.nodes, *cluster.spares) if isinstance(node, SshNode)]
        self._growth = LogGrowthRecorder(self._system, nodes)
        self._growth.start()

    def tasks(self) -> list[asyncio.Task[Any]]:
        return list(asyncio.all_tasks(self.loop))

    def runtime(self) -> Any:
        zookeeper = self._system.zookeeper_client if isinstance(self._system, SupportsZooKeeperClient) else None
        return ClientRuntime(
            self.random_sources.source("client", derive_seed(self._settings.seed, "client")), zookeeper
        )

    async def save_logs(self, folder: Path) -> list[str]:
        """Also measures the nodes' clocks once more, because the times of lines depend on them."""
        from assay.cluster.over_ssh import SshCluster

        if self._cluster is None:
            return []
        if isinstance(self._cluster, SshCluster):
            with self.step("measuring the clocks of the nodes once more"):
                await self._cluster.measure_clocks_again()
        unknown = [] if self._growth is None else await self._growth.stop()
        with self.step("copying the logs of the nodes"):
            missing = await self._cluster.collect_logs(folder)
        if self._growth is not None:
            self._growth.save(folder)
        return [*missing, *unknown]

    def step(self, what: str) -> AbstractContextManager[None]:
        return note_if_slow(self._note, what)

    @property
    def outlives_process(self) -> bool:
        return True

    async def close(self, *, keep: bool) -> None:
        self._exit_calls.end()
        if self._growth is not None:
            await self._growth.stop()
        if self._cluster is not None:
            await (self._cluster.keep() if keep else self._cluster.close())


def cancel_tasks(loop: asyncio.AbstractEventLoop, tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancels tasks and waits for them. Tasks of user code that ignore their cancellation are abandoned."""
    for task in tasks:
        task.cancel()
    if waiting := exclude_abandoned(tasks):
        ended, hanging = loop.run_until_complete(asyncio.wait(waiting, timeout=END_SECONDS))
        for task in ended:
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not report it
        for task in hanging:
            abandon_task(task)


def close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels all tasks of a loop, and closes it."""
    try:
        cancel_tasks(loop, asyncio.all_tasks(loop))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
