"""Calls to the coordinator that count only while the member owns what it owned when they began.

Nothing fences a commit to the offsets topic, so the member has to end it in time: before its session may be over, and
as soon as it loses a claim. A session that is renewed meanwhile lasts longer than it seemed to at the beginning.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from assay.system_under_test.runtime import ZooKeeper

T = TypeVar("T")


class OwnedCalls:
    """The calls of one member."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._under_way: dict[asyncio.Task[Any], None] = {}

    async def run(self, call: Coroutine[Any, Any, T], deadline: float) -> T:
        """Returns its result. Raises ``TimeoutError`` at the deadline, when the session may be over, and when it is
        called off.
        """
        loop = asyncio.get_running_loop()
        task = loop.create_task(call, name="consumer offsets")
        self._under_way[task] = None
        try:
            while not task.done():
                until = min(deadline, self._zookeeper.alive_until)
                if until <= loop.time():
                    raise TimeoutError
                await asyncio.wait([task], timeout=until - loop.time())
            if task.cancelled():
                raise TimeoutError
            return task.result()
        finally:
            del self._under_way[task]
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    task.exception()  # it failed as it was called off: no one is left who wants to know

    def call_off(self) -> None:
        """Ends all calls that are under way."""
        for task in self._under_way:
            task.cancel()
