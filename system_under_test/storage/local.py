"""``Storage`` on the real file system.

Appends and reads are plain system calls: they touch the page cache and take microseconds. Only fsync, which waits
for the device, goes to the running loop's default executor, so that the loop goes on serving meanwhile.

Two properties that the log relies on:

- An append happens wholly or not at all: a short write (disk full) is cut off again before the error is raised.
- After a failed fsync the file refuses every later one. Linux drops the dirty pages of a failed write-back and lets
  the next fsync succeed, which would be a false promise (the "fsyncgate" of PostgreSQL, 2018).
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil

OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class LocalSlice:
    """A range of a file. It reads when it is sent, at once and whole, so no cut can come between two of its parts."""

    __slots__ = ("_file", "_position", "_size")

    def __init__(self, file: LocalFile, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self._size = size

    @property
    def size(self) -> int:
        """Bytes; never more than the file had when the slice was made."""
        return self._size

    def read(self) -> bytes:
        """The bytes. Raises ``OSError`` when the file was closed or cut since."""
        data = self._file.read(self._position, self._size)
        if len(data) != self._size:
            left = f"only {len(data)} of {self._size} bytes are left at {self._position}"
            raise OSError(errno.EIO, left, self._file.path)
        return data

    async def send(self, writer: asyncio.StreamWriter) -> None:
        """Writes the range to the connection and waits until its buffer has drained."""
        writer.write(self.read())
        await writer.drain()


class LocalFile:
    """An open file; keeps its size itself, because nobody else writes to a broker's files while it runs."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, OPEN_FLAGS, 0o644)
        self._size = os.fstat(self._descriptor).st_size
        self._failed = False

    @property
    def size(self) -> int:
        return self._size

    def append(self, data: bytes) -> None:
        """All of ``data``, or an ``OSError`` and nothing."""
        view = memoryview(data)
        written = 0
        try:
            while written < len(view):
                written += os.pwrite(self._descriptor, view[written:], self._size + written)
        except OSError:
            if written:
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += written

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, min(size, max(0, self._size - position)), position)

    def slice(self, position: int, size: int) -> LocalSlice:
        return LocalSlice(self, position, max(0, min(size, self._size - position)))

    def truncate(self, size: int) -> None:
        if size < self._size:
            os.ftruncate(self._descriptor, size)
            self._size = size

    async def fsync(self) -> None:
        if self._failed:
            raise OSError(errno.EIO, "an earlier fsync failed: what is on the disk is unknown, restart", self.path)
        # A duplicate, because the file may be closed, and its number given to another, while the executor works.
        descriptor = os.dup(self._descriptor)
        try:
            await asyncio.get_running_loop().run_in_executor(None, _fsync_and_close, descriptor)
        except OSError:
            self._failed = True
            raise

    def close(self) -> None:
        """Idempotent; every later use fails with EBADF."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalStorage:
    """A folder of the machine. Paths are relative to it and may not leave it (``ValueError``)."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        os.makedirs(self._root, exist_ok=True)

    def open(self, path: str) -> LocalFile:
        return LocalFile(self._absolute(path))

    def read_bytes(self, path: str) -> bytes:
        with open(self._absolute(path), "rb") as file:
            return file.read()

    def write_bytes(self, path: str, data: bytes) -> None:
        with open(self._absolute(path), "wb") as file:
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

    def mkdir(self, path: str) -> None:
        os.makedirs(self._absolute(path), exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(self._absolute(source), self._absolute(target))

    def remove(self, path: str) -> None:
        absolute = self._absolute(path)
        if os.path.isdir(absolute) and not os.path.islink(absolute):
            shutil.rmtree(absolute)
        else:
            os.remove(absolute)

    def _absolute(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} is not a path below the storage's root")
        return os.path.join(self._root, path)

    async def _fsync(self, absolute: str, flags: int) -> None:
        descriptor = os.open(absolute, flags | os.O_CLOEXEC)
        await asyncio.get_running_loop().run_in_executor(None, _fsync_and_close, descriptor)


def _fsync_and_close(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
