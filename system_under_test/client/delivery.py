"""Delivery of message sets to the leader of one partition: the queue of sends, requests, responses and retries."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from assay.system_under_test.client import errors
from assay.system_under_test.client.config import ProducerConfig
from assay.system_under_test.client.connection import CallError, NotSent
from assay.system_under_test.client.errors import ClientError, SendFailed, SendUnknown
from assay.system_under_test.client.metadata import Metadata
from assay.system_under_test.client.pool import Pool
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from assay.system_under_test.protocol.schema import ProtocolError
from assay.system_under_test.records.message_set import Record

T = TypeVar("T")

PRODUCE_VERSION = 2

BROKER_SHARE = 0.9
"""Fraction of the remaining time that a broker may wait for acknowledgements. It then times out before the client."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """Result of a send: ``base_offset`` of the first message (-1 with acks 0), from the leader ``node``."""

    base_offset: int
    node: int


@dataclass(slots=True)
class DeliveryState:
    """State of one message set. ``in_doubt``: whether the broker may have appended the set in a try so far."""

    in_doubt: bool = False


class Delivery:
    """Delivers one message set to the partition's leader, and retries after definite failures.

    With ``repeat_unknown`` it also retries after unknown outcomes, with ``request_timeout`` seconds for each try.
    Messages may then be appended twice, which the caller must tolerate.
    """

    def __init__(self, metadata: Metadata, pool: Pool, config: ProducerConfig) -> None:
        self._metadata = metadata
        self._pool = pool
        self._config = config

    async def await_lookup(self, lookup: Awaitable[T]) -> T:
        """Awaits a look-up before the request. Its failure is definite, because nothing was sent."""
        try:
            return await lookup
        except errors.ReadFailed as error:
            raise errors.SendFailed(f"not sent: {error}", error=error.error) from error

    async def deliver(
        self, topic: str, partition: int, records: bytes, deadline: float, state: DeliveryState
    ) -> SendResult:
        """Delivers the set. Raises ``SendFailed`` if every try failed definitely, else ``SendUnknown``.

        If the call is cancelled, ``state`` says whether the set may have been appended.
        """
        loop = asyncio.get_running_loop()
        failure: errors.SendFailed | None = None
        doubt: errors.SendUnknown | None = None
        for number in range(self._config.retries + 1):
            if number:
                await asyncio.sleep(min(self._config.retry_back_off, max(0.0, deadline - loop.time())))
            if loop.time() >= deadline:
                break
            try:
                return await self._attempt(topic, partition, records, deadline, state)
            except errors.SendUnknown as error:
                if not self._config.repeat_unknown:
                    raise
                doubt = error
            except errors.SendFailed as error:
                failure = error
                state.in_doubt = doubt is not None  # this try has certainly failed; an earlier one may be in doubt
                if error.error is not None and error.error not in errors.PRODUCE_WORTH_REPEATING:
                    break
        # A single try of unknown outcome makes the whole outcome unknown.
        raise doubt or failure or errors.SendFailed(f"{topic}-{partition}: not sent in time")

    async def _attempt(
        self, topic: str, partition: int, records: bytes, deadline: float, state: DeliveryState
    ) -> SendResult:
        loop = asyncio.get_running_loop()
        leader = await self.await_lookup(self._metadata.leader(topic, partition, deadline))
        where = f"{topic}-{partition} at broker {leader.id}"
        deadline = min(deadline, loop.time() + self._config.request_timeout)
        left = deadline - loop.time()
        request = ProduceRequest(
            acks=self._config.acks,
            timeout_ms=max(1, int(left * 1000 * BROKER_SHARE)),
            topics=[ProduceTopic(topic=topic, partitions=[ProducePartition(partition=partition, records=records)])],
        )
        try:
            connection = await self._pool.get(leader.address, left)
            left = deadline - loop.time()
            state.in_doubt = True
            if self._config.acks == 0:
                await connection.send(request, PRODUCE_VERSION, left)
                return SendResult(-1, leader.id)
            response = await connection.call(request, PRODUCE_VERSION, left)
        except ProtocolError as error:
            raise errors.SendFailed(f"{where}: {error}", error=ErrorCode.INVALID_REQUEST) from error
        except CallError as error:
            self._metadata.forget(topic, partition)
            kind = errors.SendFailed if isinstance(error, NotSent) else errors.SendUnknown
            raise kind(f"{where}: {error}", node=leader.id) from error
        answers = [found for entry in response.topics if entry.topic == topic for found in entry.partitions]
        if len(answers) != 1 or answers[0].partition != partition:
            raise errors.SendUnknown(f"{where}: the response does not contain it", node=leader.id)
        code = ErrorCode.of(answers[0].error_code)
        certainty = errors.classify_error(code, errors.PRODUCE_NOT_DONE)
        if certainty is errors.Certainty.DONE:
            return SendResult(answers[0].base_offset, leader.id)
        if code in errors.STALE_METADATA or certainty is errors.Certainty.UNKNOWN:
            self._metadata.forget(topic, partition)
        kind = errors.SendFailed if certainty is errors.Certainty.NOT_DONE else errors.SendUnknown
        raise kind(f"{topic}-{partition}: broker {leader.id} answered {code.name}", error=code, node=leader.id)


_log = logging.getLogger("assay.client")


@dataclass(slots=True, eq=False)
class PendingSend:
    """Records that one caller appends, and their outcome."""

    records: list[Record]
    size: int
    deadline: float
    result: asyncio.Future[SendResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass
class ProduceQueue:
    """Pending sends for one partition. A task empties the queue and ends.

    The task sends one message set, and waits for its outcome after all retries, before it sends the next one. So no
    later set overtakes a set that is retried (KAFKA-3197). ``pack`` builds a message set from records.
    """

    topic: str
    partition: int
    delivery: Delivery
    linger: float
    batch_size: int
    pack: Callable[[list[Record]], bytes]
    _waiting: deque[PendingSend] = field(default_factory=deque)
    _worker: asyncio.Task[None] | None = None

    def put(self, records: list[Record], size: int, deadline: float) -> asyncio.Future[SendResult]:
        """Queues records and returns their outcome, which comes by ``deadline`` (loop time) and may be an error."""
        entry = PendingSend(records, size, deadline)
        self._waiting.append(entry)
        if self._worker is None:
            name = f"produce {self.topic}-{self.partition}"
            self._worker = asyncio.get_running_loop().create_task(self._work(), name=name)
        return entry.result

    async def close(self) -> None:
        """Fails the pending sends without waiting for any outcome."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        while self._waiting:
            self._resolve([self._waiting.popleft()], SendFailed("the producer was closed; not sent"))

    async def _work(self) -> None:
        try:
            if self.linger:
                await asyncio.sleep(self.linger)
            while self._waiting:
                await self._send_batch(self._take())
        finally:
            self._worker = None

    def _take(self) -> list[PendingSend]:
        """Takes the sends of one message set, and drops those that were cancelled or timed out in the queue."""
        now = asyncio.get_running_loop().time()
        batch: list[PendingSend] = []
        size = 0
        while self._waiting and (not batch or size + self._waiting[0].size <= self.batch_size):
            entry = self._waiting.popleft()
            if entry.deadline <= now:
                self._resolve([entry], SendFailed(f"{self.topic}-{self.partition}: not sent in time"))
            elif not entry.result.done():
                batch.append(entry)
                size += entry.size
        return batch

    async def _send_batch(self, batch: list[PendingSend]) -> None:
        if not batch:
            return
        state = DeliveryState()
        try:
            records = self.pack([record for entry in batch for record in entry.records])
            deadline = min(entry.deadline for entry in batch)
            result = await self.delivery.deliver(self.topic, self.partition, records, deadline, state)
        except asyncio.CancelledError:
            unknown = SendUnknown("the producer was closed before the answer came")
            self._resolve(batch, unknown if state.in_doubt else SendFailed("the producer was closed; not sent"))
            raise
        except Exception as error:  # noqa: BLE001 - later sends must continue
            if not isinstance(error, ClientError):
                _log.exception("%s-%s: sending failed", self.topic, self.partition)
            self._resolve(batch, error)
        else:
            offset = result.base_offset
            for entry in batch:
                if not entry.result.done():
                    entry.result.set_result(SendResult(offset, result.node))
                offset += len(entry.records) if result.base_offset >= 0 else 0

    @staticmethod
    def _resolve(batch: list[PendingSend], error: Exception) -> None:
        for entry in batch:
            if not entry.result.done():
                entry.result.set_exception(error)
