"""What the process of a system gets from the simulation, as the first argument of its ``entry``.

Sockets and time come from asyncio: ``start_server``, ``open_connection``, ``sleep``, ``loop.time()``. All else that
could differ between two runs comes from here. Code that reaches around it (``time.time()``, ``open()``, threads, the
module ``random``) makes runs that a seed does not repeat, and its files are lost to every fault.
"""

import random
from collections.abc import Sequence
from typing import Any, Protocol


class File(Protocol):
    """An append-only file that can be cut. Only what was fsynced survives a power loss."""

    @property
    def size(self) -> int: ...

    def append(self, data: bytes) -> None: ...

    def read(self, position: int, size: int) -> bytes:
        """At most ``size`` bytes; fewer at the end of the file."""

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Has the file take up at least so many bytes of the disk, which are zeros to those who open it again."""

    async def fsync(self) -> None: ...

    def close(self) -> None: ...


class Storage(Protocol):
    """The node's disk from its root. Paths are relative: ``var/x`` is what others reach as ``/var/x``.

    A new name survives a power loss once its folder was fsynced (``fsync_directory``), and so does a new folder.
    Errors are ``OSError``.
    """

    def open(self, path: str) -> File:
        """For reading and appending; created empty when missing. Its folder must exist."""

    def read_bytes(self, path: str) -> bytes: ...

    def write_bytes(self, path: str, data: bytes) -> None:
        """Creates the file or replaces its content."""

    async def fsync(self, path: str) -> None: ...

    async def fsync_directory(self, path: str) -> None:
        """Makes creations, renames and removals directly inside the folder durable; ``""`` is the root."""

    def listdir(self, path: str) -> Sequence[str]:
        """Names, sorted; none for a folder that does not exist."""

    def exists(self, path: str) -> bool: ...

    def mkdir(self, path: str) -> None:
        """With parents; no error when it exists."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at ``target``."""

    def remove(self, path: str) -> None:
        """A file, or a folder with all that is in it."""

    def lock(self, path: str) -> None:
        """Takes the lock of a file, which is created empty if it is missing, until this process has ended.

        An advisory lock of the kernel: a killed process or a power loss releases it, a stopped process keeps it.
        Raises ``BlockingIOError`` if a live process holds the lock; ``strerror`` then says who. Nothing is changed in
        that case.
        """


class Runtime(Protocol):
    """One process's. It gets a new one with each start."""

    @property
    def random(self) -> random.Random:
        """Seeded by the run, the node and the start."""

    @property
    def storage(self) -> Storage: ...

    def read_file(self, path: str) -> bytes:
        """A file of the node by absolute path, such as one of ``System.files``. ``FileNotFoundError``."""

    @property
    def host_name(self) -> str:
        """The host name of the machine that this process runs on; in the simulation, the name of its node."""

    def wall_clock(self) -> float:
        """Seconds since 1970 by this node's clock, which the fault ``clock`` makes wrong."""

    def event_log(self, line: str) -> None:
        """One JSON line of the node's event log, without newline."""

    def zookeeper(self, servers: str, session_timeout: float) -> Any:
        """A client, not yet connected, with kazoo's vocabulary and coroutines; ``servers`` is ``host:port,...``.

        ``cluster/sim/zookeeper/client.py`` is the simulated one.
        """

    def hold(self) -> None:
        """Stops this process as SIGSTOP would; returns after it has been continued."""
