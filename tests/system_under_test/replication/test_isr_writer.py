"""Writes of in-sync sets that are still under way when the partition is deleted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from assay.system_under_test.replication.insync import InSyncMembers
from assay.system_under_test.replication.isr_writer import IsrWriter
from assay.system_under_test.replication.traits import ReplicationTraits
from assay.system_under_test.tasks import BackgroundTasks


@dataclass
class SlowZooKeeper:
    """Answers a write when it is asked to; its connection stands once it is ``back``."""

    answer: asyncio.Future[Any]
    back: bool = False

    async def set(self, path: str, value: bytes, version: int) -> Any:
        return await self.answer

    async def sync(self, path: str) -> None:
        if not self.back:
            raise ConnectionLoss


@dataclass
class Term:
    replica: Any = field(
        default_factory=lambda: SimpleNamespace(topic="orders", index=0, key="orders-0", traits=ReplicationTraits())
    )
    in_sync: Any = field(default_factory=lambda: SimpleNamespace(zk_version=0))
    controller_epoch: int = 1
    epoch: int = 0
    over: bool = False

    def on_isr_written(self, members: InSyncMembers, version: int) -> None: ...


@pytest.mark.parametrize(("error", "needs_sync"), [(None, False), (ConnectionLoss(), True)])
def test_a_deletion_waits_for_what_could_be_taken_for_a_write_of_the_next_life(
    error: Exception | None, needs_sync: bool
) -> None:
    async def check() -> None:
        zookeeper = SlowZooKeeper(asyncio.get_running_loop().create_future())
        background, term = BackgroundTasks(lambda error: None), Term()
        writer = IsrWriter(zookeeper, background, 2, retry=0.01)  # type: ignore[arg-type]
        writer.write(term, InSyncMembers((2, 3), {2: 5, 3: 6}))  # type: ignore[arg-type]
        await writer.wait_until_settled("orders", 1)  # nothing is under way there
        await asyncio.sleep(0)  # the write is sent
        term.over = True
        waiting = asyncio.create_task(writer.wait_until_settled("orders", 0))
        again = asyncio.create_task(writer.wait_until_settled("orders", 0))
        await asyncio.sleep(0.01)
        assert [waiting.done(), again.done()] == [False, False]
        if error is None:
            zookeeper.answer.set_result(SimpleNamespace(version=1))
        else:
            zookeeper.answer.set_exception(error)
        await asyncio.sleep(0.01)
        assert [waiting.done(), again.done()] == [not needs_sync] * 2
        zookeeper.back = True
        await asyncio.wait_for(asyncio.gather(waiting, again), 1.0)
        await background.close()

    asyncio.run(check())
