"""ControlledShutdown (key 7): moves leadership away from a broker before it stops.

Otherwise clients would wait until its session expires. A partition with another in-sync member gets that one as its
leader. The broker leaves all other in-sync sets, and stops its replicas so that it does not rejoin. This lasts until it
registers again, or the leader epoch rises.
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


async def handle_controlled_shutdown(
    controller: Controller, request: control.ControlledShutdownRequest, context: Context
) -> control.ControlledShutdownResponse:
    """Handles the public request: it means the registration that the broker has when its turn comes, as in 0.10.2."""
    return await _perform_shutdown(controller, request.broker_id, None)


async def handle_registered_shutdown(
    controller: Controller, request: ShutdownRequest, context: Context
) -> control.ControlledShutdownResponse:
    """Handles the internal request, which names the broker's registration."""
    return await _perform_shutdown(controller, request.broker_id, request.broker_epoch)


async def _perform_shutdown(
    controller: Controller, broker_id: int, broker_epoch: int | None
) -> control.ControlledShutdownResponse:
    """Performs a shutdown, and returns its error code.

    - 11: this broker is not the controller, as in 0.10.2
    - 8: the broker is not alive, or has another registration
    - 7: the time is over, but the shutdown continues
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
    """Moves leadership away; returns the partitions that the broker still leads.

    Partitions without other replicas are not included, because waiting for them is pointless. A broker repeats its
    request until it gets an answer, so a request may arrive after its next registration.
    """
    cluster, life = active.cluster, active.cluster.brokers.get(broker_id)
    if life is None or broker_epoch not in (None, life.czxid):
        raise TopicError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive, or has registered again")
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
