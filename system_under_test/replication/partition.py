"""One replica of a partition on this broker: its role, its log, and what makes a record acknowledged.

The rules are those of SYSTEM.md section 3. A *term* is one leader epoch on this replica: every change of role or epoch
ends the old term first (its waiting producers are told NOT_LEADER_FOR_PARTITION, its in-flight ISR write is
forgotten), and whatever was awaited compares terms before it acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from assay.system_under_test.config import TimestampType, TopicConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.log.cleaner import Cleaning
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.epochs import EpochHistory
from assay.system_under_test.log.errors import DamagedLog
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.retention import retain
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import EpochAnswer, PartitionStateUpdate
from assay.system_under_test.records.message import NO_TIMESTAMP
from assay.system_under_test.replication.insync import InSync, Members
from assay.system_under_test.replication.purgatory import WaitingProducers, WaitingReaders

UNKNOWN = -1


class PartitionError(Exception):
    """A request cannot be served here; carries Kafka's error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class Position:
    """What a leader knows of a follower in this term. Times are the loop's seconds."""

    offset: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    caught_up_at: float = 0.0
    fetched_at: float = 0.0
    leader_end: int = 0
    """The leader's log end at that fetch."""


@dataclass
class LeaderTerm:
    """What exists only while this replica leads, under one epoch."""

    epoch: int
    controller_epoch: int
    start_offset: int
    """Log end when the term began; records of earlier terms end here."""
    in_sync: InSync
    positions: dict[int, Position]
    serving: bool = False
    """Its epoch entry is on disk."""
    appended: bool = False
    ended: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """For whoever does something of their own while this broker leads."""


@dataclass
class FollowerTerm:
    """What exists only while this replica follows, under one epoch."""

    epoch: int
    controller_epoch: int
    leader: int
    reconciled: bool = False
    """The log is known to be a prefix of the leader's."""
    history: list[tuple[int, int]] = field(default_factory=list)
    """The leader's (epoch, start offset) entries which the log has not reached yet, rising."""
    retry_at: float = 0.0


