"""How the nodes of a cluster are called, the same in every kind of cluster, so that a schedule fits all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE


@dataclass(frozen=True)
class PlannedNode:
    """A node before it exists. ``index``: from 1, within its role; ``number``: from 0, of all."""

    name: str
    role: str
    index: int
    number: int


def node_name(roles: Sequence[str], role: str, index: int) -> str:
    """``n1, n2, ...`` for the main role, ``zk1, ...`` for ZooKeeper, the role's name and a number for others."""
    if role == ZOOKEEPER_ROLE:
        return f"zk{index}"
    return f"n{index}" if role == main_role(roles) else f"{role}{index}"


def main_role(roles: Sequence[str]) -> str | None:
    """The first that is neither ZooKeeper's nor the clients'."""
    return next((name for name in roles if name not in (ZOOKEEPER_ROLE, CLIENT_ROLE)), None)


def planned(roles: Sequence[str], counts: Mapping[str, int], spares: int = 0) -> list[PlannedNode]:
    """Names and numbers, in the order of the roles, the spares last.

    Raises ``ValueError`` for a count of a role that there is not.
    """
    unknown = sorted(set(counts) - set(roles))
    if unknown:
        raise ValueError(f"no such role: {', '.join(unknown)}; the system has {', '.join(roles)}")
    main = main_role(roles)
    indexes = [(role, index) for role in roles for index in range(1, counts.get(role, 0) + 1)]
    if main is not None:
        indexes += [(main, counts.get(main, 0) + number) for number in range(1, spares + 1)]
    return [PlannedNode(node_name(roles, role, index), role, index, at) for at, (role, index) in enumerate(indexes)]
