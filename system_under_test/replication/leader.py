"""The leader's side of a partition: the positions of its followers, the in-sync set, and the high watermark.

A record is committed once it is below the high watermark. The high watermark is the lowest position of all replicas
that may be in sync. It advances only while at least min.insync.replicas are in sync.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from assay.system_under_test.log.errors import DamagedLog
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import PartitionStateUpdate
from assay.system_under_test.records.message import NO_TIMESTAMP
from assay.system_under_test.records.produced import ValidatedSet
from assay.system_under_test.replication.insync import InSyncMembers, InSyncSet
from assay.system_under_test.replication.replica import UNKNOWN, PartitionError, Replica


@dataclass(slots=True)
class FollowerPosition:
    """A follower's position as the leader knows it in this term. Times are the loop's seconds."""

    offset: int = UNKNOWN
    """The offset of the follower's last fetch."""
    broker_epoch: int = UNKNOWN
    caught_up_at: float = 0.0
    """The last time at which the follower had all records of the leader."""
    fetched_at: float = 0.0
    """The time of the follower's last fetch."""
    leader_end: int = 0
    """The leader's log end at that time."""


class LeaderTerm:
    """State of this replica while it leads under one leader epoch.

    ``replica.traits`` has the rules that defects change.

    ``ReplicaEnvironment.on_isr_wanted`` starts the write of a proposed in-sync set. The writer then calls
    ``on_isr_written`` or ``on_isr_superseded``.
    """

    def __init__(self, replica: Replica, update: PartitionStateUpdate, now: float) -> None:
        self.replica = replica
        self.epoch = update.leader_epoch
        self.controller_epoch = update.controller_epoch
        self.start_offset = replica.log.end_offset
        """The log end when the term began, and so the end of the records of earlier terms."""
        members = InSyncMembers(
            tuple(update.isr), {m.broker_id: m.broker_epoch for m in update.member_epochs}, tuple(update.elr)
        )
        self.in_sync = InSyncSet(members, update.zk_version)
        self.positions = {
            broker: FollowerPosition(caught_up_at=now, fetched_at=now)
            for broker in update.replicas
            if broker != replica.environment.broker_id
        }
        self.serving = False
        """Whether requests are served: only once the epoch's entry is on disk."""
        self.appended = False
        """Whether a record was appended in this term."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the term is over. Work that is only for the leader stops then."""
        self._joining: tuple[int, int] | None = None
        """The position of the replica last proposed to rejoin, and the high watermark at that time."""

    @property
    def over(self) -> bool:
        return self.ended.done()

    # -- records -------------------------------------------------------------------------------------------------

    def append(self, records: ValidatedSet, *, wait_for_all: bool) -> tuple[int, int, int]:
        """Appends a producer's set. Returns the first offset, the last offset and the append time.

        The time is in milliseconds, or -1 if the messages keep their producer's times.

        Raises ``PartitionError``: NOT_ENOUGH_REPLICAS if ``wait_for_all`` and too few replicas are in sync, or
        NOT_LEADER_FOR_PARTITION if the log is damaged.
        """
        replica, log = self.replica, self.replica.log
        if wait_for_all and not self.has_enough_in_sync():
            raise PartitionError(ErrorCode.NOT_ENOUGH_REPLICAS)
        time = log.now_ms() if replica.config.append_time else None
        try:
            first, last = log.append(records, append_time=time)
        except DamagedLog as damage:  # ``handover`` ends the term
            raise PartitionError(ErrorCode.NOT_LEADER_FOR_PARTITION) from damage
        except OSError as error:  # the process ends, because no other broker can lead while it lives
            replica.environment.on_disk_error(error)
            raise
        if not self.appended:
            self.appended = True
            if not replica.traits.records_epoch_at_once:
                replica.epochs.assign(self.epoch, first)
            replica.events.emit("first-append-in-epoch", key=replica.key, epoch=self.epoch, position=first)
        replica.schedule_flush()
        if replica.end_counted_as_flushed() < log.end_offset:  # because of ``flush.messages``
            replica.environment.on_flush_messages_reached(replica)
        if replica.traits.wakes_followers:
            replica.append_readers.wake()
        self.advance()
        return first, last, NO_TIMESTAMP if time is None else time

    def advance(self) -> None:
        """Advances the high watermark as far as the in-sync set allows, and wakes requests that wait for it."""
        if self.over or not self.serving:
            return
        replica, in_sync = self.replica, self.in_sync
        if self.has_enough_in_sync() and not in_sync.superseded:
            watermark = replica.end_counted_as_flushed()
            now = asyncio.get_running_loop().time()
            lag_time_max = replica.environment.lag_time_max
            for broker, position in self.positions.items():
                if broker in in_sync.maximal or (
                    # A replica that is about to rejoin counts, too: it could not catch up with a moving high watermark.
                    position.offset >= replica.high_watermark and now - position.caught_up_at <= lag_time_max
                ):
                    watermark = min(watermark, position.offset)
            if watermark > replica.high_watermark:
                replica.high_watermark = watermark
                replica.commit_readers.wake()
        replica.producers.advance(replica.acknowledged_end())

    def record_fetch(self, broker: int, broker_epoch: int, offset: int, now: float) -> None:
        """Records a follower's fetch: the follower has all records below ``offset``."""
        position = self.positions.get(broker)
        if position is None or broker_epoch < 0 or broker_epoch < position.broker_epoch:
            raise PartitionError(ErrorCode.REPLICA_NOT_AVAILABLE)
        if offset > self.replica.traits.fetchable_end(self.replica.bounds, self.appended):
            raise PartitionError(ErrorCode.OFFSET_OUT_OF_RANGE)
        end = self.replica.log.end_offset
        if offset >= end:
            position.caught_up_at = now
        elif offset >= position.leader_end:  # it has all records that the leader had at the follower's last fetch
            position.caught_up_at = max(position.caught_up_at, position.fetched_at)
        position.broker_epoch = broker_epoch
        position.offset = offset
        position.leader_end = end
        position.fetched_at = now
        self.advance()
        if broker not in self.in_sync.maximal or self.in_sync.committed.registrations.get(broker) != broker_epoch:
            self._consider_expansion(broker, position)

    # -- the in-sync set -------------------------------------------------------------------------------------------

    @property
    def _min_insync(self) -> int:
        return self.replica.config.min_insync_replicas

    def has_enough_in_sync(self) -> bool:
        """Returns whether enough replicas are in sync for the high watermark to advance."""
        return self.replica.traits.has_enough_in_sync(self.in_sync, self._min_insync)

    def _consider_expansion(self, broker: int, position: FollowerPosition) -> None:
        """Proposes a replica that has reached the high watermark and the start of this epoch (KAFKA-7128)."""
        if self.in_sync.proposed is not None or self.in_sync.superseded:
            return
        if self.replica.traits.may_rejoin(position.offset, self.replica.high_watermark, self.start_offset):
            self._joining = position.offset, self.replica.high_watermark
            self._propose(self.in_sync.committed.with_member(broker, position.broker_epoch, self._min_insync))

    def shrink(self, now: float) -> None:
        """Proposes a set without members that have lagged for too long, if there are any. Called at intervals.

        Otherwise proposes an empty ELR if it is no longer needed, because min.insync.replicas was lowered.
        """
        if not self.serving or self.in_sync.proposed is not None or self.in_sync.superseded:
            return
        committed, environment = self.in_sync.committed, self.replica.environment
        lagging = [
            member
            for member in committed.isr
            if member != environment.broker_id and now - self.positions[member].caught_up_at > environment.lag_time_max
        ]
        if lagging:
            self._drop(lagging)
        elif committed.elr and len(committed.isr) >= self._min_insync:
            self._propose(committed.without((), self._min_insync))

    def _drop(self, lagging: Sequence[int]) -> None:
        members = self.in_sync.committed.without(lagging, self._min_insync)
        if self.replica.traits.shrinks_in_zookeeper:
            self._propose(members)
        else:
            self.on_isr_written(members, self.in_sync.zk_version)

    def _propose(self, members: InSyncMembers) -> None:
        self.in_sync.propose(members)
        self.replica.events.emit(
            "isr-proposed", key=self.replica.key, epoch=self.epoch, value=len(members.isr), isr=list(members.isr)
        )
        self.replica.environment.on_isr_wanted(self, members)

    def on_isr_written(self, members: InSyncMembers, zk_version: int) -> None:
        """Adopts the set that was written to ZooKeeper."""
        if self.over:
            return
        before = self.in_sync.committed.isr
        self.in_sync.commit(members, zk_version)
        if members.isr != before:
            joined = self._joining if set(members.isr) - set(before) else None
            self.replica.events.emit(
                "isr-change",
                key=self.replica.key,
                epoch=self.epoch,
                value=len(members.isr),
                position=joined and joined[0],
                high_watermark=joined and joined[1],
                isr=list(members.isr),
                elr=list(members.elr),
                osr=[r for r in (self.replica.environment.broker_id, *self.positions) if r not in members.isr],
                version=zk_version,
            )
        self.answer_producers()

    def answer_producers(self) -> None:
        """Answers waiting producers after a change of the in-sync set or of min.insync.replicas.

        If too few replicas are in sync, the producers whose records are not committed yet get an error.
        """
        replica = self.replica
        if not self.has_enough_in_sync():
            replica.producers.advance(replica.acknowledged_end())
            replica.producers.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self.advance()

    def on_isr_superseded(self, leader_epoch: int | None = None) -> None:
        """Ends acknowledgements: the state was deleted, or another process wrote it under ``leader_epoch``."""
        self.in_sync.superseded = True
        self.replica.events.emit("isr-superseded", key=self.replica.key, epoch=self.epoch, value=leader_epoch)
