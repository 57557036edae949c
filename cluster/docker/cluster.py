"""A cluster of containers: real processes, a real ZooKeeper, a real network, on one machine's Docker engine.

A container stands for a machine. The harness works by SSH, as on a real host. ``docker exec`` carries each connection,
so commands do not use the network under test. Containers live as long as the run. Faults kill processes, not
containers, because a restarted container gets a new network namespace and so loses its partition.

The journal entry that removes a container is written before the container is created. Each run has SSH keys of its own,
which are never stored on the harness's disk.
"""

import io
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
from docker.types import Mount

from assay.cluster import journal as undo_journal
from assay.cluster import zookeeper
from assay.cluster.checked_methods import get_start_command, list_written_paths
from assay.cluster.containers import (
    Container,
    Job,
    SupportsContainers,
    SupportsUpgrade,
    parse_stop_signal,
)
from assay.cluster.docker import (
    code_archive,
    disk,
    image,
    image_contents,
    job_container,
    layer,
    network,
    preload,
    software,
    target_container,
)
from assay.cluster.docker.disk import DockerDisk
from assay.cluster.docker.engine import (
    CALL_TIMEOUT,
    CAPABILITIES,
    DockerEngineError,
    DockerFreezer,
    identify_engine,
    make_exec_command,
    make_stream_command,
    name_engine,
    open_docker,
    reach_engine,
    remove_container,
    run_labels,
    undo_action,
)
from assay.cluster.docker.engine_machine import find_engine_machine
from assay.cluster.docker.layer import ImageError
from assay.cluster.naming import PlannedNode, plan_nodes
from assay.cluster.node import ImageChange, Node, NodeError
from assay.cluster.over_ssh import NodeUndoLog, SshCluster, gather_all
from assay.cluster.sidecars import find_sidecars
from assay.cluster.slow_steps import iterate_noting
from assay.cluster.ssh import preloaded
from assay.cluster.ssh.clock_offset import ClockOffset, measure_clock_offset
from assay.cluster.ssh.command_stream import SharedSocket, StreamCommand, listen_at
from assay.cluster.ssh.connection import Login, SshConnection
from assay.cluster.ssh.node import SshNode
from assay.cluster.ssh.node_processes import Program, add_sidecars
from assay.cluster.system import (
    CLIENT_ROLE,
    ZOOKEEPER_ROLE,
    DeploymentError,
    SupportsDataFolder,
    SupportsNetworkWorker,
    System,
)


def generate_keys() -> tuple[paramiko.PKey, paramiko.PKey]:
    """Returns two new keys: one with which the harness logs in, and the host key of the nodes."""
    return paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()


def archive_keys(key: paramiko.PKey, host_key: paramiko.PKey) -> bytes:
    """Returns an archive of a node's key files. The node accepts logins with ``key`` and has the host key."""
    private = io.StringIO()
    host_key.write_private_key(private)
    return code_archive.archive_files(
        {
            "/etc/ssh/assay_authorized_keys": (0o600, f"{key.get_name()} {key.get_base64()}\n".encode()),
            "/etc/ssh/assay_host_key": (0o600, private.getvalue().encode()),
        }
    )


CLIENT_CONTAINER = "clients"
"""Name of the container in which clients run if this machine cannot reach the nodes' network."""
CLIENT_SOCKET = "/run/assay-harness.socket"
"""Path of the harness's socket in that container."""
DISK_CONTAINER = "disks"
"""Name of the container that makes the nodes' disks, if a fault of the run needs them."""
HOME = f"/{code_archive.ROOT}"
CONNECT_SECONDS = 30.0
"""Maximum seconds until a container's sshd answers."""
REACH_SECONDS = 3.0
"""Maximum seconds until a node's address accepts a connection. After that, it counts as unreachable."""
REACH_SCRIPT = """\
import socket, sys
try:
    socket.create_connection((sys.argv[1], 22), float(sys.argv[2]))
except ConnectionRefusedError:
    pass
except OSError as error:
    print(error)
"""
"""Runs on a node, and prints why another node does not answer. A node whose sshd does not listen yet answers, too."""
NETWORK_REMEDY = (
    "Docker's rules do so with Podman's containers on one machine: as root there, `iptables -I DOCKER-USER "
    "-i podman+ -o podman+ -j ACCEPT`, or stop Docker and restart the machine"
)
MEMORY = 1 << 30
"""Memory limit of a server in bytes, without swap. It is only set if a fault of the run exhausts memory."""


