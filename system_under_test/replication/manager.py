"""Executes the controller's requests, which say what replicas this broker has, and the role of each.

Requests are handled one at a time, in order. A whole request is rejected if it comes from an older controller or names
another registration of this broker. The update of a single partition is rejected if its leader epoch is not above the
known one.

A tester may ask for the state of all replicas of this broker (``list_roles``).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.log.directory import DirectoryError
from assay.system_under_test.log.traits import LogTraits
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.protocol import control, internal
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import ReplicaRole, RolesRequest, RolesResponse
from assay.system_under_test.records.steps import Turns
from assay.system_under_test.replication.fetcher import LeaderFetcher
from assay.system_under_test.replication.handover import Handover
from assay.system_under_test.replication.isr_writer import IsrWriter
from assay.system_under_test.replication.leader import LeaderTerm
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.replication.replica import UNKNOWN, PartitionError
from assay.system_under_test.replication.replicas import Replicas
from assay.system_under_test.replication.request_dedup import RequestDeduplicator
from assay.system_under_test.replication.throttle import Throttles
from assay.system_under_test.replication.traits import ReplicationTraits
from assay.system_under_test.runtime import Runtime, ZooKeeper
from assay.system_under_test.tasks import BackgroundTasks

_log = logging.getLogger("assay.replication")


class ReplicaManager:
    """The replicas of one broker and their roles. The broker sets ``broker_epoch`` when it registers.

    - ``on_leader_and_isr``: called with each accepted request
    - ``active_controller``: returns the controller to which damaged logs are reported
    - ``on_lead``: called with each term in which this broker leads
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        zookeeper: ZooKeeper,
        events: EventLog,
        background: BackgroundTasks,
        on_leader_and_isr: Callable[[internal.LeaderAndIsrRequest], None],
        active_controller: Callable[[], internal.LiveBroker | None],
        on_lead: Callable[[Partition, LeaderTerm], None],
        traits: ReplicationTraits,
        log_traits: LogTraits,
    ) -> None:
        self.config = config
        self.broker_epoch = -1
        self.controller_epoch = -1
        self.throttles = Throttles()
        self.turns = Turns()
        """Runs the work on compressed sets, for one request at a time."""
        self._events = events
        self.incarnation = events.incarnation
        self._background = background
        self._traits = traits
        self._on_leader_and_isr = on_leader_and_isr
        self._deduplicator = RequestDeduplicator()
        self._on_lead = on_lead
        self._isr_writer = IsrWriter(
            zookeeper,
            background,
            config.broker_id,
            retry=config.replica_lag_time_max_ms / 10_000,  # a tenth of it, in seconds
        )
        self._handover = Handover(config, background, active_controller, lambda: self.broker_epoch)
        self.replicas = Replicas(
            config,
            runtime,
            events,
            background,
            self._isr_writer.write,
            self._unfollow,
            self._handover.begin_if_damaged,
            traits,
            log_traits,
        )
        self._fetchers: dict[int, tuple[LeaderFetcher, asyncio.Task[None]]] = {}
        self._controller_lock = asyncio.Lock()

    # -- start and close -----------------------------------------------------------------------------------------

    def start(self) -> None:
        self.replicas.start_maintenance()
        self._isr_writer.start()

    async def close(self, *, flush: bool) -> None:
        """Ends all terms; with ``flush``, makes everything durable, as a clean shutdown must."""
        for partition in self.replicas.all():
            partition.end_term()
            partition.stop_timers()
        for _, task in self._fetchers.values():
            task.cancel()
        await self.replicas.close(flush=flush)

    # -- for requests ----------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition:
        """Returns this broker's replica. Raises ``PartitionError`` (UNKNOWN_TOPIC_OR_PARTITION) if it has none."""
        partition = self.replicas.find(topic, index)
        if partition is None:
            raise PartitionError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    # -- the controller's requests ---------------------------------------------------------------------------------

    def is_current_registration(self, broker_epoch: int) -> bool:
        """Returns whether this broker epoch identifies the current registration of this broker."""
        return broker_epoch >= 0 and self._traits.accepts_broker_epoch(broker_epoch, self.broker_epoch)

    def accept_request(self, request: str, controller_id: int, controller_epoch: int, broker_epoch: int) -> bool:
        """Accepts a request and adopts its controller epoch, or rejects it. Returns whether it was accepted.

        A request is rejected if it comes from an older controller, or is for another registration of this broker.
        """
        if not self.is_current_registration(broker_epoch) or not self._traits.accepts_controller_epoch(
            controller_epoch, self.controller_epoch
        ):
            self.report_rejected(request, controller_epoch, broker_epoch)
            return False
        self.controller_epoch = max(controller_epoch, self.controller_epoch)
        self._events.emit(
            "request-obeyed", controller_epoch=controller_epoch, value=controller_id, detail={"request": request}
        )
        return True

    def report_rejected(self, request: str, controller_epoch: int, broker_epoch: int) -> None:
        """Reports that a request was rejected as a whole."""
        self._events.emit(
            "request-fenced",
            controller_epoch=controller_epoch,
            value=self.controller_epoch,
            detail={"request": request, "broker_epoch": broker_epoch, "own_broker_epoch": self.broker_epoch},
        )

    async def leader_and_isr(self, request: internal.LeaderAndIsrRequest) -> control.LeaderAndIsrResponse:
        async with self._controller_lock:
            if not self.accept_request(
                "leader-and-isr", request.controller_id, request.controller_epoch, request.broker_epoch
            ):
                return control.LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, partitions=[])
            self._on_leader_and_isr(request)
            for topic in request.topics:
                settings = {setting.name: setting.value for setting in topic.settings}
                await self.replicas.configure(topic.topic, settings, topic.zxid)
            live = {broker.broker_id: broker for broker in request.live_brokers}
            if is_new := self._deduplicator.admit(request):  # settings need no check: they carry their own zxids
                self._refresh_leaders(live)
            results = []
            for update in request.partitions:
                error = ErrorCode.STALE_CONTROLLER_EPOCH
                if self._concerns_this_replica(update, is_new=is_new):
                    error = await self._change_role(update, live)
                results.append(
                    control.PartitionResult(topic=update.topic, partition=update.partition, error_code=error)
                )
                if (partition := self.replicas.find(update.topic, update.partition)) is not None:
                    self._handover.begin_if_damaged(partition)
            for fetcher, _ in self._fetchers.values():
                fetcher.interrupt_wait()
            return control.LeaderAndIsrResponse(error_code=ErrorCode.NONE, partitions=results)

    def _concerns_this_replica(self, update: internal.PartitionStateUpdate, *, is_new: bool) -> bool:
        """Returns whether the update is for this broker's current registration and this incarnation of the topic.

        - False for an update that makes an earlier registration of this broker the leader, because its log may have
          been longer then.
        - False for a late duplicate of a request if there is no open replica: the replica was deleted since, and the
          duplicate must not create it again.

        The caller recognizes other late updates by their leader epochs.
        """
        if update.leader == self.config.broker_id:
            elected = {member.broker_id: member.broker_epoch for member in update.member_epochs}
            if not self.is_current_registration(elected.get(update.leader, UNKNOWN)):
                return False
        replica = self.replicas.find(update.topic, update.partition)
        incarnation = UNKNOWN if replica is None or replica.log.closed else replica.incarnation
        return incarnation == update.topic_czxid or (is_new and incarnation < update.topic_czxid)

    async def _change_role(
        self, update: internal.PartitionStateUpdate, live: Mapping[int, internal.LiveBroker]
    ) -> ErrorCode:
        try:
            partition = await self.replicas.find_or_create(update)
        except DirectoryError as error:  # if the whole request failed, the controller would repeat all of it
            _log.error("%s", error)
            return ErrorCode.UNKNOWN
        if not self._traits.accepts_leader_epoch(update.leader_epoch, partition.leader_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        before = partition.leader_epoch
        try:
            return await self._begin_term(partition, update, live)
        except OSError:
            partition.end_term()
            partition.leader_epoch = before  # otherwise the controller's next try would be rejected as outdated
            raise

    async def _begin_term(
        self, partition: Partition, update: internal.PartitionStateUpdate, live: Mapping[int, internal.LiveBroker]
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
                self._get_fetcher(live[update.leader]).add(partition.follower)
        return ErrorCode.NONE

    async def stop_replica(self, request: internal.StopReplicaRequest) -> control.StopReplicaResponse:
        async with self._controller_lock:
            if not self.accept_request(
                "stop-replica", request.controller_id, request.controller_epoch, request.broker_epoch
            ):
                return control.StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, partitions=[])
            self._deduplicator.admit(request)  # result unused: incarnation and epoch protect against duplicates
            results = []
            for stopped in request.partitions:
                partition = self.replicas.find(stopped.topic, stopped.partition)
                error = ErrorCode.NONE
                if partition is None or partition.incarnation > stopped.topic_czxid:
                    pass  # no replica, or that of a later topic of the name, which a late duplicate must not stop
                elif stopped.leader_epoch < partition.leader_epoch:
                    error = ErrorCode.STALE_CONTROLLER_EPOCH
                else:
                    self._unfollow(partition)
                    partition.stop(stopped.leader_epoch)
                    if request.delete:
                        await self.replicas.delete(partition)
                results.append(
                    control.PartitionResult(topic=stopped.topic, partition=stopped.partition, error_code=error)
                )
        if request.delete:
            for stopped in request.partitions:
                await self._isr_writer.wait_until_settled(stopped.topic, stopped.partition)
        return control.StopReplicaResponse(error_code=ErrorCode.NONE, partitions=results)

    # -- following -------------------------------------------------------------------------------------------------

    def _refresh_leaders(self, live: Mapping[int, internal.LiveBroker]) -> None:
        """Updates leaders that have registered again, because requests must carry the new registration."""
        for broker_id, (fetcher, _) in self._fetchers.items():
            if broker_id in live:
                fetcher.leader = live[broker_id]

    def _get_fetcher(self, leader: internal.LiveBroker) -> LeaderFetcher:
        if leader.broker_id not in self._fetchers:
            fetcher = LeaderFetcher(leader, self.config, lambda: self.broker_epoch, self.throttles.follower)
            task = self._background.spawn(fetcher.run(), f"fetching from {leader.broker_id}")
            self._fetchers[leader.broker_id] = fetcher, task
        return self._fetchers[leader.broker_id][0]

    def _unfollow(self, partition: Partition) -> None:
        for fetcher, _ in self._fetchers.values():
            fetcher.remove(partition.key)


DAMAGED = -1
"""Reported as the high watermark of a damaged log, which has none that counts until the log is copied again."""


async def list_roles(manager: ReplicaManager, _: RolesRequest, context: RequestContext) -> RolesResponse:
    return RolesResponse(
        partitions=[
            ReplicaRole(
                topic=partition.topic,
                partition=partition.index,
                leader_epoch=partition.leader_epoch,
                high_watermark=DAMAGED if partition.log.damage is not None else partition.high_watermark,
                log_end=partition.log.end_offset,
                settings=partition.config.fingerprint,
                flushed=partition.log.flushed_offset,
                flush_ms=partition.config.flush_ms,
            )
            for partition in manager.replicas.all()
        ]
    )
