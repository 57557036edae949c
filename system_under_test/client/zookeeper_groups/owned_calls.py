"""Calls to the coordinator that are allowed only while the member owns the partitions that it owned at their start.

Nothing fences a commit to the offsets topic. Therefore the member must cancel it before its session may be over, and as
soon as it loses a claim. A session that is renewed meanwhile extends the time limit.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from assay.system_under_test.runtime import ZooKeeper

T = TypeVar("T")


class OwnedCalls:
    """Calls of one member."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._under_way: dict[asyncio.Task[Any], None] = {}

    async def run(self, call: Coroutine[Any, Any, T], deadline: float) -> T:
        """Returns the call's result.

        Raises ``TimeoutError`` at the deadline, when the session may be over, and after :meth:`call_off`.
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
                    task.exception()  # marks it as retrieved, because no one awaits a cancelled call

    def call_off(self) -> None:
        """Cancels all pending calls."""
        for task in self._under_way:
            task.cancel()
