"""The table of request handlers: the part of the broker that answers each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.system_under_test.config import OFFSETS_TOPIC, BrokerConfig
from assay.system_under_test.controller import admin
from assay.system_under_test.controller.broker_requests import (
    handle_controlled_shutdown,
    handle_damaged_replicas,
    handle_registered_shutdown,
)
from assay.system_under_test.controller.controller import Controller
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.controller.public_control import PublicControl
from assay.system_under_test.controller.topics import (
    auto_create,
    make_default_topic_request,
    make_offsets_topic_request,
)
from assay.system_under_test.groups.coordinator import Coordinator
from assay.system_under_test.network.handler import Handler, RequestContext
from assay.system_under_test.protocol import control, internal, topics
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.fetch import FetchRequest
from assay.system_under_test.protocol.metadata import MetadataRequest, MetadataResponse
from assay.system_under_test.protocol.offsets import ListOffsetsRequest
from assay.system_under_test.protocol.produce import ProduceRequest
from assay.system_under_test.protocol.schema import Request, get_request_info
from assay.system_under_test.replication import fetch, offsets, produce
from assay.system_under_test.replication.manager import ReplicaManager, list_roles
from assay.system_under_test.runtime import Runtime, ZooKeeper


def make_handlers(
    zookeeper: ZooKeeper,
    manager: ReplicaManager,
    controller: Controller,
    coordinator: Coordinator,
    metadata: MetadataHandler,
    public_control: PublicControl,
) -> Mapping[int, Handler]:
    """Returns the handlers by API key."""
    handlers: dict[type[Request[Any]], Handler] = {
        internal.LeaderAndIsrRequest: lambda request, _: manager.leader_and_isr(request),
        internal.StopReplicaRequest: lambda request, _: manager.stop_replica(request),
        internal.UpdateMetadataRequest: metadata.update,
        internal.ReplicaFetchRequest: partial(fetch.replica_fetch, manager),
        internal.EpochEndRequest: partial(offsets.answer_epoch_end, manager),
        internal.EndOffsetsRequest: partial(offsets.answer_end_offsets, manager, zookeeper),
        internal.LogEndRequest: partial(offsets.answer_log_end, manager),
        internal.RolesRequest: partial(list_roles, manager),
        internal.DamagedReplicasRequest: partial(handle_damaged_replicas, controller),
        internal.ShutdownRequest: partial(handle_registered_shutdown, controller),
        ProduceRequest: partial(produce.produce, manager),
        FetchRequest: partial(fetch.fetch, manager, zookeeper),
        ListOffsetsRequest: partial(offsets.list_offsets, manager, zookeeper),
        MetadataRequest: metadata.answer,
        control.LeaderAndIsrRequest: public_control.leader_and_isr,
        control.StopReplicaRequest: public_control.stop_replica,
        control.UpdateMetadataRequest: public_control.update_metadata,
        control.ControlledShutdownRequest: partial(handle_controlled_shutdown, controller),
        topics.CreatePartitionsRequest: partial(admin.create_partitions, controller),
        topics.AlterConfigsRequest: partial(admin.alter_configs, controller),
        topics.DescribeConfigsRequest: partial(admin.describe_configs, controller),
        topics.ElectPreferredRequest: partial(admin.elect_preferred, controller),
        topics.ReassignRequest: partial(admin.reassign, controller),
        topics.DescribeReassignmentsRequest: partial(admin.describe_reassignments, controller),
        topics.CreateTopicsRequest: partial(admin.create_topics, controller),
        topics.DeleteTopicsRequest: partial(admin.delete_topics, controller),
        **coordinator.handlers(),
    }
    return {get_request_info(request).key: handler for request, handler in handlers.items()}


@dataclass(eq=False)
class MetadataHandler:
    """Answers metadata requests, and creates missing topics if that is configured.

    ``on_deleted`` is called with the names of topics that were deleted.
    """

    config: BrokerConfig
    runtime: Runtime
    zookeeper: ZooKeeper
    manager: ReplicaManager
    cache: MetadataCache
    on_deleted: Callable[[Sequence[str]], None]

    async def answer(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        response = self.cache.answer(request, context)
        if self.config.auto_create_topics_enable:
            brokers = [broker.broker_id for broker in self.cache.list_brokers()]
            for topic in response.topics:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    if topic.topic == OFFSETS_TOPIC:
                        await self.make_offsets_topic()
                        topic.error_code = ErrorCode.LEADER_NOT_AVAILABLE
                        continue
                    wanted = make_default_topic_request(topic.topic, self.config, brokers)
                    topic.error_code = await auto_create(
                        self.zookeeper, self.config, wanted, brokers, self.runtime.random
                    )
        return response

    async def make_offsets_topic(self) -> None:
        """Creates the offsets topic once enough brokers live; until then there are no groups."""
        brokers = [broker.broker_id for broker in self.cache.list_brokers()]
        if len(brokers) >= self.config.offsets_topic_replication_factor:
            wanted = make_offsets_topic_request(OFFSETS_TOPIC, self.config)
            await auto_create(self.zookeeper, self.config, wanted, brokers, self.runtime.random)

    async def update(
        self, request: internal.UpdateMetadataRequest, _: RequestContext
    ) -> control.UpdateMetadataResponse:
        code = ErrorCode.STALE_CONTROLLER_EPOCH
        if self.manager.accept_request(
            "update-metadata", request.controller_id, request.controller_epoch, request.broker_epoch
        ):
            deleted = self.cache.update(request)
            if deleted:
                self.on_deleted(deleted)
            code = ErrorCode.NONE
        return control.UpdateMetadataResponse(error_code=code)
