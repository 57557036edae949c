"""Asks a partition's leader for its log end and start together with its leader epoch and incarnation.

The public ListOffsets request does not return the epoch. Without it, no check can tell whether an end that went back is
a violation. So the broker answers a private request (``EndOffsetsRequest``), by the same rules.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from assay.system_under_test.client.connection import CallError
from assay.system_under_test.client.errors import ReadFailed
from assay.system_under_test.client.metadata import Metadata
from assay.system_under_test.client.pool import Pool
from assay.system_under_test.protocol.control import PartitionName
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import EndOffsetsRequest


@dataclass(frozen=True)
class LogEnd:
    """A leader's answer: ``node`` is the leader, ``epoch`` its leader epoch."""

    offset: int
    start: int
    epoch: int
    node: int
    incarnation: int


class LogEnds:
    """``timeout`` (seconds) limits each query; there is no retry, because an end offset is not worth one."""

    def __init__(self, bootstrap: Sequence[str], chance: random.Random, *, timeout: float) -> None:
        self._timeout = timeout
        self._pool = Pool("assay-ends")
        self._metadata = Metadata(bootstrap, self._pool, chance)

    async def ask(self, topic: str, partition: int) -> LogEnd:
        """Returns the log end. Raises ``ReadFailed``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        leader = await self._metadata.leader(topic, partition, deadline)
        query = EndOffsetsRequest(partitions=[PartitionName(topic=topic, partition=partition)])
        try:
            connection = await self._pool.get(leader.address, deadline - loop.time())
            response = await connection.call(query, 0, deadline - loop.time())
        except CallError as error:
            self._metadata.forget(topic, partition)
            raise ReadFailed(f"{topic}-{partition} at broker {leader.id}: {error}", node=leader.id) from error
        answer = next((one for one in response.partitions if (one.topic, one.partition) == (topic, partition)), None)
        error_code = ErrorCode.UNKNOWN if answer is None else ErrorCode.of(answer.error_code)
        if answer is None or error_code is not ErrorCode.NONE:
            self._metadata.forget(topic, partition)
            raise ReadFailed(
                f"{topic}-{partition}: broker {leader.id} answered {error_code.name}", error=error_code, node=leader.id
            )
        return LogEnd(answer.offset, answer.log_start, answer.leader_epoch, leader.id, answer.incarnation)

    async def close(self) -> None:
        await self._pool.close()
