"""Preallocation: segment files that have their final size from the beginning (``preallocate``).

After its last message such a file has zeros, until the segment is rolled or closed properly. A killed process leaves
the zeros. A power loss may also turn bytes that were not fsynced into zeros. At a start, zeros mark the end of such a
log and are no error.

In any other file zeros mean a loss. So a note in the log's folder says that such files may exist; it is written before
the first one, and stays. The topic's settings cannot serve as the note: a log is opened before they are known, and they
change.
"""

import asyncio

from assay.system_under_test.records.message import ENTRY_HEADER, HEADER_SIZE
from assay.system_under_test.runtime import File, Storage
from assay.system_under_test.storage.atomic import LogStateFile, write_atomic

PREALLOCATED = "preallocated"
"""The note in the log's folder; its content means nothing."""
CHUNK = 1 << 20


class PreallocationNote(LogStateFile):
    """The file. It is durable when ``write`` returns."""

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
    """Returns the whole entries at the beginning of a file, judged by their sizes alone, without preallocated zeros."""
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
