"""The follower's side of a partition: it cuts its log to a prefix of the leader's, and copies what comes after.

Truncation is by leader epoch, never by high watermark (KIP-101, KIP-279): the follower asks where its own last epoch
ended on the leader, cuts, and asks again until both agree; only then it reads the leader's history, whose entries it
writes to disk when its log reaches them, before the records themselves.
"""

import logging
from collections.abc import Sequence

from assay.system_under_test.log.errors import CorruptLog, DamagedLog
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import EpochAnswer, PartitionStateUpdate, ReplicaFetchedPartition
from assay.system_under_test.protocol.schema import records_bytes
from assay.system_under_test.records.message import CorruptMessage
from assay.system_under_test.records.message_set import scan
from assay.system_under_test.replication.replica import Replica
from assay.system_under_test.zookeeper.znodes import NO_LEADER

_log = logging.getLogger("assay.replication")

BACK_OFF = 0.1
"""Seconds between tries after an error."""
FIRST_BACK_OFF = 0.01
"""Of a new term, then twice as long each time: the leader may hear of its own role a moment later."""


class FollowerTerm:
    """What exists only while this replica follows, under one epoch. Times are the loop's seconds."""

    def __init__(self, replica: Replica, update: PartitionStateUpdate) -> None:
        self.replica = replica
        self.epoch = update.leader_epoch
        self.controller_epoch = update.controller_epoch
        self.leader = update.leader
        self.over = False
        self.counts = update.leader != NO_LEADER and replica.environment.broker_id in (*update.isr, *update.elr)
        """May others believe that this replica has all that is acknowledged? As a member, and once it has fetched."""
        self.reconciled = False
        """The log is known to be a prefix of the leader's."""
        self.history: list[tuple[int, int]] = []
        """The leader's (epoch, start offset) entries which the log has not reached yet, rising."""
        self.behind = replica.environment.broker_id not in update.isr
        """Is it known to be out of sync? As a member, or once it has what is committed, it is not."""
        self.retry_at = 0.0
        self._back_off = FIRST_BACK_OFF

    def ask_later(self, now: float) -> None:
        """The leader does not know of its role yet, or not any more."""
        self.retry_at = now + self._back_off
        self._back_off = min(2 * self._back_off, BACK_OFF)

    async def apply_epoch_answer(self, answer: EpochAnswer, now: float) -> None:
        """Cuts the log as far as the answer proves it to differ; sets ``reconciled`` when leader and follower agree.

        A damaged log is discarded only under an epoch in which no one counts on it.
        """
        if self.replica.log.damage is not None and self.counts:
            self._reconcile_later(now)
            return
        try:
            await self._reconcile(answer)
        except (CorruptLog, DamagedLog) as damage:
            _log.error("%s: %s", self.replica.key, damage)
            self._reconcile_later(now)

    async def _reconcile(self, answer: EpochAnswer) -> None:
        replica, log = self.replica, self.replica.log
        if log.damage is not None:
            await self.discard(answer.log_start, log.damage)
        elif replica.epochs.latest() < 0 and log.end_offset > log.start_offset:
            await self.discard(answer.log_start, "no epoch history")
        elif log.end_offset < answer.log_start:
            await self.discard(answer.log_start, "below the leader's log start")
        elif log.end_offset == log.start_offset:
            await self.truncate(log.end_offset, "an empty log has no history, whatever it once had")
        elif answer.epoch < 0:
            await self.discard(answer.log_start, "no epoch in common with the leader")
        else:
            end, agreed = replica.traits.parting(answer, replica.epochs, replica.marks)
            await self.truncate(end, f"epoch {answer.epoch} of the leader ends there")
            if not agreed:
                return  # what is left ends in another epoch: ask again
        if answer.gaps and not self.over and not log.config.compacted:
            await log.allow_gaps()
        if not self.over:
            self._agree([(entry.epoch, entry.start_offset) for entry in answer.history])
            self._reach()

    async def apply_fetched(self, fetched: ReplicaFetchedPartition, now: float) -> None:
        """Appends what the leader sent, entering its epochs on the way; asks again later after an error or damage."""
        replica, log = self.replica, self.replica.log
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # an empty log may lie beyond the leader's end, and has no history that would say so
            if log.damage is None and (
                replica.traits.starts_over(log.end_offset, fetched.log_start) or log.start_offset == log.end_offset
            ):
                await self.discard(fetched.log_start, "out of the leader's range")
            self._reconcile_later(now)
            return
        if fetched.error_code != ErrorCode.NONE:
            self.retry_at = now + BACK_OFF
            return
        records = records_bytes(fetched.records)
        while records:
            # compaction may have taken what lay between the log's end and the next message, and whole epochs with it
            if self._reach(_first(records) if log.config.compacted else 0):
                await replica.epochs.flush()
                if self.over:
                    return
            now_appendable, records = _split(records, self.history[0][1] if self.history else None)
            try:
                if not now_appendable:
                    raise CorruptMessage(f"the leader left out offsets from {log.end_offset} on")
                log.append_replicated(now_appendable)
                replica.flush_in_time()
            except (CorruptMessage, DamagedLog) as damage:
                _log.error("%s: %s", replica.key, damage)
                replica.forget_epochs_ahead()
                self._reconcile_later(now)
                return
        if self._reach():
            await replica.epochs.flush()
        self.behind = log.end_offset < fetched.high_watermark
        # A follower's high watermark is its leader's, as far as its own log goes; it never falls.
        replica.high_watermark = max(replica.high_watermark, min(fetched.high_watermark, log.end_offset))

    def _reconcile_later(self, now: float) -> None:
        self.reconciled = False
        self.retry_at = now + BACK_OFF

    def _agree(self, history: Sequence[tuple[int, int]]) -> None:
        """The log is a prefix of the leader's, whose history this is; what comes next is copied."""
        replica = self.replica
        latest = replica.epochs.latest()
        self.history = [(epoch, start) for epoch, start in history if epoch > latest]
        self.reconciled = self.counts = True
        replica.events.emit(
            "reconciled", key=replica.key, epoch=self.epoch, position=replica.log.end_offset, value=self.leader
        )

    def _reach(self, next_offset: int = 0) -> bool:
        """Takes over the leader's entries which the log has reached, or reaches with the message at ``next_offset``,
        which is to come next; true when there were any, to be flushed.
        """
        reached = False
        while self.history and self.history[0][1] <= max(self.replica.log.end_offset, next_offset):
            self.replica.epochs.assign(*self.history.pop(0))
            reached = True
        return reached

    async def truncate(self, offset: int, reason: str) -> None:
        """Durably cuts the log and its history to end at ``offset``, unless the term is over before it begins."""
        replica, log = self.replica, self.replica.log
        before = log.end_offset
        async with replica.cutting:
            if offset < before:
                noted = log.end_offset
                while noted > (least := offset if offset >= log.start_offset else 0):  # retention may pass it meanwhile
                    noted = least
                    if not await self._may_cut(noted):
                        return
                log.truncate_to(offset)
                replica.high_watermark = min(replica.high_watermark, log.end_offset)
                await log.flush()
            replica.epochs.truncate_from_end(offset)
            await replica.epochs.flush()
        if offset < before:
            self._report_cut(log.end_offset, before, reason)

    async def discard(self, start_offset: int, reason: str) -> None:
        """Starts over, durably, with an empty log, unless the term is over before it begins."""
        replica, log = self.replica, self.replica.log
        before = log.end_offset
        async with replica.cutting:
            if not await self._may_cut(0):  # of the old log a power loss may leave any prefix
                return
            log.reset(start_offset)
            replica.high_watermark = start_offset
            await log.flush()
            await log.forget_damage()
            replica.epochs.truncate_from_end(0)
            await replica.epochs.flush()
        self._report_cut(start_offset, before, reason)

    async def _may_cut(self, offset: int) -> bool:
        """Makes the notes that a cut needs. If the term is over by then, or the process is stopped, they say again what
        the log has, before the next term begins.
        """
        may_cut = False
        try:
            await self.replica.environment.before_cut(self.replica, offset)
            may_cut = not self.over
        finally:
            if not may_cut:
                await self.replica.log.cut_given_up()
        return may_cut

    def _report_cut(self, end: int, before: int, reason: str) -> None:
        replica = self.replica
        replica.events.emit(
            "truncated",
            key=replica.key,
            epoch=replica.leader_epoch,
            position=end,
            value=before,
            detail={"reason": reason},
        )


def _first(records: bytes) -> int:
    """Offset of the first whole entry (of a compressed set: of its last message); 0 when there is none."""
    return next((offset for _, _, offset in scan(records)), 0)


def _split(records: bytes, boundary: int | None) -> tuple[bytes, bytes]:
    """The entries below offset ``boundary``, and the rest."""
    if boundary is None:
        return records, b""
    for position, _, offset in scan(records):
        if offset >= boundary:
            return records[:position], records[position:]
    return records, b""
