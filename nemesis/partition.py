"""Partitions: links between nodes cut in both directions, by dropping what arrives at either end.

Shapes:

``one``             the targets from all other servers; a seeded choice says whether from ZooKeeper as well
``halves``          half of the servers from the other half; both still reach ZooKeeper
``isolate-leader``  the leader of a key from all other servers; everybody still reaches ZooKeeper
``from-zookeeper``  the targets from every ZooKeeper node; the servers still reach each other

Clients and the harness's control traffic are never cut: a client that still reaches an isolated leader is what makes
stale leaders dangerous. Packets are dropped, not rejected, so established connections stall rather than break.

Proof: the counters of the dropping rules. Each isolated node must have seen at least one packet die on a link of its
own, at either end, between the injection and the heal. Not every link need carry traffic (a follower of nothing says
nothing to some peers), hence one and not all; links that stayed quiet are listed in the evidence.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence

from cluster.node import Cluster, NodeError
from cluster.system import ZOOKEEPER_ROLE, System
from nemesis.cuts import Drop, both_ways
from nemesis.fault import Bite, Census, Injection, Scope, with_key
from nemesis.schedule import Parameter, ScheduleError
from nemesis.target import Kind, Target, TargetError, servers, zookeepers


class Shape(enum.StrEnum):
    ONE = "one"
    HALVES = "halves"
    ISOLATE_LEADER = "isolate-leader"
    FROM_ZOOKEEPER = "from-zookeeper"


DESCRIPTIONS = {
    Shape.ONE: "one server cut from all others, by a seeded choice from ZooKeeper too",
    Shape.HALVES: "the servers cut into two halves that both reach ZooKeeper",
    Shape.ISOLATE_LEADER: "the leader of a key cut from all other servers, not from ZooKeeper",
    Shape.FROM_ZOOKEEPER: "one server cut from every ZooKeeper node",
}
IMPLIED = {Shape.HALVES: Kind.HALF, Shape.ISOLATE_LEADER: Kind.LEADER}
"""Shapes that say themselves whom they isolate."""


class Partition:
    """A mix of all shapes, or one shape alone (``partition-halves``)."""

    scope = Scope.NETWORK

    def __init__(self, shape: Shape | None = None) -> None:
        self._shapes: tuple[Shape, ...] = (shape,) if shape is not None else tuple(Shape)
        self.name = f"partition-{shape}" if shape is not None else "partition"
        self.description = DESCRIPTIONS[shape] if shape is not None else f"one of the shapes {', '.join(Shape)}"
        self.roles: Sequence[str] = (ZOOKEEPER_ROLE,) if shape is Shape.FROM_ZOOKEEPER else ()

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        """A shape that this cluster and the target allow, and whether ``one`` is cut from ZooKeeper too."""
        troubles = {shape: _trouble(shape, census, target) for shape in self._shapes}
        possible = [shape for shape, trouble in troubles.items() if trouble is None]
        if not possible:
            raise ScheduleError(f"{self.name}: " + "; ".join(f"{trouble}" for trouble in troubles.values()))
        shape = rng.choice(possible)
        parameters: dict[str, Parameter] = {"shape": str(shape)}
        if shape is Shape.ONE:
            cut_too = bool(census.zookeepers) and (census.servers < 2 or rng.random() < 0.5)
            parameters["zookeeper"] = cut_too
        whom = target if target is not None else Target(IMPLIED.get(shape, Kind.ONE))
        return with_key(whom, rng, census), parameters

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        count = Census(len(servers(cluster, system)), len(zookeepers(cluster)), tuple(system.keys()))
        troubles = [_trouble(shape, count, None) for shape in self._shapes]
        if None not in troubles:
            return "; ".join(f"{trouble}" for trouble in troubles)
        try:
            for node in cluster.nodes:
                await node.dropped()
        except NodeError as error:
            return f"packets cannot be dropped and counted: {error}"
        return None

    async def inject(self, injection: Injection) -> None:
        cuts = injection.context.cuts
        drops = cut_links(injection)
        isolated = _isolated(injection, drops)
        injection.evidence["isolated"] = isolated
        injection.evidence["cut"] = sorted({"|".join(sorted(drop)) for drop in drops})
        # Rules that another partition made count already: only what dies from here on is this one's doing.
        injection.evidence["before"] = _written(await cuts.counts(drops))
        await cuts.add(injection.id, drops)

    async def observe(self, injection: Injection) -> None:
        drops = cut_links(injection)
        now = _written(await injection.context.cuts.counts(drops))
        before: dict[str, int] = injection.evidence["before"]
        injection.evidence["dropped"] = {link: count - before[link] for link, count in now.items()}

    async def heal(self, injection: Injection) -> None:
        await injection.context.cuts.remove(injection.id)

    def bit(self, injection: Injection) -> Bite:
        dropped: dict[str, int] = injection.evidence.get("dropped", {})
        isolated: list[str] = injection.evidence.get("isolated", [])
        untouched = [name for name in isolated if not sum(n for link, n in dropped.items() if name in link.split("<-"))]
        evidence = {
            "isolated": isolated,
            "cut": injection.evidence.get("cut", []),
            "dropped": {link: count for link, count in dropped.items() if count > 0},
            "quiet": [link for link, count in dropped.items() if count <= 0],
        }
        if not dropped or not isolated:
            return Bite(False, evidence, "the counters of dropped packets could not be read")
        if untouched:
            return Bite(False, evidence, f"no packet to or from {', '.join(untouched)} was dropped")
        return Bite(True, evidence)


def cut_links(injection: Injection) -> list[Drop]:
    """The drops of an injection: a function of its targets, its parameters and the cluster, so that a replay has them.

    Raises :class:`TargetError` when there is no link between the two sides.
    """
    context, parameters = injection.context, injection.step.parameters
    shape = _shape(injection)
    inside = injection.names
    others = [node.name for node in servers(context.cluster, context.system) if node.name not in inside]
    keepers = [node.name for node in zookeepers(context.cluster) if node.name not in inside]
    if shape is Shape.FROM_ZOOKEEPER:
        others = keepers
    elif parameters.get("zookeeper", False) or any(node.role == ZOOKEEPER_ROLE for node in injection.targets):
        others = [*others, *keepers]
    drops = both_ways(inside, others)
    if not drops:
        raise TargetError(f"{injection.step.fault}: nothing is left to cut {', '.join(inside)} from")
    return drops


def _shape(injection: Injection) -> Shape:
    """From the parameters, else from the fault's name, so that a hand-written step need not say it twice."""
    word = injection.step.parameters.get("shape", injection.step.fault.removeprefix("partition-"))
    try:
        return Shape(str(word))
    except ValueError as error:
        raise TargetError(f"partition of unknown shape {word!r}; one of {', '.join(Shape)}") from error


