"""Faults of a simulated disk: it is slow, or it fails.

- Slow: an fsync is delayed in the background, a read or a write blocks its process.
- Failing: a change is rejected, or the process ends just before or just after it.
"""

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Callable, Collection
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Protocol

from assay.cluster.node import DiskChange, DiskErrorEffects, Slowed


class DiskUser(Protocol):
    """The process that a disk slows or fails."""

    def wait(self, seconds: float) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


SECOND_COPY_CALL = 0.002
"""Seconds of a read or a write of a second copy.

Other simulated calls take no time. But a real second copy needs time to read the disk at its start, and the first
process continues meanwhile.
"""


@dataclass
class DiskSlowness:
    """Additional seconds of each ``fsync``, and of each read or write (``call``). Counts the delayed calls.

    ``halt``: the process of the next slow fsync is stopped after this many seconds of the fsync; 0: never.
    """

    fsync: float = 0.0
    call: float = 0.0
    halt: float = 0.0
    so_far: Slowed = field(default_factory=Slowed)
    second: DiskUser | None = None
    """A second copy of a process. Its calls always take ``SECOND_COPY_CALL``, and are not counted."""

    def delay_fsync(self, process: DiskUser | None) -> float:
        """Returns the delay of an fsync that begins now, and counts it."""
        if not self.fsync:
            return 0.0
        self.so_far = replace(self.so_far, fsyncs=self.so_far.fsyncs + 1)
        if self.halt and process is not None:
            after, self.halt = self.halt, 0.0
            asyncio.get_running_loop().call_later(after, self._stop, process, context=Context())
        return self.fsync

    def delay_call(self, process: DiskUser | None) -> None:
        """Delays a read or write that is made now: the process is blocked for that time."""
        if process is not None and process is self.second:
            process.wait(self.call + SECOND_COPY_CALL)
        elif self.call and process is not None:
            self.so_far = replace(self.so_far, calls=self.so_far.calls + 1)
            process.wait(self.call)

    def _stop(self, process: DiskUser) -> None:
        self.so_far = replace(self.so_far, halts=self.so_far.halts + 1)
        process.stop()


class DiskRejectionError(OSError):
    """The error of a change while the disk fails or is full. A process may end because of it."""

    @classmethod
    def of(cls, number: int) -> "DiskRejectionError":
        """Returns the error with the operating system's text for an error number."""
        return cls(number, os.strerror(number))


@dataclass
class DiskFailurePlan:
    """Plan of a failure: ``after`` more changes of these kinds succeed, and the next ``errors`` changes are rejected.

    With ``errors`` 0 the process ends instead, before the change, or after it with ``after_change``.
    """

    changes: Collection[DiskChange] = ()
    after: int = 0
    errors: int = 1
    after_change: bool = False
    so_far: DiskErrorEffects = field(default_factory=DiskErrorEffects)
    counted: Counter[DiskUser] = field(default_factory=Counter)
    """Number of changes that each process has made or tried. Fsyncs do not count."""

    def strikes(self, change: DiskChange) -> bool:
        """Returns whether the plan strikes the change that is about to be made. Counts down ``after``."""
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

    def end(self, process: DiskUser) -> None:
        """Ends the process, once, and counts it."""
        self.changes = ()
        self.so_far = replace(self.so_far, ends=self.so_far.ends + 1)
        process.kill()


class ChangeGuard:
    """Wraps each change that one process makes on its disk: ``with guard(DiskChange.WRITE): ...``.

    Raises :class:`DiskRejectionError`. If the plan ends the process, the guard raises the error of ``require_alive``,
    before or after the body. The body must not await.
    """

    __slots__ = ("_end_after", "_plan", "_process", "_require_alive")

    def __init__(self, plan: DiskFailurePlan, process: DiskUser | None, require_alive: Callable[[], None]) -> None:
        self._plan = plan
        self._process = process
        self._require_alive = require_alive
        self._end_after = False

    def __call__(self, change: DiskChange) -> "ChangeGuard":
        plan, process = self._plan, self._process
        if process is not None and change is not DiskChange.FSYNC:
            plan.counted[process] += 1
        if plan.changes and process is not None and plan.strikes(change):
            if plan.errors:
                raise plan.reject()
            if plan.after_change:
                self._end_after = True
            else:
                plan.end(process)
                self._require_alive()
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        if self._end_after and self._process is not None:
            self._end_after = False
            self._plan.end(self._process)
            self._require_alive()
