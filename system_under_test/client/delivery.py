"""Delivery of one message set to its partition's leader: request, response, outcome and retry."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from assay.system_under_test.client import errors
from assay.system_under_test.client.config import ProducerConfig
from assay.system_under_test.client.connection import NotSent, UnknownOutcome
from assay.system_under_test.client.metadata import Metadata
from assay.system_under_test.client.pool import Pool
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from assay.system_under_test.protocol.schema import ProtocolError

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
    """State of one message set. ``in_doubt``: at this moment, a try may have been carried out."""

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

    async def known_before_sending(self, lookup: Awaitable[T]) -> T:
        """Awaits a look-up before the request. Its failure is definite, because nothing was sent."""
        try:
            return await lookup
        except errors.ReadFailed as error:
            raise errors.SendFailed(f"not sent: {error}", error=error.error) from error

    async def deliver(
        self, topic: str, partition: int, records: bytes, deadline: float, way: DeliveryState
    ) -> SendResult:
        """Delivers the set. Raises ``SendFailed`` if every try failed definitely, else ``SendUnknown``.

        If the call is cancelled, ``way`` has the outcome known so far.
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
                return await self._attempt(topic, partition, records, deadline, way)
            except errors.SendUnknown as error:
                if not self._config.repeat_unknown:
                    raise
                doubt = error
            except errors.SendFailed as error:
                failure = error
                way.in_doubt = doubt is not None
                if error.error is not None and error.error not in errors.PRODUCE_WORTH_REPEATING:
                    break
        # A single attempt of unknown outcome makes the whole outcome unknown, however the others ended.
        raise doubt or failure or errors.SendFailed(f"{topic}-{partition}: not sent in time")

    async def _attempt(
        self, topic: str, partition: int, records: bytes, deadline: float, way: DeliveryState
    ) -> SendResult:
        loop = asyncio.get_running_loop()
        leader = await self.known_before_sending(self._metadata.leader(topic, partition, deadline))
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
            way.in_doubt = True
            if self._config.acks == 0:
                await connection.send(request, PRODUCE_VERSION, left)
                return SendResult(-1, leader.id)
            response = await connection.call(request, PRODUCE_VERSION, left)
        except ProtocolError as error:
            raise errors.SendFailed(f"{where}: {error}", error=ErrorCode.INVALID_REQUEST) from error
        except NotSent as error:
            self._metadata.forget(topic, partition)
            raise errors.SendFailed(f"{where}: {error}", node=leader.id) from error
        except UnknownOutcome as error:
            self._metadata.forget(topic, partition)
            raise errors.SendUnknown(f"{where}: {error}", node=leader.id) from error
        answers = [found for entry in response.topics if entry.topic == topic for found in entry.partitions]
        if len(answers) != 1 or answers[0].partition != partition:
            raise errors.SendUnknown(f"{where}: the response does not contain it", node=leader.id)
        return self._judge(topic, partition, ErrorCode.of(answers[0].error_code), answers[0].base_offset, leader.id)

    def _judge(self, topic: str, partition: int, error: ErrorCode, base_offset: int, node: int) -> SendResult:
        what = errors.classify_error(error, errors.PRODUCE_NOT_DONE)
        if what is errors.Certainty.DONE:
            return SendResult(base_offset, node)
        if error in errors.STALE_METADATA or what is errors.Certainty.UNKNOWN:
            self._metadata.forget(topic, partition)
        kind = errors.SendFailed if what is errors.Certainty.NOT_DONE else errors.SendUnknown
        raise kind(f"{topic}-{partition}: broker {node} answered {error.name}", error=error, node=node)
