"""The follower's side of a partition: it truncates its log to a prefix of the leader's, and copies what follows.

Truncation uses leader epochs, never the high watermark (KIP-101, KIP-279):

1. The follower asks the leader where the follower's latest epoch ended.
2. It truncates its log there, and asks again until both agree.
3. It takes over the leader's epoch history. An entry is written to disk when the log reaches it, before the records of
   that epoch.
"""

import asyncio
import logging
from collections.abc import Sequence

from assay.system_under_test.log.errors import CorruptLog, DamagedLog
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import EpochAnswer, PartitionStateUpdate, ReplicaFetchedPartition
from assay.system_under_test.protocol.schema import read_records
from assay.system_under_test.records.message import CorruptMessage
from assay.system_under_test.records.message_set import scan
from assay.system_under_test.records.steps import STEP_BYTES
from assay.system_under_test.replication.replica import Replica
from assay.system_under_test.zookeeper.znodes import NO_LEADER

_log = logging.getLogger("assay.replication")

LONG_EXPANDED = STEP_BYTES // 8
"""Decompressed bytes after which other tasks run."""
BACK_OFF = 0.1
"""Seconds between tries after an error."""
FIRST_BACK_OFF = 0.01
"""Seconds before the first retry of a term, doubled each time. The leader may learn of its role a little later."""


