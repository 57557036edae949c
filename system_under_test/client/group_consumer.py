"""A consumer that shares topics with the other members of its group, or reads partitions that its caller assigns.

Reading a partition goes on at the committed offset of the group. When there is none, or it is no longer in the log,
``reset`` says where to begin. Positions are committed when the caller says so: records that were returned before a
commit are not returned to the group again, those returned since may be.

What a poll guarantees when the group rebalances: it returns only what it read as a member of the generation that
``on_assigned`` was called with, and only if that was not known to be over when it returned. What it fetched in vain is
fetched again by the next owner of the partition. No poll can know whether others have taken over in the meantime; a
commit can, because it is rejected then.
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
from assay.system_under_test.client.fetch_result import TRANSIENT, Fetched, created
from assay.system_under_test.client.membership import CommitFailed, Generation, Membership, Position
from assay.system_under_test.client.positions import Positions
from assay.system_under_test.client.traits import CORRECT, ClientTraits
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Runtime

LONGEST_WAIT = 0.1
"""Seconds that one fetch waits at the end of its partitions."""
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}

PASSING = TRANSIENT | {ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION}
"""Errors of a partition that the next poll may read."""

Callback = Callable[[Sequence[Partition]], Awaitable[None] | None]


def ignore(partitions: Sequence[Partition]) -> None:
    """The callback that does nothing."""


@dataclass(frozen=True, slots=True)
class GroupListener:
    """Functions or coroutines that a consumer calls; poll raises what they raise.

    ``on_assigned`` gets what is owned, positions found. ``on_revoked`` gets what was, before the group is joined again,
    and may still commit it, though the commit may be rejected. ``on_lost``, where it is given, is called in its place
    when others may own it already. ``on_reset`` gets a partition whose place is no longer in the log, and where reading
    goes on.
    """

    on_assigned: Callback = ignore
    on_revoked: Callback = ignore
    on_lost: Callback | None = None
    on_reset: Callable[[Partition, int], None] = lambda partition, offset: None


NO_LISTENER = GroupListener()


@dataclass(frozen=True, slots=True)
class Received:
    """One record; ``timestamp`` in milliseconds, None where there is none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    is_append_time: bool = False
    """Whose time it is: that of the append, not the producer's."""