def _isolated(injection: Injection, drops: Sequence[Drop]) -> list[str]:
    """The nodes that each must be seen to suffer: the targets that have a link cut."""
    ends = {name for drop in drops for name in drop}
    return [name for name in injection.names if name in ends]


def _trouble(shape: Shape, census: Census, target: Target | None) -> str | None:
    """Why this shape cannot be drawn, or None."""
    if shape is Shape.FROM_ZOOKEEPER and not census.zookeepers:
        return f"{shape} needs a ZooKeeper node"
    if shape is not Shape.FROM_ZOOKEEPER and census.servers < 2 and not (shape is Shape.ONE and census.zookeepers):
        return f"{shape} needs two servers, there are {census.servers} (--nodes=3)"
    if shape is Shape.ISOLATE_LEADER and census.keys == ():
        return f"{shape} needs a system with keys that somebody leads"
    if target is None:
        return None
    if shape in IMPLIED and target.kind is not IMPLIED[shape]:
        return f"{shape} isolates the {IMPLIED[shape]}, it takes no target {target}"
    if shape is Shape.FROM_ZOOKEEPER and target.kind is Kind.ZOOKEEPER:
        return f"{shape} cuts servers from ZooKeeper, it takes no target zookeeper"
    if shape is Shape.ONE and target.kind is Kind.ALL:
        return f"{shape} cuts its targets from the rest, of all servers there is no rest"
    return None


def _written(counts: dict[Drop, int]) -> dict[str, int]:
    """``n1<-n2``: what n1 dropped of n2's packets."""
    return {f"{node}<-{peer}": count for (node, peer), count in counts.items()}


