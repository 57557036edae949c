"""Client of a group's coordinator: finds it, sends it requests, and commits and fetches offsets.

Kafka's final design and the draft both use this client. The outcome of a commit is done, certainly not done, or
unknown.
"""

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from assay.system_under_test.assignors import group_by_topic
from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.connection import CallError, NotSent
from assay.system_under_test.client.errors import (
    OFFSET_COMMIT_NOT_DONE,
    OFFSET_COMMIT_WORTH_REPEATING,
    Certainty,
    ClientError,
    ReadFailed,
    classify_error,
)
from assay.system_under_test.client.metadata import BACK_OFF
from assay.system_under_test.client.pool import Address, Bootstrap, KnownBrokers, Pool
from assay.system_under_test.protocol import draft_groups, group_offsets, groups
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Runtime

COMMIT_VERSION: Final = 2
FETCH_VERSION: Final = 1
_log = logging.getLogger("assay.client")

ATTEMPT_TIMEOUT: Final = 1.0
"""Seconds to wait for one broker's answer about the coordinator."""
STALE_COORDINATOR: Final = frozenset(
    {ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR_FOR_GROUP, ErrorCode.GROUP_LOAD_IN_PROGRESS}
)
"""Errors after which the coordinator must be looked up and asked again."""
GENERATION_OVER_ERRORS: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS}
)
"""Errors after which a member's generation is over."""


@dataclass(frozen=True, slots=True)
class Position:
    """A committed offset; -1 if there is none."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of the group, and the partitions that this member owns in it."""

    number: int
    member_id: str
    partitions: tuple[Partition, ...]


class CommitFailed(ClientError):
    """A commit failed. ``outcome``: whether the offsets are certainly not committed, or whether that is unknown.

    ``partitions`` has the outcome of each partition. If only some offsets may be committed, ``outcome`` is unknown.
    """

    def __init__(
        self,
        message: str,
        known: Certainty,
        partitions: Mapping[Partition, Certainty],
        *,
        error: ErrorCode | None = None,
        node: int | None = None,
    ) -> None:
        super().__init__(message, error=error, node=node)
        self.outcome = known
        self.partitions = partitions


class JoinFailed(ClientError):
    """The join did not complete in time. The coordinator may count the client as a member until its session ends."""


