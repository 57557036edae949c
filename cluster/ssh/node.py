"""A node reached over SSH: the :class:`assay.cluster.node.Node` of Docker clusters and of hosts that a user names.

Before a fault acts, its undo is written to the journal. After the fault is undone, the entry is marked as done.
Blocking calls run in the cluster's executor. Each call has a deadline, so that the thread of a cancelled coroutine ends
soon.
"""

import asyncio
import contextlib
import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from signal import Signals
from typing import Protocol, TypeVar

from assay.cluster.node import (
    CommandResult,
    DiskRoom,
    Exhaustion,
    Flow,
    ImageChange,
    Node,
    NodeError,
    ProcessState,
    Traffic,
)
from assay.cluster.second_copy import SECOND_COPY
from assay.cluster.ssh import data_folders, disk_filling, firewall, memory, packets, process, target
from assay.cluster.ssh.connection import SshConnection
from assay.cluster.ssh.node_processes import Program
from assay.cluster.ssh.preloaded import PreloadMethods
from assay.cluster.ssh.second_copy import SecondCopyMethods
from assay.cluster.ssh.stream import Command, LineStream, follow_command, size_watch_command
from assay.cluster.ssh.target import Target
from assay.cluster.ssh.usage import usage_watch_command

T = TypeVar("T")

NO_FREEZER = "it is known by SSH alone, and a machine cannot freeze itself; use stop"
"""Why a machine cannot be frozen."""
OWN_CONTAINER_NO_COPY = "its image runs in a container of its own, which has no program that traces the copy"
OWN_CONTAINER_NO_MEMORY = (
    "its image runs in a container of its own, and the program that takes the memory in another, with its own limit"
)
"""Why a node with a target lacks an ability."""


class UndoLog(Protocol):
    """The part of the undo journal that a node writes."""

    def note_undo(self, node: str, argv: Sequence[str]) -> int:
        """Durably notes the command that undoes the next change on ``node``. Returns the entry's number."""

    def mark_done(self, entry: int) -> None:
        """Notes that the change of this entry has been undone."""


class Freezer(Protocol):
    """Freezes all processes of a machine from outside. Writes the undo to the journal before. The calls block."""

    def freeze(self) -> None: ...

    def thaw(self) -> None:
        """Continues the machine. It is no error if it is not frozen."""

    def find_obstacle(self) -> str | None:
        """Returns why the machine cannot be frozen, and the remedy; None if it can. Freezes it for an instant."""

    def frozen(self) -> bool: ...


class NodeDisk(Protocol):
    """A separate disk for a node's data, mounted from outside. The calls block, and raise :class:`NodeError`."""

    @property
    def folder(self) -> str:
        """The folder at which the disk is mounted."""

    def try_out(self) -> None:
        """Mounts the disk, and tests that a power loss takes unsynced data and nothing else."""

    def mount(self) -> None:
        """Mounts the disk unless it is mounted and works."""

    def lose_power(self) -> Mapping[str, int]:
        """Cuts the power and mounts the disk again. Maps each file that lost bytes to their number."""


