"""The interface that a deployment needs of a cluster: the nodes, and which of them are brokers."""

from collections.abc import Sequence
from typing import Any, Protocol

BROKER = "broker"
ZOOKEEPER = "zookeeper"
ZOOKEEPER_PORT = 2181


class Node(Protocol):
    """A machine."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def address(self) -> str: ...


class Cluster(Protocol):
    """The machines of a run."""

    @property
    def nodes(self) -> Sequence[Any]: ...
    @property
    def spares(self) -> Sequence[Any]:
        """Machines that may become brokers."""


def list_brokers(cluster: Cluster) -> list[Any]:
    """Returns the brokers that the cluster starts with."""
    return [node for node in cluster.nodes if node.role == BROKER]


def list_possible_brokers(cluster: Cluster) -> list[Any]:
    """Returns the initial brokers, and those that may have joined."""
    return [*list_brokers(cluster), *cluster.spares]


def format_zookeepers(cluster: Cluster) -> str:
    """Returns ZooKeeper's ``address:port,...``."""
    return ",".join(f"{node.address}:{ZOOKEEPER_PORT}" for node in cluster.nodes if node.role == ZOOKEEPER)
