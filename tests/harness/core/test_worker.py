"""A worker on its own: what the interpreter cannot easily bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from assay.cluster.sim.loop import SimLoop
from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.core.report import RunReport
from assay.harness.core.stamps import Stamps
from assay.harness.core.worker import Surroundings, Worker


class Hanging:
    """Never answers."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        """Nothing to open."""

    async def invoke(self, operation: Operation) -> Completion:
        await asyncio.sleep(1000)
        return Completion(Outcome.OK)

    async def close(self) -> None:
        """Nothing to close."""

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return ()


def test_a_worker_whose_run_ends_as_its_operation_expires_ends() -> None:
    """Two cancellations arrive as one: taking back the time limit's must not swallow the other."""

    async def go() -> None:
        ended: list[Worker] = []
        opened: list[Worker] = []
        around = Surroundings(Hanging, None, Stamps(), RunReport(), 5.0, ended.append, opened.append)
        worker = Worker(0, 0, 1, Endpoint("n1", "10.0.0.1:9092", ()), around)
        await asyncio.sleep(0.1)
        assert opened == [worker]
        worker.assign(Operation("x"), 0, 0, None)
        await asyncio.sleep(0.1)
        worker.expire(1)
        worker.task.cancel()
        await asyncio.wait([worker.task], timeout=10)
        assert worker.task.cancelled()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(go())
