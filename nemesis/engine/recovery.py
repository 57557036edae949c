"""Waits after a heal until the fault's targets serve again, while the nemesis continues.

Two kinds of targets are started again:

- A process that still ran at the heal, but ended later because of the fault.
- A process that the heal started, but that ended because another fault cut it off from ZooKeeper.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from assay.cluster import zookeeper
from assay.cluster.node import Node, NodeError
from assay.cluster.system import ZOOKEEPER_ROLE, System
from assay.nemesis.engine.guarded_call import ACTION_SECONDS, run_guarded
from assay.nemesis.engine.reporter import FailureStage, FaultReporter
from assay.nemesis.faults.fault import NOT_READY_ERRORS, Injection

RECOVERY_SECONDS = 60.0
"""Maximum seconds until all targets of a fault serve."""
READY_POLL_SECONDS = 0.25
READY_SECONDS = 5.0
"""Maximum seconds of one call of ``ready``."""


@dataclass(eq=False)
class RecoveryWatch:
    """Recoveries of one run. A fault whose targets do not serve within ``seconds`` is reported as failed.

    - ``find_unavailable`` returns the nodes that active faults stop or cut off. The seconds count from the time when
      the target is none of them any more, because it cannot serve before.
    - ``start_again`` restarts a target that has ended since the fault's heal, if that fault may have ended it.
    """

    system: System
    reporter: FaultReporter
    seconds: float
    find_unavailable: Callable[[], Collection[str]]
    start_again: Callable[[Injection, Node], Awaitable[None]]
    _tasks: dict[int, tuple[Injection, asyncio.Task[None]]] = field(default_factory=dict, init=False)
    _ready_error: str = field(default="", init=False)
    """The last error of ``ready`` other than an unreachable node. It is part of a failed recovery's message."""

    def begin(self, injection: Injection) -> None:
        """Begins to wait in the background, because the fault is healed."""
        name = f"recovery of fault {injection.id}"
        self._tasks[injection.id] = injection, asyncio.get_running_loop().create_task(self._wait(injection), name=name)

    def list_recovering(self) -> set[str]:
        """Returns the targets of running recoveries."""
        waited = [injection for injection, task in self._tasks.values() if not task.done()]
        return {name for injection in waited for name in injection.names}

    async def wait_for_all(self) -> None:
        """Waits for all recoveries. A timeout of the caller does not cancel them; only :meth:`close` does."""
        for _, task in list(self._tasks.values()):
            await asyncio.shield(task)

    async def close(self) -> None:
        """Stops waiting: unfinished recoveries are reported as failed. Idempotent."""
        for injection, task in self._tasks.values():
            if not task.done():
                reason = "not ready yet when the run was closed"
                self.reporter.report_failed(injection.id, injection.names, FailureStage.RECOVER, reason)
                task.cancel()
        await asyncio.gather(*(task for _, task in self._tasks.values()), return_exceptions=True)

    async def _wait(self, injection: Injection) -> None:
        """Waits until each target has served once. Ignores targets that are spare nodes now, outside the cluster."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        spares = injection.context.cluster.spares
        missing = [node for node in injection.targets if node not in spares]

        async def all_ready() -> None:
            free_since = began
            while missing:
                if await self._ready(missing[0]):
                    missing.pop(0)
                    continue
                if missing[0].name in self.find_unavailable():
                    free_since = loop.time()
                elif loop.time() - free_since >= self.seconds:
                    raise NodeError(f"it did not end within {self.seconds:g} s")
                with contextlib.suppress(*NOT_READY_ERRORS):
                    async with asyncio.timeout(ACTION_SECONDS):
                        await self.start_again(injection, missing[0])
                await asyncio.sleep(READY_POLL_SECONDS)

        trouble = await run_guarded(None, all_ready())
        if trouble is None:
            emptied = injection.context.emptied  # servers that have not served since they lost their data
            for name in [name for name in injection.names if emptied.get(name) is injection]:
                del emptied[name]
            self.reporter.report_recovered(injection, loop.time() - began)
        else:
            reason = (
                f"{', '.join(node.name for node in missing)} not ready after the heal: {trouble}{self._ready_error}"
            )
            self.reporter.report_failed(injection.id, injection.names, FailureStage.RECOVER, reason)

    async def _ready(self, node: Node) -> bool:
        try:
            async with asyncio.timeout(READY_SECONDS):
                # ZooKeeper belongs to the cluster, not to the system, so the cluster knows when it is ready.
                if node.role == ZOOKEEPER_ROLE:
                    return await zookeeper.is_ready(node)
                return await self.system.ready(node)
        except NOT_READY_ERRORS:
            return False
        except Exception as error:  # noqa: BLE001 - an incomplete answer may break the user's parser: ask again
            self._ready_error = f"; ready() of {node.name} raised {type(error).__name__}: {error}"
            return False
