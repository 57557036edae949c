"""A cluster of machines that a user names: the same nodes as in containers, on hosts that outlive the run.

Nothing is installed on the hosts, and existing content is not touched: a run that would overwrite a file or a data
folder does not start. Each change is in the undo journal before it is made. At the end of the run, or by ``assay
heal``, the run's processes are ended, and its packet rules and all files that it wrote are removed.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from assay.cluster import journal as undo_journal
from assay.cluster import zookeeper
from assay.cluster.checked_methods import get_start_command, list_written_paths
from assay.cluster.containers import SupportsContainers
from assay.cluster.docker import code_archive, software
from assay.cluster.hosts import inventory, upkeep
from assay.cluster.hosts.host_command import HostUndoer
from assay.cluster.naming import PlannedNode, find_main_role, plan_nodes
from assay.cluster.node import (
    Node,
    NodeError,
    SupportsClockShift,
    SupportsDiskErrors,
    SupportsDiskFull,
    SupportsFreezing,
    SupportsPowerLoss,
    SupportsSlowDisk,
)
from assay.cluster.over_ssh import NodeUndoLog, SshCluster, gather_all
from assay.cluster.second_copy import second_log
from assay.cluster.sidecars import find_sidecars
from assay.cluster.slow_steps import iterate_noting
from assay.cluster.ssh.connection import PARTIAL_SUFFIX, SshConnection
from assay.cluster.ssh.data_folders import SUFFIX as COPY_SUFFIX
from assay.cluster.ssh.node import NO_FREEZER, SshNode
from assay.cluster.ssh.node_processes import Program, add_sidecars
from assay.cluster.ssh.ssh_address import SshAddress
from assay.cluster.system import (
    CLIENT_ROLE,
    ZOOKEEPER_PORT,
    ZOOKEEPER_ROLE,
    DeploymentError,
    SupportsDataFolder,
    SupportsHold,
    System,
)

HOME = f"/{code_archive.ROOT}"
CONNECT_SECONDS = 15.0
"""Maximum seconds until a host answers."""
COPY_SECONDS = 300.0
"""Maximum seconds to copy the code, enough for a slow connection."""
NO_DISK, NO_LIBRARY = "its data lie on a disk of the host's own", "no library is preloaded on hosts"
MISSING_ABILITIES: Mapping[type, str] = {
    SupportsFreezing: NO_FREEZER,
    SupportsPowerLoss: NO_DISK,
    SupportsDiskFull: NO_DISK,
    SupportsSlowDisk: NO_LIBRARY,
    SupportsDiskErrors: NO_LIBRARY,
    SupportsClockShift: NO_LIBRARY,
}
"""The protocols of nodes that no host satisfies, with the reasons."""


class HostCluster(SshCluster):
    """See :class:`assay.cluster.node.Cluster`. ``start`` prepares the hosts; the nodes start their processes."""

    kind = "ssh"
    leftover_error = NodeError

    def __init__(
        self,
        system: System,
        counts: Mapping[str, int],
        *,
        hosts: Path,
        run_id: str,
        seed: int,
        state_dir: Path,
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``hosts``: the file that names the machines (:mod:`assay.cluster.hosts.inventory`)."""
        super().__init__(system, run_id=run_id, seed=seed, state_dir=state_dir, progress=progress)
        self._counts, self._hosts = counts, hosts
        self._addresses: dict[str, SshAddress] = {}

    async def _set_up(self) -> None:
        """Connects to the hosts and prepares them.

        Raises :class:`~assay.cluster.hosts.inventory.InventoryError`, :class:`NodeError` or :class:`DeploymentError`.
        """
        if isinstance(self._system, SupportsContainers):
            raise DeploymentError(f"{self._system.name} consists of containers: test it with --cluster=docker")
        main = find_main_role(self._system.roles)
        chosen = inventory.choose_by_role(inventory.read_inventory(self._hosts), main, self._counts, self._hosts)
        plans = plan_nodes(self._system.roles, self._counts)
        self._addresses = {item.name: chosen[item.role][item.index - 1].ssh for item in plans}
        code = await self._in_thread(code_archive.archive_code, list(self._system.source))
        self._journal = journal = undo_journal.UndoJournal(self._state, self.run_id, self._owner)
        self._all_nodes = [await self._in_thread(self._create_ssh_node, item, journal) for item in plans]
        _require_distinct(self._all_nodes)
        self._progress(f"connecting to {', '.join(str(ssh) for ssh in self._addresses.values())}")
        deadline = time.monotonic() + CONNECT_SECONDS
        await gather_all(node.connect(deadline) for node in self._all_nodes)
        with self._step("copying the code to the hosts"):
            await gather_all(self._prepare_host(node, code, journal) for node in self._all_nodes)
        self.description = {"hosts": ", ".join(f"{name} {ssh}" for name, ssh in self._addresses.items())}

    def _create_ssh_node(self, item: PlannedNode, journal: undo_journal.UndoJournal) -> SshNode:
        ssh = self._addresses[item.name]
        connection = SshConnection(item.name, ssh.login())
        undo_log = NodeUndoLog(journal, self._to_undo_action)
        node = self._create_node(item, resolve_ip(item.name, ssh.address), connection, undo_log)
        # No fault may cut off SSH.
        node.spared_ports = sorted({port for one in self._addresses.values() for port in one.ports()})
        node.set_disk_unavailable(NO_DISK)
        node.set_missing_preloads(clock=NO_LIBRARY, slowness=NO_LIBRARY)
        return node

    def _to_undo_action(self, node: str, argv: Sequence[str]) -> undo_journal.RunOnHost:
        """Returns the journal's action. The action does nothing on a host that another run has claimed meanwhile."""
        guarded = upkeep.guard_command(self.run_id, argv)
        return undo_journal.RunOnHost(self._addresses[node], guarded, undo_journal.shorten_command(argv))

    def _make_program(self, node: Node) -> Program:
        if node.role == ZOOKEEPER_ROLE:
            return Program(zookeeper.server_command(), zookeeper.DATA, {upkeep.RUN_VARIABLE: self.run_id})
        environment = {"PYTHONPATH": HOME, "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": str(self._seed % 2**32)}
        environment |= {upkeep.RUN_VARIABLE: self.run_id}
        needed = software.require_software(self._system, node.role)
        user, owned = needed.user, [*self._files[node.name], *list_written_paths(self._system, node)]
        main = Program(get_start_command(self._system, node), HOME, {**environment, **needed.environment}, user, owned)
        return add_sidecars(main, find_sidecars(self._system, node))

    async def _prepare_host(self, node: SshNode, code: bytes, journal: undo_journal.UndoJournal) -> None:
        """Claims the node's host for this run, and copies the code and the system's files to it."""
        where = f"{node.name} ({self._addresses[node.name]})"
        files = self._files_for(node)
        created = await self._plan_created_paths(node, where, files)
        clean = upkeep.clean_command(self.run_id, created)
        await self._in_thread(journal.append, undo_journal.RunOnHost(self._addresses[node.name], clean, "cleaned"))
        await node.shell(upkeep.claim_command(self.run_id))
        await node.prepare()
        await node.shell("tar -xf - -C /", stdin=code, timeout=COPY_SECONDS)
        await self._write_files(node, files)

    async def _plan_created_paths(self, node: SshNode, where: str, files: Mapping[str, bytes]) -> upkeep.CreatedPaths:
        """Returns the paths that the run will create. Raises :class:`NodeError` if the host cannot be used as it is."""
        user, other = upkeep.parse_who(await node.shell(upkeep.WHO_COMMAND))
        if user != "0":
            raise NodeError(f"{where}: commands run as user {user}, not as root: log in as root, or set sudo = true")
        if other:
            raise NodeError(
                f"{where} is in use by the run {other}; if that run is over, `assay heal` on the machine that "
                f"started it frees the host; if that machine is gone, remove {upkeep.CLAIM} and what the run has left"
            )
        port = ZOOKEEPER_PORT if node.role == ZOOKEEPER_ROLE else self._system.port(node.role)
        if await _is_answering(node.address, port):
            raise NodeError(
                f"{where}: another process answers at port {port} and would be mistaken for the system: end it first"
            )
        try:
            partial_files = (path + PARTIAL_SUFFIX for path in files)  # a harness that is killed may leave them
            wanted = sorted({*files, *partial_files, HOME, *upkeep.OWN_FOLDERS, *self._list_written(node, files)})
            paths = [upkeep.require_removable(path) for path in wanted]
        except upkeep.PathError as error:
            raise NodeError(f"{where}: {error}") from None
        parents = upkeep.list_parents(paths)
        found = upkeep.parse_path_states(await node.shell(upkeep.path_states_command(paths)), paths)
        folders = upkeep.parse_path_states(await node.shell(upkeep.path_states_command(parents)), parents)
        if occupied := [path for path in paths if found.get(path, upkeep.FULL) == upkeep.FULL]:
            raise NodeError(
                f"{where} has {', '.join(occupied)} already, which a run would overwrite and remove: move it away, or "
                "take another host"
            )
        file_systems = upkeep.parse_numbered(await node.shell(upkeep.file_systems_command(paths)), paths)
        emptied = [path for path in paths if found[path] == upkeep.EMPTY]
        owners = upkeep.parse_numbered(await node.shell(upkeep.owners_command(emptied)), emptied)
        known = file_systems.keys() - (set(emptied) - owners.keys())
        unknown = [path for path in paths if found[path] == upkeep.UNREADABLE or path not in known]
        if unknown:
            raise NodeError(
                f"{where}: {', '.join(unknown)} cannot be read, so a run cannot know whether files are there: repair "
                "the file system, or take another host"
            )
        return upkeep.CreatedPaths(
            removed=[path for path in paths if found[path] == upkeep.NONE],
            emptied=emptied,
            folders=[folder for folder in parents if folders.get(folder) == upkeep.NONE],
            file_systems=file_systems,
            owners=owners,
        )

    def _list_written(self, node: Node, files: Mapping[str, bytes]) -> Sequence[str]:
        """Returns the folders and files that the system writes.

        Includes the folders of ``files`` below ``/var``, which are data folders. The harness writes these files itself.
        """
        paths = [path.rpartition("/")[0] for path in files if path.startswith("/var/") and path.count("/") > 3]
        if node.role == ZOOKEEPER_ROLE:
            return [*paths, zookeeper.DATA]
        paths += self._system.logs(node)
        if (events := self._system.event_log(node)) is not None:
            paths += [events, second_log(events)]  # a fault may start a second copy of the process, with its own log
        if isinstance(self._system, SupportsDataFolder) and node.role != CLIENT_ROLE:
            folder = self._system.data_folder(node)
            paths += [folder, folder + COPY_SUFFIX]  # a fault may copy the folder
        if isinstance(self._system, SupportsHold):
            paths.append(self._system.hold_file(node))
        return paths

    def _undo(self, actions: Sequence[undo_journal.Action]) -> list[str]:
        failed, undoer = [], HostUndoer()
        for action in iterate_noting(
            self._progress, actions, lambda action: f"undoing {undo_journal.describe(action)}"
        ):
            assert isinstance(action, undo_journal.RunOnHost), "this cluster writes no others"
            try:
                undoer.perform(action)
            except (NodeError, OSError) as error:
                failed.append(f"{undo_journal.describe(action)}: {error}")
        return failed


