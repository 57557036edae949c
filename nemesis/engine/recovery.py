"""After the heal: waits until the targets of a fault serve again, while the nemesis goes on.

A process that a fault has end by itself may have been on its way there when the fault was healed. One that the heal has
started gives up where it finds no ZooKeeper for long, as another fault is in the way. Both are started again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from assay.cluster import zookeeper
from assay.cluster.node import Node
from assay.cluster.system import ZOOKEEPER_ROLE, System
from assay.nemesis.engine.fault_row import Stage
from assay.nemesis.engine.guarded_call import attempt
from assay.nemesis.engine.reporter import Reporter
from assay.nemesis.faults.fault import NOT_READY_ERRORS, Injection

RECOVERY_SECONDS = 60.0
READY_EVERY = 0.25
READY_SECONDS = 5.0


@dataclass(eq=False)
class Recoveries:
    """Of one run. A fault whose targets do not serve within ``seconds`` is reported as failed. ``start_again``: starts
    a target that has ended since its heal, if that fault may have had it end.
    """

    system: System
    reporter: Reporter
    seconds: float
    start_again: Callable[[Injection, Node], Awaitable[None]]
    _tasks: dict[int, tuple[Injection, asyncio.Task[None]]] = field(default_factory=dict, init=False)
    _raised: str = field(default="", init=False)
    """What a ``ready`` raised last, but for a node that is away: said where a recovery fails."""

    def begin(self, injection: Injection) -> None:
        """The fault is healed: waits in the background."""
        name = f"recovery of fault {injection.id}"
        self._tasks[injection.id] = injection, asyncio.get_running_loop().create_task(self._wait(injection), name=name)

    def due(self) -> set[str]:
        """The targets that are waited for."""
        waited = [injection for injection, task in self._tasks.values() if not task.done()]
        return {name for injection in waited for name in injection.names}

    async def settle(self) -> None:
        """Waits for all of them. A caller that gives up, by a time limit of its own, ends none: :meth:`close` does."""
        for _, task in list(self._tasks.values()):
            await asyncio.shield(task)

    async def close(self) -> None:
        """Waits no longer: those still due are reported as failed. Idempotent."""
        for injection, task in self._tasks.values():
            if not task.done():
                reason = "not ready yet when the run was closed"
                self.reporter.failed(injection.id, injection.names, Stage.RECOVER, reason)
                task.cancel()
        await asyncio.gather(*(task for _, task in self._tasks.values()), return_exceptions=True)

    async def _wait(self, injection: Injection) -> None:
        """Until all targets serve again, at the same time or one after the other; a spare that has left does not."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        spares = injection.context.cluster.spares
        missing = [node for node in injection.targets if node not in spares]

        async def all_ready() -> None:
            while missing:
                if await self._ready(missing[0]):
                    missing.pop(0)
                else:
                    with contextlib.suppress(*NOT_READY_ERRORS):
                        await self.start_again(injection, missing[0])
                    await asyncio.sleep(READY_EVERY)

        trouble = await attempt(self.seconds, all_ready())
        if trouble is None:
            emptied = injection.context.emptied
            for name in [name for name in injection.names if emptied.get(name) is injection]:
                del emptied[name]
            self.reporter.recovered(injection, loop.time() - began)
        else:
            reason = f"{', '.join(node.name for node in missing)} not ready after the heal: {trouble}{self._raised}"
            self.reporter.failed(injection.id, injection.names, Stage.RECOVER, reason)

    async def _ready(self, node: Node) -> bool:
        try:
            async with asyncio.timeout(READY_SECONDS):
                # ZooKeeper is the cluster's own, not the system's: the cluster knows when it is ready.
                if node.role == ZOOKEEPER_ROLE:
                    return await zookeeper.ready(node)
                return await self.system.ready(node)
        except NOT_READY_ERRORS:
            return False
        except Exception as error:  # noqa: BLE001 - half of an answer may break the user's parser: asked again, and said
            self._raised = f"; ready() of {node.name} raised {type(error).__name__}: {error}"
            return False
