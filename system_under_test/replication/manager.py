"""All replicas on this broker: opens their logs, obeys the controller, runs the fetchers and the upkeep.

The controller's requests are handled one at a time, in order. A request is refused as a whole when it comes from an
older controller or is meant for another life of this broker; a partition is refused when its leader epoch is not above
the one known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from assay.system_under_test.config import BrokerConfig, TopicConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.log import directory
from assay.system_under_test.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, CheckpointError, OffsetCheckpoint
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.epochs import EpochHistory
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.traits import CORRECT, LogTraits
from assay.system_under_test.protocol.control import LeaderAndIsrResponse, PartitionResult, StopReplicaResponse
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import (
    LeaderAndIsrRequest,
    LiveBroker,
    PartitionStateUpdate,
    StopReplicaRequest,
)
from assay.system_under_test.replication.cleaner import LogCleaner
from assay.system_under_test.replication.fetcher import Leader, LeaderFetcher
from assay.system_under_test.replication.isr_writer import IsrWriter
from assay.system_under_test.replication.partition import UNKNOWN, LeaderTerm, Partition, PartitionError
from assay.system_under_test.runtime import Runtime, ZooKeeper
from assay.system_under_test.tasks import Background

_log = logging.getLogger("assay.replication")


class ReplicaManager:
    """See the module. ``broker_epoch`` is set by whoever registers this broker; ``on_lead`` hears of each term in which
    this broker leads.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        zookeeper: ZooKeeper,
        events: EventLog,
        background: Background,
        learn: Callable[[LeaderAndIsrRequest], None],
        on_lead: Callable[[Partition, LeaderTerm], None],
        partition_class: type[Partition] = Partition,
        log_traits: LogTraits = CORRECT,
    ) -> None:
        self.config = config
        self.broker_epoch = -1
        self.controller_epoch = -1
        self._runtime = runtime
        self._storage = runtime.storage
        self._isr_writer = IsrWriter(
            zookeeper, background, config.broker_id, retry=config.replica_lag_time_max_ms / 10_000
        )
        self._events = events
        self._background = background
        self._learn = learn
        self._on_lead = on_lead
        self._log_traits = log_traits
        self._partition_class = partition_class
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._topic_configs: dict[str, TopicConfig] = {}
        self._configured_at: dict[str, int] = {}
        """As of which transaction of ZooKeeper."""
        self._configuring = asyncio.Lock()
        """No replica comes or goes while settings are applied."""
        self._fetchers: dict[int, tuple[LeaderFetcher, asyncio.Task[None]]] = {}
        self._controller_lock = asyncio.Lock()
        self._cutting = asyncio.Lock()
        """A checkpoint taken before a cut must not be written after it."""
        self._flushing: dict[str, None] = {}
        self._high_watermarks = OffsetCheckpoint(self._storage, f"{config.data_dir}/{HIGH_WATERMARKS}")
        self._recovery_points = OffsetCheckpoint(self._storage, f"{config.data_dir}/{RECOVERY_POINTS}")
        self._cleaner = LogCleaner(config, self._storage, lambda: list(self._partitions.values()), self._cutting)

    # -- life ----------------------------------------------------------------------------------------------------

    async def open(self, *, clean: bool) -> None:
        """Opens every log on disk, recovering it first after an unclean stop."""
        await directory.remove_deleted(self._storage, self.config.data_dir)
        self._cleaner.open()
        for topic, index in directory.partition_directories(self._storage, self.config.data_dir):
            await self._open_partition(topic, index, clean=clean)

    async def _open_partition(self, topic: str, index: int, *, clean: bool) -> Partition:
        path = self._path(topic, index)
        config = self._topic_configs.get(topic, self.config.topic)
        found = directory.read_incarnation(self._storage, path)
        made_for = UNKNOWN if found is None else found
        log, recovery = await Log.open(
            self._storage,
            path,
            LogConfig.of(config, self._log_traits),
            clean=clean,
            recovery_point=self._recovery_points.load().get((topic, index), 0),
            wall_clock=self._runtime.wall_clock,
        )
        epochs = await EpochHistory.load(self._storage, path)
        epochs.truncate_from_end(log.end_offset)
        epochs.truncate_from_start(log.start_offset)
        await epochs.flush()
        partition = self._partition_class(
            topic,
            index,
            self.config.broker_id,
            log,
            epochs,
            self._high_watermarks.load().get((topic, index), 0),
            config,
            self._events,
            lag_time_max=self.config.replica_lag_time_max_ms / 1000,
            on_isr_wanted=self._isr_writer.write,
            on_flush_wanted=self._on_flush_wanted,
            on_flush_due=self._on_flush_due,
            before_cut=self._before_cut,
        )
        partition.incarnation = made_for
        self._partitions[topic, index] = partition
        self._events.emit(
            "recovered",
            key=partition.key,
            epoch=epochs.latest(),
            position=log.end_offset,
            value=recovery.truncated_bytes,
            clean=clean,
            high_watermark=partition.high_watermark,
            damaged=recovery.damaged,
            problem=recovery.problem,
        )
        if recovery.damaged:
            _log.error("%s is damaged and will not lead: %s", partition.key, recovery.problem)
        return partition

    def start(self) -> None:
        self._background.spawn(self._shrink_now_and_then(), "isr upkeep")
        self._background.spawn(self._checkpoint_now_and_then(), "checkpoints")
        self._background.spawn(self._retain_now_and_then(), "retention")
        self._background.spawn(self._cleaner.run(), "log cleaner")
        self._isr_writer.start()

    async def close(self, *, flush: bool) -> None:
        """Ends all terms; with ``flush``, makes everything durable, as a clean shutdown must."""
        for partition in self._partitions.values():
            partition.end_term()
            partition.stop_timers()
        for _, task in self._fetchers.values():
            task.cancel()
        if flush:
            for partition in self._partitions.values():
                await partition.log.flush()
                await partition.epochs.flush()
            await self._checkpoint()
        for partition in self._partitions.values():
            await partition.log.close()

    async def configure(self, topic: str, settings: Mapping[str, str], zxid: int) -> None:
        """What the topic has set for itself as of a transaction of ZooKeeper; older news changes nothing."""
        async with self._configuring:
            if zxid <= self._configured_at.get(topic, -1):
                return
            self._configured_at[topic] = zxid
            config = self._topic_configs[topic] = self.config.topic.override(settings)
            for partition in list(self._partitions.values()):
                if partition.topic == topic:
                    await partition.configure(config)
        self._events.emit("topic-configured", key=topic, zxid=zxid, settings=dict(settings))

    # -- look-ups ------------------------------------------------------------------------------------------------

    @property
    def damaged(self) -> bool:
        """Has any log lost what it had made durable?"""
        return any(partition.log.damage is not None for partition in self._partitions.values())

    def get(self, topic: str, index: int) -> Partition:
        """Raises ``PartitionError`` (3) when this broker has no replica of it."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise PartitionError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    @property
    def partitions(self) -> Iterable[Partition]:
        return self._partitions.values()

    def _path(self, topic: str, index: int) -> str:
        return f"{self.config.data_dir}/{directory.directory_name(topic, index)}"

    # -- the controller's requests ---------------------------------------------------------------------------------

    def obey(self, request: str, controller_id: int, controller_epoch: int, broker_epoch: int) -> bool:
        """Is this the newest controller known, and does it mean this life of mine? Adopts a higher epoch."""
        if broker_epoch < 0 or controller_epoch < self.controller_epoch or broker_epoch != self.broker_epoch:
            self.fenced(request, controller_epoch, broker_epoch)
            return False
        self.controller_epoch = controller_epoch
        self._events.emit("request-obeyed", controller_epoch=controller_epoch, value=controller_id, request=request)
        return True

    def fenced(self, request: str, controller_epoch: int, broker_epoch: int) -> None:
        """Notes that a request was refused as a whole."""
        self._events.emit(
            "request-fenced",
            controller_epoch=controller_epoch,
            value=self.controller_epoch,
            request=request,
            broker_epoch=broker_epoch,
            own_broker_epoch=self.broker_epoch,
        )

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        async with self._controller_lock:
            if not self.obey("leader-and-isr", request.controller_id, request.controller_epoch, request.broker_epoch):
                return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, partitions=[])
            self._learn(request)
            for told in request.topics:
                await self.configure(told.topic, {setting.name: setting.value for setting in told.settings}, told.zxid)
            live = {broker.broker_id: broker for broker in request.live_brokers}
            self._refresh_leaders(live)
            results = []
            for update in request.partitions:
                try:
                    error = await self._change_role(update, live)
                except (directory.DirectoryError, CheckpointError) as problem:  # one replica, not all
                    _log.error("%s-%d is offline: %s", update.topic, update.partition, problem)
                    error = ErrorCode.UNKNOWN
                results.append(PartitionResult(topic=update.topic, partition=update.partition, error_code=error))
            return LeaderAndIsrResponse(error_code=ErrorCode.NONE, partitions=results)

    def _refresh_leaders(self, live: Mapping[int, LiveBroker]) -> None:
        """A leader that came back under another registration must be addressed by it."""
        for broker_id, (fetcher, _) in self._fetchers.items():
            if broker_id in live:
                fetcher.leader = _leader(live[broker_id])

    async def _change_role(self, update: PartitionStateUpdate, live: Mapping[int, LiveBroker]) -> ErrorCode:
        partition = await self._replica(update)
        if update.leader_epoch <= partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        before = partition.leader_epoch
        try:
            return await self._begin_term(partition, update, live)
        except OSError:
            partition.end_term()
            partition.leader_epoch = before  # or the controller's next try would be taken for an old request
            raise

    async def _begin_term(
        self, partition: Partition, update: PartitionStateUpdate, live: Mapping[int, LiveBroker]
    ) -> ErrorCode:
        now = asyncio.get_running_loop().time()
        self._unfollow(partition)
        if update.leader == self.config.broker_id:
            try:
                await partition.lead(update, now)
            except PartitionError as error:
                return error.code
            if partition.leader is not None:
                self._on_lead(partition, partition.leader)
        else:
            partition.follow(update)
            if update.leader in live and partition.follower is not None:
                self._fetcher(_leader(live[update.leader])).add(partition, partition.follower)
        return ErrorCode.NONE

    async def _replica(self, update: PartitionStateUpdate) -> Partition:
        """The replica, made when there is none, with the settings of its topic."""
        async with self._configuring:
            partition = await self._replica_as_found(update)
            await partition.configure(self._topic_configs.get(update.topic, self.config.topic))
        return partition

    async def _replica_as_found(self, update: PartitionStateUpdate) -> Partition:
        """One of a deleted topic of the same name is set aside first."""
        topic, index = update.topic, update.partition
        path = self._path(topic, index)
        partition = self._partitions.get((topic, index))
        if partition is not None:
            made_for = directory.read_incarnation(self._storage, path)
            if made_for == update.topic_czxid:
                return partition
            await self._close_partition(partition)
            aside = await directory.set_aside(self._storage, path)
            await self._forget(topic, index)
            _log.warning(
                "%s belongs to another incarnation of the topic (%s, now %s): set aside as %s",
                partition.key,
                made_for,
                update.topic_czxid,
                aside,
            )
        if (topic, index) in self._recovery_points.load():
            await self._forget(topic, index)  # what a crash in the middle of a deletion may have left
        self._storage.mkdir(path)
        await directory.write_incarnation(self._storage, path, update.topic_czxid)
        await self._storage.fsync_directory(self.config.data_dir)
        return await self._open_partition(topic, index, clean=True)

    async def _forget(self, topic: str, index: int) -> None:
        await self._high_watermarks.write({}, remove=[(topic, index)])
        await self._recovery_points.write({}, remove=[(topic, index)])
        await self._cleaner.forget(topic, index)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        async with self._controller_lock:
            if not self.obey("stop-replica", request.controller_id, request.controller_epoch, request.broker_epoch):
                return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, partitions=[])
            results = []
            for stopped in request.partitions:
                partition = self._partitions.get((stopped.topic, stopped.partition))
                error = ErrorCode.NONE
                if partition is not None and stopped.leader_epoch < partition.leader_epoch:
                    error = ErrorCode.STALE_CONTROLLER_EPOCH
                elif partition is not None:
                    self._unfollow(partition)
                    partition.end_term()
                    partition.leader_epoch = stopped.leader_epoch
                    if request.delete:
                        partition.stop_timers()
                        async with self._configuring:
                            del self._partitions[stopped.topic, stopped.partition]
                            await partition.epochs.close()
                            await partition.log.tombstones.close()
                            await partition.log.delete()
                            await self._forget(stopped.topic, stopped.partition)
                results.append(PartitionResult(topic=stopped.topic, partition=stopped.partition, error_code=error))
            return StopReplicaResponse(error_code=ErrorCode.NONE, partitions=results)

    async def _close_partition(self, partition: Partition) -> None:
        self._unfollow(partition)
        partition.end_term()
        partition.stop_timers()
        await partition.epochs.close()
        await partition.log.tombstones.close()
        await partition.log.close()
        del self._partitions[partition.topic, partition.index]

    # -- following -------------------------------------------------------------------------------------------------

    def _fetcher(self, leader: Leader) -> LeaderFetcher:
        if leader.broker_id not in self._fetchers:
            fetcher = LeaderFetcher(
                leader,
                self.config.broker_id,
                lambda: self.broker_epoch,
                request_timeout=self.config.request_timeout_ms / 1000,
                max_wait_ms=self.config.replica_fetch_wait_max_ms,
                max_bytes=self.config.replica_fetch_max_bytes,
            )
            task = self._background.spawn(fetcher.run(), f"fetching from {leader.broker_id}")
            self._fetchers[leader.broker_id] = fetcher, task
        return self._fetchers[leader.broker_id][0]

    def _unfollow(self, partition: Partition) -> None:
        for fetcher, _ in self._fetchers.values():
            fetcher.remove(partition.key)

    # -- the in-sync set -------------------------------------------------------------------------------------------

    async def _shrink_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.config.replica_lag_time_max_ms / 2000)
            now = asyncio.get_running_loop().time()
            for partition in list(self._partitions.values()):
                partition.shrink(now)

    # -- durability ------------------------------------------------------------------------------------------------

    def _on_flush_wanted(self, partition: Partition) -> None:
        if partition.key not in self._flushing:
            self._flushing[partition.key] = None
            self._background.spawn(self._flush(partition), f"flush of {partition.key}")

    def _on_flush_due(self, partition: Partition) -> None:
        self._background.spawn(partition.flush_all(), f"flush in time of {partition.key}")

    async def _flush(self, partition: Partition) -> None:
        try:
            await partition.flush_counted()
        finally:
            self._flushing.pop(partition.key, None)

    async def _checkpoint_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.config.checkpoint_interval_ms / 1000)
            await self._checkpoint()

    async def _retain_now_and_then(self) -> None:
        """Takes out of each log what is too old or too much, and a while later off the disk."""
        while True:
            await asyncio.sleep(self.config.retention_check_interval_ms / 1000)
            for partition in list(self._partitions.values()):
                try:
                    count = await partition.retain()
                except CorruptLog as damage:
                    _log.error("%s: %s", partition.key, damage)
                    continue
                if count:
                    delay = partition.config.file_delete_delay_ms / 1000
                    asyncio.get_running_loop().call_later(delay, partition.log.purge, count)

    async def _checkpoint(self) -> None:
        """Entries of partitions that are not here right now stay as they are (KAFKA-1647)."""
        here = list(self._partitions.values())
        await self._high_watermarks.write({(p.topic, p.index): p.noted_mark() for p in here})
        async with self._cutting:
            await self._recovery_points.write(
                {
                    (p.topic, p.index): p.log.flushed_offset
                    for p in here
                    # one that has gone since must not be vouched for under the name of the next
                    if p.log.damage is None and self._partitions.get((p.topic, p.index)) is p
                }
            )

    async def _before_cut(self, partition: Partition, offset: int) -> None:
        """A recovery point above the log's end would look like damage after a crash."""
        async with self._cutting:
            known = self._recovery_points.load().get((partition.topic, partition.index), 0)
            if offset < known:
                await self._recovery_points.write({(partition.topic, partition.index): offset})
            await self._cleaner.before_cut(partition, offset)


def _leader(broker: LiveBroker) -> Leader:
    return Leader(broker.broker_id, broker.host, broker.port, broker.broker_epoch)
