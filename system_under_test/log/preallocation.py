"""Segments whose files are as large as they will grow from the beginning (``preallocate``).

Behind its last message such a file has zeros, until the segment is rolled or closed in order. A process that was killed
leaves them, and so may a loss of power, by which bytes that had not been fsynced become zeros as well. To a start they
are the end of the log, and nothing that is wrong. In any other file they are something that is lost, so a note in the
log's folder says that there may be such files; it is written before the first, and stays. (The topic's settings cannot
say it: a log is opened before they are known, and they change.)
"""

import asyncio

from assay.system_under_test.records.message import ENTRY_HEADER, HEADER_SIZE
from assay.system_under_test.runtime import File, Storage
from assay.system_under_test.storage.atomic import NoteFile, write_atomic

PREALLOCATED = "preallocated"
"""The note in the log's folder; its content means nothing."""
CHUNK = 1 << 20


class PreallocationNote(NoteFile):
    """The file. Durable when ``write`` returns."""

    def __init__(self, storage: Storage, directory: str) -> None:
        super().__init__(storage, f"{directory}/{PREALLOCATED}")

    @property
    def there(self) -> bool:
        return self._storage.exists(self._path)

    async def write(self) -> None:
        """Raises ``OSError``."""
        async with self._writing:
            if not self._closed and not self.there:
                await write_atomic(self._storage, self._path, b"1\n")


def written(data: bytes) -> bytes:
    """The whole entries at the beginning of a file, by their sizes alone, so without what is preallocated."""
    position = 0
    while len(data) - position >= HEADER_SIZE:
        size = ENTRY_HEADER.unpack_from(data, position)[1]
        if not 0 < size <= len(data) - position - HEADER_SIZE:
            break
        position += HEADER_SIZE + size
    return data[:position]


async def ends_in_zeros(file: File, position: int) -> bool:
    """Is there nothing else from ``position`` on?"""
    while position < file.size:
        data = file.read(position, CHUNK)
        if data.strip(b"\0"):
            return False
        position += len(data)
        await asyncio.sleep(0)
    return True
