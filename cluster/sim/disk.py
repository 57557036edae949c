"""A simulated node's disk. It outlives the node's processes, and a power loss takes unsynced data.

The disk keeps two states: the visible one, which processes see (the page cache), and the durable one on the device. A
killed process changes neither. After :meth:`SimDisk.cut_power` only the durable state is left. POSIX does not define
that state completely. In these cases a random generator decides:

- Appended, unsynced bytes: the tail is torn off at a random byte. Blocks before that may be missing, and are zeros.
- Preallocated bytes: they are zeros behind the content. The file has its current size, or that of the last fsync.
  Torn-off content before them becomes zeros, too.
- An unsynced truncation: it survives, or it is undone as a whole, and then later appends are gone.
- Unsynced creations, renames and removals of names: in each folder a random prefix of the operations survives. A rename
  between two folders survives in both or in neither. So a new file may vanish although its bytes were fsynced, and a
  removed file may come back, as POSIX allows.

A disk can be:

- full (``capacity``): a change that does not fit is rejected as a whole, with ENOSPC
- slow (``slowness``): an fsync is delayed in the background, a read or a write blocks its process
- failing (``failure_plan``): a change is rejected as a whole, with EIO, or the process ends just before or after it
- wiped, or rolled back to a snapshot

Not modelled: silent corruption (faults cause it through :meth:`SimDisk.write`), and pages that an fsync ignores because
an earlier fsync failed. The namespace is in :mod:`assay.cluster.sim.filesystem`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple
from zlib import crc32

from assay.cluster.node import DiskChange
from assay.cluster.sim.disk_faults import ChangeGuard, DiskFailurePlan, DiskRejectionError, DiskSlowness, DiskUser
from assay.cluster.sim.filesystem import FileTree, Folder, Inode


@dataclass(frozen=True)
class FolderSnapshot:
    """The content of every file in a folder, by path."""

    folder: str
    files: Mapping[str, bytes]

    @property
    def sums(self) -> dict[str, str]:
        """Size and checksum of each file."""
        return {path: f"{len(data)} {crc32(data):08x}" for path, data in self.files.items()}


class FileState(NamedTuple):
    """State of a file, to be compared with a later one.

    - ``version``: changes if the file is truncated or replaced
    - ``durable``: length of the prefix of the ``size`` bytes that survives any power loss
    """

    version: object
    size: int
    durable: int
    inode: object
    """Reference that keeps the object id in ``version`` from being reused."""

    @property
    def unsynced(self) -> int:
        """How many bytes a power loss could take."""
        return self.size - self.durable


def is_within(path: str, folder: str, *, itself: bool = False) -> bool:
    """Returns whether a path lies in a folder, at any depth; with ``itself`` also whether it is that folder."""
    if itself and path.strip("/") == folder.strip("/"):
        return True
    return f"/{path.strip('/')}".startswith(f"/{folder.strip('/')}/".replace("//", "/"))


UNLIMITED = 1 << 40
"""Bytes."""
FAST_FSYNC = 0.0005
"""Seconds of an fsync on a fast device."""


class DiskAccess(NamedTuple):
    """Access of one process to the disk. The process's storage and its open files share it."""

    require_alive: Callable[[], None]
    """Raises an error if the process is dead."""
    delay_fsync: Callable[[], float]
    """Returns the seconds of an fsync that begins now."""
    delay_call: Callable[[], None]
    """Called for each read or write."""
    require_room: Callable[[int], None]
    """Raises ENOSPC unless this number of further bytes fits."""
    guard: ChangeGuard
    """Wraps each change of the disk, and makes it fail if a fault has planned that."""

    async def fsync(self, inode: Inode) -> None:
        """Fsyncs a file. A rejected fsync fails only after the simulated device delay."""
        begun = inode.begin_fsync()
        try:
            await asyncio.sleep(self.delay_fsync())
            change = self.guard(DiskChange.FSYNC)
        except BaseException:
            inode.abandon_fsync(begun)
            raise
        with change:
            inode.finish_fsync(begun)
        self.require_alive()


