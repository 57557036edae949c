"""A slow simulated disk: an fsync is delayed in the background, a read or a write blocks its process."""

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
"""Seconds of a read or a write of a second copy.

Simulated calls normally take no time. But a real start does not read a disk in an instant, and the first process
continues meanwhile.
"""


@dataclass
class DiskSlowness:
    """Additional seconds of each ``fsync``, and each read or write (``call``), and the counts of both.

    ``halt``: seconds into the next slow fsync after which its process is stopped, once; 0: never.
    """

    fsync: float = 0.0
    call: float = 0.0
    halt: float = 0.0
    so_far: Slowed = field(default_factory=Slowed)
    second: Stoppable | None = None
    """A second copy of a process. Its calls always take ``SECOND_CALL``, and are not counted."""

    def of_fsync(self, process: Stoppable | None) -> float:
        """Returns the delay of an fsync that begins now."""
        if not self.fsync:
            return 0.0
        self.so_far = replace(self.so_far, fsyncs=self.so_far.fsyncs + 1)
        if self.halt and process is not None:
            after, self.halt = self.halt, 0.0
            asyncio.get_running_loop().call_later(after, self._stop, process, context=Context())
        return self.fsync

    def of_call(self, process: Stoppable | None) -> None:
        """Delays a call that is made now: its process is blocked until it returns."""
        if process is not None and process is self.second:
            process.wait(self.call + SECOND_CALL)
        elif self.call and process is not None:
            self.so_far = replace(self.so_far, calls=self.so_far.calls + 1)
            process.wait(self.call)

    def _stop(self, process: Stoppable) -> None:
        self.so_far = replace(self.so_far, halts=self.so_far.halts + 1)
        process.stop()
