"""What a machine of the cluster can do, of any kind: a container, a host reached by SSH, or a simulation.

Faults, systems and trials speak to these interfaces alone. Everything that takes time is a coroutine.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from assay.cluster.commands import SupportsCommands


class ProcessState(enum.StrEnum):
    """As ``/proc/PID/stat`` has it."""

    RUNNING = "running"
    STOPPED = "stopped"
    DEAD = "dead"


@dataclass(frozen=True)
class ProcessStatus:
    """The node's main process. ``incarnation`` differs between any two processes that the node ever ran."""

    state: ProcessState
    incarnation: str | None = None


class NodeError(Exception):
    """A node did not do what was asked; the message names the node, what was tried, and the remedy."""


@dataclass(frozen=True)
class Flow:
    """One direction of the connections that a peer and a node have on a port of either.

    ``answers``: packets that the peer sends from its own port, at which it serves; else those that it sends to the
    node's. ``every``: with 3 each third packet alone, counted from the first.
    """

    port: int
    answers: bool = True
    every: int = 1

    def __str__(self) -> str:
        """``:9092`` for answers, ``>9092`` for requests, ``:9092/3`` for every third."""
        return f"{':' if self.answers else '>'}{self.port}" + (f"/{self.every}" if self.every > 1 else "")


class Node(SupportsCommands, Protocol):
    """One machine with an address and one main process of the system under test."""

    @property
    def name(self) -> str:
        """``n1``, ``zk1``: unique in the cluster, the same in every run."""

    @property
    def role(self) -> str:
        """``broker``, ``zookeeper``, ...: a role that the system declared."""

    @property
    def index(self) -> int:
        """From 1, within the role."""

    @property
    def address(self) -> str:
        """The IP address at which peers and clients reach it."""

    async def write_file(self, path: str, data: bytes) -> None: ...

    async def read_file(self, path: str) -> bytes:
        """Raises ``FileNotFoundError`` when there is none."""

    async def find_files(self, pattern: str) -> Mapping[str, int]:
        """Absolute path to size in bytes of the files that a pattern of the shell (``*``, ``?``) matches, sorted."""

    async def read_range(self, path: str, position: int, size: int) -> bytes:
        """At most ``size`` bytes; fewer at the end of the file. Raises ``FileNotFoundError``."""

    async def write_range(self, path: str, position: int, data: bytes) -> None:
        """Damages a file in place, or makes it longer. ``NodeError`` unless the main process is dead.

        The damage is as durable as if it had always been there. Raises ``FileNotFoundError``.
        """

    async def truncate_file(self, path: str, size: int) -> None:
        """Cuts a file to ``size`` bytes, under the conditions of :meth:`write_range`."""

    async def start(self) -> None:
        """Launches the main process; readiness is the system's to judge. An error when one is alive already."""

    async def kill(self) -> None:
        """SIGKILL; returns once the process is gone. Its files and the node's network rules stay."""

    async def terminate(self) -> None:
        """SIGTERM, or its system's stop signal; returns once the process has ended. ``NodeError`` after 15 s."""

    async def stop(self) -> None:
        """SIGSTOP: the kernel goes on acknowledging, the process does nothing."""

    async def resume(self) -> None:
        """SIGCONT."""

    async def process(self) -> ProcessStatus: ...

    async def freeze(self) -> None:
        """Freezes the whole machine: no process of it runs and nothing that arrives is acknowledged.

        Until :meth:`thaw` every other call raises ``NodeError``, except :meth:`frozen` and :meth:`events`.
        """

    async def thaw(self) -> None:
        """The machine goes on where it was. No error when it was not frozen."""

    async def frozen(self) -> bool:
        """Is it? Raises ``NodeError`` where a machine cannot be frozen: on a host that is only known by SSH."""

    async def drop_from(self, peers: Sequence[Node], flow: Flow | None = None) -> None:
        """From now on packets that arrive from these peers are dropped. Adds to what is dropped already.

        ``flow``: these packets alone.
        """

    async def reject_from(self, peers: Sequence[Node], flow: Flow | None = None) -> None:
        """As :meth:`drop_from`, but each packet is answered with a reset, so that the peer fails at once.

        Resets themselves pass, else two nodes that reject each other would never learn of it.
        """

    async def accept_all(self) -> None:
        """Removes every rule that ``drop_from`` and ``reject_from`` made on this node."""

    async def dropped(self) -> Mapping[str, int]:
        """Packets dropped or rejected so far by the rules now in force, per peer's name; a flow's are ``n2:9092``."""

    def events(self) -> AsyncIterator[str]:
        """The lines of the process's event log as they are written, over all its incarnations, from the start."""


