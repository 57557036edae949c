"""Traits of a client: the parts that a historic defect replaces (``assay.system_under_test.defects``)."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kazoo.protocol.states import KazooState

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.delivery import PendingSend, ProduceQueue
from assay.system_under_test.client.positions import FetchPolicy
from assay.system_under_test.client.zookeeper_groups.registration import ConsumerSession

MAX_IN_FLIGHT: Final = 5
"""Default of ``max.in.flight.requests.per.connection`` in Kafka's producer."""


@dataclass(frozen=True)
class ClientTraits:
    """The classes of a producer's queue, a group consumer's fetch policy, and a connector's session."""

    queue: type[ProduceQueue] = ProduceQueue
    fetching: type[FetchPolicy] = FetchPolicy
    session: type[ConsumerSession] = ConsumerSession


CORRECT: Final = ClientTraits()


def select_client_traits(defects: Collection[str]) -> ClientTraits:
    """Returns the traits of the build with these defects."""
    if "retry-reorders" in defects:
        return ClientTraits(queue=OvertakingQueue)
    if "silent-consumer" in defects:
        return ClientTraits(fetching=SilentFetching)
    if "zk-owner-overlap" in defects:
        return ClientTraits(session=ObliviousSession)
    return CORRECT


class OvertakingQueue(ProduceQueue):
    """A queue that sends several message sets concurrently, so that later sets overtake a set that is retried."""

    _in_flight: frozenset[asyncio.Task[None]] = frozenset()

    async def _send_batch(self, batch: list[PendingSend]) -> None:
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.get_running_loop().create_task(super()._send_batch(batch))
        self._in_flight |= {task}
        task.add_done_callback(self._remove_finished)

    def _remove_finished(self, task: asyncio.Task[None]) -> None:
        self._in_flight -= {task}

    async def close(self) -> None:
        await super().close()
        for task in self._in_flight:
            task.cancel()
        if self._in_flight:
            await asyncio.wait(self._in_flight)


class SilentFetching(FetchPolicy):
    """A policy that fetches a partition only if its position is the end of its last response.

    At any other position it assumes that a response is still to come. But a rebalance sets positions back to the
    committed ones. A partition that stays with its member is then never fetched again.
    """

    def __init__(self) -> None:
        self._ends: dict[Partition, int] = {}

    def select(self, positions: Mapping[Partition, int]) -> Mapping[Partition, int]:
        return {one: at for one, at in positions.items() if self._ends.get(one, at) == at}

    def on_fetched(self, partition: Partition, end: int) -> None:
        self._ends[partition] = end

    def on_moved(self, partition: Partition) -> None:
        self._ends.pop(partition, None)

    def on_entered(self, partitions: Sequence[Partition]) -> None:
        self._ends = {one: end for one, end in self._ends.items() if one in partitions}


class ObliviousSession(ConsumerSession):
    """A session that ignores its end, so that the consumer continues with the partitions that it owned."""

    @property
    def alive(self) -> bool:
        return True

    def _changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._registration.session = 0
            self._on_end()
