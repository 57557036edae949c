"""How a simulated disk fails its process: a change is rejected, or the process ends just before it."""

import errno
import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Protocol

from assay.cluster.node import Broken, DiskChange


class Mortal(Protocol):
    """A process, as a failing disk sees it."""

    def kill(self) -> None: ...


class Rejected(OSError):
    """What the disk answers to a change while it fails, or is full. A process may end of it."""

    @classmethod
    def of(cls, number: int) -> "Rejected":
        """With the operating system's words for an error number."""
        return cls(number, os.strerror(number))


@dataclass
class Breaking:
    """Of the next changes of these kinds ``after`` are as ever, and as many as ``errors`` are then rejected; with 0 the
    process ends instead.
    """

    changes: Collection[DiskChange] = ()
    after: int = 0
    errors: int = 1
    so_far: Broken = field(default_factory=Broken)

    def before(self, change: DiskChange, process: Mortal | None) -> None:
        """One is about to be made. Raises :class:`Rejected` (EIO), or ends the process and returns."""
        if change not in self.changes or process is None:
            return
        if self.after:
            self.after -= 1
            return
        if self.errors:
            self.errors -= 1
            if not self.errors:
                self.changes = ()
            self.so_far = replace(self.so_far, errors=self.so_far.errors + 1)
            raise Rejected.of(errno.EIO)
        self.changes = ()
        self.so_far = replace(self.so_far, ends=self.so_far.ends + 1)
        process.kill()
