"""How the nodes of a cluster are called, the same in every kind of cluster, so that a schedule fits all of them."""

from collections.abc import Sequence

from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE


def node_name(roles: Sequence[str], role: str, index: int) -> str:
    """``n1, n2, ...`` for the main role, ``zk1, ...`` for ZooKeeper, the role's name and a number for others."""
    if role == ZOOKEEPER_ROLE:
        return f"zk{index}"
    return f"n{index}" if role == main_role(roles) else f"{role}{index}"


def main_role(roles: Sequence[str]) -> str | None:
    """The first that is neither ZooKeeper's nor the clients'."""
    return next((name for name in roles if name not in (ZOOKEEPER_ROLE, CLIENT_ROLE)), None)
