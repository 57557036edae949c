"""Names of a cluster's nodes. They are equal in every kind of cluster, so that a schedule fits all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE


@dataclass(frozen=True)
class PlannedNode:
    """Name and numbers of a node that does not exist yet.

    ``index`` counts from 1 within the role; ``number`` counts from 0 over all nodes.
    """

    name: str
    role: str
    index: int
    number: int


def node_name(roles: Sequence[str], role: str, index: int) -> str:
    """Returns ``n1, n2, ...`` for the main role, ``zk1, ...`` for ZooKeeper, role name plus index for other roles."""
    if role == ZOOKEEPER_ROLE:
        return f"zk{index}"
    return f"n{index}" if role == main_role(roles) else f"{role}{index}"


def main_role(roles: Sequence[str]) -> str | None:
    """Returns the first role that is neither ZooKeeper's nor the clients'."""
    return next((name for name in roles if name not in (ZOOKEEPER_ROLE, CLIENT_ROLE)), None)


def plan_nodes(roles: Sequence[str], counts: Mapping[str, int], spares: int = 0) -> list[PlannedNode]:
    """Returns the nodes in the order of the roles, the spares last.

    Raises ``ValueError`` if ``counts`` names a role that the system does not have.
    """
    unknown = sorted(set(counts) - set(roles))
    if unknown:
        raise ValueError(f"no such role: {', '.join(unknown)}; the system has {', '.join(roles)}")
    main = main_role(roles)
    indexes = [(role, index) for role in roles for index in range(1, counts.get(role, 0) + 1)]
    if main is not None:
        indexes += [(main, counts.get(main, 0) + number) for number in range(1, spares + 1)]
    return [PlannedNode(node_name(roles, role, index), role, index, at) for at, (role, index) in enumerate(indexes)]
