"""A group of the draft: its consumers, their generation, and the partitions that each of them owns.

1. A *change* of the consumers, their topics or the topics' partitions makes the group *prepare*. So does any join.
2. Every heartbeat gets the error IllegalGeneration. The consumer then commits and joins again.
3. When each consumer has joined or lost its session, the generation rises by one and partitions are assigned again.
   Both are stored in ZooKeeper, by a single write, before any consumer gets a response.
4. The group is *rebalancing* until every consumer has sent a heartbeat in the new generation.
5. The group is *steady* until the next change.

Five events mark the points at which a coordinator may be killed. Each is emitted after its step and before the next:
draft-change, draft-notified, draft-joined, draft-generation, draft-answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Protocol

from assay.system_under_test.assignors import ASSIGNORS, Partition, group_by_topic
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.draft.metadata import (
    ABSENT,
    CoordinatorDisplaced,
    GroupMetadata,
    GroupTooLarge,
    StoredConsumer,
)
from assay.system_under_test.groups.group import GroupError, Spawn
from assay.system_under_test.groups.session_timers import SessionTimers
from assay.system_under_test.protocol.draft_groups import ILLEGAL_GENERATION, UNKNOWN_CONSUMER
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.zookeeper.znodes import Versioned


@dataclass(frozen=True, slots=True)
class JoinResult:
    """Result of a join; ``on_response_written`` must be called once the response was written."""

    generation: int
    consumer_id: str
    partitions: tuple[Partition, ...]
    on_response_written: Callable[[], None]


@dataclass
class Consumer:
    """A consumer. ``session_timeout`` is in seconds, ``deadline`` on the loop's clock.

    - ``notified``: whether the consumer got the response, in this rebalance, that its generation is over
    - ``seen``: whether the consumer has sent a heartbeat in the current generation
    """

    consumer_id: str
    topics: tuple[str, ...]
    session_timeout: float
    deadline: float = 0.0
    timer: asyncio.TimerHandle | None = None
    joining: asyncio.Future[JoinResult] | None = None
    notified: bool = False
    seen: bool = False

    @property
    def waits(self) -> bool:
        """Whether a join of the consumer is unanswered."""
        return self.joining is not None and not self.joining.done()

    def reject(self, code: ErrorCode) -> None:
        """Rejects a pending join."""
        if self.joining is not None and not self.joining.done():
            self.joining.set_exception(GroupError(code))
        self.joining = None


NO_GENERATION = -1


class DraftState(StrEnum):
    STEADY = "Steady"
    PREPARING = "PrepareForRebalance"
    REBALANCING = "Rebalancing"
    DEAD = "Dead"


class GroupWriter(Protocol):
    """Storage of groups; see :class:`MetadataStore`."""

    epoch: int

    async def write(self, group: str, metadata: GroupMetadata, version: int) -> int: ...


@dataclass
class DraftGroup:
    """A group. Its coordinator calls :meth:`end` when it stops coordinating.

    ``read_counts`` returns the topics' numbers of partitions. ``on_displaced`` is called if another coordinator has
    written the group.
    """

    group_id: str
    store: GroupWriter
    read_counts: Callable[[Collection[str]], Awaitable[Mapping[str, int]]]
    events: EventLog
    spawn: Spawn
    on_displaced: Callable[[], None]
    state: DraftState = DraftState.STEADY
    generation: int = 0
    version: int = ABSENT
    """The version of the group's znode."""
    strategy: str = ""
    consumers: dict[str, Consumer] = field(default_factory=dict)
    assignment: dict[str, list[Partition]] = field(default_factory=dict)
    _stored_counts: Mapping[str, int] = field(default_factory=dict)
    _writing: bool = False
    """Whether the next generation is being written. Consumers that join or leave meanwhile cause another one."""
    _changed: bool = False
    """Whether consumers have joined or left during that write."""

    def __post_init__(self) -> None:
        self._sessions: SessionTimers[Consumer] = SessionTimers(self._on_session_expired)

    # -- requests ------------------------------------------------------------------------------------------------

    def join(
        self, consumer_id: str, new_id: str, topics: Collection[str], strategy: str, session_timeout: float
    ) -> asyncio.Future[JoinResult]:
        """Adds or updates a consumer. Returns the future response, which is done when the next generation is stored.

        ``new_id`` is the id for a new consumer. This method and its future raise :class:`GroupError`:
        GROUP_LOAD_IN_PROGRESS, INCONSISTENT_GROUP_PROTOCOL or UNKNOWN_CONSUMER.
        """
        if self.state is DraftState.DEAD:
            raise GroupError(ErrorCode.GROUP_LOAD_IN_PROGRESS)  # the group is being deleted
        if consumer_id and consumer_id not in self.consumers:
            raise GroupError(UNKNOWN_CONSUMER)
        others = any(name != consumer_id for name in self.consumers)
        if strategy not in ASSIGNORS or (others and strategy != self.strategy):
            raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self.strategy = strategy
        wanted = tuple(sorted(set(topics)))
        consumer = self.consumers.get(consumer_id)
        if consumer is None:
            consumer = self.consumers[new_id] = Consumer(new_id, wanted, session_timeout)
            changed = True
        else:
            changed = consumer.topics != wanted
            consumer.topics, consumer.session_timeout = wanted, session_timeout
        self._sessions.renew(consumer)
        consumer.reject(ILLEGAL_GENERATION)  # in case a former connection still waits
        consumer.joining = asyncio.get_running_loop().create_future()
        future = consumer.joining
        if self._writing:
            self._changed = self._changed or changed
        else:
            if changed or self.state is not DraftState.PREPARING:
                self._begin_rebalance("a consumer joins", consumer.consumer_id)
            self._note_joined(consumer)
            self._rebalance_if_complete()
        return future

    def heartbeat(self, consumer_id: str, generation: int) -> Callable[[], None] | None:
        """Returns None if the generation is current. Otherwise the consumer must join again.

        In that case the caller must call the returned function after it has sent the error. Raises
        :class:`GroupError`: UNKNOWN_CONSUMER.
        """
        consumer = self._get_consumer(consumer_id)
        if self.state is DraftState.PREPARING or generation != self.generation:
            if not consumer.notified:
                self._sessions.renew(consumer)  # the consumer has one session timeout to rejoin
            return lambda: self._note_rejoin_requested(consumer)
        self._sessions.renew(consumer)
        consumer.seen = True
        if self.state is DraftState.REBALANCING and all(other.seen for other in self.consumers.values()):
            self.state = DraftState.STEADY
            self.events.emit("draft-steady", key=self.group_id, epoch=self.generation, value=len(self.consumers))
        return None

    def leave(self, consumer_id: str) -> None:
        """Removes a consumer. Raises :class:`GroupError`: UNKNOWN_CONSUMER."""
        self._remove(self._get_consumer(consumer_id), "left")

    def check_commit(self, consumer_id: str, generation: int) -> None:
        """Raises :class:`GroupError` unless a commit is allowed.

        A consumer may commit in its generation. While there are no consumers, any client may commit without an id and
        a generation. The error is ILLEGAL_GENERATION, UNKNOWN_CONSUMER or REBALANCE_IN_PROGRESS.
        """
        if self._writing:
            raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)
        if generation < 0 and not consumer_id and not self.consumers:
            return
        consumer = self._get_consumer(consumer_id)
        if generation != self.generation:
            raise GroupError(ILLEGAL_GENERATION)
        if not consumer.notified:
            self._sessions.renew(consumer)

    async def check_partition_counts(self) -> None:
        """Starts a rebalance if a topic's number of partitions differs from that of the last assignment."""
        counts = await self.read_counts(self._list_topics())
        if self.consumers and not self._writing and self._is_changed(counts) and self.state is not DraftState.DEAD:
            self._begin_rebalance("partitions")
            self._rebalance_if_complete()

    # -- load and end --------------------------------------------------------------------------------------------

    def load(self, found: Versioned[GroupMetadata]) -> None:
        """Restores the group that a former coordinator stored. The session of each consumer begins again."""
        metadata = found.value
        self.version, self.generation, self.strategy = found.version, metadata.generation, metadata.strategy
        self._stored_counts = metadata.partitions
        for name, stored in metadata.consumers.items():
            self.consumers[name] = Consumer(name, tuple(stored.topics), stored.session_timeout_ms / 1000)
            self._sessions.renew(self.consumers[name])
            given = metadata.assignment.get(name, {})
            self.assignment[name] = [(topic, index) for topic, indexes in given.items() for index in indexes]
        if self.consumers:
            self.state = DraftState.REBALANCING

    def end(self, code: ErrorCode) -> None:
        """Ends the group: answers all waiting requests with ``code`` and removes the consumers."""
        self.state = DraftState.DEAD
        for consumer in self.consumers.values():
            consumer.reject(code)
            self._sessions.stop(consumer)
        self.consumers = {}

    @property
    def empty(self) -> bool:
        return not self.consumers and not self._writing

    def wants(self, topic: str) -> bool:
        return any(topic in consumer.topics for consumer in self.consumers.values())

    # -- consumers -------------------------------------------------------------------------------------------------

    def _get_consumer(self, consumer_id: str) -> Consumer:
        consumer = self.consumers.get(consumer_id)
        if consumer is None:
            raise GroupError(UNKNOWN_CONSUMER)
        return consumer

    def _list_topics(self) -> set[str]:
        return {topic for consumer in self.consumers.values() for topic in consumer.topics}

    def _on_session_expired(self, consumer: Consumer) -> None:
        self._remove(consumer, "its session is over")

    def _remove(self, consumer: Consumer, reason: str) -> None:
        del self.consumers[consumer.consumer_id]
        self._sessions.stop(consumer)
        consumer.reject(UNKNOWN_CONSUMER)
        if self._writing:
            self._changed = True
        else:
            self._begin_rebalance(reason, consumer.consumer_id)
            self._rebalance_if_complete()

    # -- the next generation -----------------------------------------------------------------------------------------

    def _begin_rebalance(self, reason: str, owner: str | None = None) -> None:
        """Makes all consumers join again."""
        if self.state is not DraftState.PREPARING:
            self.state = DraftState.PREPARING
            for consumer in self.consumers.values():
                consumer.notified = False
        self.events.emit(
            "draft-change", key=self.group_id, epoch=self.generation, owner=owner, detail={"reason": reason}
        )

    def _note_rejoin_requested(self, consumer: Consumer) -> None:
        """Notes that a response asked the consumer to join again."""
        if self.consumers.get(consumer.consumer_id) is not consumer or consumer.notified:
            return
        consumer.notified = True
        remaining = sum(not (other.notified or other.waits) for other in self.consumers.values())
        self.events.emit(
            "draft-notified", key=self.group_id, epoch=self.generation, owner=consumer.consumer_id, value=remaining
        )

    def _note_joined(self, consumer: Consumer) -> None:
        """Emits an event while other consumers have not joined yet."""
        remaining = sum(not other.waits for other in self.consumers.values())
        if remaining:
            self.events.emit(
                "draft-joined", key=self.group_id, epoch=self.generation, owner=consumer.consumer_id, value=remaining
            )

    def _rebalance_if_complete(self) -> None:
        if self.state is not DraftState.PREPARING or self._writing:
            return
        if all(consumer.waits for consumer in self.consumers.values()):
            self._writing, self._changed = True, False
            self.spawn(self._rebalance(), f"generation of {self.group_id}")

    async def _rebalance(self) -> None:
        present = list(self.consumers.values())
        wanted = {consumer.consumer_id: consumer.topics for consumer in present}
        counts = await self.read_counts({topic for topics in wanted.values() for topic in topics})
        assignment = ASSIGNORS[self.strategy](wanted, counts)
        generation = self.generation + 1
        metadata = GroupMetadata(
            epoch=self.store.epoch,
            generation=generation,
            strategy=self.strategy,
            consumers={
                consumer.consumer_id: StoredConsumer(list(consumer.topics), int(consumer.session_timeout * 1000))
                for consumer in present
            },
            partitions=dict(counts),
            assignment={name: group_by_topic(given) for name, given in assignment.items()},
        )
        try:
            version = await self.store.write(self.group_id, metadata, self.version)
        except CoordinatorDisplaced:
            self.on_displaced()
            return
        except GroupTooLarge:
            self._reject_all(present)
            return
        if self.state is DraftState.DEAD:
            return
        self.version, self.generation, self.assignment, self._stored_counts = version, generation, assignment, counts
        self._writing = False
        self.state = DraftState.REBALANCING if present else DraftState.STEADY
        self.events.emit(
            "draft-generation",
            key=self.group_id,
            epoch=generation,
            value=len(present),
            detail={
                "coordinator_epoch": self.store.epoch,
                "owned": {name: [f"{topic}-{index}" for topic, index in given] for name, given in assignment.items()},
            },
        )
        self._answer_joins(present)
        if self._changed:
            self._begin_rebalance("consumers came or went meanwhile")
            self._rebalance_if_complete()
        elif present:
            await self.check_partition_counts()

    def _answer_joins(self, present: list[Consumer]) -> None:
        waiting = [
            consumer for consumer in present if consumer.waits and self.consumers.get(consumer.consumer_id) is consumer
        ]
        unanswered = {consumer.consumer_id for consumer in waiting}
        generation = self.generation

        def on_response_written(consumer_id: str) -> None:
            unanswered.discard(consumer_id)
            if unanswered:
                self.events.emit(
                    "draft-answered", key=self.group_id, epoch=generation, owner=consumer_id, value=len(unanswered)
                )

        for consumer in waiting:
            name = consumer.consumer_id
            consumer.notified = consumer.seen = False
            self._sessions.renew(consumer)
            assert consumer.joining is not None
            owned = tuple(self.assignment[name])
            consumer.joining.set_result(JoinResult(generation, name, owned, partial(on_response_written, name)))
            consumer.joining = None

    def _reject_all(self, present: list[Consumer]) -> None:
        """Rejects and removes the consumers, because the group is too large to store. Keeps the generation."""
        self._writing = False
        for consumer in present:
            if self.consumers.get(consumer.consumer_id) is consumer:
                consumer.reject(ErrorCode.UNKNOWN)
                del self.consumers[consumer.consumer_id]
                self._sessions.stop(consumer)
        self._rebalance_if_complete()

    def _is_changed(self, counts: Mapping[str, int]) -> bool:
        return any(self._stored_counts.get(topic) != count for topic, count in counts.items())