class SimDisk:
    """A node's disk. A leading slash in paths is optional: ``/data/x`` is ``data/x``.

    ``capacity``: maximum bytes of content; None for unlimited.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._tree = FileTree()
        self.capacity: int | None = None
        self.slowness = DiskSlowness()
        self.failure_plan = DiskFailurePlan()

    def storage(
        self,
        check: Callable[[], None] = lambda: None,
        fsync_delay: Callable[[], float] = lambda: FAST_FSYNC,
        process: DiskUser | None = None,
        name: str = "",
    ) -> SimStorage:
        """Returns a process's view of the disk.

        - ``check`` is called at the start of every operation and after each fsync's delay. Its errors end the
          operation.
        - ``fsync_delay`` returns the seconds of the next fsync.
        - ``process``: the process that slow calls block and that the disk's failures hit.
        - ``name``: the process's name in locked files.

        After a power loss a view belongs to a dead process and has no effect. A new process needs a new view.
        """
        access = DiskAccess(
            check,
            lambda: fsync_delay() + self.slowness.delay_fsync(process),
            lambda: self.slowness.delay_call(process),
            self._require_room,
            ChangeGuard(self.failure_plan, process, check),
        )
        return SimStorage(self._tree, access, name)

    @property
    def used(self) -> int:
        """Bytes of all files."""
        return sum(self._tree.file(path).size for path in self._tree.files())

    @property
    def free(self) -> int:
        """Bytes of content that still fit; :data:`UNLIMITED` without ``capacity``."""
        return UNLIMITED if self.capacity is None else max(0, self.capacity - self.used)

    def _require_room(self, size: int) -> None:
        if self.capacity is not None and size > self.free:
            raise DiskRejectionError.of(errno.ENOSPC)

    def snapshot(self, folder: str = "", kept: Collection[str] = ()) -> FolderSnapshot:
        """Returns the visible content of a folder, without the files ``kept``, for a rollback."""
        excluded = {path.strip("/") for path in kept}
        paths = (path for path in self.files() if is_within(path, folder) and path not in excluded)
        return FolderSnapshot(folder, {path: self.read(path) for path in paths})

    def roll_back(self, snapshot: FolderSnapshot, kept: Collection[str] = ()) -> None:
        """Restores the snapshot durably. Removes all other files. Processes must be dead."""
        self.wipe(snapshot.folder, kept)
        for path, data in snapshot.files.items():
            self.write(path, data)

    def wipe(self, folder: str = "", kept: Collection[str] = ()) -> None:
        """Removes everything below the folder except the files ``kept``. Processes must be dead."""
        for name in self.names(folder):
            path = f"{folder}/{name}"
            if not any(is_within(one, path, itself=True) for one in kept):
                self.remove(path)
            elif isinstance(self._tree.find(path), Folder):
                self.wipe(path, kept)

    def cut_power(self) -> None:
        """Loses all data that are not durable. Processes must be dead."""
        self._tree = self._tree.after_power_loss(self._random)

    def files(self) -> list[str]:
        """Returns the paths of all files, sorted."""
        return self._tree.files()

    def sizes(self, pattern: str) -> dict[str, int]:
        """Returns the paths of the matching files, sorted, with their sizes."""
        return {path: inode.size for path, inode in self._tree.matching(pattern).items()}

    def read(self, path: str) -> bytes:
        """Returns a file's visible content. Raises ``FileNotFoundError``."""
        return self._tree.file(path).whole

    def names(self, folder: str) -> list[str]:
        """Returns the visible names in a folder, in no order; empty if there is no such folder."""
        node = self._tree.find(folder)
        return list(node.entries) if isinstance(node, Folder) else []

    def tail(self, path: str, position: int) -> bytes:
        """Returns a file's written bytes from ``position`` on. Raises ``FileNotFoundError``."""
        return bytes(self._tree.file(path).content[position:])

    def state(self, path: str) -> FileState:
        """Returns the current state of a file's written bytes. Raises ``FileNotFoundError``."""
        inode = self._tree.file(path)
        durable = inode.durable.size if self._tree.is_durable(path) else 0
        return FileState((id(inode), inode.cuts), len(inode.content), durable, inode)

    def write(self, path: str, data: bytes) -> None:
        """Replaces or creates a file durably, as the harness. Creates missing folders."""
        self._tree.mkdir(posixpath.dirname(path))
        inode = self._tree.file(path, create=True)
        inode.truncate(0)
        inode.content += data
        inode.fsync()
        self._tree.make_names_durable(path)

    def make_folder(self, path: str) -> None:
        """Creates a folder and its parents durably, as the harness. It is no error if the folder exists."""
        self._tree.mkdir(path)
        self._tree.make_names_durable(path)

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with its content, durably, as the harness."""
        self._tree.remove(path)
        self._tree.make_names_durable(path)


class SimSlice:
    """A range of a simulated file, which is read only when it is sent."""

    __slots__ = ("_file", "_position", "size")

    def __init__(self, file: SimFile, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self.size = size

    def read(self) -> bytes:
        data = self._file.read(self._position, self.size)
        if len(data) != self.size:
            raise OSError(errno.EIO, f"only {len(data)} of {self.size} bytes are left at {self._position}")
        return data

    async def send(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self.read())
        await writer.drain()


class SimFile:
    """An open file. Like a file descriptor, it still works when the file's name is removed."""

    __slots__ = ("_access", "_closed", "_inode", "size")

    def __init__(self, inode: Inode, access: DiskAccess) -> None:
        self._inode = inode
        self._access = access
        self._closed = False
        self.size = len(inode.content)
        """Size that this process knows. Writes of a second process change the content, but not this size."""

    def append(self, data: bytes) -> None:
        self._require_open()
        self._access.delay_call()
        with self._access.guard(DiskChange.WRITE):
            self._access.require_room(self.size + len(data) - self._inode.size)
            self._inode.write(self.size, data)
            self.size += len(data)

    def read(self, position: int, size: int) -> bytes:
        self._require_open()
        self._access.delay_call()
        end = min(position + size, self.size)
        return bytes(memoryview(self._inode.content)[position:end])

    def slice(self, position: int, size: int) -> SimSlice:
        self._require_open()
        return SimSlice(self, position, max(0, min(size, self.size - position)))

    def truncate(self, size: int) -> None:
        self._require_open()
        with self._access.guard(DiskChange.CUT):
            self._inode.truncate(size)
            self.size = min(size, self.size)

    def reserve(self, size: int) -> None:
        self._require_open()
        with self._access.guard(DiskChange.CUT):
            self._access.require_room(size - self._inode.size)
            self._inode.reserved = size if size > len(self._inode.content) else 0

    async def fsync(self) -> None:
        self._require_open()
        await self._access.fsync(self._inode)

    def close(self) -> None:
        self._access.require_alive()
        self._closed = True

    def _require_open(self) -> None:
        self._access.require_alive()
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class SimStorage:
    """A process's view of a disk. ``name``: the process's name in locked files.

    It has the methods of ``assay.cluster.runtime.Storage`` and of the broker's own interface of storage.
    """

    def __init__(self, tree: FileTree, access: DiskAccess, name: str) -> None:
        self._file_tree = tree
        self._access = access
        self._name = name
        self._locks: dict[str, Inode] = {}
        """The locked files, by path."""

    def open(self, path: str) -> SimFile:
        inode = self._require_tree().file(_to_absolute(path), create=True)
        inode.fill_reserved_space()
        return SimFile(inode, self._access)

    def read_bytes(self, path: str) -> bytes:
        inode = self._require_tree().file(_to_absolute(path))
        self._access.delay_call()
        return inode.whole

    def write_bytes(self, path: str, data: bytes) -> None:
        inode = self._require_tree().file(_to_absolute(path), create=True)
        self._access.delay_call()
        inode.truncate(0)
        with self._access.guard(DiskChange.WRITE):
            self._access.require_room(len(data))
            inode.content += data

    async def fsync(self, path: str) -> None:
        await self._access.fsync(self._require_tree().file(_to_absolute(path)))

    async def fsync_directory(self, path: str) -> None:
        tree = self._require_tree()
        folder = tree.folder(_to_absolute(path))
        count = tree.count_changes()
        await asyncio.sleep(self._access.delay_fsync())
        with self._access.guard(DiskChange.FSYNC):
            tree.commit(folder, count)
        self._access.require_alive()

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(self._require_tree().folder(_to_absolute(path)).entries)
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return self._require_tree().find(_to_absolute(path)) is not None

    def resolve(self, path: str) -> str:
        self._access.require_alive()
        return posixpath.normpath(path)

    def mkdir(self, path: str, *, parents: bool = True) -> None:
        tree = self._require_tree()
        if not parents:
            tree.folder(posixpath.dirname(_to_absolute(path)))
        if not isinstance(tree.find(_to_absolute(path)), Folder):
            with self._access.guard(DiskChange.NAME):
                tree.mkdir(_to_absolute(path))

    def rename(self, source: str, target: str) -> None:
        tree = self._require_tree()
        with self._access.guard(DiskChange.NAME):
            tree.rename(_to_absolute(source), _to_absolute(target))

    def remove(self, path: str) -> None:
        tree = self._require_tree()
        with self._access.guard(DiskChange.NAME):
            tree.remove(_to_absolute(path))

    def lock(self, path: str) -> None:
        inode = self._require_tree().file(_to_absolute(path), create=True)
        if inode.holds_lock is not None and inode.holds_lock():
            holder = inode.whole.decode("ascii", "replace").strip()
            raise BlockingIOError(errno.EWOULDBLOCK, f"process {holder or 'unknown'} holds the lock", path)
        inode.holds_lock = self._is_alive
        inode.truncate(0)
        inode.write(0, f"{self._name}\n".encode())
        self._locks[path] = inode

    def has_lost_lock(self, path: str) -> bool:
        return path in self._locks and self._require_tree().find(_to_absolute(path)) is not self._locks[path]

    def _is_alive(self) -> bool:
        try:
            self._access.require_alive()
        except OSError:
            return False
        return True

    def _require_tree(self) -> FileTree:
        """Returns the file tree. Raises an error if the process is dead."""
        self._access.require_alive()
        return self._file_tree


def _to_absolute(path: str) -> str:
    if ".." in path.split("/"):
        raise ValueError(f"{path!r} is not a path below the storage's root")
    return f"/{path.lstrip('/')}"
