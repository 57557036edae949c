"""Partitions: links between nodes are cut in both directions. The nodes at both ends drop the packets that arrive.

Shapes (*cut from* means that all links between the two are cut):

- ``one``: the targets are cut from all other servers. A seeded choice decides whether from ZooKeeper as well.
- ``halves``: half of the servers is cut from the other half. Both still reach ZooKeeper.
- ``majority-minority``: a minority of the servers is cut from the majority. Both still reach ZooKeeper.
- ``random-halves``: all nodes, including ZooKeeper's, are split into two halves. Only one half has ZooKeeper's quorum.
- ``isolate-leader``: the leader of a key is cut from all other servers. All still reach ZooKeeper.
- ``isolate-controller``: the same for the controller
- ``majorities-ring``: every server reaches a majority, and no two servers the same majority. All reach ZooKeeper. It
  needs four servers.
- ``bridge``: the servers are split into two sides, and one further server reaches both. All reach ZooKeeper.
- ``from-zookeeper``: the targets are cut from every ZooKeeper node. The servers still reach each other.
- ``leader-and-follower``: the leader of a key and one other server are cut from the rest, and from ZooKeeper. It needs
  three servers.
- ``follower-from-leader``: a follower of a key is cut from its leader alone. Both reach all others and ZooKeeper.
- ``links``: any subset of the links between servers, ZooKeeper and client nodes, in one direction or both. The result
  may have a name of its own (:mod:`assay.nemesis.faults.cut_shape_names`).

Packets are dropped, not rejected, so established connections stall rather than break (:class:`FastFail` rejects). The
cut links depend only on the targets and on the parameter ``order``, which seeds a shuffle.
"""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence

from assay.cluster.node import Cluster, Node
from assay.cluster.system import ZOOKEEPER_ROLE, System
from assay.nemesis.engine.cut_ledger import CutManner, Drop, cut_both_ways
from assay.nemesis.faults.cut_fault import CutFault
from assay.nemesis.faults.cut_shape_names import find_shape_name, reach_in_ring
from assay.nemesis.faults.fault import Census, Injection, Proof, complete_target
from assay.nemesis.faults.link_set import SHAPE_NAME, draw_links, read_links
from assay.nemesis.faults.varied import VariedFault
from assay.nemesis.schedule.schedule import ISOLATED, Parameter, PartitionShape
from assay.nemesis.schedule.target import (
    CLIENT_KINDS,
    KEYS_REMEDY,
    Target,
    TargetError,
    TargetKind,
    list_clients,
    list_zookeepers,
    servers,
)

NOT_DRAWN = (
    PartitionShape.RANDOM_HALVES,
    PartitionShape.LEADER_AND_FOLLOWER,
    PartitionShape.FOLLOWER_FROM_LEADER,
    PartitionShape.LINKS,
)
"""Shapes that ``partition`` does not draw. They are faults with their own names.

Some may cut a majority from ZooKeeper. A second fault of a combined run would then leave no server untouched.
"""
DRAWN = tuple(shape for shape in PartitionShape if shape not in NOT_DRAWN)
ORDERED = (
    PartitionShape.RANDOM_HALVES,
    PartitionShape.MAJORITIES_RING,
    PartitionShape.BRIDGE,
    PartitionShape.LEADER_AND_FOLLOWER,
)
"""Shapes with the parameter ``order``."""
MIN_SERVERS = {
    PartitionShape.MAJORITY_MINORITY: 3,
    PartitionShape.BRIDGE: 3,
    PartitionShape.MAJORITIES_RING: 4,
    PartitionShape.LEADER_AND_FOLLOWER: 3,
}
"""Minimum number of servers of a shape; by default 2."""
NUMBERS = {2: "two servers", 3: "three servers", 4: "four servers"}
"""Numbers of servers in words, for messages."""


