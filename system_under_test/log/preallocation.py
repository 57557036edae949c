"""Preallocation: segment files that have their final size from the beginning (``preallocate``).

A preallocated file has zeros after its last message, until the segment is rolled or closed. A killed process leaves the
zeros, and a power loss may turn bytes that were not fsynced into zeros. A starting broker treats such zeros as the end
of the log.

In any other file zeros mean a loss. So a note in the log's folder says that preallocated files may exist. It is written
before the first such file, and stays. The topic's settings cannot serve as the note, because a log is opened before
they are known, and they change.
"""

import asyncio

from assay.system_under_test.records.message import ENTRY_HEADER, HEADER_SIZE
from assay.system_under_test.runtime import File, Storage
from assay.system_under_test.storage.atomic import LogStateFile, write_atomic

PREALLOCATED = "preallocated"
"""The name of the note in the log's folder. The note's content has no meaning."""
CHUNK = 1 << 20


class PreallocationNote(LogStateFile):
    """The note's file."""

    def __init__(self, storage: Storage, directory: str) -> None:
        super().__init__(storage, f"{directory}/{PREALLOCATED}")

    @property
    def exists(self) -> bool:
        return self._storage.exists(self._path)

    async def write(self) -> None:
        """Durably creates the note if it is missing. Raises ``OSError``."""
        async with self._writing:
            if not self._closed and not self.exists:
                await write_atomic(self._storage, self._path, b"1\n")


def strip_preallocated(data: bytes) -> bytes:
    """Returns the data without preallocated zeros: the whole entries at its beginning, by their size fields alone."""
    position = 0
    while len(data) - position >= HEADER_SIZE:
        size = ENTRY_HEADER.unpack_from(data, position)[1]
        if not 0 < size <= len(data) - position - HEADER_SIZE:
            break
        position += HEADER_SIZE + size
    return data[:position]


async def ends_in_zeros(file: File, position: int) -> bool:
    """Returns whether the file has only zeros from ``position`` on."""
    while position < file.size:
        data = file.read(position, CHUNK)
        if data.strip(b"\0"):
            return False
        position += len(data)
        await asyncio.sleep(0)
    return True
