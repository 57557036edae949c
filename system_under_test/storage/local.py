"""``Storage`` on the real file system.

Appends and reads are plain system calls: they use the page cache and take microseconds. Only fsync waits for the
device. It runs in the loop's default executor, so that the loop keeps serving.

A file is locked by ``flock(2)``. The kernel releases the lock when the last descriptor is closed, at the latest when
the process ends. Child processes do not inherit the descriptor.

The log relies on three properties:

- An append happens wholly or not at all: a short write (disk full) is truncated before the error is raised.
- After a failed fsync of any file or folder, every later fsync fails, too. Linux drops the dirty pages of a failed
  write-back, and the next fsync succeeds although data are lost (the "fsyncgate" of PostgreSQL, 2018). A checkpoint
  is fsynced, too, so the broker ends at its next checkpoint at the latest.
- A slice being sent is sent unchanged, even if the file is truncated or closed meanwhile.

Large ranges of a file are sent to a connection without copying them into this process. ``loop.sendfile`` is not used,
because it takes the connection away from its transport: reading pauses, a closed transport is not noticed, and an
aborted transport leaves the caller waiting forever.

Instead, ``os.sendfile`` is called only while the transport has nothing to send, and never blocks. If the socket is
full, the next bytes go through the transport in small pieces, because the transport signals when the socket has room.

The kernel queues references to the file's pages, not copies. The pages are read when the peer takes the bytes, perhaps
long after this returns. So the range must never change: see ``LocalFile.truncate``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat

from assay.system_under_test.runtime import IrregularFileError
from assay.system_under_test.storage.atomic import TEMPORARY_SUFFIX

PIECE = 64 * 1024
"""Bytes copied to the transport when the socket is full, so that it can signal room."""


async def send_range(descriptor: int, position: int, size: int, writer: asyncio.StreamWriter) -> None:
    """Sends a range of a file; returns when the kernel has taken all of it.

    Raises ``OSError`` if the connection is lost or the file is too short.
    """
    transport = writer.transport
    socket = writer.get_extra_info("socket")
    low, high = transport.get_write_buffer_limits()
    transport.set_write_buffer_limits(0)  # after a drain the buffer must be empty, so that bytes may bypass it
    try:
        if transport.get_write_buffer_size():
            await writer.drain()
        end = position + size
        while position < end:
            if writer.is_closing():
                raise ConnectionResetError(errno.ECONNRESET, "closed while a range of a file was being sent")
            try:
                sent = os.sendfile(socket.fileno(), descriptor, position, end - position)
            except BlockingIOError:
                piece = os.pread(descriptor, min(end - position, PIECE), position)
                writer.write(piece)
                await writer.drain()
                sent = len(piece)
            if not sent:
                raise OSError(errno.EIO, f"the file ends at {position}, {end - position} bytes early")
            position += sent
    finally:
        transport.set_write_buffer_limits(high, low)


SENDFILE_MIN_BYTES = 4 * 1024 * 1024
"""Size in bytes from which sendfile is faster (``benchmarks/sendfile.py``, docs/contributing/performance.md)."""
HOLDER_BYTES = 64
"""Maximum bytes read from a locked file to name the process that holds the lock."""
OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
"""Flags for a file that is written. A link is not followed, because it may lead to another program's file."""


class FsyncGuard:
    """Runs all fsyncs of one process, and rejects every fsync after one has failed."""

    def __init__(self) -> None:
        self.failed = False
        """Whether an fsync, or the durable replacement of a file, has failed, so that the disk's content is unknown."""

    def require_intact(self, path: str) -> None:
        if self.failed:
            raise OSError(errno.EIO, "an earlier fsync or truncation failed: disk content is unknown, restart", path)

    async def fsync_and_close(self, descriptor: int) -> None:
        """Fsyncs and closes the descriptor. Waits for a running fsync even if the caller is cancelled.

        The kernel reports a failure only once, so an abandoned failure would let the next fsync succeed.
        """
        fsync = asyncio.get_running_loop().run_in_executor(None, self._run, descriptor)
        try:
            await asyncio.shield(fsync)
        except asyncio.CancelledError:
            await asyncio.wait([fsync])
            raise

    def _run(self, descriptor: int) -> None:
        try:
            _fsync_and_close(descriptor)
        except OSError:
            self.failed = True
            raise


