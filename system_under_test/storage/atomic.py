"""Replacing a small file so that a crash at any instant leaves the old content or the new one, whole.

The four steps are the only order that holds on every POSIX file system: write a temporary file next to the target,
fsync it (or the rename may become durable before the bytes), rename it over the target, fsync the folder (or the
rename itself may be lost).
"""

import asyncio
import posixpath

from assay.system_under_test.runtime import Storage

TEMPORARY_SUFFIX = ".tmp"


class NoteFile:
    """A small file in the folder of a log, which is written by one call after the other, and no more once the folder is
    about to be removed.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._writing = asyncio.Lock()
        self._closed = False

    async def close(self) -> None:
        """The directory is about to be removed: nothing is written from now on."""
        async with self._writing:
            self._closed = True


async def write_atomic(storage: Storage, path: str, data: bytes) -> None:
    """Durably replaces ``path`` by ``data``; the parent folder must exist.

    Two calls for one path must not overlap, because they share the temporary file: callers that may write concurrently
    hold a lock. Raises ``OSError`` as the storage does; the target then has its old content or the new one.
    """
    temporary = path + TEMPORARY_SUFFIX
    storage.write_bytes(temporary, data)
    await storage.fsync(temporary)
    storage.rename(temporary, path)
    await storage.fsync_directory(posixpath.dirname(path))
