"""DamagedReplicas: a broker reports that logs of its own have lost something, and others must not count on them.

Each is taken out of its in-sync set and out of those that are eligible for having everything, and loses the lead, under
a new leader epoch, by which the broker knows that it may discard the log. The last member stays, and no one leads.
"""

import asyncio

from assay.system_under_test.controller.active_term import ActiveTerm
from assay.system_under_test.controller.controller import Controller
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.network.handler import Context
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import DamagedReplicasRequest, DamagedReplicasResponse

PATIENCE = 30.0
"""Seconds."""


async def damaged_replicas(
    controller: Controller, request: DamagedReplicasRequest, context: Context
) -> DamagedReplicasResponse:
    """41 when this is not the controller, 8 for a life of the broker that it does not know, 7 when it goes on."""
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
        raise TopicError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {request.broker_id} is not known in that life")
    for named in request.partitions:
        topic = cluster.topics.get(named.topic)
        if topic is not None and topic.czxid == named.topic_czxid and named.partition in topic.assignment:
            partition = named.topic, named.partition
            await active.partitions.take_out(partition, request.broker_id, named.leader_epoch)
    active.brokers.send()
