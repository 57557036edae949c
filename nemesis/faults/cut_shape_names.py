"""Finds the name of a set of cut links. Links that are drawn one by one may be those of a fault with its own name.

If several names fit, the more specific one is returned. For example, one server of three cut from the other two is
``partition-one``, not ``partition-halves``. A single cut link among three servers is ``partition-follower-from-leader``
if one of its ends leads a key, else ``partition-bridge``.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence

from assay.nemesis.engine.cut_ledger import Drop, cut_both_ways
from assay.nemesis.schedule.schedule import PartitionShape

NamedCuts = Iterator[tuple[str, Collection[Drop]]]


def find_shape_name(
    drops: Collection[Drop],
    servers: Sequence[str],
    keepers: Sequence[str] = (),
    clients: Sequence[str] = (),
    leaders: Collection[str] = (),
) -> str | None:
    """Returns the fault that cuts exactly these links, such as ``partition-bridge``; None if no fault does.

    ``keepers`` are ZooKeeper's nodes, ``leaders`` the servers that lead any key.
    """
    cut = set(drops)
    found = (
        name for name, known in _list_named_cuts(cut, servers, keepers, clients, leaders) if cut and set(known) == cut
    )
    name = next(found, None)
    return name if name is not None or not _is_ring(cut, servers) else f"partition-{PartitionShape.MAJORITIES_RING}"


def _list_named_cuts(
    cut: Collection[Drop],
    servers: Sequence[str],
    keepers: Sequence[str],
    clients: Sequence[str],
    leaders: Collection[str],
) -> NamedCuts:
    """Yields each named fault that could cut links of the touched nodes, with all links that it cuts."""
    touched = {name for drop in cut for name in drop}
    for name in (*servers, *keepers):
        others = [other for other in servers if other != name]
        rest = [other for other in (*servers, *keepers) if other != name]
        if name in servers:
            yield f"partition-{PartitionShape.ONE}", cut_both_ways([name], others)
            for wider in (others, rest):
                arriving = [(name, other) for other in wider]  # ``name`` drops the packets from ``other``
                yield "partition-one-way", arriving
                yield "partition-one-way", [drop[::-1] for drop in arriving]
        yield f"partition-{PartitionShape.ONE}", cut_both_ways([name], rest)
    for pair in itertools.combinations(servers, 2):
        if keepers and not {*pair}.isdisjoint(leaders):
            apart = [other for other in (*servers, *keepers) if other not in pair]
            yield f"partition-{PartitionShape.LEADER_AND_FOLLOWER}", cut_both_ways(pair, apart)
        if not {*pair}.isdisjoint(leaders):
            yield f"partition-{PartitionShape.FOLLOWER_FROM_LEADER}", cut_both_ways(pair[:1], pair[1:])
    yield f"partition-{PartitionShape.FROM_ZOOKEEPER}", cut_both_ways(touched.intersection(servers), keepers)
    yield "cut-consumer", cut_both_ways(touched.intersection(clients), servers)
    yield "consumer-from-zookeeper", cut_both_ways(touched.intersection(clients), keepers)
    yield from _list_two_sided_cuts(cut, servers, keepers)


def _list_two_sided_cuts(cut: Collection[Drop], servers: Sequence[str], keepers: Sequence[str]) -> NamedCuts:
    """Yields faults with two sides: the servers that the first server with a cut link reaches, and the rest."""
    touched = [name for name in servers if any(name in drop for drop in cut)]
    if not touched:
        return
    near = [name for name in touched if (touched[0], name) not in cut]
    far = [name for name in touched if name not in near]
    if len(touched) == len(servers):
        shape = PartitionShape.HALVES if len(near) == len(far) else PartitionShape.MAJORITY_MINORITY
        yield f"partition-{shape}", cut_both_ways(near, far)
        ours = [name for name in keepers if (touched[0], name) not in cut]
        theirs = [name for name in keepers if name not in ours]
        if abs(len(near) - len(far)) <= 1 and abs(len(ours) - len(theirs)) <= 1:
            yield f"partition-{PartitionShape.RANDOM_HALVES}", cut_both_ways([*near, *ours], [*far, *theirs])
    elif len(touched) == len(servers) - 1 and abs(len(near) - len(far)) <= 1:
        yield f"partition-{PartitionShape.BRIDGE}", cut_both_ways(near, far)


def _is_ring(cut: Collection[Drop], servers: Sequence[str]) -> bool:
    """Returns whether each server reaches exactly a majority, no two of them reach the same majority, and no link to
    ZooKeeper is cut.
    """
    within = len(servers) >= 4 and all(drop[::-1] in cut and {*drop} <= {*servers} for drop in cut)
    reached = {frozenset(other for other in servers if (name, other) not in cut) for name in servers}
    return within and len(reached) == len(servers) and set(map(len, reached)) == {1 + 2 * reach_in_ring(len(servers))}


def reach_in_ring(count: int) -> int:
    """Returns how many neighbours on either side a server must reach in a ring of ``count`` servers for a majority."""
    return -(-(count // 2) // 2)
