"""Interface that a simulated process gets as the first argument of its main coroutine, ``System.entry``.

Sockets and time come from asyncio: ``start_server``, ``open_connection``, ``sleep``, ``loop.time()``. Everything else
that could differ between two runs comes from this interface. If code bypasses it (``time.time()``, ``open()``, threads,
the module ``random``), a seed does not repeat its runs, and faults do not affect its files.
"""

import random
from collections.abc import Sequence
from typing import Any, Protocol


class File(Protocol):
    """An append-only file that can be truncated. Only fsynced data survive a power loss."""

    @property
    def size(self) -> int: ...

    def append(self, data: bytes) -> None: ...

    def read(self, position: int, size: int) -> bytes:
        """Returns at most ``size`` bytes; fewer at the end of the file."""

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Preallocates at least ``size`` bytes for the file on the disk.

        A reader that opens the file again sees zeros in the unused space.
        """

    async def fsync(self) -> None: ...

    def close(self) -> None: ...


class Storage(Protocol):
    """The node's disk. Paths start at its root: ``var/x`` and ``/var/x`` are the same file.

    The creation of a file or folder survives a power loss once its parent folder is fsynced (``fsync_directory``).
    Errors are ``OSError``.
    """

    def open(self, path: str) -> File:
        """Opens a file for reading and appending, and creates it if it is missing. Its folder must exist."""

    def read_bytes(self, path: str) -> bytes: ...

    def write_bytes(self, path: str, data: bytes) -> None:
        """Creates the file or replaces its content."""

    async def fsync(self, path: str) -> None: ...

    async def fsync_directory(self, path: str) -> None:
        """Makes creations, renames and removals directly inside the folder durable; ``""`` is the root."""

    def listdir(self, path: str) -> Sequence[str]:
        """Returns the names, sorted; none if the folder does not exist."""

    def exists(self, path: str) -> bool: ...

    def resolve(self, path: str) -> str:
        """Returns the path with symbolic links resolved. A simulated disk has none."""

    def mkdir(self, path: str, *, parents: bool = True) -> None:
        """Creates the folder, with its ``parents`` if they are missing. It is no error if the folder exists."""

    def rename(self, source: str, target: str) -> None:
        """Renames atomically; replaces a file at ``target``."""

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with its contents."""

    def lock(self, path: str) -> None:
        """Locks a file until this process has ended. Creates the file empty if it is missing.

        The lock is an advisory lock of the kernel: a killed process or a power loss releases it, a stopped process
        keeps it. Raises ``BlockingIOError`` if a live process holds the lock; ``strerror`` then names the holder.
        Nothing is changed in that case.
        """

    def has_lost_lock(self, path: str) -> bool:
        """Returns whether the file at ``path`` that this process has locked was removed or replaced since."""


class Runtime(Protocol):
    """Everything that one process gets from its environment. Each start of a process gets a new runtime."""

    @property
    def random(self) -> random.Random:
        """Random source, seeded by the run, the node and the start."""

    @property
    def storage(self) -> Storage: ...

    def read_file(self, path: str) -> bytes:
        """Returns a file of the node by absolute path, such as one of ``System.files``.

        Raises ``FileNotFoundError``.
        """

    @property
    def host_name(self) -> str:
        """The host name of the machine that this process runs on; in the simulation, the name of its node."""

    def wall_clock(self) -> float:
        """Returns seconds since 1970 by this node's clock, which the fault ``clock`` shifts."""

    def event_log(self, line: str) -> None:
        """Writes one JSON line, given without newline, to the node's event log."""

    def zookeeper(self, servers: str, session_timeout: float) -> Any:
        """Returns an unconnected client with kazoo's interface as coroutines; ``servers`` is ``host:port,...``.

        ``cluster/sim/zookeeper/client.py`` is the simulated client.
        """

    def hold(self) -> None:
        """Stops this process as SIGSTOP would; returns after it has been continued."""
