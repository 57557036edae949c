"""The times in a history: integer nanoseconds since the run began, strictly increasing.

Two equal stamps would hide which of two events came first, and with it a violation, so that every reading is at least
one nanosecond above the last one. The running loop's clock is the only source: in the simulation that is virtual time,
where many things happen at one instant.
"""

import asyncio

import msgspec

NANOSECONDS = 1_000_000_000


class Origin(msgspec.Struct, frozen=True):
    """When a run began: ``loop`` in seconds of its loop's clock, ``wall`` in seconds since 1970."""

    loop: float
    wall: float


class Stamps:
    """The clock of one run. Everything that goes into one history takes its times from one instance."""

    __slots__ = ("_last", "_origin", "_time")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Begins the run now, by ``loop`` or else by the running loop."""
        self._time = (loop or asyncio.get_running_loop()).time
        self._origin = self._time()
        self._last = -1

    def now(self) -> int:
        """Nanoseconds since the run began; greater than every earlier answer."""
        now = int((self._time() - self._origin) * NANOSECONDS)
        if now <= self._last:
            now = self._last + 1
        self._last = now
        return now

    def at(self, loop_time: float) -> int:
        """Nanoseconds since the run began at a moment of the loop's clock, in seconds. No stamp of its own."""
        return int((loop_time - self._origin) * NANOSECONDS)

    def loop_time(self, stamp: int) -> float:
        """The loop's time, in seconds, at which ``stamp`` is or was due: what ``loop.call_at`` takes."""
        return self._origin + stamp / NANOSECONDS
