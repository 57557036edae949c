"""ControlledShutdown (key 7): before a broker stops, others take its lead, so that no client waits for its session's
end.

A partition with another member in sync is led by that one then; it leaves the other in-sync sets, and stops its
replicas, so that it does not come back into them. That lasts until it registers again, or the leader epoch rises.
"""

import asyncio

from assay.system_under_test.controller.active_term import ActiveTerm
from assay.system_under_test.controller.controller import Controller
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.network.handler import Context
from assay.system_under_test.protocol import control
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import ShutdownRequest

PATIENCE = 30.0
"""Seconds; Kafka's ``controller.socket.timeout.ms``."""


async def controlled_shutdown(
    controller: Controller, request: control.ControlledShutdownRequest, context: Context
) -> control.ControlledShutdownResponse:
    """As in 0.10.2: of the life that the broker has when its turn comes."""
    return await _answered(controller, request.broker_id, None)


async def shutdown_of_a_life(
    controller: Controller, request: ShutdownRequest, context: Context
) -> control.ControlledShutdownResponse:
    """Of no other life of the broker than the one that asks."""
    return await _answered(controller, request.broker_id, request.broker_epoch)


async def _answered(
    controller: Controller, broker_id: int, broker_epoch: int | None
) -> control.ControlledShutdownResponse:
    """11 when this is not the controller, as in 0.10.2; 8 for a broker that is not alive, or in another life; 7 when it
    goes on.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            remaining = await controller.perform(lambda active: _move_away(active, broker_id, broker_epoch))
    except TimeoutError:
        return control.ControlledShutdownResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, partitions_remaining=[])
    except TopicError as error:
        code = ErrorCode.STALE_CONTROLLER_EPOCH if error.code is ErrorCode.NOT_CONTROLLER else error.code
        return control.ControlledShutdownResponse(error_code=code, partitions_remaining=[])
    return control.ControlledShutdownResponse(error_code=ErrorCode.NONE, partitions_remaining=remaining)


async def _move_away(active: ActiveTerm, broker_id: int, broker_epoch: int | None) -> list[control.PartitionName]:
    """The partitions that it still leads. One without other replicas is not worth waiting for, and not among them.

    A broker asks again while it gets no answer, and what it has asked may be found when its next life is there.
    """
    cluster, life = active.cluster, active.cluster.brokers.get(broker_id)
    if life is None or broker_epoch not in (None, life.czxid):
        raise TopicError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive, or not in that life")
    cluster.leaving[broker_id] = life.czxid
    replicated = [
        (name, index)
        for name, topic in cluster.topics.items()
        for index, replicas in topic.assignment.items()
        if broker_id in replicas and len(replicas) > 1 and name not in cluster.deleting
    ]
    moved = [partition for partition in replicated if await active.partitions.move_away(partition, broker_id)]
    active.brokers.stop(broker_id, moved)
    active.machines.stopped(broker_id, moved)
    active.brokers.send()
    return [
        control.PartitionName(topic=name, partition=index)
        for name, index in replicated
        if (name, index) in cluster.states and cluster.states[name, index].value.leader == broker_id
    ]
