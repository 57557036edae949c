"""A consumer of the old design: it finds the others of its group, and agrees with them, through ZooKeeper alone.

Every change of members, brokers, topics or partitions makes every member compute the assignment again, let go of what
it owns and claim its new partitions; a claim fails until the former owner has let go, and is tried again. What a member
owns ends at once when its session is over, or when it has not heard from ZooKeeper for so long that it may be.
"""

import asyncio
import enum
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from kazoo.exceptions import KazooException
from kazoo.protocol.states import WatchedEvent

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.config import MemberConfig
from assay.system_under_test.client.consumer import SimpleConsumer
from assay.system_under_test.client.errors import Certainty, ClientError, ReadFailed
from assay.system_under_test.client.membership import CommitFailed, Membership
from assay.system_under_test.client.pool import KnownBrokers
from assay.system_under_test.client.traits import CORRECT, ClientTraits
from assay.system_under_test.client.zookeeper_groups import offsets
from assay.system_under_test.client.zookeeper_groups.config import ConnectorConfig
from assay.system_under_test.client.zookeeper_groups.owned_calls import OwnedCalls
from assay.system_under_test.client.zookeeper_groups.ownership import Ownership
from assay.system_under_test.client.zookeeper_groups.registration import Registration
from assay.system_under_test.client.zookeeper_groups.streams import RESETS, Hold, MessageStream
from assay.system_under_test.client.zookeeper_groups.subscription import Filter, Static, StreamSubscription
from assay.system_under_test.client.zookeeper_groups.view import read_view, registered_brokers, thread_id
from assay.system_under_test.runtime import Runtime
from assay.system_under_test.tasks import Background

LAST_BACK_OFF = 1.0
"""Seconds between two tries to claim, at most; with a random factor from 0.5 to 1.5."""

_log = logging.getLogger("assay.client")


class ChangeKind(enum.StrEnum):
    ACQUIRED = "acquired"
    RELEASED = "released"
    """It is about to let go, in order: nothing of this hold is handed out or committed any more."""
    LOST = "lost"
    """The session is over, or may be; or someone has deleted the znode of its claim."""


@dataclass(frozen=True, slots=True)
class OwnershipChange:
    """Of one hold. ``offset``: where it begins, or where it ended."""

    kind: ChangeKind
    topic: str
    partition: int
    thread: str
    hold: int
    offset: int


async def _at_once() -> None:
    """The release that waits for nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member has claimed by. Zxids: of the latest change of members that it had seen, and of its claim.

    ``shares``: of each partition the consumer id of the member that it is for, by that view.
    """

    seen: int
    made: int
    shares: Mapping[Partition, str]


@dataclass(slots=True)
class Effort:
    """What taking part has cost a member so far. ``watches``: that woke it; ``rebalances``: how often it read the whole
    group and computed its share; ``unchanged``: how many of these came to what it owned already.
    """

    watches: int = 0
    rebalances: int = 0
    unchanged: int = 0


