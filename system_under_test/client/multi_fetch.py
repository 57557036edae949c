"""Fetches of several partitions: one request to each broker that leads some of them.

A response belongs to the call that asked, so a silent broker cannot answer a later call; it must be waited for. A
broker that recently did not answer gets only a short wait.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.connection import CallError
from assay.system_under_test.client.errors import STALE_METADATA, ReadFailed
from assay.system_under_test.client.fetch_result import RESPONSE_GRACE, RETRIABLE_ERRORS, FetchResult, read_messages
from assay.system_under_test.client.metadata import BACK_OFF, SILENCE, Metadata, Node
from assay.system_under_test.client.pool import Address, Pool
from assay.system_under_test.protocol import fetch as messages
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import read_records

HASTE = 0.2
"""Replaces ``RESPONSE_GRACE`` for a broker that recently did not answer, if others are asked as well."""


class MultiFetch:
    """Fetches several partitions. ``largest``: limit in bytes for doubling a buffer that is too small for a message."""

    def __init__(self, metadata: Metadata, pool: Pool, *, version: int, largest: int, check_crcs: bool) -> None:
        self._metadata = metadata
        self._pool = pool
        self._version = version
        self._largest = largest
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
        troubles: dict[Partition, FetchResult] = {}
        wanted = list(offsets)
        while wanted:
            wait = max(0.0, min(max_wait, (deadline - loop.time()) / 2))
            left = min(wait + RESPONSE_GRACE, deadline - loop.time())
            by_leader = self._by_leader(wanted)
            hurried = {leader for leader in by_leader if self._silent.get(leader.address, 0.0) > loop.time()}
            if len(hurried) == len(by_leader):
                hurried.clear()
            ask = [
                self._ask(
                    leader,
                    {one: (offsets[one], sizes[one]) for one in led},
                    wait,
                    min_bytes,
                    min(left, wait + HASTE) if leader in hurried else left,
                )
                for leader, led in by_leader.items()
            ]
            look = [self._look(topic, loop.time() + left) for topic in self._without_leader(wanted)]
            doubled: list[Partition] = []
            for found in await asyncio.gather(*ask, *look):
                for one, (fetched, truncated) in found.items():
                    if truncated and sizes[one] < self._largest:
                        sizes[one] = min(2 * sizes[one], self._largest)
                        doubled.append(one)
                    elif truncated:
                        answers[one] = replace(fetched, error=ErrorCode.MESSAGE_TOO_LARGE)
                    elif fetched.error in RETRIABLE_ERRORS or fetched.error is ErrorCode.NETWORK_EXCEPTION:
                        troubles[one] = fetched
                    else:
                        answers[one] = fetched
            # A buffer that was too small is not an answer, because the caller would use the same size again.
            wanted = doubled or [one for one in offsets if not answers]
            if wanted and loop.time() + BACK_OFF >= deadline:
                break
            if wanted and not doubled and (ask or not self._by_leader(wanted)):
                await asyncio.sleep(BACK_OFF)
        silent = FetchResult((), -1, -1, ErrorCode.LEADER_NOT_AVAILABLE)
        if offsets and not answers:
            error = next(iter(troubles.values()), silent).error
            names = ", ".join(f"{topic}-{partition}" for topic, partition in offsets)
            raise ReadFailed(f"none of {names} could be read in time ({error.name})", error=error)
        return {one: answers.get(one) or troubles.get(one, silent) for one in offsets}

    def _by_leader(self, wanted: Sequence[Partition]) -> dict[Node, list[Partition]]:
        led: dict[Node, list[Partition]] = {}
        for one in wanted:
            leader = self._metadata.cached(*one)
            if leader is not None:
                led.setdefault(leader, []).append(one)
        return led

    def _without_leader(self, wanted: Sequence[Partition]) -> list[str]:
        return list(dict.fromkeys(topic for topic, index in wanted if self._metadata.cached(topic, index) is None))

    async def _look(self, topic: str, deadline: float) -> dict[Partition, tuple[FetchResult, bool]]:
        """Refreshes a topic's leaders. A failure is ignored, because the next round or call tries again."""
        with contextlib.suppress(ReadFailed):
            await self._metadata.refresh(topic, deadline)
        return {}

    async def _ask(
        self, leader: Node, wanted: Mapping[Partition, tuple[int, int]], wait: float, min_bytes: int, left: float
    ) -> dict[Partition, tuple[FetchResult, bool]]:
        """Fetches partitions by (offset, bytes). Returns each result, and whether it was less than a whole message."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + left
        request = messages.FetchRequest(
            replica_id=messages.CONSUMER_REPLICA_ID,
            max_wait_ms=int(wait * 1000),
            min_bytes=min_bytes,
            max_bytes=min(self._largest, sum(size for _, size in wanted.values())),
            topics=[
                messages.FetchTopic(
                    topic=name,
                    partitions=[
                        messages.FetchPartition(partition=index, offset=offset, max_bytes=size)
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
                self._silent[leader.address] = loop.time() + SILENCE
            for one in wanted:
                self._metadata.forget(*one)
            return dict.fromkeys(wanted, (FetchResult((), -1, leader.id, ErrorCode.NETWORK_EXCEPTION), False))
        self._silent.pop(leader.address, None)
        parts = {(topic.topic, part.partition): part for topic in response.topics for part in topic.partitions}
        return {one: self._judged(one, offset, parts.get(one), leader) for one, (offset, _) in wanted.items()}

    def _judged(
        self, one: Partition, offset: int, found: messages.FetchPartitionResponse | None, leader: Node
    ) -> tuple[FetchResult, bool]:
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
