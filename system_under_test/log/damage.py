"""The note that a log has lost durable records: the file ``damaged`` in its folder, with an offset and the problem.

A read may find damage long after a start, in a segment that the next start would trust without checking. So damage is
noted when it is found. The note is removed when the log has been discarded; until then no process considers the log
complete.
"""

from collections.abc import Callable
from typing import NamedTuple

from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.atomic import LogStateFile, write_atomic

DAMAGED = "damaged"


class Damage(NamedTuple):
    """The offset at which the good prefix of a log ends, and the reason."""

    offset: int
    problem: str


class DamageNote(LogStateFile):
    """The note's file. Each change is durable when its call returns."""

    def __init__(self, storage: Storage, directory: str) -> None:
        super().__init__(storage, f"{directory}/{DAMAGED}")
        self._directory = directory

    def read(self) -> Damage | None:
        """Returns the noted damage; an unreadable note counts as damage, too."""
        if not self._storage.exists(self._path):
            return None
        offset, _, problem = self._storage.read_bytes(self._path).decode("utf-8", "replace").strip().partition(" ")
        return Damage(int(offset) if offset.isascii() and offset.isdigit() else 0, problem)

    async def write(self, find_damage: Callable[[], Damage | None]) -> None:
        """Notes the damage, if any, that ``find_damage`` returns just before the write. Raises ``OSError``."""
        async with self._writing:
            damage = find_damage()
            if damage is not None and not self._closed and self.read() is None:
                await write_atomic(self._storage, self._path, f"{damage.offset} {damage.problem}\n".encode())

    async def clear(self) -> None:
        """Removes the note; the log must have been durably discarded."""
        async with self._writing:
            if not self._closed and self._storage.exists(self._path):
                self._storage.remove(self._path)
                await self._storage.fsync_directory(self._directory)
