"""Futures and tasks whose hash is the order in which they were first hashed.

``asyncio.wait``, ``asyncio.as_completed``, ``TaskGroup`` and ``asyncio.all_tasks`` keep them in sets and iterate over
those; the default hash is an address, which differs between two runs of one program. A task is hashed when it is
created (asyncio registers it in a set), a future when it first goes into one.
"""

import asyncio
from typing import Any

from assay.cluster.sim.process import Process


class SimFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future of the simulation loop."""

    __slots__ = ("_order",)
    _order: int

    def __hash__(self) -> int:
        try:
            return self._order
        except AttributeError:
            order: int = self.get_loop().next_order()  # type: ignore[attr-defined]
            self._order = order
            return order


class SimTask(asyncio.Task):  # type: ignore[type-arg]
    """A task of the simulation loop, which knows its process."""

    __slots__ = ("_order", "process")

    _order: int
    process: Process | None
    __hash__ = SimFuture.__hash__


def order_of(task: Any) -> int:
    """Sort key: creation order."""
    return hash(task)
