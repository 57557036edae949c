"""How a scheduler sleeps: until another task wakes it, or until a time."""

from __future__ import annotations

import asyncio

from assay.harness.core.stamps import Stamps


class Alarm:
    """For one sleeper. Wake-ups while it is awake are not kept: it looks at everything before it sleeps again."""

    __slots__ = ("_at", "_loop", "_sleeping", "_stamps", "_timer")

    def __init__(self, stamps: Stamps) -> None:
        self._loop = asyncio.get_running_loop()
        self._stamps = stamps
        self._sleeping: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0

    async def sleep(self) -> None:
        self._sleeping = self._loop.create_future()
        await self._sleeping

    def wake(self) -> None:
        sleeping = self._sleeping
        if sleeping is not None and not sleeping.done():
            sleeping.set_result(None)

    def at(self, stamp: int) -> None:
        """Wakes at ``stamp`` at the latest. An earlier timer stays instead, for it costs but one idle turn."""
        if self._timer is not None:
            if self._at <= stamp:
                return
            self._timer.cancel()
        self._at = stamp
        self._timer = self._loop.call_at(self._stamps.loop_time(stamp), self._ring)

    def clear(self) -> None:
        """Forgets the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self.wake()