class GroupConsumer:
    """See the module. Reads ``topics``, or what :meth:`subscribe` or :meth:`assign` names. One call at a time.

    Topics that do not exist are joined when they do. ``membership`` replaces the one of this design, which is made by
    the settings about members.
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
        self._fetching = traits.fetching()
        self._fetch_bytes = config.fetch_bytes
        self._behind = False
        """Whether its last fetch brought something: then the next one does not wait at the ends of other partitions."""
        self._subscribed = bool(topics)
        self._generation: Generation | None = None
        self._announced = False
        self._assigned: tuple[Partition, ...] = ()
        self._positions = Positions()

    # -- what is read ----------------------------------------------------------------------------------------------

    @property
    def generation(self) -> Generation | None:
        """The generation it was in last; None before the first time, after it left, and where its caller assigns."""
        return self._generation

    @property
    def assignment(self) -> tuple[Partition, ...]:
        """What it reads: what it owns in its generation, or was assigned by its caller."""
        return self._assigned if self._generation is None else self._generation.partitions

    def subscribe(self, topics: Sequence[str]) -> None:
        """Shares these topics, instead of those before; the next poll joins the group. Raises ``ValueError`` while
        partitions are assigned.
        """
        if self._assigned:
            raise ValueError("partitions are assigned; assign none before subscribing to topics")
        if not topics:
            raise ValueError("a subscription needs a topic; unsubscribe leaves the group")
        self._subscribed = True
        self._membership.subscribe(topics)

    async def unsubscribe(self) -> None:
        """Leaves the group. Raises what ``on_revoked`` raises; cancelled in there, it stays a member."""
        try:
            await self._revoke(self._farewell())
        except Exception:
            await self._leave()
            raise
        await self._leave()

    async def _leave(self) -> None:
        self._subscribed = False
        await self._membership.leave()

    def assign(self, partitions: Sequence[Partition]) -> None:
        """Reads these, and no others, without being a member; the group's members are not notified.

        Its commits are those of a client that is no member, and rejected while the group has some. Raises
        ``ValueError`` while topics are subscribed to.
        """
        if self._subscribed:
            raise ValueError("topics are subscribed to; unsubscribe before assigning partitions")
        self._assigned = tuple(dict.fromkeys(partitions))
        self._positions.keep(self._assigned)

    def found(self, partition: Partition) -> Position:
        """What the group had committed when it got this partition. Raises ``KeyError`` for one that is not owned."""
        return self._positions.found[partition]

    def position(self, partition: Partition) -> int:
        """The offset that is read next. Raises ``KeyError`` for a partition that is not owned, or has none yet."""
        return self._positions[partition]

    def seek(self, partition: Partition, offset: int) -> None:
        """Moves the position there. Raises ``KeyError`` for a partition that is not owned, ``ValueError`` below 0."""
        if partition not in self.assignment:
            raise KeyError(partition)
        if offset < 0:
            raise ValueError(f"offset {offset} is below 0")
        self._positions.place(partition, offset)
        self._fetching.moved(partition)

    def pause(self, partitions: Sequence[Partition]) -> None:
        """Polls leave them out until they are resumed, or given away. Raises ``KeyError`` for one that is not owned."""
        for partition in partitions:
            if partition not in self.assignment:
                raise KeyError(partition)
        self._positions.paused.update(partitions)

    def resume(self, partitions: Sequence[Partition]) -> None:
        """The opposite; nothing for those that are not paused."""
        self._positions.paused.difference_update(partitions)

    async def poll(self, timeout: float = 1.0) -> list[Received]:
        """Returns what comes within ``timeout`` seconds, in each partition's order; joins the group first, if it has
        to, which may take longer.

        Raises ``JoinFailed``, and ``ReadFailed`` when nothing could be read; then no position has moved, and the next
        poll tries again.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            await self._prepare()
            received, moved = await self._read(deadline)
            if received or moved or loop.time() >= deadline:  # what it goes on with might raise
                return received

    # -- offsets ---------------------------------------------------------------------------------------------------

    async def commit(self, metadata: str = "", *, offsets: Mapping[Partition, int | Position] | None = None) -> None:
        """Commits these offsets, or the positions of all that it reads, in the generation that it was in last.

        ``metadata`` is stored with each that does not bring its own.

        Raises ``CommitFailed``; sent once, so after an unknown outcome the caller decides.
        """
        if offsets is None:
            offsets = self._positions.placed()
        positions = {one: at if isinstance(at, Position) else Position(at, metadata) for one, at in offsets.items()}
        if self._subscribed and self._generation is None and positions:
            known = dict.fromkeys(positions, Certainty.NOT_DONE)
            raise CommitFailed("not committed: no member of the group", Certainty.NOT_DONE, known)
        if positions:
            await self._membership.commit(positions, self._generation)

    async def committed(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        """What the group has committed, offset -1 where nothing. Raises ``ReadFailed``."""
        return await self._membership.committed(partitions)

    def fall_silent(self, seconds: float) -> None:
        """No heartbeats for so long: to its group the consumer looks like one that was stopped."""
        self._membership.fall_silent(seconds)

    async def close(self, *, leave: bool = True) -> None:
        """Leaves the group; ``on_revoked`` is called before. Without ``leave`` nothing is sent, and the others go on
        when the session is over.
        """
        try:
            if leave and self._subscribed:
                await self.unsubscribe()
        finally:
            await self._membership.close()
            await self._consumer.close()

    # -- before a poll reads ---------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Returns when it is known what is owned, and where reading goes on."""
        if not self._subscribed:
            await self._find([one for one in self._assigned if one not in self._positions.offsets])
            await self._reset_positions()
            return
        while True:
            entered = self._membership.generation
            if entered is None:
                entered = await self._enter()
            if entered is not self._generation:
                # Asked for after the sync: by then the owner before has committed, or is rejected when it does.
                committed = await self._membership.committed(entered.partitions) if entered.partitions else {}
                self._positions.forget()
                self._generation = entered
                self._positions.start_from(committed)
                self._positions.keep(entered.partitions)
                self._fetching.entered(entered.partitions)
            if self._reset is not None:
                await self._reset_positions()
            if self._membership.generation is not entered:
                continue
            if not self._announced:
                self._announced = True
                await _call(self._listener.on_assigned, entered.partitions)
            if self._membership.generation is entered:
                await self._reset_positions()
                return

    async def _enter(self) -> Generation:
        """Gives up what it owned, and joins."""
        await self._revoke(self._farewell())
        return await self._membership.enter()

    def _farewell(self) -> Callback:
        """What is called when it owns nothing any more; what ended an earlier generation does not count in the next."""
        member = self._membership
        regular = member.generation is not None or member.ended in (None, ErrorCode.REBALANCE_IN_PROGRESS)
        listener = self._listener
        return listener.on_revoked if regular or listener.on_lost is None else listener.on_lost

    async def _revoke(self, callback: Callback) -> None:
        before, announced = self._generation, self._announced
        try:
            if before is not None and announced:
                await _call(callback, before.partitions)
        finally:
            self._generation, self._announced = None, False
            self._positions.forget()

    async def _find(self, partitions: Sequence[Partition]) -> None:
        if partitions:
            self._positions.start_from(await self._membership.committed(partitions))

    async def _reset_positions(self) -> None:
        """Raises ``ReadFailed``; those found by then are."""
        for partition in sorted(self._positions.unplaced):
            self._positions.place(partition, await self._start(partition, "nothing is committed"))

    async def _start(self, partition: Partition, why: str) -> int:
        if self._reset is None:
            what = f"{partition[0]}-{partition[1]}: {why}, and there is no reset"
            raise ReadFailed(what, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        return await self._consumer.offsets(*partition, self._reset)

    # -- and reads -------------------------------------------------------------------------------------------------

    async def _read(self, deadline: float) -> tuple[list[Received], bool]:
        """What came, and whether a place that was no longer in the log has been left. Raises ``ReadFailed`` where
        neither is so.
        """
        loop = asyncio.get_running_loop()
        wait = min(LONGEST_WAIT, max(0.0, deadline - loop.time()))
        generation = self._generation
        begin = self._fetching.wanted(self._positions.in_turn(self.assignment))
        if not begin:
            await asyncio.sleep(wait)
            return [], False
        behind, self._behind = self._behind, False
        try:
            found = await self._consumer.multi_fetch(begin, self._fetch_bytes, max_wait=0.0 if behind else wait)
            starts = await self._starts(begin, found)
        except ReadFailed:
            if self._membership.generation is generation:
                raise
        if self._membership.generation is not generation:
            return [], False
        moved = False
        for one, start in starts.items():  # first: a callback that raises must not skip what was taken before
            if self._positions.offsets.get(one) == begin[one]:
                self._positions.offsets[one] = start
                self._fetching.moved(one)
                moved = True
                self._listener.on_reset(one, start)
        received: list[Received] = []
        failed: ReadFailed | None = None
        for one, fetched in found.items():
            if one in starts or self._positions.offsets.get(one) != begin[one]:
                continue  # its position was set, by now or during the fetch
            if fetched.error not in PASSING:
                what = f"{one[0]}-{one[1]} at offset {begin[one]}: {fetched.error.name}"
                failed = ReadFailed(what, error=fetched.error, node=fetched.node)
            received += self._take(one, fetched)
        if failed is not None and not received and not moved:
            raise failed
        self._behind = bool(received)
        return received, moved

    async def _starts(self, begin: Mapping[Partition, int], found: Mapping[Partition, Fetched]) -> dict[Partition, int]:
        """Where to read on in those that are out of range. Raises ``ReadFailed`` before any position has moved."""
        return {
            one: await self._start(one, f"offset {begin[one]} is not in the log")
            for one, fetched in found.items()
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE
        }

    def _take(self, one: Partition, fetched: Fetched) -> list[Received]:
        if fetched.messages:
            self._positions.offsets[one] = fetched.messages[-1].offset + 1
            self._fetching.fetched(one, self._positions.offsets[one])
        return [
            Received(*one, m.offset, m.key, m.value, m.timestamp, created(m) != m.timestamp) for m in fetched.messages
        ]


async def _call(callback: Callback, partitions: Sequence[Partition]) -> None:
    answer = callback(partitions)
    if inspect.isawaitable(answer):
        await answer
