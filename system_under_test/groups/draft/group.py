"""One group of the draft: its consumers, their generation, and what each of them owns.

A *change* (of the consumers, of their topics, of the topics' partitions) makes the group *prepare*: every heartbeat is
answered with IllegalGeneration, which tells its consumer to commit and to join again. When all have joined, or fallen
silent, the generation rises by one and the partitions are given out anew; both are in ZooKeeper, in one write, before
any consumer is answered. Then the group is *rebalancing* until every consumer has heartbeated in the new generation,
and *steady* until the next change. Any join is a change.

Five events mark the points at which a coordinator may die, each written when its step is done and nothing of the next:
draft-change, draft-told, draft-joined, draft-generation, draft-answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Protocol

from assay.system_under_test.assignors import ASSIGNORS, Partition
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.draft.metadata import ABSENT, Displaced, GroupMetadata, StoredConsumer, TooLarge
from assay.system_under_test.groups.group import GroupError, Spawn
from assay.system_under_test.protocol.draft_groups import ILLEGAL_GENERATION, UNKNOWN_CONSUMER
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.zookeeper.znodes import Versioned

NO_GENERATION = -1


class GroupState(StrEnum):
    STEADY = "Steady"
    PREPARING = "PrepareForRebalance"
    REBALANCING = "Rebalancing"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Joined:
    """What a consumer that joins is told; ``handed`` is to be called when the answer has gone out."""

    generation: int
    consumer_id: str
    partitions: tuple[Partition, ...]
    handed: Callable[[], None]


class Store(Protocol):
    """Where groups are kept: see :class:`MetadataStore`."""

    epoch: int

    async def write(self, group: str, metadata: GroupMetadata, version: int) -> int: ...


@dataclass
class Consumer:
    """``session_timeout`` in seconds, ``deadline`` on the loop's clock.

    ``told``: it has been told, since the group prepares, that its generation is over; ``seen``: it has heartbeated in
    the present one.
    """

    consumer_id: str
    topics: tuple[str, ...]
    session_timeout: float
    deadline: float = 0.0
    timer: asyncio.TimerHandle | None = None
    joining: asyncio.Future[Joined] | None = None
    told: bool = False
    seen: bool = False

    @property
    def waits(self) -> bool:
        """Has it asked to join, and is not answered yet?"""
        return self.joining is not None and not self.joining.done()

    def refuse(self, code: ErrorCode) -> None:
        """Of a join that waits."""
        if self.joining is not None and not self.joining.done():
            self.joining.set_exception(GroupError(code))
        self.joining = None


@dataclass
class DraftGroup:
    """A coordinator's: it ends with :meth:`end` when the coordinator does.

    ``sizes`` gives the numbers of partitions of topics; ``on_displaced`` hears that somebody else wrote the group.
    """

    group_id: str
    store: Store
    sizes: Callable[[Collection[str]], Awaitable[Mapping[str, int]]]
    events: EventLog
    spawn: Spawn
    on_displaced: Callable[[], None]
    state: GroupState = GroupState.STEADY
    generation: int = 0
    version: int = ABSENT
    strategy: str = ""
    consumers: dict[str, Consumer] = field(default_factory=dict)
    assignment: dict[str, list[Partition]] = field(default_factory=dict)
    _stored_sizes: Mapping[str, int] = field(default_factory=dict)
    _writing: bool = False
    """The next generation is being made: whoever comes or goes meanwhile has missed it."""
    _changed: bool = False

    # -- requests ------------------------------------------------------------------------------------------------

    def join(
        self, consumer_id: str, new_id: str, topics: Collection[str], strategy: str, session_timeout: float
    ) -> asyncio.Future[Joined]:
        """Answered once the next generation is stored. ``new_id`` is for one who has none yet.

        Raises :class:`GroupError`: 14, 23, 25; so does the future.
        """
        if self.state is GroupState.DEAD:
            raise GroupError(ErrorCode.GROUP_LOAD_IN_PROGRESS)  # it is being forgotten
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
            news = True
        else:
            news = consumer.topics != wanted
            consumer.topics, consumer.session_timeout = wanted, session_timeout
        self._hear(consumer)
        consumer.refuse(ILLEGAL_GENERATION)  # to a former connection
        consumer.joining = asyncio.get_running_loop().create_future()
        future = consumer.joining
        if self._writing:
            self._changed = self._changed or news
        else:
            if news or self.state is not GroupState.PREPARING:
                self._change("a consumer joins", consumer.consumer_id)
            self._note_joined(consumer)
            self._go_on_if_complete()
        return future

    def heartbeat(self, consumer_id: str, generation: int) -> Callable[[], None] | None:
        """None where all is well. Else the consumer is to join again, and this is to be called when it was told so.

        Raises :class:`GroupError`: 25.
        """
        consumer = self._consumer(consumer_id)
        if self.state is GroupState.PREPARING or generation != self.generation:
            if not consumer.told:
                self._hear(consumer)  # from now on it has one session to join
            return lambda: self._note_told(consumer)
        self._hear(consumer)
        consumer.seen = True
        if self.state is GroupState.REBALANCING and all(other.seen for other in self.consumers.values()):
            self.state = GroupState.STEADY
            self.events.emit("draft-steady", key=self.group_id, epoch=self.generation, value=len(self.consumers))
        return None

    def leave(self, consumer_id: str) -> None:
        """Raises :class:`GroupError`: 25."""
        self._remove(self._consumer(consumer_id), "left")

    def may_commit(self, consumer_id: str, generation: int) -> None:
        """A commit is a consumer's, of this generation, or anybody's while there are none.

        Raises :class:`GroupError`: 22, 25, 27.
        """
        if self._writing:
            raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS)
        if generation < 0 and not consumer_id and not self.consumers:
            return
        consumer = self._consumer(consumer_id)
        if generation != self.generation:
            raise GroupError(ILLEGAL_GENERATION)
        if not consumer.told:
            self._hear(consumer)

    async def partitions_changed(self) -> None:
        """Some topic's number of partitions may be another than it was when they were given out."""
        sizes = await self.sizes(self._topics())
        if self.consumers and not self._writing and self._differ(sizes) and self.state is not GroupState.DEAD:
            self._change("partitions")
            self._go_on_if_complete()

    # -- life ----------------------------------------------------------------------------------------------------

    def load(self, found: Versioned[GroupMetadata]) -> None:
        """As the former coordinator left it; each consumer has one session to be heard of."""
        metadata = found.value
        self.version, self.generation, self.strategy = found.version, metadata.generation, metadata.strategy
        self._stored_sizes = metadata.partitions
        for name, stored in metadata.consumers.items():
            self.consumers[name] = Consumer(name, tuple(stored.topics), stored.session_timeout_ms / 1000)
            self._hear(self.consumers[name])
            given = metadata.assignment.get(name, {})
            self.assignment[name] = [(topic, index) for topic, indexes in given.items() for index in indexes]
        if self.consumers:
            self.state = GroupState.REBALANCING

    def end(self, code: ErrorCode) -> None:
        """Nobody is answered by this group any more, except now."""
        self.state = GroupState.DEAD
        for consumer in self.consumers.values():
            consumer.refuse(code)
            _cancel(consumer.timer)
        self.consumers = {}

    @property
    def empty(self) -> bool:
        return not self.consumers and not self._writing

    def wants(self, topic: str) -> bool:
        return any(topic in consumer.topics for consumer in self.consumers.values())

    # -- consumers -------------------------------------------------------------------------------------------------

    def _consumer(self, consumer_id: str) -> Consumer:
        consumer = self.consumers.get(consumer_id)
        if consumer is None:
            raise GroupError(UNKNOWN_CONSUMER)
        return consumer

    def _topics(self) -> set[str]:
        return {topic for consumer in self.consumers.values() for topic in consumer.topics}

    def _hear(self, consumer: Consumer) -> None:
        """It lives: its session begins anew."""
        loop = asyncio.get_running_loop()
        consumer.deadline = loop.time() + consumer.session_timeout
        if consumer.timer is not None and consumer.timer.when() > consumer.deadline:  # its session is shorter now
            consumer.timer.cancel()
            consumer.timer = None
        if consumer.timer is None:
            consumer.timer = loop.call_at(consumer.deadline, self._look_after, consumer)

    def _look_after(self, consumer: Consumer) -> None:
        """One timer for each consumer, moved on when it fires, not at each heartbeat."""
        consumer.timer = None
        if self.consumers.get(consumer.consumer_id) is not consumer:
            return
        loop = asyncio.get_running_loop()
        if consumer.waits:
            self._hear(consumer)  # for us
        elif loop.time() < consumer.deadline:
            consumer.timer = loop.call_at(consumer.deadline, self._look_after, consumer)
        else:
            self._remove(consumer, "its session is over")

    def _remove(self, consumer: Consumer, reason: str) -> None:
        del self.consumers[consumer.consumer_id]
        _cancel(consumer.timer)
        consumer.refuse(UNKNOWN_CONSUMER)
        if self._writing:
            self._changed = True
        else:
            self._change(reason, consumer.consumer_id)
            self._go_on_if_complete()

    # -- the next generation -----------------------------------------------------------------------------------------

    def _change(self, reason: str, owner: str | None = None) -> None:
        """Everybody is to join again."""
        if self.state is not GroupState.PREPARING:
            self.state = GroupState.PREPARING
            for consumer in self.consumers.values():
                consumer.told = False
        self.events.emit("draft-change", key=self.group_id, epoch=self.generation, owner=owner, reason=reason)

    def _note_told(self, consumer: Consumer) -> None:
        if self.consumers.get(consumer.consumer_id) is not consumer or consumer.told:
            return
        consumer.told = True
        left = sum(not (other.told or other.waits) for other in self.consumers.values())
        self.events.emit("draft-told", key=self.group_id, epoch=self.generation, owner=consumer.consumer_id, value=left)

    def _note_joined(self, consumer: Consumer) -> None:
        """Where others are still to come."""
        left = sum(not other.waits for other in self.consumers.values())
        if left:
            self.events.emit(
                "draft-joined", key=self.group_id, epoch=self.generation, owner=consumer.consumer_id, value=left
            )

    def _go_on_if_complete(self) -> None:
        if self.state is not GroupState.PREPARING or self._writing:
            return
        if all(consumer.waits for consumer in self.consumers.values()):
            self._writing, self._changed = True, False
            self.spawn(self._rebalance(), f"generation of {self.group_id}")

    async def _rebalance(self) -> None:
        present = list(self.consumers.values())
        wanted = {consumer.consumer_id: consumer.topics for consumer in present}
        sizes = await self.sizes({topic for topics in wanted.values() for topic in topics})
        assignment = ASSIGNORS[self.strategy](wanted, sizes)
        generation = self.generation + 1
        metadata = GroupMetadata(
            epoch=self.store.epoch,
            generation=generation,
            strategy=self.strategy,
            consumers={
                consumer.consumer_id: StoredConsumer(list(consumer.topics), int(consumer.session_timeout * 1000))
                for consumer in present
            },
            partitions=dict(sizes),
            assignment={name: _by_topic(given) for name, given in assignment.items()},
        )
        try:
            version = await self.store.write(self.group_id, metadata, self.version)
        except Displaced:
            self.on_displaced()
            return
        except TooLarge:
            self._give_up(present)
            return
        if self.state is GroupState.DEAD:
            return
        self.version, self.generation, self.assignment, self._stored_sizes = version, generation, assignment, sizes
        self._writing = False
        self.state = GroupState.REBALANCING if present else GroupState.STEADY
        self.events.emit(
            "draft-generation",
            key=self.group_id,
            epoch=generation,
            value=len(present),
            coordinator_epoch=self.store.epoch,
            owned={name: [f"{topic}-{index}" for topic, index in given] for name, given in assignment.items()},
        )
        self._answer(present)
        if self._changed:
            self._change("consumers came or went meanwhile")
            self._go_on_if_complete()
        elif present:
            await self.partitions_changed()

    def _answer(self, present: list[Consumer]) -> None:
        answered = [
            consumer for consumer in present if consumer.waits and self.consumers.get(consumer.consumer_id) is consumer
        ]
        left = {consumer.consumer_id for consumer in answered}
        generation = self.generation

        def handed(consumer_id: str) -> None:
            left.discard(consumer_id)
            if left:
                self.events.emit(
                    "draft-answered", key=self.group_id, epoch=generation, owner=consumer_id, value=len(left)
                )

        for consumer in answered:
            name = consumer.consumer_id
            consumer.told = consumer.seen = False
            self._hear(consumer)
            assert consumer.joining is not None
            owned = tuple(self.assignment[name])
            consumer.joining.set_result(Joined(generation, name, owned, partial(handed, name)))
            consumer.joining = None

    def _give_up(self, present: list[Consumer]) -> None:
        """Nothing of this can be stored: the last generation stays, without those who cannot be in it."""
        self._writing = False
        for consumer in present:
            if self.consumers.get(consumer.consumer_id) is consumer:
                consumer.refuse(ErrorCode.UNKNOWN)
                del self.consumers[consumer.consumer_id]
                _cancel(consumer.timer)
        self._go_on_if_complete()

    def _differ(self, sizes: Mapping[str, int]) -> bool:
        return any(self._stored_sizes.get(topic) != size for topic, size in sizes.items())


def _by_topic(partitions: list[Partition]) -> dict[str, list[int]]:
    return {
        topic: [index for name, index in partitions if name == topic]
        for topic in dict.fromkeys(topic for topic, _ in partitions)
    }


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