class Part(Protocol):
    """One process of a node that may have several; what is done to it leaves the others alone."""

    @property
    def name(self) -> str:
        """The node's."""

    async def start(self) -> None:
        """An error when it is alive."""

    async def kill(self) -> None: ...

    async def terminate(self) -> None: ...

    async def stop(self) -> None: ...

    async def resume(self) -> None: ...

    async def process(self) -> ProcessStatus: ...


@runtime_checkable
class SupportsParts(Protocol):
    """A node that may run processes beside its main one. What a :class:`Node` does, it does to all of them, but for
    ``process``, which is the main one's.
    """

    @property
    def beside(self) -> Sequence[str]:
        """The names of the others, as they were last started."""

    def part(self, process: str) -> Part:
        """The process of that name, or ``main``. Raises ``NodeError`` when there is none."""


@runtime_checkable
class SupportsPowerLoss(Protocol):
    """A node whose power can be cut; its process must be started again afterwards."""

    def own_disk_unavailable(self) -> str | None:
        """Why not, and the remedy, where it cannot be cut after all; None where it can."""

    async def power_loss(self) -> Mapping[str, int]:
        """The machine stops at once, and only what was fsynced is left; returns how many bytes each file lost."""


@runtime_checkable
class SupportsDiskFull(Protocol):
    """A node of which the disk with the system's data can be filled."""

    def own_disk_unavailable(self) -> str | None:
        """Why it has no disk of its own, and the remedy; None where it has."""

    async def fill_disk(self) -> None:
        """From now on nothing more fits on it."""

    async def free_disk(self) -> None:
        """As much fits on it as before. No error when it was not filled."""

    async def room(self) -> tuple[int, bool]:
        """How many bytes are free, and whether a write was tried just now and rejected (ENOSPC)."""


@dataclass(frozen=True)
class Exhaustion:
    """How a node ran out of memory, in bytes. ``ended``: how many processes its kernel has ended for that."""

    limit: int
    taken: int
    ended: int


@runtime_checkable
class SupportsMemoryLimit(Protocol):
    """A node that can run out of memory."""

    async def memory_unavailable(self) -> str | None:
        """Why not, and the remedy, where it cannot; None where it can. Takes none."""

    async def exhaust_memory(self) -> Exhaustion:
        """All that its limit leaves is taken, until the kernel has ended the main process, and then given back.

        ``NodeError`` where there is no process, or it was not ended in time.
        """


@dataclass(frozen=True)
class Slowed:
    """What a slow disk has done so far, over all lives of a node's main process."""

    fsyncs: int = 0
    """Those that took longer."""
    calls: int = 0
    """Reads and writes that did."""
    halts: int = 0
    """How often a process was stopped in the middle of an fsync: the main one, or one that it has started."""
    standing: bool = False
    """Does the last of these stand still?"""


@runtime_checkable
class SupportsSlowDisk(Protocol):
    """A node whose disk can be made slow for its main process."""

    def slowness_unavailable(self) -> str | None:
        """Why not, and the remedy, where it cannot; None where it can."""

    async def slow_disk(self, fsync: float, call: float = 0.0) -> None:
        """From now on each fsync, and each read and write (``call``), takes so many seconds more; with 0 as long as
        before. Those under way end as they began. The process stands still in a read or a write, not in an fsync, which
        one of its threads makes.
        """

    async def halt_in_fsync(self, after: float) -> None:
        """Once so many seconds of the next fsync that is slow are over the process that makes it, the main one or one
        that it has started, is stopped there (SIGSTOP); with 0 it is not, or goes on.
        """

    async def slowed(self) -> Slowed:
        """What has come of it."""


class DiskChange(enum.StrEnum):
    """What a process does to the files on its disk, by kind."""

    WRITE = "write"
    """Bytes are written into a file, or behind it."""
    FSYNC = "fsync"
    """What a file or a folder holds is made durable."""
    CUT = "cut"
    """A file is made shorter, or room is reserved behind it."""
    NAME = "name"
    """A file or a folder is renamed or removed, or a folder is made."""


