"""All replicas on this broker's disk: opens, creates and deletes them, and stores their settings and checkpoints."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from assay.system_under_test.config import BrokerConfig, TopicConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.log import deletion, directory
from assay.system_under_test.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, CheckpointError, OffsetCheckpoint
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.epochs import EPOCHS, EpochHistory
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.traits import LogTraits
from assay.system_under_test.protocol.internal import PartitionStateUpdate
from assay.system_under_test.replication.cleaner import LogCleaner
from assay.system_under_test.replication.insync import InSyncMembers
from assay.system_under_test.replication.leader import LeaderTerm
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.replication.replica import UNKNOWN, Replica, ReplicaEnvironment
from assay.system_under_test.replication.traits import ReplicationTraits
from assay.system_under_test.runtime import Runtime
from assay.system_under_test.tasks import BackgroundTasks

_log = logging.getLogger("assay.replication")


class Replicas:
    """All replicas of one broker, and their maintenance.

    - ``on_isr_wanted``: see :class:`ReplicaEnvironment`
    - ``on_close``: called before a log is set aside
    - ``on_damage``: called when an open log is found to be damaged
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        events: EventLog,
        background: BackgroundTasks,
        on_isr_wanted: Callable[[LeaderTerm, InSyncMembers], None],
        on_close: Callable[[Partition], None],
        on_damage: Callable[[Partition], None],
        traits: ReplicationTraits,
        log_traits: LogTraits,
    ) -> None:
        self._config = config
        self._storage = runtime.storage
        self._wall_clock = runtime.wall_clock
        self._events = events
        self._background = background
        self._on_close = on_close
        self._on_damage = on_damage
        self._records_lost = False
        self._log_traits = log_traits
        self._environment = ReplicaEnvironment(
            config.broker_id,
            config.replica_lag_time_max_ms / 1000,
            events,
            traits,
            self._on_flush_messages_reached,
            lambda replica: background.spawn(replica.flush_all(), f"flush in time of {replica.key}"),
            self._on_damage_found,
            self._prepare_truncation,
            background.fail,
            on_isr_wanted,
        )
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._topic_configs: dict[str, TopicConfig] = {}
        self._configured_at: dict[str, int] = {}
        """The ZooKeeper transaction of each topic's settings."""
        self._configuring = asyncio.Lock()
        """Held while settings are applied, and while a replica is created or deleted."""
        self._checkpointing = asyncio.Lock()
        """Held while checkpoints are written: a value from before a truncation must not be written after it."""
        self._flushing: dict[str, None] = {}
        self._high_watermarks, self._recovery_points = (
            OffsetCheckpoint(self._storage, f"{config.data_dir}/{name}", self._require_in_place)
            for name in (HIGH_WATERMARKS, RECOVERY_POINTS)
        )
        self.cleaner = LogCleaner(
            config,
            self._storage,
            lambda: list(self._partitions.values()),
            self._checkpointing,
            self._require_in_place,
        )

    # -- look-ups ------------------------------------------------------------------------------------------------

    @property
    def records_lost(self) -> bool:
        """Whether a log may have lost durable records since ``take_records_lost`` was last called."""
        return self._records_lost

    def take_records_lost(self) -> bool:
        """Returns ``records_lost`` and resets it."""
        lost, self._records_lost = self._records_lost, False
        return lost

    def find(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def all(self) -> Iterable[Partition]:
        return self._partitions.values()

    def _path(self, topic: str, index: int) -> str:
        return f"{self._config.data_dir}/{directory.format_directory_name(topic, index)}"

    def _require_in_place(self) -> None:
        """Ends the process, and raises ``DirectoryMovedError``, if the data directory is no longer at its path."""
        try:
            directory.require_in_place(self._storage, self._config.data_dir)
        except directory.DirectoryMovedError as error:
            self._background.fail(error)
            raise

    # -- opening and closing -------------------------------------------------------------------------------------

    async def open(self, *, clean: bool) -> None:
        """Opens every log on disk, and recovers it first after an unclean stop.

        An unreadable checkpoint is ignored. Without recovery points, a log may have lost any records, so all logs are
        checked in full, and none is truncated. The file of recovery points is created before the first log, so a
        missing file counts as unreadable.
        """
        await deletion.remove_deleted(self._storage, self._config.data_dir)
        found = [
            (topic, index)
            for topic, index in directory.list_partition_directories(self._storage, self._config.data_dir)
            if deletion.may_be_log(self._storage, self._path(topic, index))
        ]
        problems = [self._high_watermarks.recover(), self._recovery_points.recover(expected=bool(found))]
        problems.append(self.cleaner.open())
        for problem in problems:
            if problem is not None:
                _log.error("%s; the checkpoint is created again", problem)
                self._events.emit("checkpoint-damaged", detail={"problem": problem})
        points = self._recovery_points.load() if problems[1] is None else None
        self._records_lost = points is None
        if not found:
            await self._recovery_points.write({})
        for topic, index in found:
            point = None if points is None else points.get((topic, index), 0)
            await self._open_partition(topic, index, clean=clean and points is not None, recovery_point=point)
        stored = self._high_watermarks.load()
        lowered = {
            name: partition.high_watermark
            for name, partition in self._partitions.items()
            if partition.high_watermark < stored.get(name, 0)
        }
        # Otherwise a further crash would bring the old value back, and new records below it would seem committed.
        if lowered:
            await self._high_watermarks.write(lowered)

    async def _open_partition(self, topic: str, index: int, *, clean: bool, recovery_point: int | None) -> Partition:
        path = self._path(topic, index)
        config = self._topic_configs.get(topic, self._config.topic)
        log, recovery = await Log.open(
            self._storage,
            path,
            LogConfig.from_topic(config, self._log_traits),
            clean=clean,
            recovery_point=recovery_point,
            wall_clock=self._wall_clock,
        )
        incarnation, epochs = await self._read_state_files(path, log)
        if log.damage is None:
            epochs.truncate_from_end(log.end_offset)
            epochs.truncate_from_start(log.start_offset)
            await epochs.flush()
        else:
            self._records_lost = True
            await log.note_damage()
        high_watermark = self._high_watermarks.load().get((topic, index), 0)
        partition = Partition(topic, index, log, epochs, high_watermark, config, self._environment)
        if incarnation is not None:
            partition.incarnation = self._events.topic_czxids[partition.key] = incarnation
        self._partitions[topic, index] = partition
        self._events.emit(
            "recovered",
            key=partition.key,
            epoch=epochs.latest(),
            position=log.end_offset,
            value=recovery.truncated_bytes,
            high_watermark=partition.high_watermark,
            detail={"clean": clean, "damaged": log.damage is not None, "problem": log.damage or recovery.problem},
        )
        if log.damage is not None:
            _log.error("%s is damaged and will not lead: %s", partition.key, log.damage)
        elif recovery.truncated_bytes:
            problem = recovery.problem or "the bytes were in files that are not part of the log"
            _log.warning(
                "%s: %d bytes that were not known to be fsynced were removed: %s",
                path,
                recovery.truncated_bytes,
                problem,
            )
        return partition

    async def _read_state_files(self, path: str, log: Log) -> tuple[int | None, EpochHistory]:
        """Reads the topic's czxid and the epoch history from a log's folder.

        If one is missing or invalid, marks the log as damaged: without its epoch history, the log cannot be compared
        with another one.
        """
        incarnation, epochs, problem = None, EpochHistory(self._storage, path), None
        try:
            incarnation = directory.read_incarnation(self._storage, path)
            epochs = await EpochHistory.load(self._storage, path)
            if log.end_offset > log.start_offset and (incarnation is None or not epochs.entries()):
                missing = directory.INCARNATION if incarnation is None else EPOCHS
                problem = f"{path}: {missing} is missing"
        except (directory.DirectoryError, CheckpointError) as error:
            problem = str(error)
        if problem is not None:
            log.mark_damaged(CorruptLog(path, 0, log.start_offset, problem))
        return incarnation, epochs

    async def find_or_create(self, update: PartitionStateUpdate) -> Partition:
        """Returns the replica with the settings of its topic. Creates it if necessary.

        Raises :class:`DirectoryError` if a file is in the place of its folder.
        """
        async with self._configuring:
            partition = await self._find_usable(update) or await self._create(update)
            await partition.configure(self._topic_configs.get(update.topic, self._config.topic))
        return partition

    async def _find_usable(self, update: PartitionStateUpdate) -> Partition | None:
        """Returns the usable replica of this incarnation of the topic, or None. Removes or sets aside any other log."""
        partition = self._partitions.get((update.topic, update.partition))
        if partition is None:
            return None
        if partition.log.closed and partition.incarnation == update.topic_czxid:
            await self._remove(partition)  # completes a deletion that failed
        elif partition.incarnation == update.topic_czxid:
            return partition
        elif partition.incarnation == UNKNOWN and partition.log.damage is not None and not partition.log.closed:
            # Assigning the log to this topic is safe, because a damaged log is never served.
            await directory.write_incarnation(self._storage, partition.log.directory, update.topic_czxid)
            partition.incarnation = self._events.topic_czxids[partition.key] = update.topic_czxid
            return partition
        else:
            await self._set_aside(partition, update.topic_czxid)
        return None

    async def _create(self, update: PartitionStateUpdate) -> Partition:
        topic, index = update.topic, update.partition
        await self._forget(topic, index)  # removes entries of a former log, which a killed deletion may have left
        path = self._path(topic, index)
        if self._storage.exists(path) and not directory.is_folder(self._storage, path):
            raise directory.DirectoryError(
                f"{path} is a file, but the log of {topic}-{index} belongs there; remove it and restart the broker"
            )
        self._require_in_place()
        self._storage.mkdir(path, parents=False)
        await directory.write_incarnation(self._storage, path, update.topic_czxid)
        await self._storage.fsync_directory(self._config.data_dir)
        return await self._open_partition(topic, index, clean=True, recovery_point=0)

    async def _set_aside(self, partition: Partition, czxid: int) -> None:
        """Sets aside the log of another incarnation of the topic. After an ``OSError`` the next request repeats it."""
        self._on_close(partition)
        partition.end_term()
        partition.stop_timers()
        await partition.epochs.close()
        await partition.log.close_notes()  # the files that note damage, gaps and preallocation
        await partition.log.close()
        path = partition.log.directory
        aside = await directory.set_aside(self._storage, path) if self._storage.exists(path) else None
        del self._partitions[partition.topic, partition.index]
        _log.warning(
            "%s belongs to another incarnation of the topic (%s, now %s): set aside as %s",
            partition.key,
            partition.incarnation,
            czxid,
            aside,
        )

    async def delete(self, partition: Partition) -> None:
        """Deletes a replica whose term is over, with all its files. May be called again after an ``OSError``."""
        partition.stop_timers()
        async with self._configuring:
            await self._remove(partition)

    async def _remove(self, partition: Partition) -> None:
        await partition.epochs.close()
        await partition.log.close_notes()
        await partition.log.delete()
        del self._partitions[partition.topic, partition.index]
        await self._forget(partition.topic, partition.index)

    async def _forget(self, topic: str, index: int) -> None:
        """Removes the log's entries from all checkpoints."""
        for checkpoint in (self._high_watermarks, self._recovery_points):
            await checkpoint.remove((topic, index))
        await self.cleaner.forget(topic, index)

    async def flush(self) -> None:
        """Makes everything durable, and writes the checkpoints."""
        for partition in list(self._partitions.values()):
            await partition.log.flush()
            if partition.log.damage is None:
                await partition.epochs.flush()
        await self.checkpoint()

    async def close(self, *, flush: bool) -> None:
        """Closes all logs; with ``flush``, first makes everything durable, as a clean shutdown must.

        Closes as much as possible, then raises the first ``OSError``.
        """
        failed: OSError | None = None
        if flush:
            try:
                await self.flush()
            except OSError as error:
                failed = error
        for partition in self._partitions.values():
            try:
                await partition.log.close()
            except OSError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    # -- settings ------------------------------------------------------------------------------------------------

    async def configure(self, topic: str, settings: Mapping[str, str], zxid: int) -> None:
        """Applies a topic's own settings, as of the ZooKeeper transaction ``zxid``; ignores outdated settings."""
        async with self._configuring:
            if zxid <= self._configured_at.get(topic, -1):
                return
            config = self._topic_configs[topic] = self._config.topic.override(settings)
            for partition in list(self._partitions.values()):
                if partition.topic == topic:
                    await partition.configure(config)
            self._configured_at[topic] = zxid  # last: the controller sends settings again if this failed
        self._events.emit("topic-configured", key=topic, zxid=zxid, detail={"settings": dict(settings)})

    # -- durability ------------------------------------------------------------------------------------------------

    def _on_damage_found(self, replica: Replica) -> None:
        self._records_lost = True
        self._background.spawn(self._note_damage(replica), f"damage of {replica.key}")
        partition = self.find(replica.topic, replica.index)
        if partition is replica:
            self._on_damage(partition)

    async def _note_damage(self, replica: Replica) -> None:
        try:
            await replica.log.note_damage()
        except OSError as error:
            _log.error("%s: the note of its damage could not be written: %s", replica.key, error)

    def _on_flush_messages_reached(self, replica: Replica) -> None:
        if replica.key not in self._flushing:
            self._flushing[replica.key] = None
            self._background.spawn(self._flush(replica), f"flush of {replica.key}")

    async def _flush(self, replica: Replica) -> None:
        try:
            await replica.flush_until_counted()
        finally:
            self._flushing.pop(replica.key, None)

    async def checkpoint(self) -> None:
        """Writes the checkpoints. Keeps the entries of partitions without an open replica (KAFKA-1647)."""
        partitions = list(self._partitions.values())
        for partition in partitions:
            await partition.log.note_damage()  # an earlier attempt may have failed, for example on a full disk
        async with self._checkpointing:
            await self._high_watermarks.write(
                {(p.topic, p.index): p.prepare_checkpoint() for p in partitions if self._is_current(p)}
            )
            await self._recovery_points.write(
                {
                    (p.topic, p.index): p.log.flushed_offset
                    for p in partitions
                    if p.log.damage is None and self._is_current(p)
                }
            )

    def _is_current(self, partition: Partition) -> bool:
        """Returns whether the replica still exists. A deleted replica must leave no entry for a later topic."""
        return self._partitions.get((partition.topic, partition.index)) is partition

    async def _prepare_truncation(self, replica: Replica, offset: int) -> None:
        """Lowers the checkpoints, and writes the log's compaction note, before a truncation.

        After a crash, a recovery point above the log's end would look like damage, and a high watermark above the end
        would make the next records count as committed.
        """
        async with self._checkpointing:
            for checkpoint in (self._recovery_points, self._high_watermarks):
                if offset < checkpoint.load().get((replica.topic, replica.index), 0):
                    await checkpoint.write({(replica.topic, replica.index): offset})
            await self.cleaner.prepare_truncation(replica, offset)

    # -- maintenance -----------------------------------------------------------------------------------------------

    def start_maintenance(self) -> None:
        """Starts the periodic tasks: in-sync sets, checkpoints, retention and compaction."""
        self._background.spawn(self._shrink_periodically(), "isr upkeep")
        self._background.spawn(self._checkpoint_periodically(), "checkpoints")
        self._background.spawn(self._apply_retention_periodically(), "retention")
        self._background.spawn(self.cleaner.run(), "log cleaner")

    async def _shrink_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._config.replica_lag_time_max_ms / 2000)
            now = asyncio.get_running_loop().time()
            for partition in list(self.all()):
                if partition.leader is not None:
                    partition.leader.shrink(now)

    async def _checkpoint_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._config.checkpoint_interval_ms / 1000)
            await self.checkpoint()

    async def _apply_retention_periodically(self) -> None:
        """Removes expired segments from each log, and deletes their files after a delay."""
        while True:
            await asyncio.sleep(self._config.retention_check_interval_ms / 1000)
            for partition in list(self.all()):
                try:
                    count = await partition.apply_retention()
                except CorruptLog as damage:
                    _log.error("%s: %s", partition.key, damage)
                    continue
                if count:
                    delay = partition.config.file_delete_delay_ms / 1000
                    asyncio.get_running_loop().call_later(delay, partition.log.purge_retired, count)