class FollowerTerm:
    """State of this replica while it follows under one leader epoch. Times are the loop's seconds."""

    def __init__(self, replica: Replica, update: PartitionStateUpdate) -> None:
        self.replica = replica
        self.epoch = update.leader_epoch
        self.controller_epoch = update.controller_epoch
        self.leader = update.leader
        self.over = False
        self.is_relied_on = update.leader != NO_LEADER and replica.environment.broker_id in (*update.isr, *update.elr)
        """Whether other brokers may rely on this replica to have all acknowledged records.

        True while it is in the ISR or the ELR, and in any case once it is reconciled.
        """
        self.reconciled = False
        """Whether the log is known to be a prefix of the leader's."""
        self.history: list[tuple[int, int]] = []
        """The leader's (epoch, start offset) entries that the log has not reached yet, ascending."""
        self.behind = replica.environment.broker_id not in update.isr
        """Whether the replica is below the high watermark. Initially: whether it is outside the in-sync set."""
        self.retry_at = 0.0
        self._back_off = FIRST_BACK_OFF

    def retry_later(self, now: float) -> None:
        """Schedules a retry after an error: the leader does not know of its role yet, or no longer leads."""
        self.retry_at = now + self._back_off
        self._back_off = min(2 * self._back_off, BACK_OFF)

    async def apply_epoch_answer(self, answer: EpochAnswer, now: float) -> None:
        """Truncates the log where it diverges from the leader's; sets ``reconciled`` when both logs agree.

        Discards a damaged log, but only when no other broker relies on it.
        """
        if self.replica.log.damage is not None and self.is_relied_on:
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
            await self.truncate(log.end_offset, "the log is empty, so its epoch history is removed")
        elif answer.epoch < 0:
            await self.discard(answer.log_start, "no epoch in common with the leader")
        else:
            # ``agreed``: whether the logs agree once this one is truncated to ``end``.
            end, agreed = replica.traits.find_divergence(answer, replica.epochs, replica.bounds)
            await self.truncate(end, f"epoch {answer.epoch} of the leader ends there")
            if not agreed:
                return  # the remaining log ends in an earlier epoch: ask the leader about that one
        if answer.gaps and not self.over and not log.config.compacted:
            await log.allow_gaps()
        if not self.over:
            self._start_copying([(entry.epoch, entry.start_offset) for entry in answer.history])
            self._enter_reached_epochs()

    async def apply_fetched(self, fetched: ReplicaFetchedPartition, now: float) -> None:
        """Appends the leader's records and enters their epochs; schedules a retry after an error or damage."""
        replica, log = self.replica, self.replica.log
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # An empty log has no epoch history to compare, and may start beyond the leader's end.
            if log.damage is None and (
                replica.traits.needs_empty_log(log.end_offset, fetched.log_start) or log.start_offset == log.end_offset
            ):
                await self.discard(fetched.log_start, "out of the leader's range")
            self._reconcile_later(now)
            return
        if fetched.error_code != ErrorCode.NONE:
            self.retry_at = now + BACK_OFF
            return
        records = read_records(fetched.records)
        while records:
            # Compaction may have removed messages before the next one, even all messages of some epochs.
            if self._enter_reached_epochs(_find_first_offset(records) if log.config.compacted else 0):
                await replica.epochs.flush()
                if self.over:
                    return
            of_this_epoch, records = _split(records, self.history[0][1] if self.history else None)
            try:
                if not of_this_epoch:
                    raise CorruptMessage(f"the leader left out offsets from {log.end_offset} on")
                appended, expanded = log.append_some_replicated(of_this_epoch, STEP_BYTES)
                replica.schedule_flush()
            except (CorruptMessage, DamagedLog) as damage:
                _log.error("%s: %s", replica.key, damage)
                replica.forget_epochs_ahead()  # epochs entered above the log end, whose records did not arrive
                self._reconcile_later(now)
                return
            if 0 < appended < len(of_this_epoch):  # compressed entries are appended in steps
                records = of_this_epoch[appended:] + records
            if expanded >= LONG_EXPANDED:  # also after the last entry, because other partitions may follow
                await asyncio.sleep(0)
                if self.over:
                    return
        if self._enter_reached_epochs():
            await replica.epochs.flush()
        self.behind = log.end_offset < fetched.high_watermark
        # A follower's high watermark is the leader's, limited by the follower's log end; it never falls.
        replica.high_watermark = max(replica.high_watermark, min(fetched.high_watermark, log.end_offset))

    def _reconcile_later(self, now: float) -> None:
        self.reconciled = False
        self.retry_at = now + BACK_OFF

    def _start_copying(self, history: Sequence[tuple[int, int]]) -> None:
        """Starts copying after reconciliation. ``history``: the leader's epoch history."""
        replica = self.replica
        latest = replica.epochs.latest()
        self.history = [(epoch, start) for epoch, start in history if epoch > latest]
        self.reconciled = self.is_relied_on = True
        replica.events.emit(
            "reconciled", key=replica.key, epoch=self.epoch, position=replica.log.end_offset, value=self.leader
        )

    def _enter_reached_epochs(self, next_offset: int = 0) -> bool:
        """Adds the leader's epochs that begin at or below the log end or ``next_offset`` to the epoch history.

        Returns whether it added any. The caller must then flush the epoch history.
        """
        reached = False
        while self.history and self.history[0][1] <= max(self.replica.log.end_offset, next_offset):
            self.replica.epochs.assign(*self.history.pop(0))
            reached = True
        return reached

    async def truncate(self, offset: int, reason: str) -> None:
        """Durably truncates the log and its epoch history to end at ``offset``, unless the term is over by then."""
        replica, log = self.replica, self.replica.log
        before = log.end_offset
        async with replica.truncation_lock:
            if offset < before:
                prepared = log.end_offset
                # If retention has removed ``offset`` meanwhile, the log will be reset, which must be prepared for 0.
                while prepared > (needed := offset if offset >= log.start_offset else 0):
                    prepared = needed
                    if not await self._prepare_truncation(prepared):
                        return
                log.truncate_to(offset)
                replica.high_watermark = min(replica.high_watermark, log.end_offset)
                await log.flush()
            replica.epochs.truncate_from_end(offset)
            await replica.epochs.flush()
        if offset < before:
            self._report_truncation(log.end_offset, before, reason)

    async def discard(self, start_offset: int, reason: str) -> None:
        """Durably replaces the log by an empty one, unless the term is over by then."""
        replica, log = self.replica, self.replica.log
        before = log.end_offset
        async with replica.truncation_lock:
            if not await self._prepare_truncation(0):  # a power loss may leave any prefix of the old log
                return
            log.reset(start_offset)
            replica.high_watermark = start_offset
            await log.flush()
            await log.damage_note.clear()
            replica.epochs.truncate_from_end(0)
            await replica.epochs.flush()
        self._report_truncation(start_offset, before, reason)

    async def _prepare_truncation(self, offset: int) -> bool:
        """Lowers the checkpoints before a truncation, and returns whether the truncation may proceed.

        If the term is over by then, or the task is cancelled, the log restores its compaction note. This
        is done before the next term begins.
        """
        allowed = False
        try:
            await self.replica.environment.prepare_truncation(self.replica, offset)
            allowed = not self.over
        finally:
            if not allowed:
                await self.replica.log.abandon_truncation()
        return allowed

    def _report_truncation(self, end: int, before: int, reason: str) -> None:
        replica = self.replica
        replica.events.emit(
            "truncated",
            key=replica.key,
            epoch=replica.leader_epoch,
            position=end,
            value=before,
            detail={"reason": reason},
        )


def _find_first_offset(records: bytes) -> int:
    """Returns the offset of the first whole entry; 0 without one. An entry has the offset of its last message."""
    return next((offset for _, _, offset in scan(records)), 0)


def _split(records: bytes, boundary: int | None) -> tuple[bytes, bytes]:
    """Splits the entries at the offset ``boundary``; None: all entries are in the first part."""
    if boundary is None:
        return records, b""
    for position, _, offset in scan(records):
        if offset >= boundary:
            return records[:position], records[position:]
    return records, b""