@dataclass(frozen=True)
class Broken:
    """What has come of a disk that fails, over all lives of a node's main process."""

    errors: int = 0
    """How many changes were rejected (EIO)."""
    ends: int = 0
    """How often a process ended at a change."""


@runtime_checkable
class SupportsDiskErrors(Protocol):
    """A node whose disk can fail its main process at a chosen change."""

    def slowness_unavailable(self) -> str | None:
        """Why not, and the remedy, where it cannot; None where it can. What makes a disk slow makes it fail."""

    async def break_disk(
        self, changes: Collection[DiskChange], after: int = 0, errors: int = 1, *, made: bool = False
    ) -> None:
        """Of the changes of these kinds that the process makes from now on ``after`` are as ever. Then so many
        ``errors`` are rejected (EIO), and change nothing; with 0 the process ends instead (SIGKILL), just before the
        change, or just after it is ``made``. Without kinds the disk is as before.
        """

    async def broken(self) -> Broken:
        """What has come of it."""


@dataclass(frozen=True)
class Traffic:
    """What befalls the packets that a node sends. Shares are of all of them, from 0 to 1; the first is always hit."""

    delay: float = 0.0
    """Seconds that a late packet takes more, at most; half of it at least."""
    late: float = 1.0
    """The share that is late."""
    overtaking: bool = False
    """Do packets that are not late go first? Else each connection stays in order."""
    loss: float = 0.0
    """The share that is lost."""
    copies: float = 0.0
    """The share that is sent twice."""
    rate: float = 0.0
    """Bytes that go out per second, over all connections; 0: as many as there are."""


@runtime_checkable
class SupportsDataRestore(Protocol):
    """A node whose data, in a folder, can be removed or put back. ``kept``: files that stay, and are in no copy."""

    async def contents(self, folder: str, kept: Collection[str] = ()) -> Mapping[str, str]:
        """Absolute path of every file in there, at any depth, to its size and checksum."""

    async def remove_contents(self, folder: str, kept: Collection[str] = ()) -> None:
        """Nothing is left in there, durably. ``NodeError`` unless the main process is dead."""

    async def save(self, folder: str, kept: Collection[str] = ()) -> Mapping[str, str]:
        """Copies all of it, as it is at one moment, to where no other fault reaches it; its :meth:`contents` then.

        A process that runs is stopped (SIGSTOP) meanwhile. A former copy is gone.
        """

    async def restore(self, folder: str, kept: Collection[str] = ()) -> None:
        """As it was when it was saved, durably; ``NodeError`` unless the main process is dead, or without a copy."""

    async def discard(self, folder: str) -> None:
        """The copy is gone. No error when there is none."""


@runtime_checkable
class SupportsPacketShaping(Protocol):
    """A node that can be made to send its packets otherwise than at once, all of them, and once."""

    async def shaping_unavailable(self) -> str | None:
        """Why not, and the remedy, where it cannot; None where it can. Leaves nothing behind."""

    async def shape(self, traffic: Traffic | None, peers: Sequence[Node] | None = None) -> None:
        """From now on this befalls what it sends, to these peers or to all (SSH apart); None: nothing any more."""

    async def shaped(self) -> Mapping[str, int]:
        """How many packets have been ``late``, ``lost`` and ``doubled`` by what is in force; empty when nothing is."""


@runtime_checkable
class SupportsClockShift(Protocol):
    """A node whose wall clock can be made wrong; its monotonic clock stays right."""

    async def shift_clock(self, seconds: float) -> None:
        """From now on it is ahead of the right time by so much: behind when negative, right with 0."""

    async def clock_shift(self) -> float:
        """By how much it is ahead, read from the node."""


class Cluster(Protocol):
    """The nodes of one run."""

    @property
    def kind(self) -> str:
        """``docker``, ``sim`` or ``ssh``."""

    @property
    def nodes(self) -> Sequence[Node]:
        """All of them, in a fixed order, but for the spares."""

    @property
    def spares(self) -> Sequence[Node]:
        """Nodes of the main role that are no servers yet: nothing runs there until a fault has one join."""

    @property
    def description(self) -> Mapping[str, str]:
        """What a run must record to be repeated: image digest, kernel, versions, fall-backs used."""

    async def close(self) -> None:
        """Takes everything away that the cluster brought into being. Idempotent."""


def by_role(cluster: Cluster, role: str) -> list[Node]:
    """The nodes of one role, in the cluster's order."""
    return [node for node in cluster.nodes if node.role == role]
