"""A cluster as one Metadata response described it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from assay.system_under_test.client.pool import Address
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.metadata import MetadataResponse


@dataclass(frozen=True, slots=True)
class Node:
    """A broker: its id and where it is reached."""

    id: int
    address: Address


@dataclass(frozen=True, slots=True)
class PartitionView:
    """``leader`` is None when there is none, or when the broker that was asked does not know its address."""

    leader: Node | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicView:
    error: ErrorCode
    partitions: Mapping[int, PartitionView]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """``controller`` is None when none is known."""

    cluster_id: str | None
    controller: Node | None
    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicView]


def cluster_view(response: MetadataResponse) -> ClusterView:
    """The same, with brokers' ids resolved."""
    nodes = {
        broker.node_id: Node(broker.node_id, Address(broker.host, broker.port))
        for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
    }
    topics = {
        topic.topic: TopicView(
            ErrorCode.of(topic.error_code),
            MappingProxyType(
                {
                    partition.partition: PartitionView(
                        nodes.get(partition.leader),
                        tuple(partition.replicas),
                        tuple(partition.isr),
                        ErrorCode.of(partition.error_code),
                    )
                    for partition in sorted(topic.partitions, key=lambda partition: partition.partition)
                }
            ),
        )
        for topic in response.topics
    }
    return ClusterView(
        response.cluster_id, nodes.get(response.controller_id), MappingProxyType(nodes), MappingProxyType(topics)
    )