class PartitionFault(VariedFault[PartitionShape], CutFault):
    """A partition of one shape (``partition-halves``), or of a drawn shape (``partition``)."""

    name = "partition"
    description = "links cut: a shape is drawn each time"
    descriptions: Mapping[PartitionShape, str] = {
        PartitionShape.ONE: "one server cut from all others, by a seeded choice from ZooKeeper too",
        PartitionShape.HALVES: "the servers cut into two halves that both reach ZooKeeper",
        PartitionShape.MAJORITY_MINORITY: "a minority of the servers cut from the majority, not from ZooKeeper",
        PartitionShape.RANDOM_HALVES: "all nodes, ZooKeeper's too, cut into two halves",
        PartitionShape.ISOLATE_LEADER: "the leader of a key cut from all other servers, not from ZooKeeper",
        PartitionShape.ISOLATE_CONTROLLER: "the controller cut from all other servers, not from ZooKeeper",
        PartitionShape.MAJORITIES_RING: "every server reaches a majority, no two the same one (four servers)",
        PartitionShape.BRIDGE: "the servers cut into two sides; one further server, the bridge, reaches both",
        PartitionShape.FROM_ZOOKEEPER: "one server cut from every ZooKeeper node",
        PartitionShape.LEADER_AND_FOLLOWER: "a leader and one other server cut from the rest, and from ZooKeeper",
        PartitionShape.FOLLOWER_FROM_LEADER: "a follower of a key cut from its leader alone",
        PartitionShape.LINKS: "any subset of the links between servers, ZooKeeper and clients, either way or both",
    }
    parameter = "shape"
    variants: Sequence[PartitionShape] = DRAWN
    everywhere = False  # some server stays untouched

    def __init__(self, shape: PartitionShape | None = None) -> None:
        super().__init__(shape)
        self.everywhere = shape is PartitionShape.LINKS
        if shape is PartitionShape.FROM_ZOOKEEPER:
            self.roles = (ZOOKEEPER_ROLE,)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        """Draws a shape that this cluster and the target allow, and whether ``one`` is cut from ZooKeeper too."""
        shape = self.draw_variant(rng, census, target)
        if shape is PartitionShape.LINKS:
            return draw_links(rng, census)
        parameters: dict[str, Parameter] = {"shape": str(shape)}
        if shape is PartitionShape.ONE:
            of_servers = target is None or target.kind not in CLIENT_KINDS
            with_zookeeper = of_servers and bool(census.zookeepers) and (census.servers < 2 or rng.random() < 0.5)
            parameters["zookeeper"] = with_zookeeper
        if shape in ORDERED:
            parameters["order"] = rng.getrandbits(16)
        if shape is PartitionShape.FOLLOWER_FROM_LEADER and census.keys:
            parameters["key"] = rng.choice(census.keys) if target is None or target.key is None else target.key
        implied = ISOLATED.get(shape, TargetKind.ONE)
        if shape is PartitionShape.BRIDGE and census.keys:
            # Otherwise the leader may be the bridge, and the two sides may have no traffic.
            implied = TargetKind.FOLLOWER
        whom = target if target is not None else Target(implied)
        if "key" in parameters and whom.kind is TargetKind.FOLLOWER:
            whom = Target(TargetKind.FOLLOWER, key=str(parameters["key"]))
        return complete_target(whom, rng, census), parameters

    def find_trouble(self, variant: PartitionShape, census: Census, target: Target | None) -> str | None:
        if variant is PartitionShape.FROM_ZOOKEEPER and not census.zookeepers:
            return f"{variant} needs a ZooKeeper node, and this cluster has none: choose another fault"
        from_zookeeper = variant is PartitionShape.FROM_ZOOKEEPER or (
            variant is PartitionShape.ONE and census.zookeepers
        )
        of_clients = target is not None and target.kind in CLIENT_KINDS
        least = 1 if from_zookeeper or of_clients else MIN_SERVERS.get(variant, 2)
        if census.servers < least:
            wanted = NUMBERS.get(least, "a server")
            return f"{variant} needs {wanted}, but the cluster has {census.servers}: set --nodes={max(least, 3)}"
        if (
            variant
            in (PartitionShape.ISOLATE_LEADER, PartitionShape.LEADER_AND_FOLLOWER, PartitionShape.FOLLOWER_FROM_LEADER)
            and census.lacks_keys
        ):
            return f"{variant} needs a system with keys that have a leader: {KEYS_REMEDY}"
        if target is None:
            return None
        if variant is PartitionShape.LINKS:
            return f"{variant} draws its links among all nodes, so its target cannot be {target}: leave out the target"
        if variant is not PartitionShape.ONE and variant in ISOLATED and target.kind is not ISOLATED[variant]:
            isolated = ISOLATED[variant]
            return f"{variant} isolates the {isolated}, so its target cannot be {target}: name {isolated}, or no target"
        if variant is PartitionShape.FROM_ZOOKEEPER and target.kind in (TargetKind.ZOOKEEPER, TargetKind.ZOOKEEPERS):
            return (
                f"{variant} cuts its targets from ZooKeeper, so its target cannot be {target}: name servers or clients"
            )
        if variant is PartitionShape.ONE and target.kind is TargetKind.ALL:
            return f"{variant} cuts its targets from the other servers, so its target cannot be all: name fewer servers"
        return None

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return self.explain_impossible(cluster, system) or await super().probe(cluster, system)

    async def inject(self, injection: Injection) -> None:
        """Injects the fault.

        Finds the leader for ``follower-from-leader``. For ``links``, adds client nodes with a cut link to the targets.
        """
        if self.variant_of(injection) is PartitionShape.FOLLOWER_FROM_LEADER:
            injection.evidence["leader"] = (await find_leader_or_other(injection)).name
        if self.variant_of(injection) is PartitionShape.LINKS:
            if (name := await _find_name_of_links(injection)) is not None:
                injection.evidence[SHAPE_NAME] = name
            ends = {name for drop in _list_given_links(injection) for name in drop} - {*injection.names}
            cut = (node for node in list_clients(injection.context.cluster) if node.name in ends)
            injection.targets = (*injection.targets, *cut)
        await super().inject(injection)

    def links(self, injection: Injection) -> list[Drop]:
        """Returns the drops. Raises :class:`TargetError` if there is no link between the two sides."""
        drops = _LINKS.get(self.variant_of(injection), _from_the_rest)(injection)
        if not drops:
            whom = ", ".join(injection.names)
            raise TargetError(f"{injection.step.fault}: there is no other node to cut {whom} from: name fewer targets")
        return drops

    def affected_nodes(self, injection: Injection, drops: Sequence[Drop]) -> list[str]:
        """Returns the servers on both sides of a bridge, else the targets."""
        if self.variant_of(injection) is not PartitionShape.BRIDGE:
            return super().affected_nodes(injection, drops)
        return sorted({name for drop in drops for name in drop})

    def proof(self, injection: Injection) -> Proof:
        """Judges the evidence. With ``links``, one dropped packet is enough, because many links may be silent."""
        proof = super().proof(injection)
        anything = self.variant_of(injection) is PartitionShape.LINKS and bool(proof.evidence["dropped"])
        return Proof(True, proof.evidence) if anything else proof


