"""The interfaces between the broker and the world it runs in.

Everything that could differ between two runs of the same broker reaches it through one :class:`Runtime`: the wall
clock, randomness, ZooKeeper, files and the event log. Sockets and monotonic time come from the running asyncio loop
(``asyncio.start_server``, ``asyncio.open_connection``, ``loop.time()``, ``asyncio.sleep``).

This lets the same broker code run in a container and inside a deterministic simulation. No other code of the broker
bypasses the runtime by ``time.time()``, ``os.urandom``, ``uuid4``, module-level ``random``, threads or ``open()``.

The ZooKeeper interface uses kazoo's types: ``kazoo.exceptions``, ``ZnodeStat``, ``WatchedEvent``, ``KazooState`` and
the request tuples ``Create``, ``Delete``, ``SetData``, ``CheckVersion`` of ``kazoo.protocol.serialization``.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kazoo.protocol.states import WatchedEvent, ZnodeStat

Watch = Callable[[WatchedEvent], None]
StateListener = Callable[[str], None]


class ZooKeeper(Protocol):
    """A ZooKeeper client, which replaces a lost session by a new one automatically.

    - Ordering: callbacks (watches, state changes) and results arrive on the event loop in the order in which the client
      learned of them. So a watch fires before any later read can return the change that caused it.
    - Watches are one-shot. A watch fires with its event's type, or with type ``"NONE"`` when the connection is lost. In
      both cases it is gone, and its owner must read again.
    - Errors are kazoo's. ``ConnectionLoss`` (and ``SessionExpiredError`` for a request already sent) mean that the
      outcome is unknown. Requests made while suspended wait for the connection or for the end of the session.
    """

    @property
    def session_id(self) -> int:
        """The current session; 0 while there is none.

        Equals ``ephemeralOwner`` of the znodes that this session created.
        """

    @property
    def session_timeout(self) -> float:
        """Seconds, as negotiated with the server."""

    @property
    def alive_until(self) -> float:
        """Loop time until which the session cannot expire, if the servers' clocks run at the same rate as this one.

        It is the time at which the latest answered request was *sent*, plus the session's timeout; 0.0 without a
        session. Check it before acting on ephemerals of this session: a client that is cut off is not notified of the
        expiry.
        """

    def add_listener(self, listener: StateListener) -> None:
        """Registers a listener: ``listener(state)`` runs on the event loop for each change (KazooState)."""

    async def connect(self, timeout: float) -> None:
        """Raises ``ConnectionError`` naming the servers if there is no session within ``timeout`` seconds."""

    async def close(self) -> None: ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]: ...

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None: ...

    async def get_children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Returns the names, sorted."""

    async def create(
        self, path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, makepath: bool = False
    ) -> str: ...

    async def set(self, path: str, value: bytes, version: int = -1) -> ZnodeStat: ...

    async def delete(self, path: str, version: int = -1) -> None: ...

    async def multi(self, operations: Sequence[Any]) -> list[Any]:
        """Performs all operations or none. Raises the failed operation's error; results are as in single calls."""

    async def sync(self, path: str) -> None: ...


class Slice(Protocol):
    """A range of stored bytes. ``send`` sends them to a connection in the most efficient way."""

    @property
    def size(self) -> int: ...

    def read(self) -> bytes: ...

    async def send(self, writer: asyncio.StreamWriter) -> None: ...


class File(Protocol):
    """An append-only file that can be truncated. Append and read are plain calls; fsync is a coroutine."""

    @property
    def size(self) -> int: ...

    def append(self, data: bytes) -> None: ...

    def read(self, position: int, size: int) -> bytes:
        """Returns at most ``size`` bytes; fewer at the end of the file."""

    def slice(self, position: int, size: int) -> Slice: ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Makes the file take up at least ``size`` bytes of disk space, for later appends; a smaller size shrinks it.

        The property ``size`` does not change. But a process that opens the file later finds zeros in the unfilled part,
        unless a truncation or a smaller reservation has released that part. Raises ``OSError``, and does nothing, if
        the disk is full.
        """

    async def fsync(self) -> None:
        """Makes everything appended or truncated before the call survive a power loss."""

    def close(self) -> None: ...


class IrregularFileError(FileExistsError):
    """A link, a folder, a FIFO or a device is in the place of a regular file; nothing was changed.

    A write through a link could destroy another program's file.
    """


class Storage(Protocol):
    """A node's disk below one root, at which all paths begin, with or without ``/``. Errors are ``OSError``."""

    def open(self, path: str) -> File:
        """Opens for reading and appending; creates an empty file if missing. Parent folders must exist.

        Raises :class:`IrregularFileError`.
        """

    def read_bytes(self, path: str) -> bytes:
        """Returns the content, also that of a file behind a link. Raises :class:`IrregularFileError` for a FIFO."""

    def write_bytes(self, path: str, data: bytes) -> None:
        """Creates or replaces the content; durable only after ``fsync`` of the file and of its folder.

        Raises :class:`IrregularFileError`.
        """

    async def fsync(self, path: str) -> None: ...

    async def fsync_directory(self, path: str) -> None:
        """Makes creations, renames and removals directly inside the folder durable."""

    def listdir(self, path: str) -> list[str]:
        """Returns the names, sorted; an empty list for a folder that does not exist.

        Raises ``NotADirectoryError`` for a file.
        """

    def exists(self, path: str) -> bool: ...

    def resolve(self, path: str) -> str:
        """Returns the path without symbolic links; parts of it need not exist."""

    def mkdir(self, path: str, *, parents: bool = True) -> None:
        """Creates a folder, with its ``parents`` if they are missing; no error if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Renames atomically; replaces a file at ``target``."""

    def remove(self, path: str) -> None:
        """Removes a file or an empty folder. A folder with content is never removed: it may hold a user's files."""

    def lock(self, path: str) -> None:
        """Takes the lock of a file, which is created empty if missing, until this process has ended.

        It is an advisory lock of the kernel: a killed process or a power loss releases it, a stopped process keeps it.
        Raises ``BlockingIOError``, and changes nothing, if a live process holds the lock; ``strerror`` then names it.
        """

    def has_lost_lock(self, path: str) -> bool:
        """Returns whether this process has locked a file at ``path``, and another file, or none, is there now."""


class Runtime(Protocol):
    """The interface by which a process of the system reaches the world it runs in."""

    @property
    def random(self) -> random.Random: ...

    @property
    def storage(self) -> Storage: ...

    def read_file(self, path: str) -> bytes:
        """Reads a node's file by absolute path; for the process's configuration only.

        Raises ``FileNotFoundError``, and ``OSError`` for a file that is not regular.
        """

    @property
    def host_name(self) -> str:
        """The host name of the machine that this process runs on; in the simulation, the name of its node."""

    def wall_clock(self) -> float:
        """Returns seconds since the epoch by this node's clock, which may be wrong or jump."""

    def zookeeper(self, servers: str, session_timeout: float) -> ZooKeeper:
        """Returns a client that is not yet connected; ``servers`` is ``host:port,host:port``."""

    def event_log(self, line: str) -> None:
        """Writes one JSON line (without newline) to the node's event log, visible to an observer at once."""

    def hold(self) -> None:
        """Stops this process as SIGSTOP would, at once; returns after it has been continued."""