class Partition:
    """See the module.

    ``on_isr_wanted`` begins to write a proposed in-sync set, whose outcome comes back by ``isr_written`` or
    ``isr_superseded``; ``on_flush_wanted`` begins to run ``flush_counted``, ``on_flush_due`` ``flush_all``;
    ``before_cut`` is awaited before the log ends below where it ended.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        broker_id: int,
        log: Log,
        epochs: EpochHistory,
        high_watermark: int,
        config: TopicConfig,
        events: EventLog,
        *,
        lag_time_max: float,
        on_isr_wanted: Callable[[Partition, LeaderTerm, Members], None],
        on_flush_wanted: Callable[[Partition], None],
        on_flush_due: Callable[[Partition], None],
        before_cut: Callable[[Partition, int], Awaitable[None]],
    ) -> None:
        self.topic = topic
        self.index = index
        self.key = f"{topic}-{index}"
        self.broker_id = broker_id
        self.log = log
        self.epochs = epochs
        self.config = config
        self.is_configured = False
        """Has the controller told the topic's settings in this life? Until then nothing of the log may be taken out."""
        self.incarnation = UNKNOWN
        """The czxid of the topic's znode."""
        self.replicas: tuple[int, ...] = ()
        self.leader_epoch = UNKNOWN
        """The highest ever told to this incarnation."""
        self.leader: LeaderTerm | None = None
        self.follower: FollowerTerm | None = None
        self.high_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        self.producers = WaitingProducers()
        self.append_readers = WaitingReaders()
        self.commit_readers = WaitingReaders()
        self._events = events
        self._lag_time_max = lag_time_max
        self._on_isr_wanted = on_isr_wanted
        self._on_flush_wanted = on_flush_wanted
        self._on_flush_due = on_flush_due
        self._flush_timer: asyncio.TimerHandle | None = None
        self._before_cut = before_cut
        log.row.on_roll = self._rolled

    async def configure(self, config: TopicConfig) -> None:
        """The topic's settings, which may come or change long after the log was opened."""
        await self.log.configure(LogConfig.of(config, self.log.config.traits))
        self.config = config
        self.is_configured = True
        if self.leader is not None and self.leader.serving:
            self._members_settled(self.leader)

    def _rolled(self, base_offset: int) -> None:
        self._events.emit("log-rolled", key=self.key, epoch=self.leader_epoch, position=base_offset)

    # -- terms ---------------------------------------------------------------------------------------------------

    def end_term(self) -> None:
        """No role until the next one begins."""
        if self.leader is not None:
            self.leader.ended.set_result(None)
        self.leader = None
        self.follower = None
        self.producers.fail(ErrorCode.NOT_LEADER_FOR_PARTITION)
        self.append_readers.wake()
        self.commit_readers.wake()

    async def lead(self, update: PartitionStateUpdate, now: float) -> None:
        """Begins a leader's term: the epoch's entry is on disk before anything is served (KAFKA-7415).

        Raises ``PartitionError`` (-1) for a log that has lost what it had made durable: it must not lead.
        """
        self.end_term()
        self.leader_epoch = update.leader_epoch
        self.replicas = tuple(update.replicas)
        if self.log.damage is not None:
            self._events.emit("replica-offline", key=self.key, epoch=update.leader_epoch, problem=self.log.damage)
            raise PartitionError(ErrorCode.UNKNOWN)
        await self.log.flush()  # the follower that this replica was may just have cut the log
        start = self.log.end_offset
        members = Members(
            tuple(update.isr), {m.broker_id: m.broker_epoch for m in update.member_epochs}, tuple(update.elr)
        )
        term = LeaderTerm(
            epoch=update.leader_epoch,
            controller_epoch=update.controller_epoch,
            start_offset=start,
            in_sync=InSync(members, update.zk_version),
            positions={r: Position(caught_up_at=now, fetched_at=now) for r in update.replicas if r != self.broker_id},
        )
        self.leader = term
        self.epochs.assign(term.epoch, start)
        await self.epochs.flush()
        if self.leader is not term:
            return
        term.serving = True
        self._events.emit(
            "became-leader",
            key=self.key,
            epoch=term.epoch,
            controller_epoch=term.controller_epoch,
            position=start,
            isr=list(update.isr),
            high_watermark=self.high_watermark,
        )
        self.advance()

    def follow(self, update: PartitionStateUpdate) -> None:
        """Begins a follower's term; the fetcher reconciles the log before it appends anything."""
        self.end_term()
        self.leader_epoch = update.leader_epoch
        self.replicas = tuple(update.replicas)
        self.follower = FollowerTerm(update.leader_epoch, update.controller_epoch, update.leader)
        self._events.emit(
            "became-follower",
            key=self.key,
            epoch=update.leader_epoch,
            controller_epoch=update.controller_epoch,
            value=update.leader,
        )

    def leading(self) -> LeaderTerm:
        """The term being served. Raises ``PartitionError`` (6) when there is none."""
        if self.leader is None or not self.leader.serving:
            raise PartitionError(ErrorCode.NOT_LEADER_FOR_PARTITION)
        return self.leader

    def leading_at(self, epoch: int, incarnation: int) -> LeaderTerm:
        """The same, for a peer that names the epoch and the topic's czxid; other ones are refused (KIP-320).

        A topic that was deleted and made again by hand begins with the epoch of the one before.
        """
        term = self.leading()
        if term.epoch != epoch or self.incarnation != incarnation:
            raise PartitionError(ErrorCode.NOT_LEADER_FOR_PARTITION)
        return term

    # -- leading -------------------------------------------------------------------------------------------------

    def append(self, records: bytes, count: int, *, wait_for_all: bool) -> tuple[int, int, int]:
        """Appends a validated message set as the leader; first and last offset, and the time that it was given, if any.

        The time is in milliseconds, -1 where the messages keep those of their producer.

        Raises ``PartitionError``: 6 when not leading, 19 when ``wait_for_all`` and too few are in sync, -1 when the log
        is damaged.
        """
        term = self.leading()
        if wait_for_all and not self.enough_in_sync(term):
            raise PartitionError(ErrorCode.NOT_ENOUGH_REPLICAS)
        time = self.log.now_ms() if self.config.message_timestamp_type is TimestampType.APPEND else None
        try:
            first, last = self.log.append(records, count, append_time=time)
        except DamagedLog as damage:
            self._events.emit("replica-offline", key=self.key, epoch=term.epoch, problem=str(damage))
            raise PartitionError(ErrorCode.UNKNOWN) from damage
        if not term.appended:
            term.appended = True
            self._events.emit("first-append-in-epoch", key=self.key, epoch=term.epoch, position=first)
        self.flush_in_time()
        if self.counted_end() < self.log.end_offset:
            self._on_flush_wanted(self)
        self.replicate()
        self.advance()
        return first, last, NO_TIMESTAMP if time is None else time

    def enough_in_sync(self, term: LeaderTerm) -> bool:
        """May the high watermark move? A defect replaces this method.

        Not while somebody may be elected for having all that is acknowledged although it is not in sync, which is so
        after min.insync.replicas was lowered.
        """
        return len(term.in_sync.minimal) >= self.config.min_insync_replicas and not term.in_sync.committed.elr

    def replicate(self) -> None:
        """Serves the followers that wait for records. A defect replaces this method."""
        self.append_readers.wake()

    def wait_for_commit(self, last: int) -> asyncio.Future[ErrorCode]:
        """Done once everything up to ``last`` is acknowledged, or cannot be under this term any more."""
        future = self.producers.add(last + 1)
        self.producers.advance(self.acknowledged())
        return future

    def readable(self) -> int:
        """Consumers read up to here. A defect replaces this method."""
        return self.high_watermark

    def fetchable_end(self, term: LeaderTerm) -> int:
        """A follower cannot ask for more than this. A defect replaces this method."""
        return self.log.end_offset

    def is_beyond_reach(self, log_start: int) -> bool:
        """Must a follower start over, since the leader no longer has what comes next? A defect replaces this method."""
        return self.log.end_offset < log_start

    def acknowledged(self) -> int:
        """Producers that asked for all replicas are answered up to here. A defect replaces this method."""
        return self.high_watermark

    def noted_mark(self) -> int:
        """The high watermark as it is kept for the next start of this process. A defect replaces this method."""
        return self.high_watermark

    def counted_end(self) -> int:
        """This replica's log end as far as it counts: at most ``flush_messages`` - 1 records are not on disk."""
        return min(self.log.end_offset, self.log.flushed_offset + self.config.flush_messages - 1)

    async def flush_counted(self) -> None:
        """Puts on disk what must be there for all of the log to count."""
        while self.counted_end() < self.log.end_offset and not self.log.closed:
            await self.log.flush()
            self.advance()

    def flush_in_time(self) -> None:
        """Sees to it that what was just appended is on disk within ``flush.ms``."""
        if self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(self.config.flush_ms / 1000, self._on_flush_due, self)

    def stop_timers(self) -> None:
        """The log is about to be closed."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()

    async def flush_all(self) -> None:
        """Puts on disk what has waited for ``flush.ms``, and all after it."""
        self._flush_timer = None  # what is appended while this flush is under way has a time of its own
        if not self.log.closed and self.log.flushed_offset < self.log.end_offset:
            await self.log.flush()
            self.advance()

    def record_fetch(self, term: LeaderTerm, replica: int, broker_epoch: int, offset: int, now: float) -> None:
        """A follower asks for ``offset``: it has everything below. Its position is nothing else."""
        position = term.positions.get(replica)
        if position is None or broker_epoch < 0 or broker_epoch < position.broker_epoch:
            raise PartitionError(ErrorCode.REPLICA_NOT_AVAILABLE)
        if offset > self.fetchable_end(term):
            raise PartitionError(ErrorCode.OFFSET_OUT_OF_RANGE)
        end = self.log.end_offset
        if offset >= end:
            position.caught_up_at = now
        elif offset >= position.leader_end:
            position.caught_up_at = max(position.caught_up_at, position.fetched_at)
        position.broker_epoch = broker_epoch
        position.offset = offset
        position.leader_end = end
        position.fetched_at = now
        self.advance()
        if replica not in term.in_sync.maximal or term.in_sync.committed.epochs.get(replica) != broker_epoch:
            self._consider_expansion(term, replica, position)

    def _consider_expansion(self, term: LeaderTerm, replica: int, position: Position) -> None:
        """A replica rejoins at the high watermark and within this epoch (KAFKA-7128)."""
        if term.in_sync.proposed is not None or term.in_sync.superseded:
            return
        if position.offset >= self.high_watermark and position.offset >= term.start_offset:
            members = term.in_sync.committed.with_member(
                replica, position.broker_epoch, self.config.min_insync_replicas
            )
            self._propose(term, members)

    def shrink(self, now: float) -> None:
        """Proposes to drop the members that have not caught up for too long, and whoever is eligible without need since
        min.insync.replicas was lowered; called now and then by the manager.
        """
        term = self.leader
        if term is None or not term.serving or term.in_sync.proposed is not None or term.in_sync.superseded:
            return
        lagging = [
            member
            for member in term.in_sync.committed.isr
            if member != self.broker_id and now - term.positions[member].caught_up_at > self._lag_time_max
        ]
        if lagging:
            self.drop(term, lagging)
        elif term.in_sync.committed.elr and len(term.in_sync.committed.isr) >= self.config.min_insync_replicas:
            self._propose(term, term.in_sync.committed.without((), self.config.min_insync_replicas))

    def drop(self, term: LeaderTerm, lagging: Sequence[int]) -> None:
        """Has these members leave the set. A defect replaces this method."""
        self._propose(term, term.in_sync.committed.without(lagging, self.config.min_insync_replicas))

    def _propose(self, term: LeaderTerm, members: Members) -> None:
        term.in_sync.propose(members)
        self._on_isr_wanted(self, term, members)

    def isr_written(self, term: LeaderTerm, members: Members, zk_version: int) -> None:
        """The state in ZooKeeper is known again."""
        if self.leader is not term:
            return
        before = term.in_sync.committed.isr
        term.in_sync.commit(members, zk_version)
        if members.isr != before:
            self._events.emit(
                "isr-change", key=self.key, epoch=term.epoch, value=len(members.isr), isr=list(members.isr)
            )
        self._members_settled(term)

    def _members_settled(self, term: LeaderTerm) -> None:
        """What may be acknowledged is; if nothing more may be, whoever waits is told."""
        if not self.enough_in_sync(term):
            self.producers.advance(self.acknowledged())
            self.producers.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self.advance()

    def isr_superseded(self, term: LeaderTerm, leader_epoch: int | None = None) -> None:
        """Somebody else, under ``leader_epoch``, wrote the state, or it is gone: this term's set is history."""
        term.in_sync.supersede()
        self._events.emit("isr-superseded", key=self.key, epoch=term.epoch, value=leader_epoch)

    def advance(self) -> None:
        """Moves the high watermark as far as the in-sync set allows, and tells whoever waits for it."""
        term = self.leader
        if term is None or not term.serving:
            return
        in_sync = term.in_sync
        if self.enough_in_sync(term) and not in_sync.superseded:
            mark = self.counted_end()
            now = asyncio.get_running_loop().time()
            for replica, position in term.positions.items():
                if replica in in_sync.maximal or (
                    # about to rejoin: waiting for it costs little, else it never catches up under load
                    position.offset >= self.high_watermark and now - position.caught_up_at <= self._lag_time_max
                ):
                    mark = min(mark, position.offset)
            if mark > self.high_watermark:
                self.high_watermark = mark
                self.commit_readers.wake()
        self.producers.advance(self.acknowledged())

    async def retain(self) -> int:
        """Takes the segments out of the log that its retention no longer covers, as far as all of ISR have them.

        Says how many; they are to be purged when whoever reads them has had time to finish.
        """
        config, before = self.config, self.log.start_offset
        if not self.is_configured or not config.deletes:
            return 0
        count = await retain(
            self.log,
            lambda: self.high_watermark,
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
        )
        if count:
            self.epochs.truncate_from_start(self.log.start_offset)
            await self.epochs.flush()
            self._events.emit("segment-deleted", key=self.key, value=count, position=before)
            self._events.emit("log-start", key=self.key, position=self.log.start_offset)
        return count

    def cleaned(self, done: Cleaning) -> None:
        """Tells of a pass of the log cleaner."""
        self._events.emit(
            "log-cleaned",
            key=self.key,
            epoch=self.leader_epoch,
            position=done.end,
            value=done.messages,
            size_before=done.size_before,
            size_after=done.size_after,
        )

    # -- following -----------------------------------------------------------------------------------------------

    def learn_high_watermark(self, leader_high_watermark: int) -> None:
        """A follower's high watermark is its leader's, as far as its own log goes; it never falls."""
        mark = min(leader_high_watermark, self.log.end_offset)
        if mark > self.high_watermark:
            self.high_watermark = mark

    def parting(self, answer: EpochAnswer) -> tuple[int, bool]:
        """Where this log's history parts from the leader's as far as the answer tells, and whether that is all to cut.

        A defect replaces this method.
        """
        _, own_end = self.epochs.end_offset_for(answer.epoch, self.log.end_offset)
        return min(answer.end_offset, own_end), answer.epoch == self.epochs.latest()

    def agree(self, term: FollowerTerm, history: Sequence[tuple[int, int]]) -> None:
        """The log is a prefix of the leader's, whose history this is; what comes next is copied."""
        latest = self.epochs.latest()
        term.history = [(epoch, start) for epoch, start in history if epoch > latest]
        term.reconciled = True
        self._events.emit("reconciled", key=self.key, epoch=term.epoch, position=self.log.end_offset, value=term.leader)

    async def truncate(self, term: FollowerTerm, offset: int, reason: str) -> None:
        """Durably cuts the log and its history to end at ``offset``, unless the term is over before it begins."""
        before = self.log.end_offset
        if offset < before:
            await self._before_cut(self, offset)
            if self.follower is not term:
                return
            self.log.truncate_to(offset)
            await self.log.flush()
        self.epochs.truncate_from_end(offset)
        await self.epochs.flush()
        self.high_watermark = min(self.high_watermark, self.log.end_offset)
        if offset < before:
            self._events.emit(
                "truncated",
                key=self.key,
                epoch=self.leader_epoch,
                position=self.log.end_offset,
                value=before,
                reason=reason,
            )

    async def discard(self, term: FollowerTerm, start_offset: int, reason: str) -> None:
        """Starts over, durably, with an empty log, unless the term is over before it begins."""
        before = self.log.end_offset
        await self._before_cut(self, start_offset)
        if self.follower is not term:
            return
        self.log.reset(start_offset)
        await self.log.flush()
        self.epochs.truncate_from_end(0)
        await self.epochs.flush()
        self.high_watermark = start_offset
        self._events.emit(
            "truncated", key=self.key, epoch=self.leader_epoch, position=start_offset, value=before, reason=reason
        )