class ConsumerConnector:
    """One member of a group. Streams are created once; then it takes part until ``shutdown``.

    ``on_change`` is called for every partition acquired, released and lost, and ``on_claim`` before all that were
    acquired by one claim. ``before_release`` is waited for before
    anything is released, so that a caller which commits by hand can do so (``ConsumerRebalanceListener`` of 0.9); there
    is no waiting when a session is over.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        *,
        runtime: Runtime,
        on_change: Callable[[OwnershipChange], None] = lambda change: None,
        on_claim: Callable[[Claim], None] = lambda claim: None,
        before_release: Callable[[], Awaitable[None]] = _at_once,
        traits: ClientTraits = CORRECT,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._on_change = on_change
        self._on_claim = on_claim
        self._before_release = before_release
        chosen = config.consumer_id
        if chosen is None:
            host = runtime.host_name if config.host is None else config.host
            chosen = f"{host}-{int(runtime.wall_clock() * 1000)}-{runtime.random.getrandbits(32):08x}"
        self.consumer_id = f"{config.group}_{chosen}"
        self.effort = Effort()
        self._zookeeper = runtime.zookeeper(config.zookeeper, config.session_timeout)
        self._registration = Registration(self._zookeeper, config.group, self.consumer_id, self._changed)
        self._ownership = Ownership(
            self._zookeeper, config.group, self._registration, self._claim_gone, lambda: self._wake.set()
        )
        self._session = traits.session(self._zookeeper, self._registration, self._lose, self._ownership.forget)
        self._zookeeper.add_listener(lambda state: self._wake.set())
        self._brokers = KnownBrokers.of(config.bootstrap) if config.bootstrap else KnownBrokers()
        commits = MemberConfig(timeout=config.timeout, takes_back=True, repeat_unknown=True)
        self._membership = Membership(self._brokers, config.group, config=commits, runtime=runtime)
        self._offsets = self._store()
        self._subscription: StreamSubscription | None = None
        self._streams: dict[tuple[str | None, str], MessageStream] = {}  # by topic, None for all, and thread
        self._holds: dict[Partition, Hold] = {}
        self._numbered = 0
        self._parting = False
        """Nothing is handed out between the last commit of what it owns and its end: the next owner would again."""
        self._wake = asyncio.Event()
        self._committing = asyncio.Lock()
        self._calls = OwnedCalls(self._zookeeper)
        self._background = Background(self._failed)
        self._leaving: asyncio.Task[None] | None = None
        self._closed = False

    def _store(self) -> offsets.OffsetStore:
        zookeeper = offsets.ZooKeeperOffsets(self._zookeeper, self._config.group, self._registration)
        topic = offsets.TopicOffsets(self._membership)
        if self._config.dual_commit:
            return offsets.DualOffsets(zookeeper, topic)
        return zookeeper if self._config.offsets_storage == "zookeeper" else topic

    # -- what an application calls ---------------------------------------------------------------------------------

    async def create_streams(self, topics: Mapping[str, int]) -> dict[str, list[MessageStream]]:
        """From each topic's number of threads to its streams. Raises ``ConnectionError`` without ZooKeeper."""
        subscription = Static(topics)
        streams = {topic: [self._stream(topic, index) for index in range(count)] for topic, count in topics.items()}
        await self._begin(subscription)
        return streams

    async def create_streams_by_filter(self, wanted: Filter) -> list[MessageStream]:
        """The filter's streams, each of which gets its part of every topic. Raises ``ConnectionError``."""
        streams = [self._stream(None, index) for index in range(wanted.streams)]
        await self._begin(wanted)
        return streams

    @property
    def owned(self) -> dict[Partition, str]:
        """The partitions that it certainly owns at this moment, with the thread's id."""
        return {partition: hold.thread for partition, hold in self._current().items()}

    @property
    def positions(self) -> dict[Partition, int]:
        """What a commit at this moment would commit."""
        return {partition: hold.position for partition, hold in self._current().items()}

    async def commit_offsets(self) -> dict[Partition, int]:
        """The positions of all partitions owned, idle ones as well; returns them. Raises ``CommitFailed``."""
        async with self._committing:
            return await self._commit()

    async def shutdown(self) -> None:
        """Commits with auto-commit, lets go of everything and leaves. Idempotent; raises no error of the system."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._background.close()
            if self._leaving is not None:
                await asyncio.wait([self._leaving])
            self._parting = True
            if self._config.auto_commit:
                async with self._committing:  # an earlier one that is repeated would rewind what this one commits
                    await self._commit_quietly()
        finally:  # also when it is cancelled: a session that lives on would own all this, and read nothing
            self._current()
            self._end(ChangeKind.RELEASED)
            for stream in self._streams.values():
                await stream.close()
            await self._zookeeper.close()  # with the session its registration and its claims go, all at once
            await self._membership.close()

    # -- streams ---------------------------------------------------------------------------------------------------

    def _stream(self, topic: str | None, index: int) -> MessageStream:
        if self._subscription is not None or self._closed:
            raise RuntimeError(f"{self.consumer_id}: streams are created once, and not after a shutdown")
        thread = thread_id(self.consumer_id, index)
        consumer = SimpleConsumer(self._brokers, runtime=self._runtime, timeout=self._config.timeout)

        def holds() -> list[Hold]:
            current = () if self._parting else self._current().values()
            return [hold for hold in current if hold.thread == thread and topic in (None, hold.partition[0])]

        stream = MessageStream(thread, consumer, holds, RESETS[self._config.reset], self._config.fetch_bytes)
        self._streams[topic, thread] = stream
        return stream

    async def _begin(self, subscription: StreamSubscription) -> None:
        self._subscription = subscription
        await self._zookeeper.connect(self._config.connection_timeout)
        self._background.spawn(self._keep_balanced(subscription), "consumer rebalance")
        self._background.spawn(self._session.watch(), "consumer session")
        if self._config.auto_commit:
            self._background.spawn(self._auto_commit(), "consumer auto-commit")
        self._wake.set()

    def _failed(self, error: BaseException) -> None:
        """A task ended by an unexpected error: this member hands out nothing more, and others read on."""
        _log.error("%s: %r", self.consumer_id, error, exc_info=error)
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave(), name="consumer leaves")
        self._end(ChangeKind.LOST)

    async def _leave(self) -> None:
        await self._background.close()
        self._end(ChangeKind.LOST)
        await self._zookeeper.close()  # with the session its claims go, which no one else could make

    # -- ownership -------------------------------------------------------------------------------------------------

    def _current(self) -> dict[Partition, Hold]:
        if self._holds and not self._session.alive:
            self._lose()
        return self._holds

    def _lose(self) -> None:
        self._calls.call_off()
        if self._holds:
            self._end(ChangeKind.LOST)
            self._wake.set()

    def _claim_gone(self, partition: Partition) -> None:
        self._lose_hold(partition)
        self._wake.set()

    def _lose_hold(self, partition: Partition) -> None:
        """Its claim is gone, and anyone may own it by now: nothing more of it is handed out or committed."""
        hold = self._holds.pop(partition, None)
        if hold is not None:
            self._calls.call_off()
            _log.warning("%s: the claim of %s-%d was deleted by someone else", self.consumer_id, *partition)
            self._report(ChangeKind.LOST, hold)

    def _end(self, kind: ChangeKind) -> None:
        ended, self._holds = self._holds, {}
        for hold in ended.values():
            self._report(kind, hold)

    def _report(self, kind: ChangeKind, hold: Hold) -> None:
        self._on_change(OwnershipChange(kind, *hold.partition, hold.thread, hold.number, hold.position))

    def _changed(self, event: WatchedEvent) -> None:
        self.effort.watches += 1
        self._wake.set()

    async def _keep_balanced(self, subscription: StreamSubscription) -> None:
        back_off = self._config.back_off
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                settled = await self._rebalance(subscription)
            except (KazooException, ClientError) as error:
                _log.info("%s: rebalance: %s: %s", self.consumer_id, type(error).__name__, error)
                settled = False
            if settled:
                back_off = self._config.back_off
            if settled or self._wake.is_set():  # something has changed since: no one has to be waited for
                continue
            await asyncio.sleep(back_off * (0.5 + self._runtime.random.random()))
            back_off = max(back_off, min(2 * back_off, LAST_BACK_OFF))
            self._wake.set()

    async def _rebalance(self, subscription: StreamSubscription) -> bool:
        """Does this member own what it should? Raises kazoo's errors and ``ClientError``."""
        await self._registration.ensure(subscription, int(self._runtime.wall_clock() * 1000))
        by_broker = self._config.by_broker
        view = await read_view(self._zookeeper, self._config.group, subscription, self._changed, by_broker=by_broker)
        if not self._config.bootstrap:
            self._brokers.addresses = await registered_brokers(self._zookeeper)
        if self.consumer_id not in view.members:
            return False  # its registration has gone since: what it owns it can neither keep nor release without one
        for gone in await self._ownership.find_gone():
            self._lose_hold(gone)
        wanted = view.allotted_to(self.consumer_id)
        self.effort.rebalances += 1
        owned = {partition: hold.thread for partition, hold in self._current().items()}
        unchanged = (
            owned == wanted and self._ownership.claimed <= wanted.keys()
        )  # else a claim came to nothing half-way
        self.effort.unchanged += unchanged
        if unchanged and not self._config.classic:
            return True
        await self._release()
        if not wanted:
            return True
        made = await self._ownership.claim(wanted)
        if not made:
            return False
        positions = await self._start(wanted)
        if not self._session.alive or self._ownership.in_doubt or (self._wake.is_set() and not self._config.classic):
            return False
        self._on_claim(Claim(view.version, made, {one: share.member for one, share in view.shares.items()}))
        for partition, thread in wanted.items():
            self._numbered += 1
            hold = Hold(partition, thread, self._numbered, positions[partition])
            self._holds[partition] = hold
            self._report(ChangeKind.ACQUIRED, hold)
        return True

    async def _release(self) -> None:
        self._parting = True
        try:
            if self._current():
                await self._before_release()
            async with self._committing:  # what is under way ends first, or the next owner would read too little
                if self._config.auto_commit:
                    await self._commit_quietly()
                self._current()
                self._end(ChangeKind.RELEASED)
        finally:
            self._parting = False
        await self._ownership.release()

    async def _start(self, wanted: Mapping[Partition, str]) -> dict[Partition, int]:
        """Read after the claim: the former owner has committed its last. Raises ``ClientError``."""
        try:
            # nothing fences what it puts into the topic
            committed = await self._calls.run(self._offsets.take_over(list(wanted)), math.inf)
        except TimeoutError as error:
            raise ReadFailed(f"{self.consumer_id}: the offsets were not read while the session lived") from error
        positions = dict(committed)
        for partition, thread in wanted.items():
            if committed[partition] == offsets.NO_OFFSET:
                stream = self._streams.get((partition[0], thread)) or self._streams[None, thread]
                positions[partition] = await stream.start(partition)
        return positions

    # -- offsets ---------------------------------------------------------------------------------------------------

    async def _commit(self) -> dict[Partition, int]:
        """A commit that has not gone out while the session certainly lives does not go out at all."""
        positions = self.positions
        if positions:
            deadline = asyncio.get_running_loop().time() + self._config.timeout
            try:
                await self._calls.run(self._offsets.commit(positions), deadline)
            except TimeoutError as error:
                each = dict.fromkeys(positions, Certainty.UNKNOWN)
                raise CommitFailed(f"{self.consumer_id}: no answer in time", Certainty.UNKNOWN, each) from error
        return positions

    async def _commit_quietly(self) -> None:
        try:
            await self._commit()
        except CommitFailed as error:
            _log.info("%s: %s", self.consumer_id, error)

    async def _auto_commit(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval)
            async with self._committing:
                await self._commit_quietly()
