"""That a log lacks something which it had made durable: what is known of it, and the note of it on the disk.

Damage may be met by a read long after a start, in a segment that the next start would believe without a look. So it is
noted when it is found, in the file ``damaged`` of the log's folder (an offset, and the problem), and the note goes when
the log has been discarded: until then no process takes the log for whole.
"""

from collections.abc import Callable
from typing import NamedTuple

from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.atomic import NoteFile, write_atomic

DAMAGED = "damaged"


class Damage(NamedTuple):
    """The offset at which the good prefix of a log ends, and why."""

    offset: int
    problem: str


class DamageNote(NoteFile):
    """The file. Changes are durable when their call returns."""

    def __init__(self, storage: Storage, directory: str) -> None:
        super().__init__(storage, f"{directory}/{DAMAGED}")
        self._directory = directory

    def read(self) -> Damage | None:
        """A note that makes no sense is one all the same."""
        if not self._storage.exists(self._path):
            return None
        offset, _, problem = self._storage.read_bytes(self._path).decode("utf-8", "replace").strip().partition(" ")
        return Damage(int(offset) if offset.isascii() and offset.isdigit() else 0, problem)

    async def write(self, damage: Callable[[], Damage | None]) -> None:
        """Notes what ``damage`` returns just before the write, if anything. Raises ``OSError``."""
        async with self._writing:
            known = damage()
            if known is not None and not self._closed and self.read() is None:
                await write_atomic(self._storage, self._path, f"{known.offset} {known.problem}\n".encode())

    async def clear(self) -> None:
        """The log has been discarded, durably."""
        async with self._writing:
            if not self._closed and self._storage.exists(self._path):
                self._storage.remove(self._path)
                await self._storage.fsync_directory(self._directory)