def resolve_ip(node: str, address: str) -> str:
    """Returns the IP address from which the host sends, because packet rules take no names. Prefers IPv4."""
    try:
        results = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
    except (OSError, ValueError) as error:
        raise NodeError(f"{node}: {address} is not a known host: {error}; give its IP address") from error
    family, kind, _, _, socket_address = min(results, key=lambda result: result[0] != socket.AF_INET)
    if any(socket_address[3:]):
        raise NodeError(f"{node}: {address} is a link-local address, which peers cannot use: give another address")
    try:
        with socket.socket(family, kind) as probe:
            probe.bind(socket_address)
    except OSError:
        return str(socket_address[0])
    raise NodeError(f"{node}: {address} is this machine, from which the others are reached: faults would cut that off")


def _require_distinct(nodes: Sequence[Node]) -> None:
    """Raises :class:`NodeError` unless all nodes are different machines with addresses of one IP version."""
    first: dict[str, Node] = {}
    for node in nodes:
        if (other := first.setdefault(node.address, node)) is not node:
            raise NodeError(
                f"{other.name} and {node.name} are one machine ({node.address}): name another"
                " machine for one of these nodes"
            )
        if (":" in node.address) != (":" in nodes[0].address):
            raise NodeError(
                f"{nodes[0].name} is known by {nodes[0].address} and {node.name} by {node.address}: rules for packets "
                "take addresses, so give all hosts IPv4 addresses, or all IPv6 addresses"
            )


async def _is_answering(address: str, port: int) -> bool:
    try:
        async with asyncio.timeout(1):
            _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True
