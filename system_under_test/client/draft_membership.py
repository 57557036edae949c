"""Membership of a draft group. Its protocol is the draft of Kafka's group protocol: the coordinator assigns partitions.

- A heartbeat is sent every session timeout / ``frequency``.
- A rejected heartbeat stops the consumer until it has joined again.
- If there is no response within the session timeout, or the connection closes, the consumer looks for the coordinator.
  It keeps its partitions until a coordinator rejects its generation.

:class:`DraftMemberState` has the states of a membership.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from assay.system_under_test.client import coordinated
from assay.system_under_test.client.config import DraftConfig
from assay.system_under_test.client.connection import CallError, NotSent
from assay.system_under_test.client.metadata import BACK_OFF
from assay.system_under_test.client.pool import Address
from assay.system_under_test.protocol import draft_groups
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Runtime


class DraftMemberState(StrEnum):
    """State of a membership. The consumer consumes in ``MEMBER`` and ``REDISCOVERING``."""

    DOWN = "Down"
    DISCOVERING = "Discovering"
    MEMBER = "Member"
    REDISCOVERING = "Rediscovering"
    STOPPED = "Stopped"


CONSUMING: Final = frozenset({DraftMemberState.MEMBER, DraftMemberState.REDISCOVERING})


class DraftMemberEvent(StrEnum):
    STARTED = "started"
    JOINED = "joined"
    ACCEPTED = "a heartbeat was accepted"
    REFUSED = "its generation or its id is no longer known"
    LOST = "the coordinator does not answer, or no longer coordinates"
    ENDED = "ended"


_NEXT: Final[Mapping[tuple[DraftMemberState, DraftMemberEvent], DraftMemberState]] = MappingProxyType(
    {
        (DraftMemberState.DOWN, DraftMemberEvent.STARTED): DraftMemberState.DISCOVERING,
        (DraftMemberState.DISCOVERING, DraftMemberEvent.JOINED): DraftMemberState.MEMBER,
        (DraftMemberState.MEMBER, DraftMemberEvent.REFUSED): DraftMemberState.STOPPED,
        (DraftMemberState.MEMBER, DraftMemberEvent.LOST): DraftMemberState.REDISCOVERING,
        (DraftMemberState.REDISCOVERING, DraftMemberEvent.ACCEPTED): DraftMemberState.MEMBER,
        (DraftMemberState.REDISCOVERING, DraftMemberEvent.REFUSED): DraftMemberState.STOPPED,
        (DraftMemberState.STOPPED, DraftMemberEvent.JOINED): DraftMemberState.MEMBER,
        # Stopped by a coordinator that then died: its successor may accept the generation.
        (DraftMemberState.STOPPED, DraftMemberEvent.ACCEPTED): DraftMemberState.MEMBER,
    }
)


def find_next_state(state: DraftMemberState, event: DraftMemberEvent) -> DraftMemberState:
    """Returns the state after an event. ``ENDED`` always leads to ``DOWN``; events not in ``_NEXT`` change nothing."""
    return DraftMemberState.DOWN if event is DraftMemberEvent.ENDED else _NEXT.get((state, event), state)


JOIN_AGAIN_ERRORS: Final = coordinated.GENERATION_OVER_ERRORS | {ErrorCode.REQUEST_TIMED_OUT}


class DraftMembership(coordinated.CoordinatorClient):
    """Membership of one consumer. ``on_state`` is called with each new state. Only one call at a time is allowed."""

    find_request = draft_groups.ConsumerMetadataRequest

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group: str,
        topics: Sequence[str],
        config: DraftConfig | None = None,
        *,
        runtime: Runtime,
        on_state: Callable[[DraftMemberState], None] = lambda state: None,
    ) -> None:
        config = config or DraftConfig()
        super().__init__(bootstrap, group, runtime=runtime, timeout=config.timeout, client_id=config.client_id)
        self.state = DraftMemberState.DOWN
        self._topics = list(topics)
        self._strategy = config.strategy
        self._session_timeout = config.session_timeout
        self._interval = config.session_timeout / config.frequency
        self._join_timeout = config.join_timeout
        self._on_state = on_state
        self._consumer_id = ""
        self._stopped_generation: coordinated.Generation | None = None
        """The rejected generation, while a later coordinator may still accept it."""
        self._rejecting_coordinator: Address | None = None
        """The coordinator that rejected that generation."""

    async def enter(
        self, timeout: float | None = None, *, before_join: Callable[[], Awaitable[None]] | None = None
    ) -> coordinated.Generation:
        """Returns the current generation. If there is none, joins the group first. Raises :class:`JoinFailed`.

        ``before_join`` is called once, before the first request to join. Until then a coordinator may still accept the
        old generation.
        """
        if self.generation is not None:
            return self.generation
        deadline = asyncio.get_running_loop().time() + (self._join_timeout if timeout is None else timeout)
        await self._stop_heartbeats()
        self._handle_event(DraftMemberEvent.STARTED)
        problem: object = "no broker coordinates it"
        while coordinated.get_time_left(deadline) > 0:
            try:
                await self._connect_to_coordinator(deadline)
                stopped = self._stopped_generation
                if stopped is not None and await self._is_accepted_again(stopped, deadline):
                    return self._begin(stopped, DraftMemberEvent.ACCEPTED)
                if before_join is not None:
                    announce, before_join = before_join, None
                    await announce()
                answer = await self._join(deadline)
            except CallError as error:
                problem = error
            else:
                code = ErrorCode.of(answer.error_code)
                if code is ErrorCode.NONE:
                    self._consumer_id = answer.consumer_id
                    return self._begin(_to_generation(answer), DraftMemberEvent.JOINED)
                if code is draft_groups.UNKNOWN_CONSUMER:
                    self._consumer_id = ""
                elif code in coordinated.STALE_COORDINATOR:
                    self._coordinator = None
                elif code not in JOIN_AGAIN_ERRORS:
                    raise coordinated.JoinFailed(
                        f"group {self.group}: the coordinator answered {code.name}", error=code
                    )
                problem = code.name
            await asyncio.sleep(BACK_OFF)
        raise coordinated.JoinFailed(f"group {self.group}: not a member in time: {problem}")

    def subscribe(self, topics: Sequence[str]) -> None:
        """Changes the topics. The member must join again, even if a coordinator would accept its generation."""
        self._topics = list(topics)
        if self.generation is not None:
            super()._end_generation(ErrorCode.REBALANCE_IN_PROGRESS)
            self._handle_event(DraftMemberEvent.REFUSED)
        self._stopped_generation = None

    async def leave(self) -> None:
        """Leaves the group. A failure is only logged, because the session of a silent member expires anyway."""
        await self._stop_heartbeats()
        self._stopped_generation = self.generation = None
        self._handle_event(DraftMemberEvent.ENDED)
        consumer_id, self._consumer_id = self._consumer_id, ""
        if consumer_id:
            await self._send_leave(draft_groups.DraftLeaveGroupRequest(group_id=self.group, consumer_id=consumer_id))

    async def close(self) -> None:
        """Closes the connections without leaving the group."""
        await self._stop_heartbeats()
        self._handle_event(DraftMemberEvent.ENDED)
        await super().close()

    # -- joining ---------------------------------------------------------------------------------------------------

    async def _connect_to_coordinator(self, deadline: float) -> None:
        """Connects to the coordinator. Raises ``NotSent`` if it is unknown or cannot be reached."""
        address = await self._find_coordinator(deadline)
        try:
            await self._pool.get(address, coordinated.get_time_left(deadline))
        except CallError:
            self._coordinator = None
            raise

    async def _is_accepted_again(self, stopped: coordinated.Generation, deadline: float) -> bool:
        """Returns whether a new coordinator accepts the generation that another one rejected. Raises ``CallError``."""
        if self._coordinator == self._rejecting_coordinator:
            return False
        code = await self._heartbeat(stopped, min(coordinated.get_time_left(deadline), self._session_timeout))
        if code in coordinated.STALE_COORDINATOR:
            self._coordinator = None
            raise NotSent(f"group {self.group}: {code.name}")
        self._rejecting_coordinator = self._coordinator
        if code is draft_groups.UNKNOWN_CONSUMER:
            self._consumer_id, self._stopped_generation = "", None
        return code is ErrorCode.NONE

    async def _join(self, deadline: float) -> draft_groups.DraftJoinGroupResponse:
        request = draft_groups.DraftJoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=int(self._session_timeout * 1000),
            topics=self._topics,
            consumer_id=self._consumer_id,
            strategy=self._strategy,
        )
        # From now on the coordinator may have the request, so there may be a newer generation than the stopped one.
        stopped, self._stopped_generation = self._stopped_generation, None
        try:
            answer: draft_groups.DraftJoinGroupResponse = await self._ask(
                request, 0, coordinated.get_time_left(deadline)
            )
        except NotSent:
            self._stopped_generation = stopped
            raise
        return answer

    def _begin(self, generation: coordinated.Generation, how: DraftMemberEvent) -> coordinated.Generation:
        self.generation, self._stopped_generation = generation, None
        self._handle_event(how)
        self._tasks = [asyncio.get_running_loop().create_task(self._send_heartbeats(generation))]
        return generation

    # -- heartbeats ------------------------------------------------------------------------------------------------

    async def _send_heartbeats(self, generation: coordinated.Generation) -> None:
        """Sends heartbeats until the generation is over."""
        while self.generation is generation:
            await self._await_next_heartbeat()
            await asyncio.sleep(max(0.0, self._heartbeats_paused_until - asyncio.get_running_loop().time()))
            if self.generation is not generation:
                return
            try:
                code = await self._heartbeat(generation, self._session_timeout)
            except CallError:
                code = ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
            if self.generation is not generation:
                return
            if code is ErrorCode.NONE:
                self._handle_event(DraftMemberEvent.ACCEPTED)
            elif code in coordinated.GENERATION_OVER_ERRORS:
                self._end_generation(code)
            else:
                self._coordinator = None
                self._handle_event(DraftMemberEvent.LOST)

    async def _await_next_heartbeat(self) -> None:
        """Waits until the next heartbeat is due, or the connection for heartbeats closes."""
        if self.state is DraftMemberState.REDISCOVERING or self._coordinator is None:
            await asyncio.sleep(BACK_OFF)
            return
        try:
            async with asyncio.timeout(self._interval):
                await (await self._heartbeat_pool.get(self._coordinator, self._interval)).wait_ended()
        except (TimeoutError, CallError):
            return

    async def _heartbeat(self, generation: coordinated.Generation, left: float) -> ErrorCode:
        request = draft_groups.DraftHeartbeatRequest(
            group_id=self.group, generation_id=generation.number, consumer_id=generation.member_id
        )
        return ErrorCode.of((await self._ask(request, 0, left, self._heartbeat_pool)).error_code)

    def _end_generation(self, code: ErrorCode) -> None:
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return  # the response to a commit; the next heartbeat shows whether the generation is over
        if code is draft_groups.UNKNOWN_CONSUMER:
            self._consumer_id, self._stopped_generation = "", None
        else:
            self._stopped_generation, self._rejecting_coordinator = self.generation, self._coordinator
        super()._end_generation(code)
        self._handle_event(DraftMemberEvent.REFUSED)

    def _handle_event(self, event: DraftMemberEvent) -> None:
        before, self.state = self.state, find_next_state(self.state, event)
        assert (self.generation is not None) >= (self.state in CONSUMING), f"{self.state} without a generation"
        if self.state is not before:
            self._on_state(self.state)


def _to_generation(answer: Any) -> coordinated.Generation:
    partitions = tuple((topic.topic, index) for topic in answer.partitions_to_own for index in topic.partitions)
    return coordinated.Generation(answer.generation_id, answer.consumer_id, partitions)