class DockerCluster(SshCluster):
    """See :class:`assay.cluster.node.Cluster`. ``start`` creates the nodes; the nodes start their processes."""

    kind = "docker"
    leftover_error = DockerEngineError  # raised if something was not removed

    def __init__(
        self,
        system: System,
        counts: Mapping[str, int],
        *,
        run_id: str,
        seed: int,
        state_dir: Path,
        progress: Callable[[str], None] = lambda line: None,
        own_disks: bool = False,
        own_clocks: bool = False,
        slow_disks: bool = False,
        own_memory: bool = False,
        spares: int = 0,
        clients: str = "auto",
    ) -> None:
        """Prepares containers for the faults of the run.

        - ``own_disks``: the servers' data lie on disks whose power can be cut, if system and machine allow it.
        - ``own_clocks``: the servers' wall clocks can be shifted.
        - ``slow_disks``: the servers' disks can be made slow, or fail.
        - ``own_memory``: the servers have at most ``MEMORY``.
        - ``spares``: number of additional nodes of the main role that wait to join.
        - ``clients``: ``container`` starts a container for clients, if the system has a worker process
          (:class:`~assay.cluster.system.SupportsNetworkWorker`). ``auto`` does so only if this machine cannot reach
          the nodes' addresses, and ``here`` never does.
        """
        super().__init__(system, run_id=run_id, seed=seed, state_dir=state_dir, progress=progress)
        self._plans = plan_nodes(system.roles, counts, spares, numbered_main=not isinstance(system, SupportsContainers))
        self._members = sum(counts.values())
        self._own_disks = own_disks
        self._own_memory = own_memory
        self._library_gaps: dict[preload.PreloadLibrary, str | None] = {
            preload.CLOCK: None if own_clocks else "this cluster was started without the library that shifts clocks",
            preload.SLOWNESS: None if slow_disks else "this cluster was started without the library that slows disks",
        }
        """Maps each library to the reason why the servers' processes do not load it; None if they load it."""
        self._images: dict[str, software.NodeImage] = {}
        """The image of each node, by its name."""
        self._upgrades: dict[str, software.NodeImage] = {}
        """The image to which a node can be upgraded, by the node's name."""
        self._volumes: dict[str, str] = {}
        """Maps names of volumes that nodes share to their names on the engine."""
        self._archives: dict[str, Sequence[bytes]] = {}
        """Archives of the compiled libraries, by the node's name."""
        self._unable_to_load: set[str] = set()
        """Names of the nodes that cannot load the compiled libraries."""
        self._prefix = f"assay-{run_id}"
        self._engine: undo_journal.EngineRecord | None = None
        self._clients = clients
        self._client_socket: SharedSocket | None = None
        self.worker_command: StreamCommand | None = None
        """The command that runs the worker process in the container for clients; None if there is no container."""
        self.client_container = self._name_container(CLIENT_CONTAINER)
        self.network_name = f"{self._prefix}-net"
        self._disk_container = self._name_container(DISK_CONTAINER)

    @property
    def nodes(self) -> Sequence[SshNode]:
        return self._all_nodes[: self._members]

    @property
    def spares(self) -> Sequence[SshNode]:
        return self._all_nodes[self._members :]

    @property
    def docker_command(self) -> str:
        """The beginning of a shell command that uses this cluster's engine, whatever the shell's own variables are."""
        assert self._engine is not None, "start comes first"
        endpoint = self._engine.endpoint
        return "docker" if endpoint.is_default else f"{endpoint.prefix()} docker"

    async def _set_up(self) -> None:
        """Creates the network, the containers, their files, and their disks.

        Raises :class:`DockerEngineError`, :class:`~assay.cluster.docker.layer.ImageError` or ``NodeError``.
        """
        names = ", ".join(item.name for item in self._plans)
        with self._step("looking for the images of the nodes on the Docker engine"):
            self._images = images = await self._in_thread(self._find_images)
        key, host_key = await self._in_thread(generate_keys)
        code = await self._in_thread(code_archive.archive_code, list(self._system.source))
        with self._step("creating the network of the nodes"):
            self._engine = engine = await self._in_thread(identify_engine)
            self._journal = journal = undo_journal.UndoJournal(self._state, self.run_id, self._owner, engine)
            net = await self._in_thread(self._make_network, journal)
        hosts = {item.name: net.address(item.number) for item in self._plans}
        with self._step("creating the volumes that nodes share"):
            await self._in_thread(self._make_volumes, journal)
        logins = {
            name: Login(address, "root", key, host_key, stream=make_stream_command(self._name_container(name)))
            for name, address in hosts.items()
        }
        secrets = archive_keys(key, host_key)
        with self._step("starting the container that makes disks"):
            disk_obstacle = await self._in_thread(self._start_disk_container, journal)
        with self._step("making the libraries for clocks and disks"):
            preloads = await self._in_thread(self._make_preloads)

        def make(item: PlannedNode) -> None:
            archives = [secrets] if item.role == ZOOKEEPER_ROLE else [secrets, code]
            libraries = self._archives[item.name] = preloads.get(item.name, [])
            if images[item.name].target is None:
                archives += libraries
            self._make_container(item, images[item.name].id, net, hosts, archives, journal)
            if images[item.name].target is not None:
                self._make_target(item, images[item.name], libraries, journal)

        with self._step(f"creating the containers {names}"):
            await gather_all(self._in_thread(make, item) for item in self._plans)
        self._all_nodes = [self._create_ssh_node(item, logins[item.name], journal) for item in self._plans]
        deadline = time.monotonic() + CONNECT_SECONDS
        with self._step(f"connecting to {names}"):
            await gather_all(self._connect(node, deadline) for node in self._all_nodes)
        with self._step(f"preparing {names}"):
            await self._require_links()
            await gather_all(self._give_disk(node, disk_obstacle) for node in self._all_nodes)
            await gather_all(self._write_files(node, self._files_for(node)) for node in self._all_nodes)
            await gather_all(self._try_preloads(node) for node in self._all_nodes)
        if await self._needs_client_container(logins):
            reason = ", because this machine does not reach the nodes" if self._clients == "auto" else ""
            with self._step(f"starting a container for clients with their packages{reason}", is_slow=True):
                await self._in_thread(self._start_client_container, net, hosts, secrets, journal)
        with self._step("asking the Docker engine for its version"):
            self.description = await self._in_thread(self._describe, images, net)
        if self.worker_command is not None:
            self.description["clients"] = f"in a container, {self.client_container}"

    async def _measure_clocks(self) -> Sequence[tuple[str, ClockOffset]]:
        """Returns the offset of the engine's machine for each node. The first node that answers measures it.

        All containers have the clocks of this machine's kernel.
        """
        errors = []
        for node in self._all_nodes:
            try:
                offset = await measure_clock_offset(node.shell)
            except NodeError as error:
                errors.append(error)
            else:
                return [("engine", offset)] * len(self._all_nodes)
        if errors:
            raise errors[0]
        return []

    async def _connect(self, node: SshNode, deadline: float) -> None:
        await node.connect(deadline)
        await node.prepare()
        if self._has_target(node):
            await node.find_target(self._images[node.name].user)

    async def _require_links(self) -> None:
        """Raises :class:`DockerEngineError` if the first node does not reach the second on the run's network."""
        if len(self._all_nodes) < 2:
            return
        near, far = self._all_nodes[:2]
        obstacle = await near.shell(shlex.join(["python3", "-c", REACH_SCRIPT, far.address, str(REACH_SECONDS)]))
        if obstacle.strip():
            raise DockerEngineError(
                f"{near.name} does not reach {far.name} at {far.address} ({obstacle.strip()}): a firewall on the "
                f"engine's machine drops packets between containers; {NETWORK_REMEDY}"
            )

    async def _try_preloads(self, node: SshNode) -> None:
        """Tests whether a user's image can load the libraries. Its C library may differ from this machine's."""
        libraries = self._list_libraries(node)
        if not libraries or self._images[node.name].user_image is None:
            return
        if self._has_target(node):
            reason = await node.explain_unloadable(self._make_program(node).argv[0], libraries)
        else:
            printed = await node.shell(f"LD_PRELOAD={':'.join(libraries)} env 2>&1 >/dev/null || echo it fails")
            said = printed.strip().splitlines()
            reason = f"its image cannot load the compiled library: {said[0]}" if said else None
        if reason is not None:
            self._unable_to_load.add(node.name)
            node.set_missing_preloads(clock=reason, slowness=reason)
            self._progress(f"{node.name} has no wrong clock and no slow or failing disk: {reason}")

    async def _needs_client_container(self, logins: Mapping[str, Login]) -> bool:
        if self._clients == "here" or not isinstance(self._system, SupportsNetworkWorker) or not logins:
            return False
        return self._clients != "auto" or not await self._in_thread(_is_reachable, next(iter(logins.values())))

    def _start_client_container(
        self,
        net: network.RunNetwork,
        hosts: Mapping[str, str],
        secrets: bytes,
        journal: undo_journal.UndoJournal,
    ) -> None:
        """Starts a container on the nodes' network, which is no node and is affected by no fault.

        If the engine runs on this machine, the container gets a Unix socket of the harness. Some engines cannot share
        it: an engine with a file system of its own, for example.
        """
        assert isinstance(self._system, SupportsNetworkWorker)
        worker = self._system.describe_worker()
        missing = [name for name in worker.software.python if name.partition("==")[0] not in image.REQUIREMENTS]
        image_id = software.ensure_software_image(replace(worker.software, python=missing), self._progress).id
        item = PlannedNode(CLIENT_CONTAINER, CLIENT_ROLE, 0, len(self._plans))
        addresses = {**hosts, item.name: net.address(item.number)}
        code = code_archive.archive_code(list(worker.source))
        archives = [secrets, code]
        file = self._listen_for_clients(journal)
        try:
            mounts = [Mount(CLIENT_SOCKET, str(file), type="bind")] if file is not None else []
            self._make_container(item, image_id, net, addresses, archives, journal, mounts)
        except DockerEngineError:
            if file is None:
                raise
            self._close_client_socket()
            with open_docker() as client:
                remove_container(client, self._name_container(item.name))
            self._make_container(item, image_id, net, addresses, archives, journal)
        environment = {"PYTHONPATH": HOME, "PYTHONUNBUFFERED": "1"}
        command = make_exec_command(self._name_container(item.name), environment, worker.argv)
        self.worker_command = replace(command, shared_socket=self._client_socket)

    def _listen_for_clients(self, journal: undo_journal.UndoJournal) -> Path | None:
        """Opens the socket for the clients' container. Returns its file; None if the engine is elsewhere."""
        if not find_engine_machine().is_here:
            return None
        file = self._state / f"{self.run_id}.socket"
        journal.append(undo_journal.RemoveFile(str(file)))
        try:
            self._client_socket = SharedSocket(listen_at(file), CLIENT_SOCKET)
        except OSError:  # the path of the state folder can be too long, for example
            return None
        return file

    def _close_client_socket(self) -> None:
        shared, self._client_socket = self._client_socket, None
        if shared is not None:
            shared.listener.close()

    async def _disconnect(self) -> None:
        self._close_client_socket()
        await super()._disconnect()

    def _find_images(self) -> dict[str, software.NodeImage]:
        """Returns the image of each node, by its name."""
        system, servers = self._system, [item for item in self._plans if self._is_server(item)]
        if not isinstance(system, SupportsContainers):
            by_role = software.ensure_images(system, {item.role for item in self._plans}, self._progress)
            return {item.name: by_role[item.role] for item in self._plans}
        others = [item for item in self._plans if item not in servers]
        by_role = software.ensure_images(system, {item.role for item in others}, self._progress)
        if isinstance(system, SupportsUpgrade):
            newer = {item: system.upgraded_image(item.role) for item in servers}
            self._upgrades = software.ensure_containers(
                system.name,
                {
                    item: replace(system.container(item.role, item.index), image=image, build=None)
                    for item, image in newer.items()
                    if image
                },
                self._progress,
            )
        containers = software.list_containers(system, servers)
        found = software.ensure_containers(system.name, containers, self._progress)
        return found | {item.name: by_role[item.role] for item in others}

    async def run_job(self, job: Job) -> None:
        container = f"{self._prefix}-{job.name}-job"
        await self._in_thread(self._start_job, job, container)
        await job_container.wait_until_done(job.name, container)

    def _start_job(self, job: Job, container: str) -> None:
        assert self._journal is not None, "the network is made before"
        self._journal.append(undo_journal.RemoveContainer(container))
        found, addresses = self._images[software.name_job(job)], {node.name: node.address for node in self._all_nodes}
        hosts = [*self._list_names(addresses), *_list_addresses(job.container)]
        labels = run_labels(self.run_id, self._owner, self._state)
        with open_docker() as client:
            job_container.start_job(client, container, found, labels, self.network_name, hosts, self._volumes)

    def _make_volumes(self, journal: undo_journal.UndoJournal) -> None:
        described = [found.container for found in self._images.values() if found.container is not None]
        labels = run_labels(self.run_id, self._owner, self._state)
        for name in target_container.find_shared_volumes(described):
            self._volumes[name] = f"{self._prefix}-{name}"
            journal.append(undo_journal.RemoveVolume(self._volumes[name]))
            with open_docker() as client:
                client.api.create_volume(self._volumes[name], labels=labels)

    def _list_names(self, addresses: Mapping[str, str]) -> list[str]:
        """Returns the names that every node knows without the network, each with its address."""
        names = [f"{name}:{address}" for name, address in addresses.items()]
        for planned in self._plans:
            found = self._images.get(planned.name)
            if found is not None and found.container is not None and planned.name in addresses:
                others = [name for name in found.container.names if name != planned.name]
                names += [f"{name}:{addresses[planned.name]}" for name in others]
        return names

    def _describe_container(self, node: Node | PlannedNode) -> Container:
        """Returns the container that the system describes; an empty description if it describes none."""
        found = self._images.get(node.name)
        return (found.container if found is not None else None) or Container()

    def _make_network(self, journal: undo_journal.UndoJournal) -> network.RunNetwork:
        journal.append(undo_journal.RemoveNetwork(self.network_name))
        with open_docker() as client:
            return network.create_network(
                client, self.network_name, run_labels(self.run_id, self._owner, self._state), self._state
            )

    def _start_disk_container(self, journal: undo_journal.UndoJournal) -> str | None:
        """Starts the container that makes the servers' disks. Returns None, or the reason why there are no disks."""
        if not self._own_disks:
            return "this cluster was started without separate disks for its nodes"
        if (obstacle := disk.explain_missing_folder(self._system)) is not None:
            return obstacle
        journal.append(undo_journal.RemoveContainer(self._disk_container))
        labels = run_labels(self.run_id, self._owner, self._state)
        try:
            disk.start_disk_container(self._disk_container, image.ensure_node_image(self._progress), labels)
        except (disk.DiskError, DockerEngineError) as error:
            return str(error)
        return None

    def _make_preloads(self) -> dict[str, list[bytes]]:
        """Returns the libraries' archives for each server, and stores the reason for each missing library."""
        if self._library_gaps[preload.SLOWNESS] is None:
            self._library_gaps[preload.SLOWNESS] = disk.explain_missing_folder(self._system)
        archives: dict[str, list[bytes]] = {}
        wanted = [library for library, gap in self._library_gaps.items() if gap is None]
        found = {item.name: self._images[item.name] for item in self._plans if self._is_server(item)} if wanted else {}
        images = {name: one.target or one.id for name, one in found.items()}
        architectures = {image_id: layer.image_architecture(image_id) for image_id in set(images.values())}
        for library in wanted:
            try:
                for name, image_id in images.items():
                    archives.setdefault(name, []).append(library.archive(architectures[image_id], self._progress))
            except preload.PreloadError as error:
                self._library_gaps[library] = str(error)
                self._progress(f"this run has no {library.effect}: {error}")
        return archives

    def _has_target(self, node: Node | PlannedNode) -> bool:
        """Returns whether the node's image runs in a container of its own."""
        found = self._images.get(node.name)
        return found is not None and found.target is not None

    def _name_containers(self, item: Node | PlannedNode) -> list[str]:
        """Returns the names of the node's containers: first the one with the system's files, last that with tools."""
        holder = self._name_container(item.name)
        return [f"{holder}{target_container.SUFFIX}", holder] if self._has_target(item) else [holder]

    def _make_target(
        self,
        item: PlannedNode,
        found: software.NodeImage,
        archives: Sequence[bytes],
        journal: undo_journal.UndoJournal,
        volumes: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the target. ``volumes``: see :func:`target_container.start_target`; default: the shared ones."""
        assert found.target is not None, "the caller has looked"
        hold = target_container.compile_hold(found.target, self._progress)
        name, holder = self._name_containers(item)
        labels = run_labels(self.run_id, self._owner, self._state)
        journal.append(undo_journal.RemoveContainer(name))
        with open_docker() as client:
            described = found.container or Container()
            target_container.start_target(
                client, holder, found.target, found.user, labels, hold, described, volumes or self._volumes, archives
            )

    @staticmethod
    def _is_server(node: Node | PlannedNode) -> bool:
        """Returns whether the node runs the system. Only servers get their own clocks and disks."""
        return node.role not in (ZOOKEEPER_ROLE, CLIENT_ROLE)

    def _make_container(
        self,
        item: PlannedNode,
        reference: str,
        net: network.RunNetwork,
        hosts: Mapping[str, str],
        archives: Sequence[bytes],
        journal: undo_journal.UndoJournal,
        mounts: Sequence[Mount] = (),
    ) -> None:
        name = self._name_container(item.name)
        memory = MEMORY if self._own_memory and self._is_server(item) and not self._has_target(item) else None
        capabilities = [*CAPABILITIES, *(target_container.CAPABILITIES if self._has_target(item) else ())]
        described = self._describe_container(item)
        journal.append(undo_journal.RemoveContainer(name))
        with open_docker() as client:
            container = client.api.create_container(
                reference,
                name=name,
                hostname=described.host_name or item.name,
                labels=run_labels(self.run_id, self._owner, self._state),
                host_config=client.api.create_host_config(
                    cap_add=capabilities,
                    # Name resolution must not depend on the network.
                    extra_hosts=[*self._list_names(hosts), *_list_addresses(described)],
                    sysctls=dict(described.kernel_settings),
                    mem_limit=memory,
                    memswap_limit=memory,
                    network_mode=net.name,
                    mounts=list(mounts),
                ),
                networking_config=client.api.create_networking_config(
                    {net.name: client.api.create_endpoint_config(ipv4_address=hosts[item.name])}  # type: ignore[arg-type]
                ),
            )
            for data in archives:
                client.api.put_archive(container["Id"], "/", data)
            client.api.start(container["Id"])

    def _create_ssh_node(self, item: PlannedNode, login: Login, journal: undo_journal.UndoJournal) -> SshNode:
        container = self._name_container(item.name)
        undo_log = NodeUndoLog(journal, lambda _, argv: undo_journal.RunInContainer(container, tuple(argv)))
        freezer = DockerFreezer(journal, self._name_containers(item), item.name)
        described = self._describe_container(item)
        node = self._create_node(item, login.address, SshConnection(item.name, login), undo_log, freezer)
        _apply_settings(node, described)
        clock, slowness = self._library_gaps[preload.CLOCK], self._library_gaps[preload.SLOWNESS]
        node.set_missing_preloads(clock=clock, slowness=slowness)
        if item.name in self._upgrades:
            node.set_image_change(lambda: self._upgrade(item, node, journal))
        return node

    def _upgrade(self, item: PlannedNode, node: SshNode, journal: undo_journal.UndoJournal) -> ImageChange:
        """Gives a node's target the image to which it is upgraded. Raises ``NodeError``."""
        new, (name, _) = self._upgrades[item.name], self._name_containers(item)
        assert new.target is not None, "its image runs unchanged"
        noted = {action.name for action in self._list_volumes(journal)}

        def keep(volume: str) -> None:
            if volume not in noted:
                journal.append(undo_journal.RemoveVolume(volume))

        def start(volumes: Mapping[str, str]) -> None:
            assert new.container is not None, "the system describes it"
            container = replace(new.container, volumes={path: path for path in volumes})
            self._make_target(item, replace(new, container=container), self._archives[item.name], journal, volumes)

        try:
            with open_docker() as client:
                if client.containers.get(name).attrs["Image"] != new.target:
                    journal.append(undo_journal.RemoveContainer(f"{name}{target_container.FORMER}"))
                    target_container.replace_target(client, name, start, keep)
                    self._images[item.name] = new
                    _apply_settings(node, self._describe_container(item))
                return ImageChange(new.target, str(client.containers.get(name).attrs["Image"]), new.user)
        except (DockerEngineError, ImageError) as error:
            raise NodeError(f"{item.name}: its image could not be changed: {error}") from error

    @staticmethod
    def _list_volumes(journal: undo_journal.UndoJournal) -> list[undo_journal.RemoveVolume]:
        actions = (action for _, action in undo_journal.read_journal(journal.path).actions)
        return [action for action in actions if isinstance(action, undo_journal.RemoveVolume)]

    def _make_program(self, node: Node) -> Program:
        if node.role == ZOOKEEPER_ROLE:
            return Program(zookeeper.server_command(), zookeeper.DATA, {})
        if (image := self._images[node.name]).container is not None:
            return Program(image.argv, "", self._preload(node, {}), image.user, self._list_own_folders(node))
        owned = [*self._files[node.name], *list_written_paths(self._system, node)]  # paths that the user must own
        if self._has_target(node):  # the environment and the folder are those of the image
            argv, given = get_start_command(self._system, node), software.require_software(self._system, node.role)
            main = Program(argv, "", self._preload(node, given.environment), image.user, owned)
            return add_sidecars(main, find_sidecars(self._system, node))
        # The hash seed is fixed per run, so that the order of sets is equal at every start.
        environment = {"PYTHONPATH": HOME, "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": str(self._seed % 2**32)}
        environment |= image.environment
        if "PYTHONPATH" in image.environment:
            environment["PYTHONPATH"] = f"{HOME}:{image.environment['PYTHONPATH']}"
        if "PATH" in image.environment:  # the programs that start the process must be found, too
            environment["PATH"] = f"{image.environment['PATH']}:{image_contents.PATH}"
        environment |= software.require_software(self._system, node.role).environment
        environment = self._preload(node, environment)
        main = Program(get_start_command(self._system, node), image.folder or HOME, environment, image.user, owned)
        return add_sidecars(main, find_sidecars(self._system, node))

    def _list_own_folders(self, node: Node) -> list[str]:
        """Returns the folder of a separate disk, which belongs to root until the process's user gets it."""
        if not isinstance(node, SshNode) or node.own_disk_unavailable() is not None:
            return []
        assert isinstance(self._system, SupportsDataFolder), "only such a system gets disks"
        return [f"{self._system.data_folder(node)}/"]

    def _preload(self, node: Node, environment: Mapping[str, str]) -> dict[str, str]:
        """Returns a process's environment, extended so that it loads the libraries."""
        libraries, extended = self._list_libraries(node), dict(environment)
        if libraries:
            image = self._images[node.name]
            described = {} if image.container is None else image.container.environment
            own_preload = {**image.environment, **described, **extended}.get("LD_PRELOAD")
            extended["LD_PRELOAD"] = ":".join([*libraries, *([own_preload] if own_preload else [])])
        if preloaded.DISK_LIBRARY in libraries and isinstance(self._system, SupportsDataFolder):
            with suppress(DeploymentError):  # this node has no data
                extended[preloaded.DISK_VARIABLE] = self._system.data_folder(node)
        return extended

    def _list_libraries(self, node: Node) -> list[str]:
        if not self._is_server(node) or node.name in self._unable_to_load:
            return []
        return [library.path for library, gap in self._library_gaps.items() if gap is None]

    async def _give_disk(self, node: SshNode, obstacle: str | None) -> None:
        """Gives a server its disk, or the reason why it has none."""
        if obstacle is not None:
            node.set_disk_unavailable(obstacle)
        elif self._is_server(node) and isinstance(self._system, SupportsDataFolder):
            name, (container, *_) = f"{self.run_id}.{node.name}.ext4", self._name_containers(node)
            try:
                folder = self._system.data_folder(node)
            except DeploymentError as error:
                node.set_disk_unavailable(str(error))
                return
            if (volume := self._find_shared_volume(node, folder)) is not None:
                node.set_disk_unavailable(
                    f"{node.name} shares the volume {volume} with another container, and a disk belongs to one node"
                )
                return
            await node.give_disk(DockerDisk(self._disk_container, container, name, folder))

    def _find_shared_volume(self, node: Node, folder: str) -> str | None:
        """Returns the shared volume that has this folder; None if there is none."""
        volumes = self._describe_container(node).volumes
        holding = max((path for path in volumes if f"{folder}/".startswith(f"{path}/")), key=len, default="")
        return volumes[holding] if volumes.get(holding) in self._volumes else None

    def _describe(self, images: Mapping[str, software.NodeImage], net: network.RunNetwork) -> dict[str, str]:
        with open_docker() as client:
            version: dict[str, Any] = client.version()
        return {
            "engine": f"{name_engine(version)} {version['Version']}",
            "image": image.image_reference(),
            "image digest": ", ".join(sorted({found.target or found.id for found in images.values()})),
            **self._describe_images(images),
            "base": layer.base_origin(),
            "kernel": str(version.get("KernelVersion") or "unknown"),
            "subnet": str(net.subnet),
        }

    def _describe_images(self, images: Mapping[str, software.NodeImage]) -> dict[str, str]:
        """Returns the users' images of each role."""
        by_role: dict[str, dict[str, None]] = {}
        for item in self._plans:
            if (name := images[item.name].user_image) is not None:
                by_role.setdefault(f"image of {item.role}", {})[name] = None
        return {role: ", ".join(names) for role, names in sorted(by_role.items())}

    def _undo(self, actions: Sequence[undo_journal.Action]) -> list[str]:
        """Removes the containers, then their networks and files, one after the other.

        Concurrent removal would be some tenths of a second faster, but can deadlock Docker 20.10. The removal of a
        container from its network and the listing of networks wait for each other's locks.
        """
        if self._engine is not None:
            try:
                reach_engine(self._engine, CALL_TIMEOUT)
            except DockerEngineError as error:
                return [str(error)]
        containers = [action for action in actions if isinstance(action, undo_journal.RemoveContainer)]
        kinds = undo_journal.RemoveNetwork | undo_journal.RemoveVolume | undo_journal.RemoveFile
        others = [action for action in actions if isinstance(action, kinds)]
        noting = iterate_noting(
            self._progress, [*containers, *others], lambda action: f"removing {undo_journal.name_object(action)}"
        )
        return [line for line in map(_perform, noting) if line]

    def _name_container(self, node: str) -> str:
        return f"{self._prefix}-{node}"


def _apply_settings(node: SshNode, described: Container) -> None:
    """Gives a node the health check, the exposed ports and the stop signal of its container."""
    node.health_command, node.exposed_ports = described.health_command or (), described.exposed
    if described.stop_signal is not None:
        node.stop_signal = parse_stop_signal(described.stop_signal)


def _list_addresses(described: Container) -> list[str]:
    """Returns the additional names that a container knows, each with its address."""
    return [f"{name}:{address}" for name, address in described.addresses.items()]


def _is_reachable(login: Login) -> bool:
    """Returns whether this machine reaches a node's address. The host key proves that it is this node.

    The sshd of a container may begin to listen a little later than the container answers to the engine.
    """
    deadline = time.monotonic() + REACH_SECONDS
    while True:
        try:
            raw = socket.create_connection((login.address, login.port), REACH_SECONDS)
            break
        except ConnectionRefusedError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        except OSError:
            return False
    transport = None
    try:
        transport = paramiko.Transport(raw)
        transport.start_client(timeout=REACH_SECONDS)
        return transport.get_remote_server_key() == login.host_key
    except (paramiko.SSHException, OSError, EOFError):
        return False
    finally:
        if transport is not None:
            transport.close()
        raw.close()


def _perform(action: undo_journal.Action) -> str | None:
    """Performs an undo action. Returns None, or the error."""
    try:
        with open_docker() as client:
            undo_action(client, action)
    except (DockerEngineError, OSError) as error:
        return f"{undo_journal.describe(action)}: {error}"
    return None