class FastFail(PartitionFault):
    """A partition that rejects packets instead of dropping them, like a firewall, or a host without the process.

    It isolates one server from all others, unless the step says another shape. Every packet of a cut link is answered
    with a TCP reset, so established connections break at once and new connections are refused. No process waits for a
    timeout, all error paths run at the same moment, and clients reconnect in a loop. The resets themselves pass. Proof:
    the counters of the rejecting rules.
    """

    name = "partition-fast-fail"
    description = "one server whose packets to and from others are rejected with a reset, not dropped"
    variants = (PartitionShape.ONE,)
    manner = CutManner.REJECT


async def find_leader_or_other(injection: Injection) -> Node:
    """Returns the leader of the step's key. If the leader is unknown or a target, returns another server.

    Raises ``TargetError`` if there is no other server.
    """
    context, rng = injection.context, random.Random(injection.seed)
    others = [node for node in servers(context.cluster, context.system) if node.name not in injection.names]
    if not others:
        whom = ", ".join(injection.names)
        raise TargetError(f"{injection.step.fault}: there is no other server than {whom}: name fewer targets")
    fallback, keys = rng.choice(others), list(context.system.keys())
    key = injection.step.parameters.get("key") or injection.step.target.key or (rng.choice(keys) if keys else None)
    leader = await context.find(str(TargetKind.LEADER), None if key is None else str(key))
    return leader if leader is not None and leader in others else fallback


