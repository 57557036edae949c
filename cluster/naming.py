"""Names of a cluster's nodes and of their saved logs.

Nodes have equal names in every kind of cluster, so that a schedule fits every kind. The logs of a node are saved in one
folder, although the node has them in several folders.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import PurePosixPath

from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE


@dataclass(frozen=True)
class PlannedNode:
    """Name, role and numbers of a node that does not exist yet.

    ``index`` counts from 1 within the role; ``number`` counts from 0 over all nodes.
    """

    name: str
    role: str
    index: int
    number: int


def make_node_name(roles: Sequence[str], role: str, index: int) -> str:
    """Returns a node's name: ``n1`` for the main role, ``zk1`` for ZooKeeper, role name and index for other roles."""
    if role == ZOOKEEPER_ROLE:
        return f"zk{index}"
    return f"n{index}" if role == find_main_role(roles) else f"{role}{index}"


def find_main_role(roles: Sequence[str]) -> str | None:
    """Returns the first role that is neither ZooKeeper's nor the clients'."""
    return next((name for name in roles if name not in (ZOOKEEPER_ROLE, CLIENT_ROLE)), None)


def plan_nodes(
    roles: Sequence[str], counts: Mapping[str, int], spares: int = 0, *, numbered_main: bool = True
) -> list[PlannedNode]:
    """Returns the nodes in the order of the roles, the spares last.

    ``numbered_main``: whether the main role's nodes are ``n1``, ``n2``; otherwise the role's name is in theirs, too.
    Raises ``ValueError`` if ``counts`` names a role that the system does not have.
    """
    unknown = sorted(set(counts) - set(roles))
    if unknown:
        raise ValueError(f"the system has no role {', '.join(unknown)}; its roles are {', '.join(roles)}")
    main = find_main_role(roles)
    indexes = [(role, index) for role in roles for index in range(1, counts.get(role, 0) + 1)]
    if main is not None:
        indexes += [(main, counts.get(main, 0) + number) for number in range(1, spares + 1)]
    return [
        PlannedNode(make_node_name(roles if numbered_main else (), role, index), role, index, at)
        for at, (role, index) in enumerate(indexes)
    ]


def choose_log_names(paths: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Returns a different local name for each path. ``taken``: names of other files in the folder.

    A log keeps its file name, or gets its whole path with hyphens if that name is taken. Names differ by more than
    upper and lower case, because some file systems ignore it.
    """
    names: dict[str, str] = {}
    used = {name.casefold() for name in taken}
    for path in dict.fromkeys(paths):
        names[path] = next(name for name in _propose_names(path) if name.casefold() not in used)
        used.add(names[path].casefold())
    return names


def _propose_names(path: str) -> Iterator[str]:
    whole = path.strip("/").replace("/", "-")
    yield PurePosixPath(path).name
    yield whole
    yield from (f"{number}-{whole}" for number in count(2))
