"""Consumer of the old design, which agrees with the other members of its group through ZooKeeper alone.

1. Every change of members, brokers, topics or partitions makes every member compute the assignment again.
2. Each member releases its partitions and claims its new ones. A claim fails while the former owner has not released
   the partition, and is retried.
3. Ownership ends at once when the member's session is over, or may be over because ZooKeeper has been silent for too
   long.

Nothing fences a commit to the offsets topic. So a commit is allowed only while the member owns all partitions that it
owned when the commit began. The member cancels a commit before its session may be over, and as soon as it loses a
claim. Each answer from ZooKeeper extends this time limit.
"""

import asyncio
import enum
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

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
from assay.system_under_test.client.zookeeper_groups.ownership import Ownership
from assay.system_under_test.client.zookeeper_groups.registration import Registration
from assay.system_under_test.client.zookeeper_groups.streams import RESETS, Hold, MessageStream
from assay.system_under_test.client.zookeeper_groups.subscription import (
    StaticSubscription,
    StreamSubscription,
    TopicFilter,
)
from assay.system_under_test.client.zookeeper_groups.view import read_broker_addresses, read_view, to_thread_id
from assay.system_under_test.runtime import Runtime, ZooKeeper
from assay.system_under_test.tasks import BackgroundTasks

T = TypeVar("T")