class CoordinatorClient:
    """A client of a coordinator, member or not. ``timeout`` is in seconds, for each call."""

    find_request: ClassVar[type[groups.GroupCoordinatorRequest | draft_groups.ConsumerMetadataRequest]] = (
        groups.GroupCoordinatorRequest
    )
    """The request that finds the coordinator; each design has its own."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        group: str,
        *,
        runtime: Runtime,
        timeout: float,
        client_id: str,
        retention: float | None = None,
        abort_on_timeout: bool = False,
        repeat_unknown: bool = False,
    ) -> None:
        """Creates a client.

        - ``retention``: seconds for which commits are kept while the group has no members; None for the brokers'
          setting
        - ``abort_on_timeout``: as in :class:`~assay.system_under_test.client.pool.Pool`
        - ``repeat_unknown``: as in ``MemberConfig``
        """
        self.group = group
        self.generation: Generation | None = None
        """None if the client must join, or never joined."""
        self.end_error: ErrorCode | None = None
        """The error that ended the last generation.

        After REBALANCE_IN_PROGRESS, no other member owns this member's partitions until this member has joined again or
        its time to do so is over. After any other error, other members may own the partitions already.
        """
        self._timeout = timeout
        self._retention_ms = -1 if retention is None else int(retention * 1000)
        self._repeat_unknown = repeat_unknown
        self._bootstrap = KnownBrokers.of(bootstrap)
        self._random = runtime.random
        self._pool = Pool(client_id, abort_on_timeout=abort_on_timeout)
        # Heartbeats use their own connection, because a broker answers one request after the other and a join may wait.
        self._heartbeat_pool = Pool(f"{client_id}-heartbeat")
        self._coordinator: Address | None = None
        self._heartbeats_paused_until = -math.inf
        self._tasks: list[asyncio.Task[None]] = []
        """Heartbeats and other tasks that last as long as the generation."""

    def fall_silent(self, seconds: float) -> None:
        """Suppresses heartbeats for some seconds, so that the process looks stopped to its group."""
        self._heartbeats_paused_until = asyncio.get_running_loop().time() + seconds

    async def close(self) -> None:
        """Closes the connections without leaving the group."""
        await self._stop_heartbeats()
        await self._pool.close()
        await self._heartbeat_pool.close()

    async def _stop_heartbeats(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _send_leave(self, request: Any) -> None:
        """Sends a request to leave. A failure is only logged, because the session of a silent member expires anyway."""
        try:
            await self._ask(request, 0, self._timeout)
        except CallError as error:
            _log.info("group %s: leaving: %s", self.group, error)

    def _end_generation(self, code: ErrorCode) -> None:
        self.generation = None
        self.end_error = code

    # -- offsets ---------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Partition, Position], generation: Generation | None = None) -> None:
        """Commits in ``generation``, by default the current one; without any, as a client that is not a member.

        Retries definite failures that may go away, until the timeout. With ``repeat_unknown``, also retries after an
        unknown outcome. Raises :class:`CommitFailed`.
        """
        generation = generation or self.generation
        request = group_offsets.OffsetCommitRequest(
            group_id=self.group,
            generation_id=-1 if generation is None else generation.number,
            member_id="" if generation is None else generation.member_id,
            retention_time_ms=self._retention_ms,
            topics=[
                group_offsets.OffsetCommitTopic(
                    topic=topic,
                    partitions=[
                        group_offsets.OffsetCommitPartition(
                            partition=index, offset=position.offset, metadata=position.metadata
                        )
                        for (name, index), position in offsets.items()
                        if name == topic
                    ],
                )
                for topic in dict.fromkeys(topic for topic, _ in offsets)
            ],
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        not_done = dict.fromkeys(offsets, Certainty.NOT_DONE)
        outcomes: Mapping[Partition, Certainty] = not_done
        while True:
            error: CallError | None = None
            codes: list[ErrorCode] = []
            earlier = outcomes
            try:
                answer = await self._ask(request, COMMIT_VERSION, deadline - loop.time())
            except NotSent as not_sent:
                error, outcomes, retry = not_sent, not_done, True
            except CallError as unanswered:
                error, outcomes, retry = unanswered, dict.fromkeys(offsets, Certainty.UNKNOWN), self._repeat_unknown
            else:
                outcomes, codes = self._read_outcomes(answer, offsets, generation)
                if set(outcomes.values()) <= {Certainty.DONE} and not codes:
                    return
                retriable = STALE_COORDINATOR if self._repeat_unknown else OFFSET_COMMIT_WORTH_REPEATING
                retry = bool(codes) and set(codes) <= retriable
            outcomes = {one: _combine(earlier[one], now) for one, now in outcomes.items()}
            if not retry or loop.time() + BACK_OFF >= deadline:
                reason = error or f"answered {', '.join(code.name for code in codes) or 'for only some partitions'}"
                raise self._build_commit_error(reason, outcomes, codes[0] if codes else None) from error
            await asyncio.sleep(BACK_OFF)

    def _read_outcomes(
        self, answer: Any, offsets: Mapping[Partition, Position], generation: Generation | None
    ) -> tuple[Mapping[Partition, Certainty], list[ErrorCode]]:
        """Returns the outcome of each partition, and the errors. Ends the generation if an error says it is over."""
        answered = {
            (topic.topic, part.partition): ErrorCode.of(part.error_code)
            for topic in answer.topics
            for part in topic.partitions
        }
        codes = set(answered.values())
        if codes & STALE_COORDINATOR:
            self._coordinator = None
        if generation is self.generation:
            for code in sorted(codes & GENERATION_OVER_ERRORS):
                self._end_generation(code)
        known = {
            partition: classify_error(answered[partition], OFFSET_COMMIT_NOT_DONE)
            if partition in answered
            else Certainty.UNKNOWN
            for partition in offsets
        }
        return known, sorted(codes - {ErrorCode.NONE})

    def _build_commit_error(
        self, reason: object, outcomes: Mapping[Partition, Certainty], error: ErrorCode | None = None
    ) -> CommitFailed:
        none_done = set(outcomes.values()) == {Certainty.NOT_DONE}
        outcome = Certainty.NOT_DONE if none_done else Certainty.UNKNOWN
        return CommitFailed(f"group {self.group}: {reason}", outcome, outcomes, error=error)

    async def committed(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        """Returns the committed position of each partition. Raises ``ReadFailed``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        request = group_offsets.OffsetFetchRequest(
            group_id=self.group,
            topics=[
                group_offsets.OffsetFetchTopic(topic=topic, partitions=indexes)
                for topic, indexes in group_by_topic(partitions).items()
            ],
        )
        while True:
            code: ErrorCode | None = None
            reason: object = None
            try:
                answer = await self._ask(request, FETCH_VERSION, deadline - loop.time())
                parts = {(topic.topic, part.partition): part for topic in answer.topics for part in topic.partitions}
                codes = sorted({part.error_code for part in parts.values() if part.error_code})
                if not codes and parts.keys() == set(partitions):
                    return {key: Position(part.offset, part.metadata or "") for key, part in parts.items()}
                code = ErrorCode.of(codes[0]) if codes else ErrorCode.UNKNOWN
                reason = code.name
            except CallError as error:
                reason = error
            self._coordinator = None
            if loop.time() + BACK_OFF >= deadline or (code is not None and code not in STALE_COORDINATOR):
                raise ReadFailed(f"group {self.group}: offsets: {reason}", error=code)
            await asyncio.sleep(BACK_OFF)

    # -- the coordinator -------------------------------------------------------------------------------------------

    async def _ask(self, request: Any, version: int, left: float, pool: Pool | None = None) -> Any:
        """Sends a request to the coordinator. After a ``CallError`` the next call looks for the coordinator again."""
        deadline = asyncio.get_running_loop().time() + left
        address = await self._find_coordinator(deadline)
        try:
            connection = await (pool or self._pool).get(address, get_time_left(deadline))
            return await connection.call(request, version, get_time_left(deadline))
        except CallError:
            self._coordinator = None
            raise

    async def _find_coordinator(self, deadline: float) -> Address:
        """Finds the coordinator. Raises ``NotSent``."""
        if self._coordinator is not None:
            return self._coordinator
        addresses = list(self._bootstrap.addresses)
        self._random.shuffle(addresses)
        for address in addresses:
            try:
                connection = await self._pool.get(address, min(ATTEMPT_TIMEOUT, get_time_left(deadline)))
                left = min(ATTEMPT_TIMEOUT, get_time_left(deadline))
                found = await connection.call(self.find_request(group_id=self.group), 0, left)
            except CallError:
                continue
            if found.error_code == ErrorCode.NONE:
                self._coordinator = Address(found.host, found.port)
                return self._coordinator
        raise NotSent(f"no broker knows a coordinator of group {self.group}")


def _combine(earlier: Certainty, now: Certainty) -> Certainty:
    """Combines the outcomes of two tries of one commit. A failed try does not undo an earlier one."""
    if now is Certainty.NOT_DONE and earlier is not Certainty.NOT_DONE:
        return Certainty.UNKNOWN
    return now


def get_time_left(deadline: float) -> float:
    """Returns the seconds until ``deadline`` on the loop's clock; 0 if it has passed."""
    return max(0.0, deadline - asyncio.get_running_loop().time())
