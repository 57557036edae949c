"""Fetches of several partitions, with one request to each of their leaders, and the result of a fetch.

A call waits for the responses of all leaders, because a later call cannot use late responses. For a broker that
recently did not answer, it waits only a short time.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.connection import CallError
from assay.system_under_test.client.errors import STALE_METADATA, ReadFailed
from assay.system_under_test.client.metadata import BACK_OFF, SILENCE_SECONDS, BrokerNode, Metadata
from assay.system_under_test.client.pool import Address, Pool
from assay.system_under_test.protocol import fetch as protocol
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.fetch import FetchPartitionResponse
from assay.system_under_test.protocol.schema import read_records
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import TIMESTAMP_TYPE_BIT, Message, RecordError

__all__ = ["RESPONSE_GRACE", "RETRIABLE_ERRORS", "FetchResult", "Message", "get_create_time", "read_messages"]

RESPONSE_GRACE = 2.0
"""Seconds for a response, beyond the requested wait, before the leader is looked up and asked again."""

RETRIABLE_ERRORS = STALE_METADATA | {ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN}
"""Errors after which a retry of a read may succeed."""


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Result of one fetch. ``error`` is NONE, or the error of the broker (usually OFFSET_OUT_OF_RANGE)."""

    messages: Sequence[Message]
    high_watermark: int
    """-1 after an error."""
    node: int
    """The broker that responded; -1 if none did."""
    error: ErrorCode = ErrorCode.NONE


def get_create_time(message: Message) -> int | None:
    """Returns a message's create time in milliseconds. None if it has none, or if the broker set the append time."""
    return None if message.attributes & TIMESTAMP_TYPE_BIT else message.timestamp


def read_messages(found: FetchPartitionResponse, offset: int, *, check_crcs: bool) -> tuple[list[Message], str | None]:
    """Returns the complete messages of a response, up to the first damage. They may begin below ``offset``.

    Stops after ``MAX_MESSAGES``, because small compressed sets may hold many messages.

    If the damage comes before any message at ``offset`` or above, returns no messages and a description of the damage.
    """
    messages: list[Message] = []
    try:
        for message in message_set.iterate_messages(read_records(found.records), check_crcs=check_crcs):
            messages.append(message)
            if len(messages) >= MAX_MESSAGES and message.offset >= offset:
                break
    except RecordError as damage:
        if not any(message.offset >= offset for message in messages):
            return [], str(damage)
    return messages, None


MAX_MESSAGES = 256 * 1024
"""Maximum messages that one response yields; the next fetch continues after them. May be exceeded to make progress."""
SHORT_GRACE = 0.2
"""Replaces ``RESPONSE_GRACE`` for a broker that recently did not answer, if other brokers are queried, too."""