class LocalSlice:
    """A range of a file. A small one is read at once when it is sent; a large one uses sendfile."""

    __slots__ = ("_file", "_position", "size")

    def __init__(self, file: LocalFile, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self.size = size

    def read(self) -> bytes:
        """Returns the bytes. Raises ``OSError`` if the file was closed or truncated since."""
        data = self._file.read(self._position, self.size)
        self._require_in_file()
        return data

    async def send(self, writer: asyncio.StreamWriter) -> None:
        """Writes the range to the connection and waits until its buffer has drained. Raises as :meth:`read`."""
        if self.size < SENDFILE_MIN_BYTES or writer.get_extra_info("socket") is None:
            writer.write(self.read())
            await writer.drain()
            return
        self._require_in_file()
        descriptor = self._file.open_for_sendfile(self._position + self.size)
        try:
            await send_range(descriptor, self._position, self.size, writer)
        finally:
            os.close(descriptor)

    def _require_in_file(self) -> None:
        """Raises ``OSError`` if the file has been truncated below the end of the range."""
        left = max(0, self._file.size - self._position)
        if left < self.size:
            raise OSError(errno.EIO, f"only {left} of {self.size} bytes are left at {self._position}", self._file.path)


class LocalFile:
    """An open file. It tracks its own size, because no other process writes to a broker's files."""

    def __init__(self, path: str, fsyncs: FsyncGuard) -> None:
        self.path = path
        self._fsyncs = fsyncs
        self._descriptor = _open_regular(path, OPEN_FLAGS)
        self.size = os.fstat(self._descriptor).st_size
        self._reserved = False
        self._sendfile_end = 0
        """The end of the bytes whose pages may be in the queues of sockets."""

    def append(self, data: bytes) -> None:
        """Appends all of ``data``, or raises ``OSError`` and appends nothing."""
        view = memoryview(data)
        written = 0
        try:
            while written < len(view):
                written += os.pwrite(self._descriptor, view[written:], self.size + written)
        except OSError:
            if written:
                self._truncate_to(self.size)
            raise
        self.size += written

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, min(size, max(0, self.size - position)), position)

    def slice(self, position: int, size: int) -> LocalSlice:
        return LocalSlice(self, position, max(0, min(size, self.size - position)))

    def open_for_sendfile(self, end: int) -> int:
        """Returns a descriptor for sendfile up to ``end``, which the caller must close.

        The bytes up to ``end`` never change again.
        """
        descriptor = os.dup(self._descriptor)
        self._sendfile_end = max(self._sendfile_end, end)
        return descriptor

    def truncate(self, size: int) -> None:
        """Truncates the file. If sockets may still send removed bytes, replaces the file by a copy of the other bytes.

        A truncation zeroes the rest of a page, and later appends fill it. This would change the page in the queues of
        sockets, too. So these sockets keep the pages of the old file. The copy is slow, and durable at once. It is
        rarely needed: a log lets sockets read only committed records from the file, and only an unclean election
        removes those.
        """
        if size < self._sendfile_end:
            self._replace_by_copy(size)
        elif size < self.size or self._reserved:
            self._truncate_to(min(size, self.size))
        self.size = min(size, self.size)

    def reserve(self, size: int) -> None:
        if size > self.size:
            try:
                os.posix_fallocate(self._descriptor, 0, size)
            except OSError:
                self._truncate_to(self.size)
                raise
            self._reserved = True
        elif self._reserved:
            self._truncate_to(self.size)

    def _truncate_to(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._reserved = False

    def _replace_by_copy(self, size: int) -> None:
        temporary = self.path + TEMPORARY_SUFFIX
        copy = _open_regular(temporary, OPEN_FLAGS)
        try:
            os.ftruncate(copy, 0)
            copied = 0
            while copied < size:
                found = os.sendfile(copy, self._descriptor, copied, size - copied)
                if not found:
                    raise OSError(errno.EIO, f"the file ends at {copied}, not at {self.size}", self.path)
                copied += found
            os.fsync(copy)
            os.replace(temporary, self.path)
            _fsync_and_close(os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError:
            os.close(copy)
            self._fsyncs.failed = True  # after a power loss, either file may be at the path
            raise
        os.close(self._descriptor)
        self._descriptor = copy
        self._reserved = False
        self._sendfile_end = 0

    async def fsync(self) -> None:
        self._fsyncs.require_intact(self.path)
        # A duplicate, because the file may be closed, and its descriptor reused, while the executor works.
        await self._fsyncs.fsync_and_close(os.dup(self._descriptor))

    def close(self) -> None:
        """Closes the file; every later use fails with EBADF. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalStorage:
    """Storage in a folder of the machine. Paths begin there, with or without ``/``; ``..`` is a ``ValueError``."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._fsyncs = FsyncGuard()
        self._locks: dict[str, int] = {}
        """Descriptors of locked files, by path. They stay open until the process ends."""
        os.makedirs(self._root, exist_ok=True)

    def open(self, path: str) -> LocalFile:
        return LocalFile(self._absolute(path), self._fsyncs)

    def read_bytes(self, path: str) -> bytes:
        with open(_open_regular(self._absolute(path), os.O_RDONLY), "rb") as file:
            return file.read()

    def write_bytes(self, path: str, data: bytes) -> None:
        with open(_open_regular(self._absolute(path), OPEN_FLAGS), "wb") as file:
            file.truncate()
            file.write(data)

    async def fsync(self, path: str) -> None:
        await self._fsync(self._absolute(path), os.O_RDONLY)

    async def fsync_directory(self, path: str) -> None:
        await self._fsync(self._absolute(path), os.O_RDONLY | os.O_DIRECTORY)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._absolute(path)))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(self._absolute(path))

    def resolve(self, path: str) -> str:
        """Returns the path with symbolic links resolved. If it is outside of the folder, no other method accepts it."""
        relative = os.path.relpath(os.path.realpath(self._absolute(path)), os.path.realpath(self._root))
        return f"/{relative}" if path.startswith("/") else relative

    def mkdir(self, path: str, *, parents: bool = True) -> None:
        absolute = self._absolute(path)
        if parents:
            os.makedirs(absolute, exist_ok=True)
            return
        try:
            os.mkdir(absolute)
        except FileExistsError:
            if not os.path.isdir(absolute):
                raise

    def rename(self, source: str, target: str) -> None:
        os.replace(self._absolute(source), self._absolute(target))

    def remove(self, path: str) -> None:
        absolute = self._absolute(path)
        if os.path.isdir(absolute) and not os.path.islink(absolute):
            os.rmdir(absolute)
        else:
            os.remove(absolute)

    def lock(self, path: str) -> None:
        absolute = self._absolute(path)
        descriptor = _open_regular(absolute, OPEN_FLAGS)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, HOLDER_BYTES, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise make_lock_error(holder, absolute) from error
            raise
        self._locks[path] = descriptor
        with contextlib.suppress(OSError):  # a full disk: the note only informs people, and nothing relies on it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)

    def has_lost_lock(self, path: str) -> bool:
        if path not in self._locks:
            return False
        try:
            found = os.stat(self._absolute(path), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return True
        return not os.path.samestat(found, os.fstat(self._locks[path]))

    def _absolute(self, path: str) -> str:
        if ".." in path.split("/"):
            raise ValueError(f"{path!r} is not a path below the storage's root")
        return os.path.join(self._root, path.lstrip("/"))

    async def _fsync(self, absolute: str, flags: int) -> None:
        self._fsyncs.require_intact(absolute)
        await self._fsyncs.fsync_and_close(os.open(absolute, flags | os.O_CLOEXEC))


def _open_regular(path: str, flags: int) -> int:
    """Opens a file without blocking, because an open of a FIFO could otherwise block forever.

    Raises :class:`IrregularFileError` for a folder, FIFO or device, and for a link if ``flags`` forbid it.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if flags & os.O_NOFOLLOW and os.path.islink(path):
            raise IrregularFileError(
                errno.ELOOP, "this is a symbolic link, and a regular file belongs here: remove it", path
            ) from error
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise _make_irregular_file_error(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _make_irregular_file_error(path)
    return descriptor


def _make_irregular_file_error(path: str) -> IrregularFileError:
    return IrregularFileError(errno.EINVAL, "this is no regular file, but a regular file belongs here: remove it", path)


def make_lock_error(holder: str, path: str) -> BlockingIOError:
    """Returns the error of a failed lock. ``holder`` is the process id in the file, or empty."""
    return BlockingIOError(errno.EWOULDBLOCK, f"process {holder or 'unknown'} holds the lock", path)


def _fsync_and_close(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