class SshNode(SecondCopyMethods, PreloadMethods):
    """A node reached over SSH. Its methods are specified in :class:`assay.cluster.node.Node`."""

    def __init__(
        self,
        *,
        name: str,
        role: str,
        index: int,
        address: str,
        connection: SshConnection,
        executor: Executor,
        program: Callable[[Node], Program],
        event_log: Callable[[Node], str | None],
        undo: UndoLog,
        freezer: Freezer | None = None,
        stop_signal: Signals = Signals.SIGTERM,
    ) -> None:
        super().__init__()
        self.name = name
        self.role = role
        self.index = index
        self.address = address
        self._iptables = firewall.filter_program(address)
        self._connection = connection
        self._executor = executor
        self._program = program
        self._event_log = event_log
        self._undo = undo
        self._freezer = freezer
        self.stop_signal = stop_signal
        self._disk: NodeDisk | str = "it has no disk of its own"
        """The separate disk, or the reason why there is none."""
        self._frozen = False
        self._open_entries: dict[str, int] = {}
        """By kind of change, the journal's entry of a change that is not undone yet."""
        self._peers: dict[str, str] = {}
        """Names of the nodes whose packets were dropped or rejected, by address."""
        self.spared_ports: Sequence[int] = ()
        """TCP ports that cuts and packet shaping spare: those of SSH, if SSH uses the network under test."""
        self.monotonic_ahead = 0.0
        """Seconds by which the node's monotonic clock, which times its events, is ahead of this machine's."""
        self.wall_ahead = 0.0
        """Seconds by which the node's unshifted wall clock, which times its logs, is ahead of this machine's."""
        self._streams: set[LineStream] = set()
        self.unfinished_event = ""
        """The text after the last line feed of the event log, once its lines are no longer followed."""
        self._image_change: Callable[[], ImageChange] | None = None
        self._target: Target | None = None
        """The container with the system's files, if its image runs unchanged; None if the files are the machine's."""
        self.health_command: Sequence[str] = ()
        self.exposed_ports: Sequence[int] = ()
        self.changes: list[str] = []
        """Commands of the user's code that changed something: for each, a line with time and result."""

    def __repr__(self) -> str:
        return f"<{self.name} {self.role} {self.address}>"

    async def connect(self, deadline: float) -> None:
        """Waits for sshd until ``deadline`` (``time.monotonic()``)."""
        await self._in_thread(self._connection.connect, deadline)

    async def prepare(self) -> None:
        """Creates the firewall chain for network faults. Idempotent."""
        await self.shell(firewall.set_up_command(self._iptables))

    async def find_target(self, user: str | None) -> None:
        """Makes the files of the node those of its target. ``user``: the user with whom the target was made."""
        self._target = Target(**json.loads(await self.shell(target.command("look"))), user=user)
        await self._locate("/")  # fails if this machine may not enter the target's files

    async def _locate(self, *paths: str) -> list[str]:
        """Returns the paths by which commands on this machine find the node's files.

        They have no symbolic links. Logs of processes are files of this machine in any case.
        """
        if self._target is None:
            return list(paths)
        own = {process.log_path(one) for one in (process.MAIN, SECOND_COPY, *self.sidecars)}
        wanted = [path for path in paths if path not in own]
        asked = target.command("resolve", self._target.root, *wanted)
        found = dict(zip(wanted, json.loads(await self.shell(asked)) if wanted else (), strict=True))
        return [self._target.root + found[path] if path in found else path for path in paths]

    async def _locate_folder(self, folder: str, kept: Collection[str]) -> tuple[str, list[str]]:
        """Returns a folder and files inside of it as :meth:`_locate` does."""
        (place,) = await self._locate(folder)
        return place, [place + path.removeprefix(folder) if path.startswith(f"{folder}/") else path for path in kept]

    @property
    def _root(self) -> str:
        """The target's root folder; empty if there is no target."""
        return "" if self._target is None else self._target.root

    async def shell(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> str:
        """Returns a command's standard output. Raises :class:`NodeError` if it fails or exceeds ``timeout`` s."""
        self._require_reachable()
        return await self._in_thread(lambda: self._connection.run(command, stdin=stdin, timeout=timeout))

    async def run(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,
        changes: bool = False,
        undo: str | Sequence[str] | None = None,
    ) -> CommandResult:
        """Writes a change to the journal before the command runs.

        A command with ``changes`` and without ``undo`` is noted as a change that nothing reverts. If a later command
        equals a noted ``undo`` and exits with status 0, its change is marked as undone.
        """
        self._require_reachable()
        text = to_shell_text(command)
        if undo is not None:
            await self._record_undo(_change_key(to_shell_text(undo)), ("sh", "-c", to_shell_text(undo)))
        elif changes:
            # This undo command does nothing. Its text tells readers of the journal what was not undone.
            await self._record_undo(_change_key(text), ("true", "not undone:", text))
        done: CommandResult | None = None
        began = datetime.now(UTC)
        try:
            done = await self._in_thread(lambda: self._connection.run_to_completion(text, stdin=stdin, timeout=timeout))
        finally:
            undone = _change_key(text) in self._open_entries and not changes and undo is None
            if changes or undo is not None or undone:
                ended = "no answer" if done is None else f"exit status {done.status}"
                self.changes.append(f"{began.isoformat(timespec='milliseconds')} {ended}: {text}")
        if undone and done.status == 0:
            await self._mark_undone(_change_key(text))
        return done

    async def run_in_image(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> CommandResult:
        if (found := self._target) is None:
            raise NodeError(f"{self.name}: its image runs in no container of its own, so use `run`")
        self._require_reachable()
        command = target.command("execute", found.root, str(found.pid), str(found.uid), str(found.gid))
        start = json.dumps({"argv": list(argv), "environment": dict(environment or {})}).encode()
        return await self._in_thread(lambda: self._connection.run_to_completion(command, stdin=start, timeout=timeout))

    def set_image_change(self, change: Callable[[], ImageChange]) -> None:
        """Sets the function that gives the target the new image. It may block, and raise :class:`NodeError`."""
        self._image_change = change

    def image_change_unavailable(self) -> str | None:
        return None if self._image_change is not None else "the system names no new image for its role"

    async def change_image(self) -> ImageChange:
        if self._image_change is None or self._target is None:
            raise NodeError(f"{self.name}: {self.image_change_unavailable()}")
        await self._require_dead("its image")
        self._require_reachable()
        user = self._target.user
        try:
            changed = await self._in_thread(self._image_change)
            user = changed.user
        finally:  # after a failure the former container runs again, with another process
            await self.find_target(user)
        return changed

    async def explain_unloadable(self, program: str, libraries: Sequence[str]) -> str | None:
        """Returns why a program of the target does not load these libraries; None if it loads them.

        The program's own loader lists what it would load (``ld.so --list``).
        """
        assert self._target is not None, "the caller has looked"
        try:
            asked = target.command("find_loader", self._target.root, str(self._target.pid), program)
            found = json.loads(await self.shell(asked))
        except NodeError as error:
            return str(error)
        if not found["loader"]:
            return f"its program {found['program']} is static, and a static program loads no library"
        listed = await self.run_in_image(
            [found["loader"], "--list", found["program"]], environment={"LD_PRELOAD": ":".join(libraries)}
        )
        if all(library in listed.output for library in libraries):
            return None
        said = (listed.errors or listed.output).strip() or f"{found['loader']} printed nothing"
        return f"its program {found['program']} cannot load the compiled library: {said.splitlines()[0]}"

    async def write_file(self, path: str, data: bytes) -> None:
        self._require_reachable()
        (place,) = await self._locate(path)
        await self._in_thread(self._connection.write, place, data)
        await self._make_durable(path, place)

    async def read_file(self, path: str) -> bytes:
        self._require_reachable()
        (place,) = await self._locate(path)
        return await self._in_thread(self._connection.read, place)

    async def copy_log(self, path: str, local: Path) -> None:
        """Copies a log of the node to this machine (:meth:`SshConnection.copy_log`)."""
        self._require_reachable()
        (place,) = await self._locate(path)
        await self._in_thread(self._connection.copy_log, place, local)

    async def find_files(self, pattern: str) -> Mapping[str, int]:
        command = process.files_command(pattern)
        if self._target is None:
            return process.parse_files(await self.shell(command))
        found: dict[str, int] = json.loads(await self.shell(target.command("find", self._root, pattern)))
        return dict(sorted(found.items()))

    async def read_range(self, path: str, position: int, size: int) -> bytes:
        self._require_reachable()
        (place,) = await self._locate(path)
        return await self._in_thread(self._connection.read_range, place, position, size)

    async def write_range(self, path: str, position: int, data: bytes) -> None:
        await self._require_dead(path)
        (place,) = await self._locate(path)
        await self._in_thread(self._connection.write_range, place, position, data)
        await self._make_durable(path, place)

    async def truncate_file(self, path: str, size: int) -> None:
        await self._require_dead(path)
        (place,) = await self._locate(path)
        await self._in_thread(self._connection.truncate, place, size)
        await self._make_durable(path, place)

    async def contents(self, folder: str, kept: Collection[str] = ()) -> Mapping[str, str]:
        place, spared = await self._locate_folder(folder, kept)
        command = data_folders.contents_command(place, spared)
        return data_folders.parse_contents(await self.shell(command), place, folder)

    async def remove_contents(self, folder: str, kept: Collection[str] = ()) -> None:
        await self._require_dead(folder)
        place, spared = await self._locate_folder(folder, kept)
        await self.shell(data_folders.remove_command(place, spared, self._root))

    async def save(self, folder: str, kept: Collection[str] = ()) -> Mapping[str, str]:
        # Each part is one process of the node: the main one or a sidecar.
        alive = [self.part(process_name) for process_name in await self._alive()]
        running = [part for part in alive if (await part.process()).state is ProcessState.RUNNING]
        place, spared = await self._locate_folder(folder, kept)
        await self._record_undo("copy", data_folders.undo_copy(place))
        async with contextlib.AsyncExitStack() as stopped:
            for part in running:
                stopped.push_async_callback(part.resume)  # needed even if the stop may have failed
                await part.stop()
            command = data_folders.copy_command(place, spared)
            return data_folders.parse_contents(await self.shell(command), place, folder)

    async def restore(self, folder: str, kept: Collection[str] = ()) -> None:
        await self._require_dead(folder)
        place, spared = await self._locate_folder(folder, kept)
        await self.shell(data_folders.restore_command(place, spared, self._root))

    async def discard(self, folder: str) -> None:
        (place,) = await self._locate(folder)
        await self.shell(shlex.join(data_folders.undo_copy(place)))
        await self._mark_undone("copy")

    async def _make_durable(self, path: str, place: str) -> None:
        """Syncs a file that the harness has written, because it must survive a power loss.

        ``place``: as :meth:`_locate` returns it.
        """
        if not isinstance(self._disk, str) and path.startswith(f"{self._disk.folder}/"):
            await self.shell(f"sync {shlex.quote(place)} {shlex.quote(place.rpartition('/')[0])}")

    async def _require_dead(self, path: str) -> None:
        if alive := await self._alive():
            raise NodeError(f"{self.name}: cannot change {path} while the {alive[0]} process is alive; kill it first")

    async def _prepare_start(self) -> Program:
        # Without the mount, the process would find an empty folder and seem to have lost all data.
        if not isinstance(self._disk, str):
            self._require_reachable()
            await self._in_thread(self._disk.mount)
        return self._main_program()

    def _main_program(self) -> Program:
        return self._program(self)

    async def _launch(self, process_name: str, program: Program) -> None:
        if (found := self._target) is None:
            return await super()._launch(process_name, program)
        if program.user != found.user:
            raise NodeError(
                f"{self.name}: {process_name} cannot run as user {program.user}, because its image runs unchanged, so "
                f"that all its processes have one user ({found.user or 'root'}): leave the user of the sidecar out"
            )
        try:
            start = target.describe_start(
                program.argv,
                program.environment,
                owned=program.owned,
                needed=program.needed,
                pid_file=process.pid_path(process_name),
                log=process.log_path(process_name),
                target=found,
            )
        except ValueError as error:
            raise NodeError(f"{self.name}: {process_name} cannot be started: {error}") from error
        command = process.launch_elsewhere_command(target.command("launch", found.root), process_name)
        await self.shell(command, stdin=start)

    def second_unavailable(self) -> str | None:
        return super().second_unavailable() if self._target is None else OWN_CONTAINER_NO_COPY

    def event_log_path(self) -> str | None:
        return self._event_log(self)

    async def give_disk(self, disk: NodeDisk) -> None:
        """Mounts the disk before the first start, and tries a power loss and a write of the node.

        If a test fails, the node has no disk, and :meth:`own_disk_unavailable` returns the reason.
        """
        try:
            await self._in_thread(disk.try_out)
            (folder,) = await self._locate(disk.folder)
            probe = f"{folder}/{disk_filling.PROBE}"
            await self.shell(f"touch {shlex.quote(probe)} && rm {shlex.quote(probe)}")
        except NodeError as error:
            self._disk = f"{error}; `assay doctor` says more"
        else:
            self._disk = disk

    def set_disk_unavailable(self, reason: str) -> None:
        """Sets the reason why the node has no separate disk."""
        self._disk = reason

    def own_disk_unavailable(self) -> str | None:
        return self._disk if isinstance(self._disk, str) else None

    async def cut_power(self) -> Mapping[str, int]:
        if isinstance(self._disk, str):
            raise NodeError(f"the power of {self.name} cannot be cut: {self._disk}")
        for process_name in await self._alive():
            await self.part(process_name).kill()
        self._require_reachable()
        return await self._in_thread(self._disk.lose_power)

    async def memory_unavailable(self) -> str | None:
        if self._target is not None:
            return OWN_CONTAINER_NO_MEMORY
        try:
            await self.shell(memory.command("look"))
        except NodeError as error:
            return str(error)
        return None

    async def exhaust_memory(self) -> Exhaustion:
        if self._target is not None:
            raise NodeError(f"{self.name} cannot run out of memory: {OWN_CONTAINER_NO_MEMORY}")
        found = json.loads(await self.shell(process.ending_command(memory.command("exhaust", "$pid"))))
        await self._mark_undone("stop")  # the process has ended, so that its stop needs no undo
        return Exhaustion(found["limit"], found["taken"], found["ended"] - found["before"])

    async def fill_disk(self) -> None:
        (folder,) = await self._locate(self._require_disk("filled"))
        await self._record_undo("fill", disk_filling.undo_command(folder))
        await self.shell(disk_filling.fill_command(folder))

    async def free_disk(self) -> None:
        if not isinstance(self._disk, str):
            (folder,) = await self._locate(self._disk.folder)
            await self.shell(shlex.join(disk_filling.undo_command(folder)))
            await self._mark_undone("fill")

    async def room(self) -> DiskRoom:
        (folder,) = await self._locate(self._require_disk("looked at"))
        output = await self.shell(disk_filling.probe_command(folder))
        return DiskRoom(*disk_filling.parse_room(output))

    def _require_disk(self, what: str) -> str:
        if isinstance(self._disk, str):
            raise NodeError(f"the disk of {self.name} cannot be {what}: {self._disk}")
        return self._disk.folder

    async def freezing_unavailable(self) -> str | None:
        if self._freezer is None:
            return NO_FREEZER
        return await self._in_thread(self._freezer.find_obstacle)

    async def freeze(self) -> None:
        """Silences the network, then stops all processes. SSH does not answer until the thaw."""
        freezer = self._require_freezer()
        self._require_reachable()
        await self._record_undo("freeze", firewall.UNSILENCE)
        await self.shell(firewall.SILENCE)
        self._frozen = True
        await self._in_thread(freezer.freeze)

    async def thaw(self) -> None:
        freezer = self._require_freezer()
        await self._in_thread(freezer.thaw)
        self._frozen = False
        if "freeze" in self._open_entries:
            await self.shell(shlex.join(firewall.UNSILENCE))
            await self._mark_undone("freeze")

    async def frozen(self) -> bool:
        return await self._in_thread(self._require_freezer().frozen)

    def _require_freezer(self) -> Freezer:
        if self._freezer is None:
            raise NodeError(f"the machine of {self.name} cannot be frozen: {NO_FREEZER}")
        return self._freezer

    def _require_reachable(self) -> None:
        """Rejects calls to a frozen machine, which would hang until their deadline."""
        if self._frozen:
            raise NodeError(f"{self.name} is frozen; thaw it first")

    async def drop_from(self, peers: Sequence[Node], flow: Flow | None = None) -> None:
        await self._filter(peers, flow, reject=False)

    async def reject_from(self, peers: Sequence[Node], flow: Flow | None = None) -> None:
        await self._filter(peers, flow, reject=True)

    async def _filter(self, peers: Sequence[Node], flow: Flow | None, *, reject: bool) -> None:
        if not peers:
            return
        self._require_reachable()
        await self._record_undo("cut", firewall.undo_command(self._iptables))
        self._peers.update({peer.address: peer.name for peer in peers})
        addresses = [peer.address for peer in peers]
        await self.shell(
            firewall.apply_command(self._iptables),
            stdin=firewall.render_rules(addresses, reject=reject, flow=flow, spared=self.spared_ports),
        )

    async def accept_all(self) -> None:
        await self.shell(firewall.flush_command(self._iptables))
        await self._mark_undone("cut")

    async def dropped(self) -> Mapping[str, int]:
        return firewall.parse_counts(await self.shell(firewall.count_command(self._iptables)), self._peers)

    async def shaping_unavailable(self) -> str | None:
        try:
            await self.shell(packets.trial_command(self._iptables))
        except NodeError as error:
            return f"{error}; the kernel needs nfnetlink_queue and xt_NFQUEUE"
        return None

    async def shape(self, traffic: Traffic | None, peers: Sequence[Node] | None = None) -> None:
        if traffic is None:
            await self.shell(shlex.join(packets.UNSHAPE))
            await self._mark_undone("packets")
            return
        self._require_reachable()
        await self._record_undo("packets", packets.UNSHAPE)
        addresses = None if peers is None else [peer.address for peer in peers]
        await self.shell(packets.command(asdict(traffic), addresses, self.spared_ports, self._iptables))

    async def shaped(self) -> Mapping[str, int]:
        counts: dict[str, int] = json.loads(await self.shell(packets.READ))
        return counts

    def events(self) -> AsyncIterator[str]:
        """Yields all lines of the event log until the node is closed. Yields none if the node has no event log."""
        path = self._event_log(self)

        async def follow() -> Command | None:
            return None if path is None else follow_command(*await self._locate(path))

        return self._lines(follow, f"tail {path}", on_rest=self._keep_unfinished_event)

    def _keep_unfinished_event(self, rest: str) -> None:
        self.unfinished_event = rest

    def log_sizes(self, pattern: str, paths: Sequence[str]) -> AsyncIterator[str]:
        """Yields the output of :func:`assay.cluster.ssh.stream.size_watch_command` until the node is closed.

        ``pattern``: of the processes' logs; ``paths``: those of the system's logs
        """
        shown: dict[str, str] = {}

        async def watch() -> Command:
            shown.update(zip(places := await self._locate(*paths), paths, strict=True))
            return size_watch_command([pattern, *map(shlex.quote, places)])

        def translate(line: str) -> str:
            size, _, place = line.partition(" ")
            return f"{size} {shown[place]}" if place in shown else line

        return self._lines(watch, f"sizes of logs on {self.name}", translate)

    def usage(self, folder: str | None, every: float, rounds: int) -> AsyncIterator[str]:
        """Yields the output of :func:`assay.cluster.ssh.usage.usage_watch_command` until the node is closed."""

        async def watch() -> Command:
            place = None if folder is None else (await self._locate(folder))[0]
            return usage_watch_command((process.MAIN, *self.sidecars), place, every, rounds)

        return self._lines(watch, f"usage of {self.name}")

    async def _lines(
        self,
        make_command: Callable[[], Awaitable[Command | None]],
        name: str,
        translate: Callable[[str], str] = lambda line: line,
        on_rest: Callable[[str], None] = lambda rest: None,
    ) -> AsyncIterator[str]:
        if (command := await make_command()) is None:
            return
        stream = LineStream(self._connection, command, asyncio.get_running_loop(), name)
        self._streams.add(stream)
        try:
            while (line := await stream.next_line()) is not None:
                yield translate(line)
        finally:
            self._streams.discard(stream)
            await self._in_thread(stream.close)
            on_rest(stream.rest)
        if stream.error is not None:
            raise stream.error

    async def close(self) -> None:
        """Ends the streams and the connection. Does not change the machine and its processes. Idempotent."""
        for stream in sorted(self._streams, key=id):
            await self._in_thread(stream.close)
        await self._in_thread(self._connection.close)

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    async def _mark_undone(self, fault: str) -> None:
        entry = self._open_entries.pop(fault, None)
        if entry is not None:
            await self._in_thread(self._undo.mark_done, entry)

    async def _record_undo(self, fault: str, undo: Sequence[str]) -> None:
        """Writes the undo of a fault to the journal. A single entry per kind is enough: it also undoes a second cut."""
        if fault not in self._open_entries:
            self._open_entries[fault] = await self._in_thread(self._undo.note_undo, self.name, undo)


def to_shell_text(command: str | Sequence[str]) -> str:
    """Returns the command as text for the shell."""
    return command if isinstance(command, str) else shlex.join(command)


def _change_key(undo: str) -> str:
    """Returns the key in ``_open_entries`` of the change that this command undoes."""
    return f"change {undo}"
