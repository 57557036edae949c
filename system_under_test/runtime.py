"""The seams between the broker and the world it runs in.

Everything that could differ between two runs of the same broker reaches it through one :class:`Runtime`: the wall
clock, randomness, ZooKeeper, files and the event log. Sockets and monotonic time come from the running asyncio loop
(``asyncio.start_server``, ``asyncio.open_connection``, ``loop.time()``, ``asyncio.sleep``). That is all that lets the
same broker code run in a container and inside a deterministic simulation; code below this package never reaches
around it (no ``time.time()``, ``os.urandom``, ``uuid4``, module-level ``random``, threads or ``open()``).

The vocabulary of the ZooKeeper seam is kazoo's: ``kazoo.exceptions``, ``ZnodeStat``, ``WatchedEvent``, ``KazooState``
and the request tuples ``Create``, ``Delete``, ``SetData``, ``CheckVersion`` of ``kazoo.protocol.serialization``.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kazoo.protocol.states import WatchedEvent, ZnodeStat

Watch = Callable[[WatchedEvent], None]
StateListener = Callable[[str], None]


class ZooKeeper(Protocol):
    """One ZooKeeper client; a session that is lost is replaced by a new one without being asked.

    Ordering: callbacks (watches, state changes) and results arrive on the event loop in the order in which the
    client learned of them, so a watch fires before any later read can return the change that caused it.

    Watches are one-shot. A watch fires with its event's type, or with type ``"NONE"`` when the connection is lost;
    in both cases it is gone, and its owner reads again.

    Errors are kazoo's. ``ConnectionLoss`` (and ``SessionExpiredError`` for a request already sent) mean that the
    outcome is unknown. Requests made while suspended wait for the connection or for the end of the session.
    """

    @property
    def session_id(self) -> int:
        """The current session; 0 while there is none. Equals ``ephemeralOwner`` of what this session created."""

    @property
    def session_timeout(self) -> float:
        """Seconds, as negotiated with the server."""

    @property
    def alive_until(self) -> float:
        """Loop time up to which the session ``session_id`` has not expired, if the servers' clocks run like ours.

        When the latest request that was answered had been *sent*, plus the session's timeout; 0.0 without a session.
        Look at it before acting on ephemerals of your own: a client that is cut off is not notified of an expiry.
        """

    def add_listener(self, listener: StateListener) -> None:
        """``listener(state)`` runs on the event loop for each change: CONNECTED, SUSPENDED, LOST (KazooState)."""

    async def connect(self, timeout: float) -> None:
        """Raises ``ConnectionError`` naming the servers when there is no session within ``timeout`` seconds."""

    async def close(self) -> None: ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]: ...

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None: ...

    async def get_children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted."""

    async def create(
        self, path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, makepath: bool = False
    ) -> str: ...

    async def set(self, path: str, value: bytes, version: int = -1) -> ZnodeStat: ...

    async def delete(self, path: str, version: int = -1) -> None: ...

    async def multi(self, operations: Sequence[Any]) -> list[Any]:
        """All or nothing. Raises the error of the operation that failed; results are as in a single call."""

    async def sync(self, path: str) -> None: ...


class Slice(Protocol):
    """A range of stored bytes that knows how it best goes out to a connection."""

    @property
    def size(self) -> int: ...

    def read(self) -> bytes: ...

    async def send(self, writer: asyncio.StreamWriter) -> None: ...


class File(Protocol):
    """An append-only file that can be cut. Append and read are plain calls; making durable is a coroutine."""

    @property
    def size(self) -> int: ...

    def append(self, data: bytes) -> None: ...

    def read(self, position: int, size: int) -> bytes:
        """At most ``size`` bytes; fewer at the end of the file."""

    def slice(self, position: int, size: int) -> Slice: ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Has the file take up at least ``size`` bytes of the disk, which appends then fill; or no more than it holds.

        ``size`` of the file stays as it is. But who opens it again finds zeros in what is not filled, as far as no cut
        and no smaller reservation has given that back. Raises ``OSError`` when there is no room, and does nothing then.
        """

    async def fsync(self) -> None:
        """When it returns, all that had been appended or cut before the call survives a power loss."""

    def close(self) -> None: ...


class Storage(Protocol):
    """A node's disk below one root; paths are relative, with ``/``. Errors are ``OSError``."""

    def open(self, path: str) -> File:
        """Opens for reading and appending; created empty when missing. Parent folders must exist."""

    def read_bytes(self, path: str) -> bytes: ...

    def write_bytes(self, path: str, data: bytes) -> None:
        """Creates or replaces the content; durable only after ``fsync`` of the file and of its folder."""

    async def fsync(self, path: str) -> None: ...

    async def fsync_directory(self, path: str) -> None:
        """Makes creations, renames and removals directly inside the folder durable."""

    def listdir(self, path: str) -> list[str]:
        """Names, sorted; an empty list for a folder that does not exist."""

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
    """What a process of the system gets from the world it runs in."""

    @property
    def random(self) -> random.Random: ...

    @property
    def storage(self) -> Storage: ...

    def read_file(self, path: str) -> bytes:
        """A file of the node by absolute path; for the process's configuration only.

        Raises ``FileNotFoundError``, and ``OSError`` for what is no regular file.
        """

    @property
    def host_name(self) -> str:
        """The host name of the machine that this process runs on; in the simulation, the name of its node."""

    def wall_clock(self) -> float:
        """Seconds since the epoch, by this node's clock, which may be wrong or step."""

    def zookeeper(self, servers: str, session_timeout: float) -> ZooKeeper:
        """A client, not yet connected; ``servers`` is ``host:port,host:port``."""

    def event_log(self, line: str) -> None:
        """One JSON line of the node's event log (without newline), visible to an observer at once."""

    def hold(self) -> None:
        """Stops this process as SIGSTOP would, at once; returns after it has been continued."""
