"""The second copy of a simulated node's main process, which belongs to the fault that started it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

from assay.cluster.node import NodeError
from assay.cluster.second_copy import SECOND, SecondStatus
from assay.cluster.sim.disk import SimDisk
from assay.cluster.sim.host import SimHost
from assay.cluster.sim.process import Process

_log = logging.getLogger("assay.sim")


class SecondCopyMethods:
    """Mixin of :class:`assay.cluster.sim.node.SimNode` that runs the second copy."""

    disk: SimDisk
    host: SimHost
    _loop: Any

    def __init__(self) -> None:
        self.second_events: list[str] = []
        """The event lines of all copies; no observer reads them."""
        self._copies = 0
        self._copy_process: Process | None = None
        self._copy_status: int | None = None

    @property
    def name(self) -> str:
        raise NotImplementedError

    def _require_reachable(self) -> None:
        raise NotImplementedError

    def _life(self, process: Process) -> Coroutine[Any, Any, int]:
        """Returns the main coroutine of a new process."""
        raise NotImplementedError

    def is_second(self, process: Process) -> bool:
        """Returns whether this is the copy."""
        return process is self._copy_process

    def second_unavailable(self) -> str | None:
        return None

    async def start_second(self, data: str | None = None) -> None:
        self._require_reachable()
        if self._copy_process is not None and not self._copy_process.dead:
            raise NodeError(f"{self.name}: {self._copy_process} is alive; end it first")
        self._copies += 1
        self._copy_status = None
        copy = Process(self._loop, self.host, f"{self.name}/{SECOND}", f"{self.name}.{SECOND}.{self._copies}")
        self._copy_process = self.disk.slowness.second = copy
        task = copy.spawn(self._life(copy), name=f"{copy.incarnation} main")
        task.add_done_callback(lambda done: self._copy_ended(copy, done), context=Context())

    def _copy_ended(self, copy: Process, task: asyncio.Task[int]) -> None:
        """Records the exit status. An exception is logged for the copy, and does not count as a crash of the system."""
        if copy.dead:
            return
        if copy.stopped:
            copy.later(self._copy_ended, copy, task)
            return
        error = None if task.cancelled() else task.exception()
        if error is not None:
            copy.context.copy().run(_log.error, "ended by an exception", exc_info=error)
        self._copy_status = 1 if task.cancelled() or error is not None else task.result()
        copy.kill()

    async def second(self) -> SecondStatus:
        self._require_reachable()
        copy = self._copy_process
        if copy is None:
            raise NodeError(f"{self.name}: no second copy of its process was started")
        changes = self.disk.breaking.counted[copy]
        return SecondStatus(copy.incarnation, not copy.dead, self._copy_status, changes)

    async def end_second(self) -> None:
        if self._copy_process is not None:
            self._copy_process.kill()
