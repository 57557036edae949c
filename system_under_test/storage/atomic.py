"""Atomic replacement of a small file: a crash at any instant leaves the old or the new content, complete.

Only this order of steps is safe on every POSIX file system:

1. Write a temporary file next to the target.
2. Fsync it; otherwise the rename may become durable before the bytes.
3. Rename it over the target.
4. Fsync the folder; otherwise the rename itself may be lost.
"""

import asyncio
import posixpath

from assay.system_under_test.runtime import Storage

TEMPORARY_SUFFIX = ".tmp"


class LogStateFile:
    """A small file in a log's folder. Subclasses hold the lock ``_writing`` for each write, and write nothing once
    ``_closed``."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._writing = asyncio.Lock()
        self._closed = False

    async def close(self) -> None:
        """Waits for the write in progress, and lets no other begin, because the directory is about to be removed."""
        async with self._writing:
            self._closed = True


async def write_atomic(storage: Storage, path: str, data: bytes) -> None:
    """Durably replaces the content of ``path`` by ``data``; the parent folder must exist.

    Two calls for one path must not overlap, because they use the same temporary file. Callers that may write
    concurrently must hold a lock. Raises the storage's ``OSError``; the target then has its old or its new content.
    """
    temporary = path + TEMPORARY_SUFFIX
    storage.write_bytes(temporary, data)
    await storage.fsync(temporary)
    storage.rename(temporary, path)
    await storage.fsync_directory(posixpath.dirname(path))
