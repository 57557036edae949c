"""Stateless reads: messages from an offset, offsets by time, and committed offsets of a group.

Reads change nothing, so they are retried after any error until the deadline. A consumer has one connection to each
broker, on which a broker answers one request after the other. Concurrent long polls therefore need separate consumers.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, TypeVar

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.connection import CallError
from assay.system_under_test.client.coordinated import CoordinatorClient, Position
from assay.system_under_test.client.errors import STALE_METADATA, DamagedAnswer, ReadFailed
from assay.system_under_test.client.metadata import BACK_OFF, BrokerNode, Metadata
from assay.system_under_test.client.multi_fetch import (
    RESPONSE_GRACE,
    RETRIABLE_ERRORS,
    FetchResult,
    MultiFetch,
    read_messages,
)
from assay.system_under_test.client.pool import Bootstrap, Pool
from assay.system_under_test.protocol import fetch
from assay.system_under_test.protocol import offsets as listing
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.offsets import EARLIEST, LATEST
from assay.system_under_test.protocol.schema import Request, read_records
from assay.system_under_test.records.message import Message
from assay.system_under_test.runtime import Runtime

R = TypeVar("R")

FETCH_VERSION = 3
LIST_OFFSETS_VERSION = 1
SEGMENT_OFFSETS_VERSION = 0

__all__ = ["EARLIEST", "LATEST", "FetchResult", "Position", "SimpleConsumer"]


class _FetchAnswer(NamedTuple):
    found: fetch.FetchPartitionResponse
    messages: list[Message]
    node: int


@dataclass(eq=False)
class SimpleConsumer:
    """Stateless consumer. ``bootstrap`` is ``host:port,...`` of any brokers; ``timeout`` (seconds) limits each call.

    Without ``check_crcs``, damaged messages are returned unchecked, as long as their lengths are plausible.
    """

    bootstrap: Bootstrap
    _: KW_ONLY
    runtime: Runtime
    timeout: float = 5.0
    fetch_version: int = FETCH_VERSION
    max_fetch_bytes: int = 128 * 1024 * 1024
    check_crcs: bool = True
    client_id: str = "assay-consumer"
    _groups: dict[str, CoordinatorClient] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._pool = Pool(self.client_id)
        self._metadata = Metadata(self.bootstrap, self._pool, self.runtime.random)
        self._multi = MultiFetch(
            self._metadata,
            self._pool,
            version=self.fetch_version,
            max_fetch_bytes=self.max_fetch_bytes,
            check_crcs=self.check_crcs,
        )

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int = 1024 * 1024,
        max_wait: float = 0.5,
        min_bytes: int = 1,
    ) -> FetchResult:
        """Returns about ``max_bytes`` of messages from ``offset`` on, below the high watermark.

        - The call waits up to ``max_wait`` seconds for ``min_bytes``.
        - If the first message does not fit, the size is doubled up to ``max_fetch_bytes``. If that is too small, the
          error is MESSAGE_TOO_LARGE. From Fetch 3 on, brokers send a whole first message even above the limit.
        - Messages before any damage in a response are returned.

        Raises ``ReadFailed`` if no broker answered in time or the leader did not become ready, and ``DamagedAnswer`` if
        the first message is damaged.
        """
        deadline = asyncio.get_running_loop().time() + self.timeout
        size = max_bytes
        while True:
            answer = await self._fetch(topic, partition, offset, size, max_wait, min_bytes, deadline)
            error = ErrorCode.of(answer.found.error_code)
            truncated = not answer.messages and bool(read_records(answer.found.records))
            if not truncated or size >= self.max_fetch_bytes:
                if truncated and not self.check_crcs:  # the length itself must be damaged
                    raise _build_damage_error(
                        topic, partition, answer.node, "no whole message, whatever the fetch size"
                    )
                if truncated:
                    error = ErrorCode.MESSAGE_TOO_LARGE
                wanted = [message for message in answer.messages if message.offset >= offset]
                return FetchResult(wanted, answer.found.high_watermark, answer.node, error)
            size = min(2 * size, self.max_fetch_bytes)

    async def multi_fetch(
        self, offsets: Mapping[Partition, int], max_bytes: int = 1024 * 1024, max_wait: float = 0.5, min_bytes: int = 1
    ) -> dict[Partition, FetchResult]:
        """Fetches from several partitions, each from its offset on, with one request to each of their leaders.

        ``max_bytes`` is per partition. Requests are repeated only until some partition has an answer. The results of
        other partitions may then be errors:

        - The partition has no leader.
        - Its leader did not answer within ``max_wait`` plus 2 seconds: ``NETWORK_EXCEPTION``. For the next 5 s, calls
          wait for that broker only ``max_wait`` plus 0.2 seconds.
        - Its records are damaged: ``CORRUPT_MESSAGE``.

        A broker fills its response in the order of the request, so a caller must rotate the partitions for fairness.
        Raises ``ReadFailed`` if no partition was answered.
        """
        deadline = asyncio.get_running_loop().time() + self.timeout
        return await self._multi.fetch(offsets, max_bytes, max_wait, min_bytes, deadline)

    async def offsets(self, topic: str, partition: int, time: int) -> int:
        """Returns the first offset whose message is at least as new as ``time``; -1 if there is none.

        ``time`` is in ms since the epoch, or ``LATEST`` or ``EARLIEST``. Raises ``ReadFailed``, with the broker's
        ``error`` if it rejected the request.
        """
        wanted = listing.ListOffsetsPartition(partition=partition, timestamp=time)
        return (await self._list_offsets(topic, wanted, LIST_OFFSETS_VERSION)).offset

    async def offsets_before(self, topic: str, partition: int, time: int, count: int = 1) -> list[int]:
        """Returns up to ``count`` readable offsets before ``time``, newest first.

        ``time`` is in ms since the epoch, or ``LATEST`` or ``EARLIEST``. The offsets are base offsets of segments, and
        with ``LATEST`` also the log end. They depend on when a segment was last written, so the result is coarse;
        :meth:`offsets` compares the messages' timestamps. Raises ``ReadFailed``.
        """
        wanted = listing.ListOffsetsPartition(partition=partition, timestamp=time, max_num_offsets=count)
        return (await self._list_offsets(topic, wanted, SEGMENT_OFFSETS_VERSION)).offsets

    async def commit(self, group: str, offsets: Mapping[Partition, Position]) -> None:
        """Commits for a group as a client that is not a member. Rejected while the group has members.

        Raises ``CommitFailed``.
        """
        await self._get_coordinator_client(group).commit(offsets)

    async def committed(self, group: str, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        """Returns the group's committed positions; offset -1 if there is none. Raises ``ReadFailed``."""
        return await self._get_coordinator_client(group).committed(partitions)

    async def close(self) -> None:
        """Closes the connections. Pending reads raise ``ReadFailed``, pending commits ``CommitFailed``."""
        await self._pool.close()
        for coordinated in self._groups.values():
            await coordinated.close()

    def _get_coordinator_client(self, group: str) -> CoordinatorClient:
        if group not in self._groups:
            self._groups[group] = CoordinatorClient(
                self.bootstrap, group, runtime=self.runtime, timeout=self.timeout, client_id=self.client_id
            )
        return self._groups[group]

    async def _fetch(
        self, topic: str, partition: int, offset: int, size: int, max_wait: float, min_bytes: int, deadline: float
    ) -> _FetchAnswer:
        loop = asyncio.get_running_loop()
        wanted = fetch.FetchPartition(partition=partition, offset=offset, max_bytes=size)
        while True:
            # The broker must respond before this call times out, even if there is nothing to read.
            wait = max(0.0, min(max_wait, (deadline - loop.time()) / 2))
            request = fetch.FetchRequest(
                replica_id=fetch.CONSUMER_REPLICA_ID,
                max_wait_ms=int(wait * 1000),
                min_bytes=min_bytes,
                max_bytes=size,
                topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
            )
            node, response = await self._ask(
                topic, partition, request, self.fetch_version, wait + RESPONSE_GRACE, deadline
            )
            found = [p for entry in response.topics if entry.topic == topic for p in entry.partitions]
            if len(found) != 1 or found[0].partition != partition:
                raise ReadFailed(f"{topic}-{partition}: broker {node.id} answered a fetch with another partition")
            error = ErrorCode.of(found[0].error_code)
            if error not in RETRIABLE_ERRORS:
                messages, damage = read_messages(found[0], offset, check_crcs=self.check_crcs)
                if damage is not None:
                    raise _build_damage_error(topic, partition, node.id, damage)
                return _FetchAnswer(found[0], messages, node.id)
            await self._retry_or_raise(topic, partition, error, node, deadline)

    async def _list_offsets(
        self, topic: str, wanted: listing.ListOffsetsPartition, version: int
    ) -> listing.ListOffsetsPartitionResponse:
        deadline = asyncio.get_running_loop().time() + self.timeout
        partition = wanted.partition
        request = listing.ListOffsetsRequest(
            replica_id=fetch.CONSUMER_REPLICA_ID, topics=[listing.ListOffsetsTopic(topic=topic, partitions=[wanted])]
        )
        while True:
            node, response = await self._ask(topic, partition, request, version, RESPONSE_GRACE, deadline)
            answers = [p for entry in response.topics if entry.topic == topic for p in entry.partitions]
            if len(answers) != 1 or answers[0].partition != partition:
                raise ReadFailed(f"{topic}-{partition}: broker {node.id} answered with offsets of another partition")
            error = ErrorCode.of(answers[0].error_code)
            if error is ErrorCode.NONE:
                return answers[0]
            await self._retry_or_raise(topic, partition, error, node, deadline)

    async def _ask(
        self, topic: str, partition: int, request: Request[R], version: int, patience: float, deadline: float
    ) -> tuple[BrokerNode, R]:
        """Returns the leader's response. After an error of the connection, looks up the leader and asks again."""
        loop = asyncio.get_running_loop()
        while True:
            leader = await self._metadata.leader(topic, partition, deadline)
            try:
                connection = await self._pool.get(leader.address, deadline - loop.time())
                return leader, await connection.call(request, version, min(patience, deadline - loop.time()))
            except CallError as error:
                self._metadata.forget(topic, partition)
                if loop.time() + BACK_OFF >= deadline:
                    raise ReadFailed(f"{topic}-{partition} at broker {leader.id}: {error}", node=leader.id) from error
                await asyncio.sleep(BACK_OFF)

    async def _retry_or_raise(
        self, topic: str, partition: int, error: ErrorCode, node: BrokerNode, deadline: float
    ) -> None:
        if error in STALE_METADATA:
            self._metadata.forget(topic, partition)
        if error not in RETRIABLE_ERRORS or asyncio.get_running_loop().time() + BACK_OFF >= deadline:
            raise ReadFailed(f"{topic}-{partition}: broker {node.id} answered {error.name}", error=error, node=node.id)
        await asyncio.sleep(BACK_OFF)


def _build_damage_error(topic: str, partition: int, node: int, how: str) -> DamagedAnswer:
    what = f"{topic}-{partition}: broker {node} served damaged records: {how}"
    return DamagedAnswer(what, error=ErrorCode.CORRUPT_MESSAGE, node=node)
