"""Takes snapshots of a system after a run until it is at rest: everything that was begun must end.

The snapshots (looks) go into the history. The checks find what did not end in time. Rest takes two looks,
because one look is not atomic. The epochs must also be unchanged between the two. Otherwise work may have been handed
over under a new epoch, although each look shows it as complete.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.checkers.liveness.snapshots import STALL
from assay.cluster.inspection import SupportsSnapshots
from assay.cluster.node import Cluster, NodeError
from assay.cluster.system import DeploymentError
from assay.harness.core.history import History
from assay.harness.core.timestamps import Stamps

LOOK_EVERY: Final = 1.0
"""Seconds between the end of a look and the next one."""
LOOK_SECONDS: Final = 20.0
"""Time limit of one look."""
MOST_TIMES: Final = 3
"""Limit of the total time, as a multiple of the patience."""


@dataclass
class QuiescenceWatch:
    """Takes the looks of one run."""

    system: SupportsSnapshots
    cluster: Cluster
    runtime: Any
    history: History
    stamps: Stamps
    looks: int = 0
    _epochs: Mapping[tuple[str | None, ...], int | None] | None = None
    """The epochs of the last look."""

    async def until_at_rest(self, patience: int, stopped: Callable[[], bool]) -> str | None:
        """Takes looks for at most ``patience`` ns; the time restarts when no look was complete for a while.

        Returns what prevented the last looks, if anything did.
        """
        first = since = complete = self.stamps.now()
        trouble, calm = None, False
        while not stopped():
            begun = self.stamps.now()
            if begun - complete > STALL:
                since = begun
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    at_rest = await self._look()
            except (NodeError, DeploymentError, OSError) as error:
                reason = str(error) or "no answer in time"
                at_rest, trouble = False, f"the system at rest could not be looked at: {reason}"
            else:
                complete, trouble = self.stamps.now(), None
            now = self.stamps.now()
            if (at_rest and calm) or now - since > patience or now - first > MOST_TIMES * patience:
                break
            calm = at_rest
            if not calm:
                await asyncio.sleep(LOOK_EVERY)
        return trouble

    async def _look(self) -> bool:
        """Takes a look. Returns whether everything was at rest, and the epochs were those of the previous look."""
        begun, wall_ms = self.stamps.now(), int(self.runtime.wall_clock() * 1000)
        seen = await self.system.look(self.cluster, self.runtime)
        ended = self.stamps.now()
        unsettled = self.system.unsettled(seen, wall_ms)
        self.looks += 1
        for one in seen:
            self.history.look(look=self.looks, time=begun, ended=ended, **one)
        self.history.look(look=self.looks, time=begun, ended=ended, what="look", wall_ms=wall_ms, unsettled=unsettled)
        former = self._epochs
        self._epochs = {
            (one["what"], one.get("key"), one.get("node")): one["epoch"] for one in seen if one.get("epoch") is not None
        }
        return unsettled == 0 and former in (None, self._epochs)
