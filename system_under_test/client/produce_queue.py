"""The way of a producer's messages to one partition: queue, batch, request, outcome."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from system_under_test.client.connection import CallError, NotSent, Unknown
from system_under_test.client.errors import (
    PRODUCE_NOT_DONE,
    PRODUCE_WORTH_REPEATING,
    STALE_METADATA,
    ClientError,
    Outcome,
    ReadFailed,
    SendFailed,
    SendUnknown,
    outcome,
)
from system_under_test.client.metadata import BACK_OFF, Metadata
from system_under_test.client.pool import Pool
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from system_under_test.protocol.schema import ProtocolError
from system_under_test.records import message_set
from system_under_test.records.message_set import Record

T = TypeVar("T")

PRODUCE_VERSION = 2

BROKER_SHARE = 0.9
"""Of the time left that a broker may wait for acknowledgements: its "timed out" should come before ours."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """``base_offset`` of the first message (-1 with acks 0), as ``node``, the leader, told."""

    base_offset: int
    node: int


@dataclass(slots=True, eq=False)
class _Send:
    records: list[Record]
    size: int
    deadline: float
    result: asyncio.Future[SendResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Delivery:
    """Carries one message set to whoever leads the partition, again and again while it certainly did not arrive."""

    def __init__(self, metadata: Metadata, pool: Pool, acks: int, retries: int) -> None:
        self._metadata = metadata
        self._pool = pool
        self._acks = acks
        self._retries = retries

    async def known_before_sending(self, lookup: Awaitable[T]) -> T:
        """A look-up without which nothing is sent: its failure is definite."""
        try:
            return await lookup
        except ReadFailed as error:
            raise SendFailed(f"not sent: {error}", error=error.error) from error

    async def deliver(self, topic: str, partition: int, records: bytes, deadline: float) -> SendResult:
        """Raises ``SendFailed`` if every try failed definitely, else ``SendUnknown``."""
        loop = asyncio.get_running_loop()
        failure: SendFailed | None = None
        for _ in range(self._retries + 1):
            if failure is not None:
                await asyncio.sleep(min(BACK_OFF, max(0.0, deadline - loop.time())))
            if loop.time() >= deadline:
                break
            try:
                return await self._attempt(topic, partition, records, deadline)
            except SendFailed as error:
                failure = error
                if error.error is not None and error.error not in PRODUCE_WORTH_REPEATING:
                    raise
        raise failure or SendFailed(f"{topic}-{partition}: not sent in time")

    async def _attempt(self, topic: str, partition: int, records: bytes, deadline: float) -> SendResult:
        loop = asyncio.get_running_loop()
        leader = await self.known_before_sending(self._metadata.leader(topic, partition, deadline))
        where = f"{topic}-{partition} at broker {leader.id}"
        left = deadline - loop.time()
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=max(1, int(left * 1000 * BROKER_SHARE)),
            topics=[ProduceTopic(topic=topic, partitions=[ProducePartition(partition=partition, records=records)])],
        )
        try:
            connection = await self._pool.get(leader.address, left)
            left = deadline - loop.time()
            if self._acks == 0:
                await connection.send(request, PRODUCE_VERSION, left)
                return SendResult(-1, leader.id)
            response = await connection.call(request, PRODUCE_VERSION, left)
        except ProtocolError as error:
            raise SendFailed(f"{where}: {error}", error=ErrorCode.INVALID_REQUEST) from error
        except NotSent as error:
            self._metadata.forget(topic, partition)
            raise SendFailed(f"{where}: {error}", node=leader.id) from error
        except Unknown as error:
            self._metadata.forget(topic, partition)
            raise SendUnknown(f"{where}: {error}", node=leader.id) from error
        answers = [found for entry in response.topics if entry.topic == topic for found in entry.partitions]
        if len(answers) != 1 or answers[0].partition != partition:
            raise SendUnknown(f"{where}: the answer does not speak of it", node=leader.id)
        return self._judge(topic, partition, ErrorCode.of(answers[0].error_code), answers[0].base_offset, leader.id)

    def _judge(self, topic: str, partition: int, error: ErrorCode, base_offset: int, node: int) -> SendResult:
        what = outcome(error, PRODUCE_NOT_DONE)
        if what is Outcome.DONE:
            return SendResult(base_offset, node)
        if error in STALE_METADATA or what is Outcome.UNKNOWN:
            self._metadata.forget(topic, partition)
        kind = SendFailed if what is Outcome.NOT_DONE else SendUnknown
        raise kind(f"{topic}-{partition}: broker {node} answered {error.name}", error=error, node=node)


class ProduceQueue:
    """What waits for one partition. A task works it off and ends when it is empty."""

    def __init__(self, topic: str, partition: int, delivery: Delivery, linger: float, batch_size: int) -> None:
        self._topic = topic
        self._partition = partition
        self._delivery = delivery
        self._linger = linger
        self._batch_size = batch_size
        self._waiting: deque[_Send] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def put(self, records: list[Record], size: int, deadline: float) -> SendResult:
        """The outcome of these records, by ``deadline`` (loop time). Raises ``SendFailed`` or ``SendUnknown``."""
        entry = _Send(records, size, deadline)
        self._waiting.append(entry)
        if self._worker is None:
            name = f"produce {self._topic}-{self._partition}"
            self._worker = asyncio.get_running_loop().create_task(self._work(), name=name)
        return await entry.result

    async def close(self) -> None:
        """Fails what waits; waits for nothing."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        while self._waiting:
            self._settle([self._waiting.popleft()], SendFailed("the producer was closed; not sent"))

    async def _work(self) -> None:
        try:
            if self._linger:
                await asyncio.sleep(self._linger)
            while self._waiting:
                await self._send_batch(self._take())
        finally:
            self._worker = None

    def _take(self) -> list[_Send]:
        """The sends of one message set, those left out that were cancelled while they waited."""
        batch: list[_Send] = []
        size = 0
        while self._waiting and (not batch or size + self._waiting[0].size <= self._batch_size):
            entry = self._waiting.popleft()
            if not entry.result.done():
                batch.append(entry)
                size += entry.size
        return batch

    async def _send_batch(self, batch: list[_Send]) -> None:
        if not batch:
            return
        try:
            records = message_set.build([record for entry in batch for record in entry.records], magic=1)
            deadline = min(entry.deadline for entry in batch)
            result = await self._delivery.deliver(self._topic, self._partition, records, deadline)
        except asyncio.CancelledError:
            self._settle(batch, SendUnknown("the producer was closed before the answer came"))
            raise
        except (ClientError, CallError) as error:
            self._settle(batch, error)
        except Exception as error:
            self._settle(batch, error)
            raise
        else:
            offset = result.base_offset
            for entry in batch:
                if not entry.result.done():
                    entry.result.set_result(SendResult(offset, result.node))
                offset += len(entry.records) if result.base_offset >= 0 else 0

    @staticmethod
    def _settle(batch: list[_Send], error: Exception) -> None:
        for entry in batch:
            if not entry.result.done():
                entry.result.set_exception(error)
