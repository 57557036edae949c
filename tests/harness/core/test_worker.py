"""A worker on its own: what the interpreter cannot easily bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from assay.cluster.sim.loop import SimLoop
from assay.harness.core.client import Endpoint
from assay.harness.core.interpreter_status import InterpreterStatus
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.core.timestamps import Stamps
from assay.harness.core.worker import Worker, WorkerEnvironment


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
        environment = WorkerEnvironment(Hanging, None, Stamps(), InterpreterStatus(), 5.0, ended.append, opened.append)
        worker = Worker(0, 0, 1, Endpoint("n1", "10.0.0.1:9092", ()), environment)
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


class Unsure:
    """Does not know what became of anything."""

    opened = closed = 0
    survives_info = False

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        type(self).opened += 1

    async def invoke(self, operation: Operation) -> Completion:
        return Completion(Outcome.INFO)

    async def close(self) -> None:
        type(self).closed += 1

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return ()


class UnsureAndKept(Unsure):
    opened = closed = 0
    survives_info = True


@pytest.mark.parametrize(("kind", "opened", "closed"), [(Unsure, 4, 3), (UnsureAndKept, 1, 0)])
def test_a_client_that_keeps_its_connections_is_the_next_process_too(
    kind: type[Unsure], opened: int, closed: int
) -> None:
    async def go() -> None:
        ended: list[int] = []
        ready: list[int] = []
        environment = WorkerEnvironment(
            kind, None, Stamps(), InterpreterStatus(), 5.0,
            lambda worker: ended.append(worker.process), lambda worker: ready.append(worker.process),
        )  # fmt: skip
        worker = Worker(0, 0, 10, Endpoint("n1", "10.0.0.1:9092", ()), environment)
        await asyncio.sleep(0.1)
        for number in range(3):
            worker.assign(Operation("x"), number, number, None)
            await asyncio.sleep(0.1)
        assert ended == [0, 10, 20]
        assert ready == [0, 10, 20, 30]
        worker.task.cancel()
        await asyncio.wait([worker.task])

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(go())
    assert (kind.opened, kind.closed) == (opened, closed)
