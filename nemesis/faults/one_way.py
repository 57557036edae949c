"""Asymmetric partition: links cut in one direction only.

- ``inbound``: the target drops what arrives from the others: it can send but not receive
- ``outbound``: the others drop what arrives from the target: it can receive but not send

On a TCP connection both directions carry acknowledgements, so *the acknowledgements for data of the open direction are
lost*. Data still arrive until the window is full. The sender retransmits them, and finally its connection times out.
New connections fail in both directions. Proof: the counters at the node that drops packets.
"""

import random

from assay.cluster.node import Cluster
from assay.cluster.system import System
from assay.nemesis.engine.cut_ledger import Drop
from assay.nemesis.faults.cut_fault import CutFault
from assay.nemesis.faults.fault import Census, Injection, complete_target, take_census
from assay.nemesis.schedule.schedule import Parameter, ScheduleError
from assay.nemesis.schedule.target import Target, TargetError, TargetKind, list_zookeepers, servers

INBOUND, OUTBOUND = "inbound", "outbound"
KINDS = (TargetKind.ONE, TargetKind.LEADER, TargetKind.CONTROLLER)


class OneWay(CutFault):
    """Drops packets in one direction between the targets and all other servers; a seeded choice adds ZooKeeper."""

    name = "partition-one-way"
    description = "one server's packets dropped in one direction only (acknowledgements starve as well)"

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        trouble = _find_trouble(census)
        if trouble is not None:
            raise ScheduleError(f"{self.name}: {trouble}")
        if target is None:
            target = Target(
                rng.choice([kind for kind in KINDS if kind is not TargetKind.LEADER or not census.lacks_keys])
            )
        elif target.kind is TargetKind.ALL:
            raise ScheduleError(
                f"{self.name} cuts its targets from the other servers, so its target cannot be all: name fewer servers"
            )
        with_zookeeper = bool(census.zookeepers) and (census.servers < 2 or rng.random() < 0.5)
        direction = rng.choice([INBOUND, OUTBOUND])
        return complete_target(target, rng, census), {"direction": direction, "zookeeper": with_zookeeper}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return _find_trouble(take_census(cluster, system)) or await super().probe(cluster, system)

    def links(self, injection: Injection) -> list[Drop]:
        context, parameters, inside = injection.context, injection.step.parameters, injection.names
        direction = parameters.get("direction", INBOUND)
        if direction not in (INBOUND, OUTBOUND):
            raise TargetError(
                f"{self.name}: the parameter direction is {direction!r}; it must be {INBOUND} or {OUTBOUND}"
            )
        others = [node.name for node in servers(context.cluster, context.system) if node.name not in inside]
        if parameters.get("zookeeper", False):
            others += [node.name for node in list_zookeepers(context.cluster) if node.name not in inside]
        if not others:
            whom = ", ".join(inside)
            raise TargetError(f"{self.name}: there is no other server to cut {whom} from: name fewer targets")
        arriving = [(name, other) for name in inside for other in others]
        return sorted(arriving if direction == INBOUND else [drop[::-1] for drop in arriving])


def _find_trouble(census: Census) -> str | None:
    if census.servers + (1 if census.zookeepers else 0) < 2 or not census.servers:
        return f"it needs two servers, but the cluster has {census.servers}: set --nodes=3"
    return None
