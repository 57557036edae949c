"""A partition's log on this broker, in any role: its high watermark, the requests that wait for it, and its flushes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from assay.system_under_test.config import TopicConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.log.cleaner import CleaningResult
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.damage import Damage
from assay.system_under_test.log.epochs import EpochHistory
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.retention import remove_expired_segments
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.replication.insync import InSyncMembers
from assay.system_under_test.replication.purgatory import WaitingProducers, WaitingReaders
from assay.system_under_test.replication.traits import LogBounds, ReplicationTraits

UNKNOWN = -1


class PartitionError(Exception):
    """A request for a partition cannot be served by this broker; carries Kafka's error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True)
class ReplicaEnvironment:
    """Settings and callbacks that all replicas of one broker share."""

    broker_id: int
    lag_time_max: float
    """Seconds for which a follower may lag and stay in sync."""
    events: EventLog
    traits: ReplicationTraits
    """Rules that the historic defects change."""
    on_flush_messages_reached: Callable[[Replica], None]
    """Called when ``flush.messages`` records are not flushed: starts ``Replica.flush_until_counted``."""
    on_flush_ms_reached: Callable[[Replica], object]
    """Called when a record has waited for ``flush.ms``: starts ``Replica.flush_all``."""
    on_damage: Callable[[Replica], None]
    """Called when a log turns out to lack durable records."""
    prepare_truncation: Callable[[Replica, int], Awaitable[None]]
    """Awaited before a log is truncated or discarded."""
    on_disk_error: Callable[[OSError], None]
    """Called when an append to a leader's log fails: the process ends."""
    on_isr_wanted: Callable[[Any, InSyncMembers], None]
    """Starts writing the in-sync set that a ``LeaderTerm`` proposes."""


class Replica:
    """A replica in any role. ``high_watermark``: the value that the last process stored."""

    def __init__(
        self,
        topic: str,
        index: int,
        log: Log,
        epochs: EpochHistory,
        high_watermark: int,
        config: TopicConfig,
        environment: ReplicaEnvironment,
    ) -> None:
        self.topic = topic
        self.index = index
        self.key = f"{topic}-{index}"
        self.log = log
        self.epochs = epochs
        self.config = config
        self.environment = environment
        self.traits = environment.traits
        self.events = environment.events
        self.is_configured = False
        """Whether the topic's settings have arrived since the process started.

        Until then nothing is removed from the log.
        """
        self.incarnation = UNKNOWN
        """The czxid of the topic's znode."""
        self.leader_epoch = UNKNOWN
        """The highest leader epoch of this incarnation that the controller has sent."""
        self.high_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        self.producers = WaitingProducers()
        """Sends with acks=all that wait until their records are committed."""
        self.append_readers = WaitingReaders()
        """Fetches that wait for an append, mostly of followers."""
        self.commit_readers = WaitingReaders()
        """Fetches of consumers, which wait for the high watermark to advance."""
        self.append_lock = asyncio.Lock()
        """Held by a leader while it numbers a producer's set, until the set is appended."""
        self.truncation_lock = asyncio.Lock()
        """Held while the log and its epoch history are truncated, until both are on disk.

        A truncation that has begun is completed even if its term ends meanwhile.
        """
        self._flush_timer: asyncio.TimerHandle | None = None
        log.on_roll = self._on_roll
        log.on_damage = self._on_damage
        if log.found_damage is not None:
            self._report_damage(log.found_damage)

    async def configure(self, config: TopicConfig) -> None:
        """Applies the topic's settings, which may arrive or change long after the log was opened."""
        await self.log.configure(LogConfig.from_topic(config, self.log.config.traits))
        self.config = config
        self.is_configured = True

    def _on_roll(self, base_offset: int) -> None:
        self.events.emit("log-rolled", key=self.key, epoch=self.leader_epoch, position=base_offset)

    def _on_damage(self, damage: Damage) -> None:
        self._report_damage(damage)
        self.environment.on_damage(self)

    def _report_damage(self, damage: Damage) -> None:
        self.events.emit("log-damaged", key=self.key, position=damage.offset, detail={"problem": damage.problem})

    # -- commits ---------------------------------------------------------------------------------------------------

    @property
    def bounds(self) -> LogBounds:
        """The log end and the high watermark, from which ``traits`` compute other bounds."""
        return LogBounds(self.log.end_offset, self.high_watermark)

    def acknowledged_end(self) -> int:
        """Returns the offset below which sends with acks=all are acknowledged."""
        return self.traits.acknowledged_end(self.bounds)

    def wait_for_commit(self, last: int) -> asyncio.Future[ErrorCode]:
        """Returns a future that is done when the record at ``last`` is committed, or no longer can be in this term."""
        future = self.producers.add(last + 1)
        self.producers.advance(self.acknowledged_end())
        return future

    def advance(self) -> None:
        """Does nothing; ``Partition`` overrides it for leaders. Called when more of the log counts as flushed."""

    async def wait_for_truncation(self) -> None:
        """Waits until a truncation by an earlier term is complete.

        A term awaits this before it uses the epoch history, because the truncation still removes entries.
        """
        async with self.truncation_lock:
            pass

    def forget_epochs_ahead(self) -> None:
        """Removes epochs that begin above the log end, because their first record may never arrive."""
        self.epochs.truncate_from_end(self.log.end_offset + 1)

    # -- flushing --------------------------------------------------------------------------------------------------

    def end_counted_as_flushed(self) -> int:
        """Returns the offset below which records count as flushed: ``flush.messages - 1`` records need not be flushed.

        A leader computes the high watermark from this offset of its own and the positions of its followers.
        """
        return min(self.log.end_offset, self.log.flushed_offset + max(0, self.config.flush_messages - 1))

    async def flush_until_counted(self) -> None:
        """Flushes until all records of the log count as flushed (``end_counted_as_flushed``)."""
        while self.end_counted_as_flushed() < self.log.end_offset and not self.log.closed:
            await self.log.flush()
            self.advance()

    def schedule_flush(self) -> None:
        """Schedules a flush within ``flush.ms`` of an append."""
        if self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(self.config.flush_ms / 1000, self.environment.on_flush_ms_reached, self)

    async def flush_all(self) -> None:
        """Flushes the whole log, because some records have waited for ``flush.ms``."""
        self._flush_timer = None  # appends during this flush schedule their own
        if not self.log.closed and self.log.flushed_offset < self.log.end_offset:
            await self.log.flush()
            self.advance()

    def stop_timers(self) -> None:
        """Stops the flush timer before the log is closed."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()

    # -- upkeep ----------------------------------------------------------------------------------------------------

    async def apply_retention(self) -> int:
        """Removes expired segments below the high watermark from the log, and returns their number.

        The caller must purge them once their readers have had time to finish.
        """
        config, before = self.config, self.log.start_offset
        if not self.is_configured or not config.deletes:
            return 0
        count = await remove_expired_segments(
            self.log,
            lambda: self.high_watermark,
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
        )
        if count:
            self.epochs.truncate_from_start(self.log.start_offset)
            await self.epochs.flush()
            self.events.emit("segment-deleted", key=self.key, value=count, position=before)
            self.events.emit("log-start", key=self.key, position=self.log.start_offset)
        return count

    def report_cleaning(self, done: CleaningResult) -> None:
        """Reports a pass of the log cleaner."""
        self.events.emit(
            "log-cleaned",
            key=self.key,
            epoch=self.leader_epoch,
            position=done.end,
            value=done.messages,
            detail={"size_before": done.size_before, "size_after": done.size_after},
        )
