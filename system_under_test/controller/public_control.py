"""Kafka's own control requests from any sender: LeaderAndIsr, StopReplica and UpdateMetadata, with API keys 4 to 6.

As in 0.10.2, a whole request with an older controller epoch is rejected (STALE_CONTROLLER_EPOCH). A single partition is
rejected if its leader epoch is not newer than the known one.

These requests cannot name a broker's registration or a topic's incarnation, and any client can send them. So further
checks apply:

- A controller epoch that ZooKeeper does not have yet is rejected.
- A role changes only if ZooKeeper confirms it. Fields that the request lacks are read from ZooKeeper. Then the code for
  this project's own requests applies the role.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from kazoo.exceptions import KazooException, NoNodeError

from assay.system_under_test.controller import topics
from assay.system_under_test.controller.cluster_state import ClusterState, PartitionId, read_brokers, read_topic
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.controller.term import read_epoch
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.protocol import control, internal
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.replica import PartitionError
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

NO_BROKER_EPOCH = -1
ZOOKEEPER_TIMEOUT = 5.0
"""Seconds to wait for ZooKeeper before the answer is UNKNOWN."""


class PublicControl:
    """Answers the requests of one broker."""

    def __init__(self, manager: ReplicaManager, zookeeper: ZooKeeper, cache: MetadataCache) -> None:
        self._manager = manager
        self._zookeeper = zookeeper
        self._cache = cache

    async def _admit(self, request: str, controller_epoch: int) -> ErrorCode:
        """Returns NONE for the current controller's epoch, and STALE_CONTROLLER_EPOCH for any other epoch.

        Returns UNKNOWN if ZooKeeper cannot be read.
        """
        epoch = self._manager.controller_epoch
        if controller_epoch > epoch:
            try:
                async with asyncio.timeout(ZOOKEEPER_TIMEOUT):
                    epoch = await read_epoch(self._zookeeper)
            except (KazooException, TimeoutError, znodes.ZnodeError):
                return ErrorCode.UNKNOWN
            self._manager.controller_epoch = max(epoch, self._manager.controller_epoch)
        if controller_epoch == self._manager.controller_epoch:
            return ErrorCode.NONE
        self._manager.report_rejected(request, controller_epoch, NO_BROKER_EPOCH)
        return ErrorCode.STALE_CONTROLLER_EPOCH

    # -- roles -------------------------------------------------------------------------------------------------------

    async def leader_and_isr(
        self, request: control.LeaderAndIsrRequest, _: RequestContext
    ) -> control.LeaderAndIsrResponse:
        code = await self._admit("leader-and-isr", request.controller_epoch)
        if code is not ErrorCode.NONE:
            return control.LeaderAndIsrResponse(error_code=code, partitions=[])
        received = {(state.topic, state.partition): state for state in request.partition_states}
        results = {partition: self._check_role(state) for partition, state in received.items()}
        newer = [partition for partition, result in results.items() if result is ErrorCode.NONE]
        if newer:
            try:
                async with asyncio.timeout(ZOOKEEPER_TIMEOUT):
                    cluster = await self._read(newer)
            except (KazooException, TimeoutError):
                return control.LeaderAndIsrResponse(error_code=ErrorCode.UNKNOWN, partitions=[])
            confirmed = [partition for partition in newer if _is_confirmed(cluster, received[partition])]
            results.update((p, ErrorCode.STALE_CONTROLLER_EPOCH) for p in newer if p not in confirmed)
            response = await self._manager.leader_and_isr(
                internal.LeaderAndIsrRequest(
                    controller_id=request.controller_id,
                    controller_epoch=request.controller_epoch,
                    broker_epoch=self._manager.broker_epoch,
                    partitions=cluster.to_updates(confirmed),
                    topics=cluster.to_settings_updates({name for name, _ in confirmed}),
                    live_brokers=cluster.to_live_brokers(),
                )
            )
            if response.error_code != ErrorCode.NONE:
                return control.LeaderAndIsrResponse(error_code=response.error_code, partitions=[])
            results.update(((r.topic, r.partition), ErrorCode(r.error_code)) for r in response.partitions)
        return control.LeaderAndIsrResponse(error_code=ErrorCode.NONE, partitions=_to_results(results))

    def _check_role(self, state: control.LeaderAndIsrState) -> ErrorCode:
        try:
            known = self._manager.get(state.topic, state.partition).leader_epoch
        except PartitionError:
            known = -1
        if state.leader_epoch <= known:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._manager.config.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    async def stop_replica(self, request: control.StopReplicaRequest, _: RequestContext) -> control.StopReplicaResponse:
        code = await self._admit("stop-replica", request.controller_epoch)
        if code is not ErrorCode.NONE:
            return control.StopReplicaResponse(error_code=code, partitions=[])
        stopped = []
        results: dict[PartitionId, ErrorCode] = {}
        for asked in request.partitions:
            try:
                replica = self._manager.get(asked.topic, asked.partition)
                async with asyncio.timeout(ZOOKEEPER_TIMEOUT):
                    allowed = await self._may_stop((asked.topic, asked.partition), delete=request.delete_partitions)
            except PartitionError:
                results[asked.topic, asked.partition] = ErrorCode.NONE  # nothing to stop
                continue
            except (KazooException, TimeoutError):
                return control.StopReplicaResponse(error_code=ErrorCode.UNKNOWN, partitions=[])
            results[asked.topic, asked.partition] = ErrorCode.STALE_CONTROLLER_EPOCH
            if allowed:
                stopped.append(
                    internal.StopReplicaPartition(
                        topic=asked.topic,
                        partition=asked.partition,
                        leader_epoch=replica.leader_epoch,
                        topic_czxid=replica.incarnation,
                    )
                )
        response = await self._manager.stop_replica(
            internal.StopReplicaRequest(
                controller_id=request.controller_id,
                controller_epoch=request.controller_epoch,
                broker_epoch=self._manager.broker_epoch,
                delete=request.delete_partitions,
                partitions=stopped,
            )
        )
        if response.error_code != ErrorCode.NONE:
            return control.StopReplicaResponse(error_code=response.error_code, partitions=[])
        results.update(((r.topic, r.partition), ErrorCode(r.error_code)) for r in response.partitions)
        return control.StopReplicaResponse(error_code=ErrorCode.NONE, partitions=_to_results(results))

    async def _may_stop(self, partition: PartitionId, *, delete: bool) -> bool:
        """Returns whether this broker may stop its replica.

        - The leader, and a member of the in-sync set or of ``elr`` (the eligible leader replicas), must not be stopped.
        - An assigned replica must not be deleted unless the deletion of its topic has begun.
        """
        cluster = await self._read([partition])
        topic, state, me = (
            cluster.topics.get(partition[0]),
            cluster.states.get(partition),
            self._manager.config.broker_id,
        )
        if (
            topic is None
        ):  # the topic was deleted, or its znode is invalid: a replica may be stopped only after deletion
            return await self._zookeeper.exists(paths.topic(partition[0])) is None
        if me not in topic.assignment.get(partition[1], ()):
            return True
        if delete:
            return await topics.has_deletion_begun(self._zookeeper, partition[0], topic.czxid)
        if state is None:
            return await self._zookeeper.exists(paths.partition_state(*partition)) is None
        return me not in (state.value.leader, *state.value.isr, *state.value.elr)

    async def _read(self, partitions: Sequence[PartitionId]) -> ClusterState:
        """Reads the live brokers and these partitions; leaves out missing and invalid znodes."""
        cluster = ClusterState(await read_brokers(self._zookeeper))
        for name in dict.fromkeys(name for name, _ in partitions):
            try:
                cluster.topics[name] = await read_topic(self._zookeeper, name)
            except (NoNodeError, znodes.ZnodeError):
                continue
        for name, index in partitions:
            if name in cluster.topics and index in cluster.topics[name].assignment:
                with contextlib.suppress(znodes.ZnodeError):
                    found = await znodes.read(
                        self._zookeeper, znodes.PartitionState, paths.partition_state(name, index)
                    )
                    if found is not None:
                        cluster.states[name, index] = znodes.Versioned(found[0], found[1].version)
        return cluster

    # -- metadata ------------------------------------------------------------------------------------------------------

    async def update_metadata(
        self, request: control.UpdateMetadataRequest, context: RequestContext
    ) -> control.UpdateMetadataResponse:
        """Updates the metadata for clients from the request, which is not compared with ZooKeeper, as in 0.10.2."""
        code = await self._admit("update-metadata", request.controller_epoch)
        if code is ErrorCode.NONE:
            live = [_to_live_broker(broker, context.api_version) for broker in request.live_brokers]
            self._cache.update(
                internal.UpdateMetadataRequest(
                    controller_id=request.controller_id,
                    controller_epoch=request.controller_epoch,
                    broker_epoch=NO_BROKER_EPOCH,
                    full=False,
                    partitions=[
                        _to_update(s) for s in request.partition_states if s.leader != control.LEADER_DURING_DELETE
                    ],
                    deleted=[s.topic for s in request.partition_states if s.leader == control.LEADER_DURING_DELETE],
                    live_brokers=[broker for broker in live if broker is not None],
                )
            )
        return control.UpdateMetadataResponse(error_code=code)


def _is_confirmed(cluster: ClusterState, state: control.LeaderAndIsrState) -> bool:
    """Returns whether ZooKeeper has the same leader and leader epoch."""
    known = cluster.states.get((state.topic, state.partition))
    return known is not None and (known.value.leader, known.value.leader_epoch) == (state.leader, state.leader_epoch)


def _to_results(results: dict[PartitionId, ErrorCode]) -> list[control.PartitionResult]:
    return [
        control.PartitionResult(topic=name, partition=index, error_code=code) for (name, index), code in results.items()
    ]


def _to_update(state: control.LeaderAndIsrState) -> internal.PartitionStateUpdate:
    return internal.PartitionStateUpdate(
        topic=state.topic,
        topic_czxid=-1,
        partition=state.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        member_epochs=[],
        elr=[],
        zk_version=state.zk_version,
        replicas=state.replicas,
    )


def _to_live_broker(broker: control.UpdateMetadataBroker, version: int) -> internal.LiveBroker | None:
    """Returns the broker's plaintext address; None if it has none."""
    if version == 0:
        return internal.LiveBroker(
            broker_id=broker.id, host=broker.host, port=broker.port, broker_epoch=NO_BROKER_EPOCH
        )
    for point in broker.end_points:
        if point.security_protocol_type == control.PLAINTEXT:
            return internal.LiveBroker(
                broker_id=broker.id, host=point.host, port=point.port, broker_epoch=NO_BROKER_EPOCH
            )
    return None
