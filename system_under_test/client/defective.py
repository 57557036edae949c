"""Clients with a historic defect built in; see ``assay.system_under_test.defects``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.fetching import Fetching
from assay.system_under_test.client.produce_queue import ProduceQueue, Send

IN_FLIGHT = 5
"""``max.in.flight.requests.per.connection``, as Kafka's producer has it by default."""


class OvertakingQueue(ProduceQueue):
    """Sends several message sets without waiting for each to be settled: one that must be sent again is overtaken."""

    _flying: frozenset[asyncio.Task[None]] = frozenset()

    async def _send_batch(self, batch: list[Send]) -> None:
        if len(self._flying) >= IN_FLIGHT:
            await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.get_running_loop().create_task(super()._send_batch(batch))
        self._flying |= {task}
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying -= {task}

    async def close(self) -> None:
        await super().close()
        for task in self._flying:
            task.cancel()
        if self._flying:
            await asyncio.wait(self._flying)


class SilentFetching(Fetching):
    """Fetches a partition only from where its last answer ended: elsewhere, it believes, an answer is still to come.

    A rebalance sets positions back to what is committed. Of a partition that stays with its member what had been
    fetched is not forgotten, and it waits for ever.
    """

    def __init__(self) -> None:
        self._ends: dict[Partition, int] = {}

    def wanted(self, positions: Mapping[Partition, int]) -> Mapping[Partition, int]:
        return {one: at for one, at in positions.items() if self._ends.get(one, at) == at}

    def fetched(self, partition: Partition, end: int) -> None:
        self._ends[partition] = end

    def moved(self, partition: Partition) -> None:
        self._ends.pop(partition, None)

    def entered(self, partitions: Sequence[Partition]) -> None:
        self._ends = {one: end for one, end in self._ends.items() if one in partitions}


def fetching_class(defects: Collection[str]) -> type[Fetching]:
    """What a consumer of a group is to build."""
    return SilentFetching if "silent-consumer" in defects else Fetching


def queue_class(defects: Collection[str]) -> type[ProduceQueue]:
    """What a producer is to build for each partition."""
    return OvertakingQueue if "retry-reorders" in defects else ProduceQueue
