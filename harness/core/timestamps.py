"""The clock of a history: integer nanoseconds since the run began, strictly increasing.

Two equal stamps would hide which event came first, and with it a violation. Therefore every reading is at least one
nanosecond above the last. The only source is the running loop's clock. In the simulation this is virtual time, in which
many events happen at one instant.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

NANOSECONDS = 1_000_000_000
FIRST_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""No run or night can have begun before. A clock that was never set begins in 1970."""
MAX_AHEAD: Final = timedelta(days=1)
"""How far in the future a run or a night may begin or end, because the clocks of machines differ."""


def is_possible_time(time: datetime, now: datetime) -> bool:
    """Returns whether a run or a night can have begun at ``time``. Otherwise its clock was wrong."""
    return FIRST_TIME < time <= now + MAX_AHEAD


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a run began: ``loop`` in seconds of its loop's clock, ``wall`` in seconds since 1970.

    ``ahead``: seconds by which the wall clocks of nodes were ahead, by name. Other nodes had the right time.
    """

    loop: float
    wall: float
    ahead: dict[str, float] = {}


class Stamps:
    """The clock of one run. All times of one history come from one instance."""

    __slots__ = ("_last", "_origin", "_time")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Begins the run now, by ``loop`` or else by the running loop."""
        self._time = (loop or asyncio.get_running_loop()).time
        self._origin = self._time()
        self._last = -1

    def now(self) -> int:
        """Returns the nanoseconds since the run began; greater than every earlier answer."""
        now = int((self._time() - self._origin) * NANOSECONDS)
        if now <= self._last:
            now = self._last + 1
        self._last = now
        return now

    def to_stamp(self, loop_time: float) -> int:
        """Converts a time of the loop's clock, in seconds, to nanoseconds since the run began. Not a unique stamp."""
        return int((loop_time - self._origin) * NANOSECONDS)

    def to_loop_time(self, stamp: int) -> float:
        """Converts ``stamp`` to the loop's clock, in seconds, for ``loop.call_at``."""
        return self._origin + stamp / NANOSECONDS