class OwnedCalls:
    """Pending calls of one member that are cancelled when it may no longer own its partitions."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._tasks: dict[asyncio.Task[Any], None] = {}

    async def run(self, call: Coroutine[Any, Any, T], deadline: float) -> T:
        """Returns the call's result.

        Raises ``TimeoutError`` at the deadline, when the session may be over, and after :meth:`cancel_all`.
        """
        loop = asyncio.get_running_loop()
        task = loop.create_task(call, name="consumer offsets")
        self._tasks[task] = None
        try:
            while not task.done():
                limit = min(deadline, self._zookeeper.alive_until)  # until then the session certainly lives
                if limit <= loop.time():
                    raise TimeoutError
                await asyncio.wait([task], timeout=limit - loop.time())
            if task.cancelled():
                raise TimeoutError
            return task.result()
        finally:
            del self._tasks[task]
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    task.exception()  # marks it as retrieved, because no one awaits a cancelled call

    def cancel_all(self) -> None:
        """Cancels all pending calls."""
        for task in self._tasks:
            task.cancel()


MAX_BACK_OFF = 1.0
"""Limit in seconds on the back-off between two tries to claim, before a random factor from 0.5 to 1.5."""

_log = logging.getLogger("assay.client")


class ChangeKind(enum.StrEnum):
    ACQUIRED = "acquired"
    RELEASED = "released"
    """A regular release. From now on, no records of this hold are returned, and no offsets are committed."""
    LOST = "lost"
    """The session is over, or may be, or another process has deleted the znode of the claim."""


@dataclass(frozen=True, slots=True)
class OwnershipChange:
    """Begin or end of one hold (a thread's ownership of a partition), with the ``offset`` to read next.

    ``hold``: the number of the hold.
    """

    kind: ChangeKind
    topic: str
    partition: int
    thread: str
    hold: int
    offset: int


async def _do_nothing() -> None:
    """Waits for nothing; the default of ``before_release``."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, and the view of the group from which it was computed.

    - ``view_zxid``: zxid of the latest change of members in the view
    - ``claim_zxid``: zxid of the claim
    - ``shares``: for each partition, the consumer id of its member in that view
    """

    view_zxid: int
    claim_zxid: int
    shares: Mapping[Partition, str]


@dataclass(slots=True)
class RebalanceCounters:
    """Counters of a member's rebalances.

    - ``watches``: number of watch events that woke the member
    - ``rebalances``: how often the member has read the whole group and computed its share
    - ``unchanged``: number of rebalances that did not change the member's share
    """

    watches: int = 0
    rebalances: int = 0
    unchanged: int = 0


class ConsumerConnector:
    """A member of a group. It joins when its streams are created, only once, and leaves at ``shutdown``.

    - ``on_change`` is called for every partition acquired, released or lost.
    - ``on_claim`` is called before the partitions of one claim are reported as acquired.
    - ``before_release`` is awaited before a release, so that a caller can commit manually
      (``ConsumerRebalanceListener`` of 0.9). It is not awaited when a session is over.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        *,
        runtime: Runtime,
        on_change: Callable[[OwnershipChange], None] = lambda change: None,
        on_claim: Callable[[Claim], None] = lambda claim: None,
        before_release: Callable[[], Awaitable[None]] = _do_nothing,
        traits: ClientTraits = CORRECT,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._on_change = on_change
        self._on_claim = on_claim
        self._before_release = before_release
        name = config.consumer_id
        if name is None:
            host = runtime.host_name if config.host is None else config.host
            name = f"{host}-{int(runtime.wall_clock() * 1000)}-{runtime.random.getrandbits(32):08x}"
        self.consumer_id = f"{config.group}_{name}"
        self.counters = RebalanceCounters()
        self._zookeeper = runtime.zookeeper(config.zookeeper, config.session_timeout)
        self._registration = Registration(self._zookeeper, config.group, self.consumer_id, self._changed)
        self._ownership = Ownership(
            self._zookeeper, config.group, self._registration, self._on_claim_gone, lambda: self._wake.set()
        )
        self._session = traits.session(self._zookeeper, self._registration, self._lose_holds, self._ownership.forget)
        self._zookeeper.add_listener(lambda state: self._wake.set())
        self._brokers = KnownBrokers.of(config.bootstrap) if config.bootstrap else KnownBrokers()
        commits = MemberConfig(timeout=config.timeout, abort_on_timeout=True, repeat_unknown=True)
        self._membership = Membership(self._brokers, config.group, config=commits, runtime=runtime)
        self._offsets = self._make_offset_store()
        self._subscription: StreamSubscription | None = None
        self._streams: dict[tuple[str | None, str], MessageStream] = {}  # by (topic or None for all, thread)
        self._holds: dict[Partition, Hold] = {}
        self._last_hold_number = 0
        self._releasing = False
        """Set between the last commit and the end of ownership, when no records may be returned."""
        self._wake = asyncio.Event()
        self._committing = asyncio.Lock()
        self._calls = OwnedCalls(self._zookeeper)
        self._background = BackgroundTasks(self._on_task_failure)
        self._leaving: asyncio.Task[None] | None = None
        self._closed = False

    def _make_offset_store(self) -> offsets.OffsetStore:
        zookeeper = offsets.ZooKeeperOffsets(self._zookeeper, self._config.group, self._registration)
        topic = offsets.TopicOffsets(self._membership)
        if self._config.dual_commit:
            return offsets.DualOffsets(zookeeper, topic)
        return zookeeper if self._config.offsets_storage == "zookeeper" else topic

    # -- interface for applications --------------------------------------------------------------------------------

    async def create_streams(self, topics: Mapping[str, int]) -> dict[str, list[MessageStream]]:
        """Creates the given number of streams for each topic. Raises ``ConnectionError`` without ZooKeeper."""
        subscription = StaticSubscription(topics)
        streams = {
            topic: [self._make_stream(topic, index) for index in range(count)] for topic, count in topics.items()
        }
        await self._begin(subscription)
        return streams

    async def create_streams_by_filter(self, wanted: TopicFilter) -> list[MessageStream]:
        """Creates the filter's streams, each of which gets a share of every topic. Raises ``ConnectionError``."""
        streams = [self._make_stream(None, index) for index in range(wanted.streams)]
        await self._begin(wanted)
        return streams

    @property
    def owned(self) -> dict[Partition, str]:
        """The partitions that this member certainly owns at this moment, with their thread ids."""
        return {partition: hold.thread for partition, hold in self._check_holds().items()}

    @property
    def positions(self) -> dict[Partition, int]:
        """The positions that a commit at this moment would commit."""
        return {partition: hold.position for partition, hold in self._check_holds().items()}

    async def commit_offsets(self) -> dict[Partition, int]:
        """Commits and returns the positions of all owned partitions, including idle ones. Raises ``CommitFailed``."""
        async with self._committing:
            return await self._commit()

    async def shutdown(self) -> None:
        """Commits if auto-commit is on, releases all partitions and leaves. Idempotent. Raises no client errors."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._background.close()
            if self._leaving is not None:
                await asyncio.wait([self._leaving])
            self._releasing = True
            if self._config.auto_commit:
                async with self._committing:  # an earlier commit must end first: its retry could rewind this one
                    await self._commit_quietly()
        finally:  # even if cancelled: a session that lives on would own partitions without reading them
            self._check_holds()
            self._end_holds(ChangeKind.RELEASED)
            for stream in self._streams.values():
                await stream.close()
            await self._zookeeper.close()  # the end of the session deletes its registration and all its claims at once
            await self._membership.close()

    # -- streams ---------------------------------------------------------------------------------------------------

    def _make_stream(self, topic: str | None, index: int) -> MessageStream:
        if self._subscription is not None or self._closed:
            raise RuntimeError(f"{self.consumer_id}: streams are created once, and not after a shutdown")
        thread = to_thread_id(self.consumer_id, index)
        consumer = SimpleConsumer(self._brokers, runtime=self._runtime, timeout=self._config.timeout)

        def holds() -> list[Hold]:
            current = () if self._releasing else self._check_holds().values()
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

    def _on_task_failure(self, error: BaseException) -> None:
        """Handles a task's unexpected error: this member stops reading and leaves, so that other members take over."""
        _log.error("%s: %r", self.consumer_id, error, exc_info=error)
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave(), name="consumer leaves")
        self._end_holds(ChangeKind.LOST)

    async def _leave(self) -> None:
        await self._background.close()
        self._end_holds(ChangeKind.LOST)
        await self._zookeeper.close()  # the end of the session deletes its claims, so that other members can claim

    # -- ownership -------------------------------------------------------------------------------------------------

    def _check_holds(self) -> dict[Partition, Hold]:
        """Returns the holds, after ending all of them if the session may be over."""
        if self._holds and not self._session.alive:
            self._lose_holds()
        return self._holds

    def _lose_holds(self) -> None:
        self._calls.cancel_all()
        if self._holds:
            self._end_holds(ChangeKind.LOST)
            self._wake.set()

    def _on_claim_gone(self, partition: Partition) -> None:
        self._lose_hold(partition)
        self._wake.set()

    def _lose_hold(self, partition: Partition) -> None:
        """Ends the hold of a partition whose claim is gone, because another member may own the partition."""
        hold = self._holds.pop(partition, None)
        if hold is not None:
            self._calls.cancel_all()
            _log.warning("%s: the claim of %s-%d was deleted by another process", self.consumer_id, *partition)
            self._report(ChangeKind.LOST, hold)

    def _end_holds(self, kind: ChangeKind) -> None:
        ended, self._holds = self._holds, {}
        for hold in ended.values():
            self._report(kind, hold)

    def _report(self, kind: ChangeKind, hold: Hold) -> None:
        self._on_change(OwnershipChange(kind, *hold.partition, hold.thread, hold.number, hold.position))

    def _changed(self, event: WatchedEvent) -> None:
        self.counters.watches += 1
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
            if settled or self._wake.is_set():  # after a further change, the next try must not wait
                continue
            await asyncio.sleep(back_off * (0.5 + self._runtime.random.random()))
            back_off = max(back_off, min(2 * back_off, MAX_BACK_OFF))
            self._wake.set()

    async def _rebalance(self, subscription: StreamSubscription) -> bool:
        """Returns whether this member owns its share. Raises kazoo's errors and ``ClientError``."""
        await self._registration.ensure(subscription, int(self._runtime.wall_clock() * 1000))
        by_broker = self._config.by_broker
        view = await read_view(self._zookeeper, self._config.group, subscription, self._changed, by_broker=by_broker)
        if not self._config.bootstrap:
            self._brokers.addresses = await read_broker_addresses(self._zookeeper)
        if self.consumer_id not in view.members:
            return False  # the registration was deleted; without it, the member can neither claim nor release
        for partition in await self._ownership.find_gone():
            self._lose_hold(partition)
        wanted = view.find_share(self.consumer_id)
        self.counters.rebalances += 1
        owned = {partition: hold.thread for partition, hold in self._check_holds().items()}
        # If a claim failed half-way, there may be claims of further partitions, which must be released.
        unchanged = owned == wanted and self._ownership.claimed <= wanted.keys()
        self.counters.unchanged += unchanged
        # Members of 0.8 to 0.10.2 (`classic`) release and claim at each change, even if the group has changed since.
        if unchanged and not self._config.classic:
            return True
        await self._release()
        if not wanted:
            return True
        claim_zxid = await self._ownership.claim(wanted)
        if not claim_zxid:
            return False
        positions = await self._read_positions(wanted)
        if not self._session.alive or self._ownership.in_doubt or (self._wake.is_set() and not self._config.classic):
            return False
        self._on_claim(Claim(view.zxid, claim_zxid, {one: share.member for one, share in view.shares.items()}))
        for partition, thread in wanted.items():
            self._last_hold_number += 1
            hold = Hold(partition, thread, self._last_hold_number, positions[partition])
            self._holds[partition] = hold
            self._report(ChangeKind.ACQUIRED, hold)
        return True

    async def _release(self) -> None:
        self._releasing = True
        try:
            if self._check_holds():
                await self._before_release()
            async with self._committing:  # a commit in progress must end before the next owner reads the offsets
                if self._config.auto_commit:
                    await self._commit_quietly()
                self._check_holds()
                self._end_holds(ChangeKind.RELEASED)
        finally:
            self._releasing = False
        await self._ownership.release()

    async def _read_positions(self, wanted: Mapping[Partition, str]) -> dict[Partition, int]:
        """Reads positions after the claim, when the former owner has made its last commit. Raises ``ClientError``."""
        try:
            # With dual commit, this also writes offsets, and nothing fences a write to the offsets topic.
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
        """Commits the positions. Cancels the commit when the session may be over."""
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
