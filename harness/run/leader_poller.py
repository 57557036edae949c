"""Polls the leaders of a system without event logs once a second, for the report only.

An answer may be late or wrong, and a slow one is dropped. Therefore no check reads these events.
"""

import asyncio
from typing import Final

from assay.cluster.node import Cluster
from assay.cluster.system import System
from assay.harness.core.history import History
from assay.harness.core.report import describe_with_location
from assay.harness.core.timestamps import Stamps
from assay.nemesis.faults.fault import FinderStatistics

SEEN: Final = "seen-leading"
GONE: Final = "seen-gone"
"""Events: a node leads a key, according to an answer; and no node does, or no answer came."""
EVERY: Final = 1.0
"""Seconds between two rounds of polling, and the time limit of an answer."""
LEADER: Final = "leader"
"""The key in the history of a system that has no keys."""


class LeaderPoller:
    """Polls ``system`` from ``start`` to ``stop``, unless one of its nodes has an event log."""

    def __init__(self, system: System, cluster: Cluster, history: History, stamps: Stamps) -> None:
        self._system, self._cluster, self._history, self._stamps = system, cluster, history, stamps
        self._seen: dict[str, str] = {}
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self.problems: list[str] = []
        """Why polling ended early, as text for a person."""

    def start(self) -> None:
        if all(self._system.event_log(node) is None for node in self._cluster.nodes):
            self._task = asyncio.get_running_loop().create_task(self._ask_on(), name="who leads")

    async def stop(self) -> None:
        """Ends the polling. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            (ended,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(ended, Exception):
                self.problems.append(f"who led was not recorded to the end: {type(ended).__name__}: {ended}")
            self._task = None

    async def _ask_on(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            for key in self._system.keys() or (None,):
                self._note(key or LEADER, await self._leader(key))

    async def _leader(self, key: str | None) -> str | None:
        try:
            async with asyncio.timeout(EVERY):
                found = await self._system.find(self._cluster, "leader", key)
        except Exception:  # noqa: BLE001 - user code, called while nodes are down; the conductor reports failures
            return None
        return None if found is None else found.name

    def _note(self, lane: str, leader: str | None) -> None:
        before = self._seen.get(lane)
        if leader == before:
            return
        if before is not None:
            del self._seen[lane]
            self._write(GONE, before, lane)
        if leader is not None:
            self._seen[lane] = leader
            self._write(SEEN, leader, lane)

    def _write(self, event: str, node: str, lane: str) -> None:
        self._count += 1
        self._history.event(time=self._stamps.now(), node=node, incarnation=0, seq=self._count, event=event, key=lane)


def describe_failed_finds(finds: FinderStatistics) -> list[str]:
    """Returns a line about a finder that raised, unless it only did so because nodes were down."""
    if finds.last is None:
        return []
    return [
        f"find() raised in {finds.failed} of {finds.asked} calls, so faults were aimed without it; the last error: "
        f"{describe_with_location(finds.last)}"
    ]
