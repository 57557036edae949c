"""How slow a simulated disk is: an fsync takes its time in the background, a read or a write stops its process."""

import asyncio
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Protocol

from assay.cluster.node import Slowed


class Stoppable(Protocol):
    """A process, as a slow disk sees it."""

    def wait(self, seconds: float) -> None: ...

    def stop(self) -> None: ...


SECOND_CALL = 0.002
"""Seconds of a read or a write of a second copy. Simulated calls take no time, but no start reads a disk in an instant:
meanwhile the first process goes on.
"""


@dataclass
class Slowness:
    """Seconds that each ``fsync``, and each read or write (``call``), takes in addition; and how often that was.

    ``halt``: after so many seconds of the next fsync that is slow its process is stopped, once; 0: it is not.
    """

    fsync: float = 0.0
    call: float = 0.0
    halt: float = 0.0
    so_far: Slowed = field(default_factory=Slowed)
    second: Stoppable | None = None
    """A second copy of a process. Its calls take ``SECOND_CALL`` in any case, and are not counted."""

    def of_fsync(self, process: Stoppable | None) -> float:
        """Of one that begins now."""
        if not self.fsync:
            return 0.0
        self.so_far = replace(self.so_far, fsyncs=self.so_far.fsyncs + 1)
        if self.halt and process is not None:
            after, self.halt = self.halt, 0.0
            asyncio.get_running_loop().call_later(after, self._stop, process, context=Context())
        return self.fsync

    def of_call(self, process: Stoppable | None) -> None:
        """One is made now, and its process stands still until it returns."""
        if process is not None and process is self.second:
            process.wait(self.call + SECOND_CALL)
        elif self.call and process is not None:
            self.so_far = replace(self.so_far, calls=self.so_far.calls + 1)
            process.wait(self.call)

    def _stop(self, process: Stoppable) -> None:
        self.so_far = replace(self.so_far, halts=self.so_far.halts + 1)
        process.stop()
