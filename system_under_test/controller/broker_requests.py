"""Requests of a broker that gives up leadership: before it stops, or because logs have lost records.

- ControlledShutdown (key 7) moves leadership away from a broker before it stops. Otherwise clients would wait until its
  session expires. If a partition has another in-sync member, that member becomes the leader, and the broker is removed
  from the in-sync set. The broker stops these replicas until it registers again or the leader epoch rises.
- DamagedReplicas reports logs that have lost records, so that other brokers no longer rely on them. The controller
  removes each such replica from its in-sync set and its eligible leader replicas, and from leadership. The new leader
  epoch tells the broker that it may discard the log. If the replica is the last member, it stays a member, and the
  partition has no leader.
"""

import asyncio

from assay.system_under_test.controller.active_term import Action, ActiveTerm, T
from assay.system_under_test.controller.cluster_state import PartitionId
from assay.system_under_test.controller.controller import Controller
from assay.system_under_test.controller.leaders import BrokerIncarnation
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.protocol import control
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import DamagedReplicasRequest, DamagedReplicasResponse, ShutdownRequest

TIMEOUT = 30.0
"""Seconds until the answer REQUEST_TIMED_OUT. The work continues. Kafka's ``controller.socket.timeout.ms``."""


async def _perform(controller: Controller, action: Action[T]) -> tuple[ErrorCode, T | None]:
    """Performs an action. Returns an error code, and the result.

    - NOT_CONTROLLER: this broker is not the controller
    - BROKER_NOT_AVAILABLE: the requesting broker is not alive, or has another registration
    - REQUEST_TIMED_OUT: the time is over, but the action continues
    """
    try:
        async with asyncio.timeout(TIMEOUT):
            return ErrorCode.NONE, await controller.perform(action)
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT, None
    except TopicError as error:
        return error.code, None


def _require_registered(active: ActiveTerm, broker_id: int, broker_epoch: int | None) -> BrokerIncarnation:
    """Returns the live broker. Raises ``TopicError``. ``broker_epoch`` None means any registration.

    A broker repeats its request until it gets an answer, so a request may arrive after the broker's next registration.
    """
    broker = active.cluster.brokers.get(broker_id)
    if broker is None or broker_epoch not in (None, broker.czxid):
        raise TopicError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive, or has registered again")
    return broker


# -- shutdown --------------------------------------------------------------------------------------------------------


async def handle_controlled_shutdown(
    controller: Controller, request: control.ControlledShutdownRequest, context: RequestContext
) -> control.ControlledShutdownResponse:
    """Handles the public request, for whatever registration the broker has at that time, as in 0.10.2."""
    return await _shut_down(controller, request.broker_id, None)


async def handle_registered_shutdown(
    controller: Controller, request: ShutdownRequest, context: RequestContext
) -> control.ControlledShutdownResponse:
    """Handles the internal request, which names the broker's registration."""
    return await _shut_down(controller, request.broker_id, request.broker_epoch)


async def _shut_down(
    controller: Controller, broker_id: int, broker_epoch: int | None
) -> control.ControlledShutdownResponse:
    code, remaining = await _perform(controller, lambda active: _move_away(active, broker_id, broker_epoch))
    if code is ErrorCode.NOT_CONTROLLER:
        code = ErrorCode.STALE_CONTROLLER_EPOCH  # as in 0.10.2
    return control.ControlledShutdownResponse(
        error_code=code,
        partitions_remaining=[control.PartitionName(topic=name, partition=index) for name, index in remaining or ()],
    )


async def _move_away(active: ActiveTerm, broker_id: int, broker_epoch: int | None) -> list[PartitionId]:
    """Moves leadership away; returns the partitions with other replicas that the broker still leads."""
    cluster = active.cluster
    cluster.leaving[broker_id] = _require_registered(active, broker_id, broker_epoch).czxid
    replicated = [
        (name, index)
        for name, topic in cluster.topics.items()
        for index, replicas in topic.assignment.items()
        if broker_id in replicas and len(replicas) > 1 and name not in cluster.begun_deletions
    ]
    moved = [partition for partition in replicated if await active.partitions.move_away(partition, broker_id)]
    active.broadcast.stop_replicas(broker_id, moved)
    active.machines.record_stopped(broker_id, moved)
    active.broadcast.send()
    return [p for p in replicated if p in cluster.states and cluster.states[p].value.leader == broker_id]


# -- damaged logs ----------------------------------------------------------------------------------------------------


async def handle_damaged_replicas(
    controller: Controller, request: DamagedReplicasRequest, context: RequestContext
) -> DamagedReplicasResponse:
    code, _ = await _perform(controller, lambda active: _remove_damaged(active, request))
    return DamagedReplicasResponse(error_code=code)


async def _remove_damaged(active: ActiveTerm, request: DamagedReplicasRequest) -> None:
    _require_registered(active, request.broker_id, request.broker_epoch)
    for damaged in request.partitions:
        topic = active.cluster.topics.get(damaged.topic)
        if topic is not None and topic.czxid == damaged.topic_czxid and damaged.partition in topic.assignment:
            partition = damaged.topic, damaged.partition
            await active.partitions.remove_damaged(partition, request.broker_id, damaged.leader_epoch)
    active.broadcast.send()
