"""Requests to the simulated ZooKeeper that get no answer, or a late one, at the point that a test names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from assay.cluster.sim.zookeeper.client import SimZooKeeper

Wanted = Callable[[SimZooKeeper], bool]
"""Is it a request of this client?"""


class Requests:
    """All of one kind, by the client's method and path; they are as ever until one of these is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, path: str) -> None:
        self.lost = 0
        self._losing = 0
        self._after = 0.0
        self._held: list[tuple[asyncio.Event, Wanted]] = []
        real = getattr(SimZooKeeper, method)

        async def asked(client: SimZooKeeper, *arguments: Any, **named: Any) -> Any:
            if arguments[0] == path:
                for released, wanted in self._held:
                    if wanted(client):
                        await released.wait()
                if self._losing > self.lost:
                    self.lost += 1
                    await asyncio.sleep(self._after)
                    raise ConnectionLoss
            return await real(client, *arguments, **named)

        monkeypatch.setattr(SimZooKeeper, method, asked)

    def lose(self, count: int = 1, *, after: float = 0.0) -> None:
        """The next ones are not carried out, and their callers learn only that the connection was lost, so late."""
        self._losing, self._after = self.lost + count, after

    def hold(self, wanted: Wanted = lambda _: True) -> asyncio.Event:
        """From now on they wait for the event, before they are sent."""
        released = asyncio.Event()
        self._held.append((released, wanted))
        return released
