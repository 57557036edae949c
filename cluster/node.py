"""Interface of a node of any kind: a container, a host reached by SSH, or a simulated node.

Faults, systems and trials use only these interfaces. Every method that takes time is a coroutine.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable


class ProcessState(enum.StrEnum):
    """Process state, as in ``/proc/PID/stat``."""

    RUNNING = "running"
    STOPPED = "stopped"
    DEAD = "dead"


@dataclass(frozen=True)
class ProcessStatus:
    """State of a process. Each start of a process has a different ``incarnation``."""

    state: ProcessState
    incarnation: str | None = None


class NodeError(Exception):
    """An action on a node failed. The message names the node, the action and the remedy."""


@dataclass(frozen=True)
class CommandResult:
    """Exit status, standard output and standard error of a command on a node."""

    status: int
    output: str
    errors: str = ""


class SupportsCommands(Protocol):
    """The part of :class:`Node` that runs commands of a user's system, fault or workload."""

    async def run(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,
        changes: bool = False,
        undo: str | Sequence[str] | None = None,
    ) -> CommandResult:
        """Runs a command as root: text for the shell, or a program with its arguments. Any exit status is a result.

        - ``changes``: whether the command changes something; then the run's logs list it
        - ``undo``: the command that reverts the change. It is written to the undo journal before the change. It runs
          when the cluster is closed, or by ``assay heal``, and must do no harm if there is nothing to revert.

        Raises ``NodeError`` after ``timeout`` seconds, and in the simulation, which has no programs.
        """


class ImageChange(NamedTuple):
    """Ids of the new image of a node, and of the image that its container has now; and the user of its processes."""

    wanted: str
    found: str
    user: str | None = None


@runtime_checkable
class SupportsImageChange(Protocol):
    """A node whose container can get the new image that the system names for its role."""

    def image_change_unavailable(self) -> str | None:
        """Returns why the image cannot be changed; None if it can."""

    async def change_image(self) -> ImageChange:
        """Gives the container the new image. It keeps its volumes, names and address.

        Raises ``NodeError`` unless the main process is dead.
        """