async def _find_name_of_links(injection: Injection) -> str | None:
    """Returns the fault that cuts exactly these links, or None. Finds leaders only if the name depends on them."""
    context = injection.context
    everyone = [
        servers(context.cluster, context.system),
        list_zookeepers(context.cluster),
        list_clients(context.cluster),
    ]
    ours, keepers, others = ([node.name for node in nodes] for nodes in everyone)
    drops, keys = _list_given_links(injection), context.system.keys()
    without = find_shape_name(drops, ours, keepers, others)
    if without == find_shape_name(drops, ours, keepers, others, leaders=ours):
        return without
    for key in keys:
        leader = await context.find(str(TargetKind.LEADER), key)
        name = find_shape_name(drops, ours, keepers, others, leaders=() if leader is None else (leader.name,))
        if name != without:
            return name
    return without


def _from_zookeeper(injection: Injection) -> list[Drop]:
    inside, _, keepers = _split_sides(injection)
    return cut_both_ways(inside, keepers)


def _from_the_rest(injection: Injection) -> list[Drop]:
    """Cuts the targets from all other servers, and from ZooKeeper if the step says so."""
    inside, others, keepers = _split_sides(injection)
    isolated_keeper = any(node.role == ZOOKEEPER_ROLE for node in injection.targets)
    if injection.step.parameters.get("zookeeper", False) or isolated_keeper:
        others = [*others, *keepers]
    return cut_both_ways(inside, others)


def _random_halves(injection: Injection) -> list[Drop]:
    """Cuts two halves from each other. ZooKeeper's nodes go to the two sides in turn, in the drawn order."""
    inside, others, keepers = _split_sides(injection)
    keepers = _shuffle(injection, keepers)
    first = injection.step.parameters.get("order", 0) in range(0, 1 << 16, 2)  # even
    near, far = (keepers[::2], keepers[1::2]) if first else (keepers[1::2], keepers[::2])
    return cut_both_ways([*inside, *near], [*others, *far])


def _ring(injection: Injection) -> list[Drop]:
    """Cuts links of a ring: each server reaches only its nearest neighbours on either side, which make a majority."""
    ring = _shuffle(injection, [node.name for node in servers(injection.context.cluster, injection.context.system)])
    count = len(ring)
    reach = reach_in_ring(count)
    apart = [
        (ring[a], ring[b]) for a, b in itertools.combinations(range(count), 2) if min(b - a, count - b + a) > reach
    ]
    return sorted({drop for a, b in apart for drop in ((a, b), (b, a))})


def _bridge(injection: Injection) -> list[Drop]:
    _, others, _ = _split_sides(injection)
    rest = _shuffle(injection, others)
    return cut_both_ways(rest[: len(rest) // 2], rest[len(rest) // 2 :])


def _leader_and_follower(injection: Injection) -> list[Drop]:
    inside, others, keepers = _split_sides(injection)
    follower, *rest = _shuffle(injection, others) or [""]
    return cut_both_ways([*inside, follower], [*rest, *keepers])


def _from_leader(injection: Injection) -> list[Drop]:
    return cut_both_ways(injection.names, [injection.evidence["leader"]])


def _list_given_links(injection: Injection) -> list[Drop]:
    known = {node.name for node in injection.context.cluster.nodes}
    return [drop for drop in read_links(injection.step.parameters.get("links", "")) if set(drop) <= known]


_LINKS: dict[PartitionShape, Callable[[Injection], list[Drop]]] = {
    PartitionShape.LEADER_AND_FOLLOWER: _leader_and_follower,
    PartitionShape.FOLLOWER_FROM_LEADER: _from_leader,
    PartitionShape.LINKS: _list_given_links,
    PartitionShape.FROM_ZOOKEEPER: _from_zookeeper,
    PartitionShape.RANDOM_HALVES: _random_halves,
    PartitionShape.MAJORITIES_RING: _ring,
    PartitionShape.BRIDGE: _bridge,
}


def _split_sides(injection: Injection) -> tuple[Sequence[str], list[str], list[str]]:
    """Returns the targets, the other servers, and the other ZooKeeper nodes."""
    context, inside = injection.context, injection.names
    others = [node.name for node in servers(context.cluster, context.system) if node.name not in inside]
    keepers = [node.name for node in list_zookeepers(context.cluster) if node.name not in inside]
    return inside, others, keepers


def _shuffle(injection: Injection, names: Sequence[str]) -> list[str]:
    return random.Random(f"order {injection.step.parameters.get('order', 0)}").sample(list(names), len(names))
