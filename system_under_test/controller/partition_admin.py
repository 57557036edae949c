"""Elections of preferred leaders and reassignments by request, served by the active controller only (41 elsewhere)."""

from assay.system_under_test.controller import preferred
from assay.system_under_test.controller.active_term import ActiveTerm
from assay.system_under_test.controller.admin import Said, deadline, outcome
from assay.system_under_test.controller.cluster_state import PartitionId
from assay.system_under_test.controller.controller import Controller
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.network.handler import Context
from assay.system_under_test.protocol import topics
from assay.system_under_test.protocol.errors import ErrorCode


async def elect_preferred(
    controller: Controller, request: topics.ElectPreferredRequest, context: Context
) -> topics.PartitionChangeResponse:
    """5 where the preferred leader is not in sync: the present leader goes on."""
    limit = deadline(request.timeout_ms)
    results = []
    for name, index in dict.fromkeys((p.topic, p.partition) for p in request.partitions):

        async def act(active: ActiveTerm, partition: PartitionId = (name, index)) -> None:
            elected = await preferred.elect(active, partition)
            if elected is None:
                raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
            active.brokers.send()
            if not elected:
                raise TopicError(ErrorCode.LEADER_NOT_AVAILABLE, "the preferred leader is not in sync")

        results.append(_result((name, index), await outcome(controller.perform(act), limit)))
    return topics.PartitionChangeResponse(partitions=results)


async def reassign(
    controller: Controller, request: topics.ReassignRequest, context: Context
) -> topics.PartitionChangeResponse:
    limit = deadline(request.timeout_ms)
    results = []
    for entry in request.partitions:
        partition = entry.topic, entry.partition

        async def act(
            active: ActiveTerm, partition: PartitionId = partition, replicas: list[int] = entry.replicas
        ) -> None:
            await controller.reassignments.start(active, partition, replicas)

        results.append(_result(partition, await outcome(controller.perform(act), limit)))
    return topics.PartitionChangeResponse(partitions=results)


def _result(partition: PartitionId, said: Said) -> topics.PartitionChangeResult:
    return topics.PartitionChangeResult(
        topic=partition[0], partition=partition[1], error_code=said[0], error_message=said[1]
    )


async def describe_reassignments(
    controller: Controller, request: topics.DescribeReassignmentsRequest, context: Context
) -> topics.DescribeReassignmentsResponse:
    moving: list[topics.MovingPartition] = []
    settled: list[topics.NewAssignment] = []

    async def act(active: ActiveTerm) -> None:
        for move, replicas in await controller.reassignments.under_way(active):
            moving.append(
                topics.MovingPartition(
                    topic=move.topic,
                    partition=move.partition,
                    replicas=replicas,
                    target=move.replicas,
                    removing=move.removing,
                )
            )
        for named in request.partitions:
            topic = active.cluster.topics.get(named.topic)
            if (named.topic, named.partition) in active.cluster.moves or topic is None:
                continue
            if named.partition in topic.assignment:
                replicas = topic.assignment[named.partition]
                settled.append(topics.NewAssignment(topic=named.topic, partition=named.partition, replicas=replicas))

    code, message = await outcome(controller.perform(act), deadline(request.timeout_ms))
    return topics.DescribeReassignmentsResponse(error_code=code, error_message=message, moving=moving, settled=settled)