@runtime_checkable
class SupportsImageCommands(Protocol):
    """A node whose image runs unchanged in a container of its own (``cluster/ssh/target.py``)."""

    health_command: Sequence[str]
    """Program of the image that exits with code 0 if the node is healthy; empty if there is none."""
    exposed_ports: Sequence[int]
    """TCP ports at which its image says that it serves."""

    async def run_in_image(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> CommandResult:
        """Runs a program of the image, with the user, environment and folder of its container.

        ``environment``: further variables

        Raises ``NodeError`` after ``timeout`` seconds, and if the image runs in no container of its own.
        """


@dataclass(frozen=True)
class Flow:
    """The packets that a peer sends to a node over connections to a server port of one of the two.

    - ``from_server``: True means packets from the peer's server port, False packets to the node's server port
    - ``every``: 3 means only every third packet, starting with the first
    """

    port: int
    from_server: bool = True
    every: int = 1

    def __str__(self) -> str:
        """Returns ``:9092`` for answers, ``>9092`` for requests, ``:9092/3`` for every third packet."""
        return f"{':' if self.from_server else '>'}{self.port}" + (f"/{self.every}" if self.every > 1 else "")


class Node(SupportsCommands, Protocol):
    """A machine with an address and one main process of the system under test."""

    @property
    def name(self) -> str:
        """``n1``, ``zk1``: unique in the cluster and equal in every run."""

    @property
    def role(self) -> str:
        """The node's role, which the system declared: ``broker``, ``zookeeper``, ..."""

    @property
    def index(self) -> int:
        """Index within the role, from 1."""

    @property
    def address(self) -> str:
        """The IP address at which peers and clients reach the node."""

    async def write_file(self, path: str, data: bytes) -> None: ...

    async def read_file(self, path: str) -> bytes:
        """Raises ``FileNotFoundError`` if there is no such file."""

    async def find_files(self, pattern: str) -> Mapping[str, int]:
        """Returns the files that match a shell pattern (``*``, ``?``), sorted: absolute path to size in bytes."""

    async def read_range(self, path: str, position: int, size: int) -> bytes:
        """Returns at most ``size`` bytes; fewer at the end of the file. Raises ``FileNotFoundError``."""

    async def write_range(self, path: str, position: int, data: bytes) -> None:
        """Damages a file: overwrites bytes, or appends some. The new bytes are durable.

        Raises ``NodeError`` unless the main process is dead. Raises ``FileNotFoundError``.
        """

    async def truncate_file(self, path: str, size: int) -> None:
        """Truncates a file to ``size`` bytes durably. Raises the same errors as :meth:`write_range`."""

    async def start(self) -> None:
        """Launches the main process without waiting until it is ready. Raises an error if one is alive already."""

    async def kill(self) -> None:
        """Sends SIGKILL and returns once the process is gone. Its files and the node's network rules stay."""

    async def terminate(self) -> None:
        """Sends SIGTERM, or the system's stop signal, and waits for the end. Raises ``NodeError`` after 15 s."""

    async def stop(self) -> None:
        """Sends SIGSTOP: the kernel still acknowledges packets, but the process does nothing."""

    async def resume(self) -> None:
        """Sends SIGCONT."""

    async def process(self) -> ProcessStatus:
        """Returns the state of the main process."""

    async def freeze(self) -> None:
        """Freezes the whole machine: none of its processes runs, and arriving packets are not acknowledged.

        Until :meth:`thaw` every other call raises ``NodeError``, except :meth:`frozen` and :meth:`events`.
        """

    async def thaw(self) -> None:
        """Lets the machine continue. It is no error if the machine was not frozen."""

    async def frozen(self) -> bool:
        """Returns whether the machine is frozen.

        Raises ``NodeError`` if it cannot be frozen, like a host that is only reached by SSH.
        """

    async def drop_from(self, peers: Sequence[Node], flow: Flow | None = None) -> None:
        """Drops packets that arrive from these peers from now on, in addition to existing rules.

        ``flow``: drops only packets of this flow.
        """

    async def reject_from(self, peers: Sequence[Node], flow: Flow | None = None) -> None:
        """Does the same as :meth:`drop_from`, but answers each packet with a reset, so that the peer fails at once.

        Packets that are resets pass. Otherwise two nodes that reject each other would get no reset.
        """

    async def accept_all(self) -> None:
        """Removes every rule that ``drop_from`` and ``reject_from`` made on this node."""

    async def dropped(self) -> Mapping[str, int]:
        """Returns how many packets of each peer the current rules dropped or rejected. A flow's key is ``n2:9092``."""

    def events(self) -> AsyncIterator[str]:
        """Yields the event log's lines as they are written, over all incarnations, from the start."""


class Part(Protocol):
    """A single process of a node with several processes. Actions on it leave the other processes alone."""

    @property
    def name(self) -> str:
        """The node's name."""

    async def start(self) -> None:
        """Starts the process. Raises an error if it is alive."""

    async def kill(self) -> None: ...

    async def terminate(self) -> None: ...

    async def stop(self) -> None: ...

    async def resume(self) -> None: ...

    async def process(self) -> ProcessStatus: ...


@runtime_checkable
class SupportsParts(Protocol):
    """A node that may run additional processes.

    Methods of :class:`Node` act on all of them, except ``process``, which returns the state of the main one.
    """

    @property
    def sidecars(self) -> Sequence[str]:
        """Names of the additional processes that the last start of the node started."""

    def part(self, process: str) -> Part:
        """Returns the process of that name, or ``main``. Raises ``NodeError`` if there is none."""


@runtime_checkable
class SupportsPowerLoss(Protocol):
    """A node whose power can be cut. Its process must be started again afterwards."""

    def own_disk_unavailable(self) -> str | None:
        """Returns why the power of this node cannot be cut, and the remedy; None if it can."""

    async def cut_power(self) -> Mapping[str, int]:
        """Cuts the power at once. Only fsynced data survive. Returns how many bytes each file lost."""


@runtime_checkable
class SupportsDiskFull(Protocol):
    """A node whose data disk can be filled."""

    def own_disk_unavailable(self) -> str | None:
        """Returns why the node has no separate disk, and the remedy; None if it has one."""

    async def fill_disk(self) -> None:
        """Fills the disk, so that it has no free byte."""

    async def free_disk(self) -> None:
        """Frees the filled space again. It is no error if the disk was not filled."""

    async def room(self) -> DiskRoom:
        """Tries a write now, and returns the disk's free space."""


class DiskRoom(NamedTuple):
    """The free space of a disk. ``free``: in bytes. ``refused``: whether a write was just rejected (ENOSPC)."""

    free: int
    refused: bool


@dataclass(frozen=True)
class Exhaustion:
    """How a node ran out of memory. ``limit`` and ``taken``: its limit and the allocated memory in bytes.

    ``ended``: how many processes its kernel killed for lack of memory.
    """

    limit: int
    taken: int
    ended: int


@runtime_checkable
class SupportsFreezing(Protocol):
    """A node whose machine can be frozen."""

    async def freezing_unavailable(self) -> str | None:
        """Returns why the machine cannot be frozen, and the remedy; None if it can. May freeze it for an instant."""


@runtime_checkable
class SupportsMemoryLimit(Protocol):
    """A node that can run out of memory."""

    async def memory_unavailable(self) -> str | None:
        """Returns why memory cannot be exhausted, and the remedy; None if it can. Allocates nothing."""

    async def exhaust_memory(self) -> Exhaustion:
        """Allocates all memory below the limit until the kernel has killed the main process, then frees it.

        Raises ``NodeError`` if there is no process, or it was not killed in time.
        """


@dataclass(frozen=True)
class Slowed:
    """Effects of a slow disk so far, over all incarnations of a node's main process."""

    fsyncs: int = 0
    """Fsyncs that took longer."""
    calls: int = 0
    """Reads and writes that took longer."""
    halts: int = 0
    """How often the main process, or a child of it, was stopped in the middle of an fsync."""
    is_halted: bool = False
    """Whether the process that was last stopped is still stopped."""


@runtime_checkable
class SupportsSlowDisk(Protocol):
    """A node whose disk can be made slow for its main process."""

    def slowness_unavailable(self) -> str | None:
        """Returns why the disk cannot be slowed, and the remedy; None if it can."""

    async def slow_disk(self, fsync: float, call: float = 0.0) -> None:
        """Adds ``fsync`` seconds to each fsync and ``call`` seconds to each read and write; 0 removes the delay.

        Calls that are already running keep their delay. A delayed read or write blocks the whole process. A delayed
        fsync blocks only the thread that calls it.
        """

    async def halt_in_fsync(self, after: float) -> None:
        """Stops (SIGSTOP) the process that makes the next slow fsync, ``after`` seconds into that fsync.

        It may be the main process or a child of it. 0 cancels the order, and continues a stopped process.
        """

    async def read_disk_delays(self) -> Slowed:
        """Returns the effects so far."""


class DiskChange(enum.StrEnum):
    """Kinds of changes that a process makes to the files on its disk."""

    WRITE = "write"
    """Bytes are written into a file, or appended."""
    FSYNC = "fsync"
    """The content of a file or a folder is made durable."""
    CUT = "cut"
    """A file is truncated, or space is preallocated behind it."""
    NAME = "name"
    """A file or a folder is renamed or removed, or a folder is created."""


@dataclass(frozen=True)
class DiskErrorEffects:
    """Effects of a failing disk, over all incarnations of a node's main process."""

    errors: int = 0
    """How many changes were rejected (EIO)."""
    ends: int = 0
    """How often a process ended at a change."""


@runtime_checkable
class SupportsDiskErrors(Protocol):
    """A node whose disk can fail its main process at a chosen change."""

    def slowness_unavailable(self) -> str | None:
        """Returns why the disk cannot fail, and the remedy; None if it can.

        A single library both slows disks and makes them fail.
        """

    async def break_disk(
        self, changes: Collection[DiskChange], after: int = 0, errors: int = 1, *, after_change: bool = False
    ) -> None:
        """Makes the process's changes of these kinds fail, after ``after`` more of them have succeeded.

        The next ``errors`` changes are rejected (EIO) and change nothing. With ``errors`` 0 the process ends instead
        (SIGKILL), just before the change, or just after it with ``after_change``. Without kinds the disk works again.
        """

    async def read_disk_errors(self) -> DiskErrorEffects:
        """Returns the effects so far."""


@dataclass(frozen=True)
class Traffic:
    """Disturbance of the packets that a node sends.

    Shares are fractions of all packets, from 0 to 1. The first packet is always affected.
    """

    delay: float = 0.0
    """Maximum delay of a late packet in seconds. The minimum is half of it."""
    late: float = 1.0
    """Share of late packets."""
    overtaking: bool = False
    """Whether packets that are not late overtake late ones. Otherwise each connection stays in order."""
    loss: float = 0.0
    """Share of lost packets."""
    copies: float = 0.0
    """Share of packets that are sent twice."""
    rate: float = 0.0
    """Bytes sent per second, over all connections; 0: unlimited."""


@runtime_checkable
class SupportsDataRestore(Protocol):
    """A node whose data folder can be emptied, saved and restored.

    Files in ``kept`` are left alone and are not part of any copy.
    """

    async def contents(self, folder: str, kept: Collection[str] = ()) -> Mapping[str, str]:
        """Returns the files below the folder, at any depth: absolute path to size and checksum."""

    async def remove_contents(self, folder: str, kept: Collection[str] = ()) -> None:
        """Empties the folder durably. Raises ``NodeError`` unless the main process is dead."""

    async def save(self, folder: str, kept: Collection[str] = ()) -> Mapping[str, str]:
        """Copies the folder to a place that no fault reaches. Returns the :meth:`contents` of the copy.

        A running process is stopped (SIGSTOP) meanwhile. The copy replaces an earlier one.
        """

    async def restore(self, folder: str, kept: Collection[str] = ()) -> None:
        """Restores the saved state durably.

        Raises ``NodeError`` unless the main process is dead and there is a copy.
        """

    async def discard(self, folder: str) -> None:
        """Deletes the copy. It is no error if there is none."""


@runtime_checkable
class SupportsPacketShaping(Protocol):
    """A node whose outgoing packets can be delayed, lost, duplicated or rate-limited."""

    async def shaping_unavailable(self) -> str | None:
        """Returns why packets cannot be shaped, and the remedy; None if they can. Changes nothing permanently."""

    async def shape(self, traffic: Traffic | None, peers: Sequence[Node] | None = None) -> None:
        """Shapes packets to these peers from now on, or to all except SSH's. ``traffic`` None ends the shaping."""

    async def shaped(self) -> Mapping[str, int]:
        """Returns how many packets the shaping has made ``late``, ``lost`` and ``doubled``; empty without shaping."""


@runtime_checkable
class SupportsClockShift(Protocol):
    """A node whose wall clock can be shifted. Its monotonic clock stays right."""

    async def shift_clock(self, seconds: float) -> None:
        """Sets the clock ``seconds`` ahead of the right time; negative means behind, 0 means right."""

    async def clock_shift(self) -> float:
        """Reads the node's clock, and returns how many seconds it is ahead."""


class Cluster(Protocol):
    """The nodes of one run."""

    @property
    def kind(self) -> str:
        """``docker``, ``sim`` or ``ssh``."""

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes except the spares, in a fixed order."""

    @property
    def spares(self) -> Sequence[Node]:
        """Nodes of the main role on which no process runs, until a fault makes one of them join as a server."""

    @property
    def description(self) -> Mapping[str, str]:
        """Facts that are needed to repeat a run: image digest, kernel, versions."""

    async def close(self) -> None:
        """Removes everything that the cluster created. Idempotent."""


Dial = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Opens a connection to an address and a port."""


def get_dial(node: Node) -> Dial:
    """Returns how the harness connects to a node's ports: directly, unless the cluster has its own way."""
    dial: Dial = getattr(node, "dial", asyncio.open_connection)
    return dial


def by_role(cluster: Cluster, role: str) -> list[Node]:
    """Returns the nodes of one role, in the cluster's order."""
    return [node for node in cluster.nodes if node.role == role]


def join_host_port(address: str, port: int) -> str:
    """Returns ``10.0.0.11:9092`` or ``[fd00::11]:9092``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
