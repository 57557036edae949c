"""Consumer that shares topics with its group, or reads partitions that its caller assigns.

Reading starts at the group's committed offset. If there is none, or it is no longer in the log, ``reset`` chooses the
start. Positions are committed only by calls of ``commit``. Records returned before a commit are not returned to the
group again; records returned after it may be.

Guarantees of a poll when the group rebalances:

- A poll returns only records that it read as a member of the generation for which ``on_assigned`` was called.
- It returns nothing if it already knows that this generation is over. The partition's next owner fetches those records
  again.
- A poll cannot know whether other members have taken over meanwhile. A commit can, because it is rejected then.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.config import ConsumerConfig
from assay.system_under_test.client.consumer import EARLIEST, LATEST, SimpleConsumer
from assay.system_under_test.client.draft_membership import DraftMembership
from assay.system_under_test.client.errors import Certainty, ReadFailed
from assay.system_under_test.client.membership import CommitFailed, Generation, Membership, Position
from assay.system_under_test.client.multi_fetch import RETRIABLE_ERRORS, FetchResult, get_create_time
from assay.system_under_test.client.positions import Positions
from assay.system_under_test.client.traits import CORRECT, ClientTraits
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Runtime

MAX_FETCH_WAIT = 0.1
"""Seconds that one fetch waits for new records."""
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}

TEMPORARY_ERRORS = RETRIABLE_ERRORS | {ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION}
"""Errors of a partition after which the next poll may succeed."""

Callback = Callable[[Sequence[Partition]], Awaitable[None] | None]


def ignore(partitions: Sequence[Partition]) -> None:
    """Does nothing; the default callback."""


@dataclass(frozen=True, slots=True)
class GroupListener:
    """Functions or coroutines that a consumer calls. ``poll`` raises their exceptions.

    - ``on_assigned``: called with the owned partitions once their positions are known.
    - ``on_revoked``: called with the previous partitions before the consumer joins again. It may commit, though the
      commit may be rejected.
    - ``on_lost``: if given, called instead of ``on_revoked`` when other members may already own the partitions.
    - ``on_reset``: called with a partition whose position is no longer in the log, and with the new position.
    """

    on_assigned: Callback = ignore
    on_revoked: Callback = ignore
    on_lost: Callback | None = None
    on_reset: Callable[[Partition, int], None] = lambda partition, offset: None


NO_LISTENER = GroupListener()


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record. ``timestamp`` is in milliseconds, None if there is none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    is_append_time: bool = False
    """Whether ``timestamp`` is the broker's append time rather than the producer's time."""


class GroupConsumer:
    """Consumer of a group. It reads ``topics``, or those of :meth:`subscribe` or :meth:`assign`.

    Missing topics are consumed when they exist. Without ``membership``, the consumer uses Kafka's final group protocol,
    with the member settings of ``config``.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group: str,
        topics: Sequence[str] = (),
        config: ConsumerConfig | None = None,
        *,
        runtime: Runtime,
        listener: GroupListener = NO_LISTENER,
        traits: ClientTraits = CORRECT,
        membership: Membership | DraftMembership | None = None,
    ) -> None:
        config = config or ConsumerConfig()
        if config.reset not in RESETS:
            raise ValueError(f"reset is earliest or latest or none, not {config.reset!r}")
        self._reset = RESETS[config.reset]
        self._listener = listener
        self._membership = membership or Membership(bootstrap, group, topics, config, runtime=runtime)
        self._consumer = SimpleConsumer(bootstrap, runtime=runtime, timeout=config.timeout)
        self._fetch_policy = traits.fetching()
        self._fetch_bytes = config.fetch_bytes
        self._has_more = False
        """Whether the last fetch returned records. The next fetch then does not wait for new records."""
        self._subscribed = bool(topics)
        self._generation: Generation | None = None
        self._assignment_announced = False
        self._assigned: tuple[Partition, ...] = ()
        self._positions = Positions()

    # -- subscription, assignment and positions ----------------------------------------------------------------------

    @property
    def generation(self) -> Generation | None:
        """The last generation. None before the first one, after leaving, and while partitions are assigned."""
        return self._generation

    @property
    def assignment(self) -> tuple[Partition, ...]:
        """The partitions to read: those owned in the generation, or those that the caller assigned."""
        return self._assigned if self._generation is None else self._generation.partitions

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribes to these topics instead of the previous ones; the next poll joins the group.

        Raises ``ValueError`` while partitions are assigned.
        """
        if self._assigned:
            raise ValueError("partitions are assigned; assign none before subscribing to topics")
        if not topics:
            raise ValueError("a subscription needs a topic; unsubscribe leaves the group")
        self._subscribed = True
        self._membership.subscribe(topics)

    async def unsubscribe(self) -> None:
        """Leaves the group. Raises exceptions of ``on_revoked``. If cancelled during that call, stays a member."""
        try:
            await self._revoke(self._choose_end_callback())
        except Exception:
            await self._leave()
            raise
        await self._leave()

    async def _leave(self) -> None:
        self._subscribed = False
        await self._membership.leave()

    def assign(self, partitions: Sequence[Partition]) -> None:
        """Reads exactly these partitions, without membership of the group.

        Commits are then rejected while the group has members. Raises ``ValueError`` while topics are subscribed to.
        """
        if self._subscribed:
            raise ValueError("topics are subscribed to; unsubscribe before assigning partitions")
        self._assigned = tuple(dict.fromkeys(partitions))
        self._positions.retain(self._assigned)

    def committed_at_assignment(self, partition: Partition) -> Position:
        """Returns the committed position at assignment. Raises ``KeyError`` for a partition that is not owned."""
        return self._positions.committed_at_assignment[partition]

    def position(self, partition: Partition) -> int:
        """Returns the offset to read next. Raises ``KeyError`` if the partition is not owned or has no position yet."""
        return self._positions[partition]

    def seek(self, partition: Partition, offset: int) -> None:
        """Sets the position. Raises ``KeyError`` for a partition that is not owned, ``ValueError`` below 0."""
        if partition not in self.assignment:
            raise KeyError(partition)
        if offset < 0:
            raise ValueError(f"offset {offset} is below 0")
        self._positions.set_offset(partition, offset)
        self._fetch_policy.on_moved(partition)

    def pause(self, partitions: Sequence[Partition]) -> None:
        """Excludes partitions from polls until resumed or revoked. Raises ``KeyError`` for one that is not owned."""
        for partition in partitions:
            if partition not in self.assignment:
                raise KeyError(partition)
        self._positions.paused.update(partitions)

    def resume(self, partitions: Sequence[Partition]) -> None:
        """Resumes paused partitions. Ignores partitions that are not paused."""
        self._positions.paused.difference_update(partitions)

    async def poll(self, timeout: float = 1.0) -> list[ConsumerRecord]:
        """Returns the records that arrive within ``timeout`` seconds, in order within each partition.

        Joins the group first if necessary, which may take longer. Raises ``JoinFailed``, or ``ReadFailed`` if nothing
        could be read. After ``ReadFailed`` no position has moved, and the next poll tries again.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            await self._prepare()
            received, moved = await self._read(deadline)
            if received or moved or loop.time() >= deadline:  # a further read could raise, and lose these records
                return received

    # -- offsets ---------------------------------------------------------------------------------------------------

    async def commit(self, metadata: str = "", *, offsets: Mapping[Partition, int | Position] | None = None) -> None:
        """Commits ``offsets``, or by default the positions of all partitions, in the last generation.

        ``metadata`` is stored with each offset without metadata of its own. Raises ``CommitFailed``. After an unknown
        outcome, the commit is not repeated; the caller decides.
        """
        if offsets is None:
            offsets = self._positions.known_offsets()
        positions = {one: at if isinstance(at, Position) else Position(at, metadata) for one, at in offsets.items()}
        if self._subscribed and self._generation is None and positions:
            outcomes = dict.fromkeys(positions, Certainty.NOT_DONE)
            raise CommitFailed("not committed: not a member of the group", Certainty.NOT_DONE, outcomes)
        if positions:
            await self._membership.commit(positions, self._generation)

    async def committed(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        """Returns the group's committed positions; offset -1 if there is none. Raises ``ReadFailed``."""
        return await self._membership.committed(partitions)

    def fall_silent(self, seconds: float) -> None:
        """Suppresses heartbeats for some seconds, so that the consumer looks stopped to its group."""
        self._membership.fall_silent(seconds)

    async def close(self, *, leave: bool = True) -> None:
        """Leaves the group, after a call of ``on_revoked``, and closes the connections.

        Without ``leave`` no request is sent, and the group rebalances when the session expires.
        """
        try:
            if leave and self._subscribed:
                await self.unsubscribe()
        finally:
            await self._membership.close()
            await self._consumer.close()

    # -- preparation of a poll: membership and positions -------------------------------------------------------------

    async def _prepare(self) -> None:
        """Waits until the owned partitions and their positions are known."""
        if not self._subscribed:
            await self._load_committed([one for one in self._assigned if one not in self._positions.offsets])
            await self._reset_positions()
            return
        while True:
            generation = self._membership.generation
            if generation is None:
                generation = await self._enter()
            if generation is not self._generation:
                # This is after the sync, so the previous owner has committed, or its commit will be rejected.
                committed = await self._membership.committed(generation.partitions) if generation.partitions else {}
                self._positions.forget()
                self._generation = generation
                self._positions.start_from(committed)
                self._positions.retain(generation.partitions)
                self._fetch_policy.on_entered(generation.partitions)
            if self._reset is not None:
                await self._reset_positions()
            if self._membership.generation is not generation:
                continue
            if not self._assignment_announced:
                self._assignment_announced = True
                await _run_callback(self._listener.on_assigned, generation.partitions)
            if self._membership.generation is generation:
                await self._reset_positions()
                return

    async def _enter(self) -> Generation:
        """Revokes the owned partitions and joins."""
        await self._revoke(self._choose_end_callback())
        return await self._membership.enter()

    def _choose_end_callback(self) -> Callback:
        """Returns the callback for the end of ownership. It must be chosen before the next generation begins."""
        member = self._membership
        still_owner = member.generation is not None or member.end_error in (None, ErrorCode.REBALANCE_IN_PROGRESS)
        listener = self._listener
        return listener.on_revoked if still_owner or listener.on_lost is None else listener.on_lost

    async def _revoke(self, callback: Callback) -> None:
        before, announced = self._generation, self._assignment_announced
        try:
            if before is not None and announced:
                await _run_callback(callback, before.partitions)
        finally:
            self._generation, self._assignment_announced = None, False
            self._positions.forget()

    async def _load_committed(self, partitions: Sequence[Partition]) -> None:
        if partitions:
            self._positions.start_from(await self._membership.committed(partitions))

    async def _reset_positions(self) -> None:
        """Sets all positions that are still unknown. Raises ``ReadFailed``; positions set before the error stay set."""
        for partition in sorted(self._positions.without_offset):
            self._positions.set_offset(partition, await self._find_start(partition, "nothing is committed"))

    async def _find_start(self, partition: Partition, why: str) -> int:
        if self._reset is None:
            what = f"{partition[0]}-{partition[1]}: {why}, and the consumer's reset is none"
            raise ReadFailed(what, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        return await self._consumer.offsets(*partition, self._reset)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, deadline: float) -> tuple[list[ConsumerRecord], bool]:
        """Returns the records, and whether a position was reset. Raises ``ReadFailed`` if there is neither."""
        loop = asyncio.get_running_loop()
        wait = min(MAX_FETCH_WAIT, max(0.0, deadline - loop.time()))
        generation = self._generation
        fetch_offsets = self._fetch_policy.select(self._positions.rotate(self.assignment))
        if not fetch_offsets:
            await asyncio.sleep(wait)
            return [], False
        wait, self._has_more = 0.0 if self._has_more else wait, False
        try:
            found = await self._consumer.multi_fetch(fetch_offsets, self._fetch_bytes, max_wait=wait)
            starts = await self._find_starts(fetch_offsets, found)
        except ReadFailed:
            if self._membership.generation is generation:
                raise
        if self._membership.generation is not generation:
            return [], False
        moved = False
        for one, start in starts.items():  # before records are taken, which an exception of a callback would lose
            if self._positions.offsets.get(one) == fetch_offsets[one]:
                self._positions.offsets[one] = start
                self._fetch_policy.on_moved(one)
                moved = True
                self._listener.on_reset(one, start)
        received: list[ConsumerRecord] = []
        failed: ReadFailed | None = None
        for one, fetched in found.items():
            if one in starts or self._positions.offsets.get(one) != fetch_offsets[one]:
                continue  # the position was set meanwhile
            if fetched.error not in TEMPORARY_ERRORS:
                what = f"{one[0]}-{one[1]} at offset {fetch_offsets[one]}: {fetched.error.name}"
                failed = ReadFailed(what, error=fetched.error, node=fetched.node)
            received += self._take_records(one, fetched)
        if failed is not None and not received and not moved:
            raise failed
        self._has_more = bool(received)
        return received, moved

    async def _find_starts(
        self, fetch_offsets: Mapping[Partition, int], found: Mapping[Partition, FetchResult]
    ) -> dict[Partition, int]:
        """Returns new positions for partitions out of range. Changes no position itself. Raises ``ReadFailed``."""
        return {
            one: await self._find_start(one, f"offset {fetch_offsets[one]} is not in the log")
            for one, fetched in found.items()
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE
        }

    def _take_records(self, one: Partition, fetched: FetchResult) -> list[ConsumerRecord]:
        if fetched.messages:
            self._positions.offsets[one] = fetched.messages[-1].offset + 1
            self._fetch_policy.on_fetched(one, self._positions.offsets[one])
        return [
            ConsumerRecord(*one, m.offset, m.key, m.value, m.timestamp, get_create_time(m) != m.timestamp)
            for m in fetched.messages
        ]


async def _run_callback(callback: Callback, partitions: Sequence[Partition]) -> None:
    answer = callback(partitions)
    if inspect.isawaitable(answer):
        await answer
