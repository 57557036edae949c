"""DamagedReplicas: a broker reports logs that have lost records, so that other brokers no longer rely on them.

The controller removes each replica from its in-sync set and its eligible leader replicas, and takes its leadership
away. The new leader epoch tells the broker that it may discard the log. The last member stays, and no replica leads.
"""

import asyncio

from assay.system_under_test.controller.active_term import ActiveTerm
from assay.system_under_test.controller.controller import Controller
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.network.handler import Context
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import DamagedReplicasRequest, DamagedReplicasResponse

PATIENCE = 30.0
"""Seconds until the answer that the request continues in the background."""


async def handle_damaged_replicas(
    controller: Controller, request: DamagedReplicasRequest, context: Context
) -> DamagedReplicasResponse:
    """Answers a report: 41 if this is not the controller, 8 for an unknown registration, 7 if the work continues."""
    code = ErrorCode.NONE
    try:
        async with asyncio.timeout(PATIENCE):
            await controller.perform(lambda active: _take_out(active, request))
    except TimeoutError:
        code = ErrorCode.REQUEST_TIMED_OUT
    except TopicError as error:
        code = error.code
    return DamagedReplicasResponse(error_code=code)


async def _take_out(active: ActiveTerm, request: DamagedReplicasRequest) -> None:
    cluster = active.cluster
    life = cluster.brokers.get(request.broker_id)
    if life is None or life.czxid != request.broker_epoch:
        raise TopicError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {request.broker_id} has no such registration")
    for named in request.partitions:
        topic = cluster.topics.get(named.topic)
        if topic is not None and topic.czxid == named.topic_czxid and named.partition in topic.assignment:
            partition = named.topic, named.partition
            await active.partitions.take_out(partition, request.broker_id, named.leader_epoch)
    active.brokers.send()