class MultiFetch:
    """Fetches several partitions. A fetch size that is too small for a message is doubled up to ``max_fetch_bytes``."""

    def __init__(self, metadata: Metadata, pool: Pool, *, version: int, max_fetch_bytes: int, check_crcs: bool) -> None:
        self._metadata = metadata
        self._pool = pool
        self._version = version
        self._max_fetch_bytes = max_fetch_bytes
        self._check_crcs = check_crcs
        self._silent: dict[Address, float] = {}
        """Loop time until which a broker that did not answer gets the short wait."""

    async def fetch(
        self, offsets: Mapping[Partition, int], max_bytes: int, max_wait: float, min_bytes: int, deadline: float
    ) -> dict[Partition, FetchResult]:
        """Fetches until ``deadline`` (loop time); see ``SimpleConsumer.multi_fetch``."""
        loop = asyncio.get_running_loop()
        sizes = dict.fromkeys(offsets, max_bytes)
        answers: dict[Partition, FetchResult] = {}
        failures: dict[Partition, FetchResult] = {}
        wanted = list(offsets)
        while wanted:
            wait = max(0.0, min(max_wait, (deadline - loop.time()) / 2))
            left = min(wait + RESPONSE_GRACE, deadline - loop.time())
            by_leader = self._group_by_leader(wanted)
            recently_silent = {leader for leader in by_leader if self._silent.get(leader.address, 0.0) > loop.time()}
            if len(recently_silent) == len(by_leader):
                recently_silent.clear()
            fetches = [
                self._ask(
                    leader,
                    {one: (offsets[one], sizes[one]) for one in led},
                    wait,
                    min_bytes,
                    min(left, wait + SHORT_GRACE) if leader in recently_silent else left,
                )
                for leader, led in by_leader.items()
            ]
            topics = self._list_leaderless_topics(wanted)
            refreshes = [self._refresh_leaders(topic, loop.time() + left) for topic in topics]
            doubled: list[Partition] = []
            for found in await asyncio.gather(*fetches, *refreshes):
                for one, (fetched, truncated) in found.items():
                    if truncated and sizes[one] < self._max_fetch_bytes:
                        sizes[one] = min(2 * sizes[one], self._max_fetch_bytes)
                        doubled.append(one)
                    elif truncated:
                        answers[one] = replace(fetched, error=ErrorCode.MESSAGE_TOO_LARGE)
                    elif fetched.error in RETRIABLE_ERRORS or fetched.error is ErrorCode.NETWORK_EXCEPTION:
                        failures[one] = fetched
                    else:
                        answers[one] = fetched
            # If a size was too small for one message, fetch again here with twice the size. The caller would begin
            # with the old size again.
            wanted = doubled or [one for one in offsets if not answers]
            if wanted and loop.time() + BACK_OFF >= deadline:
                break
            if wanted and not doubled and (fetches or not self._group_by_leader(wanted)):
                await asyncio.sleep(BACK_OFF)
        leaderless = FetchResult((), -1, -1, ErrorCode.LEADER_NOT_AVAILABLE)
        if offsets and not answers:
            error = next(iter(failures.values()), leaderless).error
            names = ", ".join(f"{topic}-{partition}" for topic, partition in offsets)
            raise ReadFailed(f"none of {names} could be read in time ({error.name})", error=error)
        return {one: answers.get(one) or failures.get(one, leaderless) for one in offsets}

    def _group_by_leader(self, wanted: Sequence[Partition]) -> dict[BrokerNode, list[Partition]]:
        led: dict[BrokerNode, list[Partition]] = {}
        for one in wanted:
            leader = self._metadata.get_cached_leader(*one)
            if leader is not None:
                led.setdefault(leader, []).append(one)
        return led

    def _list_leaderless_topics(self, wanted: Sequence[Partition]) -> list[str]:
        return list(
            dict.fromkeys(topic for topic, index in wanted if self._metadata.get_cached_leader(topic, index) is None)
        )

    async def _refresh_leaders(self, topic: str, deadline: float) -> dict[Partition, tuple[FetchResult, bool]]:
        """Refreshes a topic's leaders. A failure is ignored, because the next round or call tries again."""
        with contextlib.suppress(ReadFailed):
            await self._metadata.refresh(topic, deadline)
        return {}

    async def _ask(
        self, leader: BrokerNode, wanted: Mapping[Partition, tuple[int, int]], wait: float, min_bytes: int, left: float
    ) -> dict[Partition, tuple[FetchResult, bool]]:
        """Fetches partitions; ``wanted`` has (offset, bytes).

        Returns each result, and whether it had less than a whole message.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + left
        request = protocol.FetchRequest(
            replica_id=protocol.CONSUMER_REPLICA_ID,
            max_wait_ms=int(wait * 1000),
            min_bytes=min_bytes,
            max_bytes=min(self._max_fetch_bytes, sum(size for _, size in wanted.values())),
            topics=[
                protocol.FetchTopic(
                    topic=name,
                    partitions=[
                        protocol.FetchPartition(partition=index, offset=offset, max_bytes=size)
                        for (topic, index), (offset, size) in wanted.items()
                        if topic == name
                    ],
                )
                for name in dict.fromkeys(topic for topic, _ in wanted)
            ],
        )
        try:
            connection = await self._pool.get(leader.address, left)
            response = await connection.call(request, self._version, deadline - loop.time())
        except CallError:
            if self._silent.get(leader.address, 0.0) <= loop.time():
                self._silent[leader.address] = loop.time() + SILENCE_SECONDS
            for one in wanted:
                self._metadata.forget(*one)
            return dict.fromkeys(wanted, (FetchResult((), -1, leader.id, ErrorCode.NETWORK_EXCEPTION), False))
        self._silent.pop(leader.address, None)
        parts = {(topic.topic, part.partition): part for topic in response.topics for part in topic.partitions}
        return {one: self._to_result(one, offset, parts.get(one), leader) for one, (offset, _) in wanted.items()}

    def _to_result(
        self, one: Partition, offset: int, found: protocol.FetchPartitionResponse | None, leader: BrokerNode
    ) -> tuple[FetchResult, bool]:
        """Returns the result, and whether the answer had only a part of one message."""
        error = ErrorCode.UNKNOWN if found is None else ErrorCode.of(found.error_code)
        if error in STALE_METADATA:
            self._metadata.forget(*one)
        if found is None or error is not ErrorCode.NONE:
            return FetchResult((), -1, leader.id, error), False
        messages, damage = read_messages(found, offset, check_crcs=self._check_crcs)
        if damage is not None:
            return FetchResult((), -1, leader.id, ErrorCode.CORRUPT_MESSAGE), False
        kept = [message for message in messages if message.offset >= offset]
        truncated = not messages and bool(read_records(found.records))
        return FetchResult(kept, found.high_watermark, leader.id), truncated
