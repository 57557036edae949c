"""Failures of a simulated disk: a change is rejected, or the process ends just before or just after it."""

import errno
import os
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Protocol

from assay.cluster.node import DiskChange, DiskErrorEffects


class Killable(Protocol):
    """A process, as a failing disk sees it."""

    def kill(self) -> None: ...


class DiskRejectionError(OSError):
    """The error of a change while the disk fails or is full. A process may end because of it."""

    @classmethod
    def of(cls, number: int) -> "DiskRejectionError":
        """Returns the error with the operating system's text for an error number."""
        return cls(number, os.strerror(number))


@dataclass
class DiskFailurePlan:
    """Plan of a failure: ``after`` more changes of these kinds succeed, and the next ``errors`` ones are rejected.

    With ``errors`` 0 the process ends instead, before the change, or after it if ``after_change``.
    """

    changes: Collection[DiskChange] = ()
    after: int = 0
    errors: int = 1
    after_change: bool = False
    so_far: DiskErrorEffects = field(default_factory=DiskErrorEffects)
    counted: Counter[Killable] = field(default_factory=Counter)
    """Number of changes that each process has made or tried, without fsyncs."""

    def strikes(self, change: DiskChange) -> bool:
        """Returns whether the plan strikes the change that is about to be made."""
        if change not in self.changes:
            return False
        if self.after:
            self.after -= 1
            return False
        return True

    def reject(self) -> DiskRejectionError:
        """Counts a rejection and returns its error."""
        self.errors -= 1
        if not self.errors:
            self.changes = ()
        self.so_far = replace(self.so_far, errors=self.so_far.errors + 1)
        return DiskRejectionError.of(errno.EIO)

    def end(self, process: Killable) -> None:
        """Ends the process, once, and counts it."""
        self.changes = ()
        self.so_far = replace(self.so_far, ends=self.so_far.ends + 1)
        process.kill()


class ChangeGuard:
    """Wraps each change that one process makes on its disk: ``with changing(DiskChange.WRITE): ...``.

    Raises :class:`Rejected`. If the process has ended, it raises the error of ``check``, before or after the body. The
    body must not await.
    """

    __slots__ = ("_breaking", "_check", "_ends", "_process")

    def __init__(self, breaking: DiskFailurePlan, process: Killable | None, check: Callable[[], None]) -> None:
        self._breaking = breaking
        self._process = process
        self._check = check
        self._ends = False

    def __call__(self, change: DiskChange) -> "ChangeGuard":
        breaking, process = self._breaking, self._process
        if process is not None and change is not DiskChange.FSYNC:
            breaking.counted[process] += 1
        if breaking.changes and process is not None and breaking.strikes(change):
            if breaking.errors:
                raise breaking.reject()
            if breaking.after_change:
                self._ends = True
            else:
                breaking.end(process)
                self._check()
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        if self._ends and self._process is not None:
            self._ends = False
            self._breaking.end(self._process)
            self._check()
