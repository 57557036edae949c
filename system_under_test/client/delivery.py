"""The way of one message set to the leader of its partition: request, answer, what is known, and the next try."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from assay.system_under_test.client import errors
from assay.system_under_test.client.config import ProducerConfig
from assay.system_under_test.client.connection import NotSent, Unknown
from assay.system_under_test.client.metadata import Metadata
from assay.system_under_test.client.pool import Pool
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from assay.system_under_test.protocol.schema import ProtocolError

T = TypeVar("T")

PRODUCE_VERSION = 2

BROKER_SHARE = 0.9
"""The part of the time left that a broker may wait for acknowledgements: its "timed out" should come before ours."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """``base_offset`` of the first message (-1 with acks 0), as ``node``, the leader, answered."""

    base_offset: int
    node: int


@dataclass(slots=True)
class Way:
    """Where one message set is. ``in_doubt``: may a try have been carried out, by what is known at this moment?"""

    in_doubt: bool = False


class Delivery:
    """Carries one message set to the leader of the partition, again and again while it certainly did not arrive.

    With ``repeat_unknown`` also when it may have: each try then has ``request_timeout`` seconds, and what was appended
    may be appended again. That is for callers which a repetition does not harm.
    """

    def __init__(self, metadata: Metadata, pool: Pool, config: ProducerConfig) -> None:
        self._metadata = metadata
        self._pool = pool
        self._config = config

    async def known_before_sending(self, lookup: Awaitable[T]) -> T:
        """Awaits a look-up that comes before the request: its failure is definite, since nothing was sent."""
        try:
            return await lookup
        except errors.ReadFailed as error:
            raise errors.SendFailed(f"not sent: {error}", error=error.error) from error

    async def deliver(self, topic: str, partition: int, records: bytes, deadline: float, way: Way) -> SendResult:
        """Raises ``SendFailed`` if every try failed definitely, else ``SendUnknown``. When it is cancelled, ``way``
        says what is known.
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
        # One try with an unknown outcome leaves the whole in doubt, however the others ended.
        raise doubt or failure or errors.SendFailed(f"{topic}-{partition}: not sent in time")

    async def _attempt(self, topic: str, partition: int, records: bytes, deadline: float, way: Way) -> SendResult:
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
        except Unknown as error:
            self._metadata.forget(topic, partition)
            raise errors.SendUnknown(f"{where}: {error}", node=leader.id) from error
        answers = [found for entry in response.topics if entry.topic == topic for found in entry.partitions]
        if len(answers) != 1 or answers[0].partition != partition:
            raise errors.SendUnknown(f"{where}: the answer does not speak of it", node=leader.id)
        return self._judge(topic, partition, ErrorCode.of(answers[0].error_code), answers[0].base_offset, leader.id)

    def _judge(self, topic: str, partition: int, error: ErrorCode, base_offset: int, node: int) -> SendResult:
        what = errors.outcome(error, errors.PRODUCE_NOT_DONE)
        if what is errors.Certainty.DONE:
            return SendResult(base_offset, node)
        if error in errors.STALE_METADATA or what is errors.Certainty.UNKNOWN:
            self._metadata.forget(topic, partition)
        kind = errors.SendFailed if what is errors.Certainty.NOT_DONE else errors.SendUnknown
        raise kind(f"{topic}-{partition}: broker {node} answered {error.name}", error=error, node=node)
