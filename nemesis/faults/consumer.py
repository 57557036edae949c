"""Faults of consumers: faults of processes and links, on client nodes.

- ``stop-consumer``: SIGSTOP of a worker process for longer than its clients' sessions. A fault lasts half of
  ``--nemesis-interval``, so this must be longer than a session. After the resume the clients continue as zombies with
  the work that they had begun.
- ``kill-consumer``: SIGKILL, started again at the heal
- ``cut-consumer``: the node is cut from all servers; ZooKeeper is still reachable
- ``consumer-from-zookeeper``: the node is cut from every ZooKeeper node; servers are still reachable
- ``consumer-from-coordinator``: the node is cut from the server that coordinates its group at the injection
- ``consumer-zookeeper-resets``: every third or seventh packet (``every``) of ZooKeeper's answers breaks the node's
  connection. The request was executed, but the client does not know. Its session continues with the next connection.

Each is an existing fault with another target. Traffic between the harness and a worker process is never cut. The proofs
are those of ``stop``, ``kill`` and partitions.
"""

import random
from collections.abc import Sequence
from typing import Final

from assay.cluster.node import Cluster, Flow
from assay.cluster.system import (
    CLIENT_ROLE,
    ZOOKEEPER_PORT,
    ZOOKEEPER_ROLE,
    SupportsClientSessions,
    SupportsGroups,
    System,
)
from assay.nemesis.engine.cut_ledger import CutManner, Drop, cut_both_ways
from assay.nemesis.faults.cut_fault import CutFault, probe_counters
from assay.nemesis.faults.fault import Census, Injection, Scope, complete_target
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.partition import PartitionFault
from assay.nemesis.faults.process import probe_processes
from assay.nemesis.faults.stop import Stop
from assay.nemesis.schedule.schedule import Parameter, PartitionShape, ScheduleError
from assay.nemesis.schedule.target import (
    Target,
    TargetError,
    TargetKind,
    TargetScene,
    list_clients,
    list_groups,
    list_zookeepers,
    means_clients,
    resolve_target,
    servers,
)

EVERY: Final = (3, 7)
"""Every third or seventh packet of answers breaks its connection. A larger number may never be reached."""
GROUP: Final = "group"
NONE_HERE: Final = "no client lives on a node here (@experiment(..., client_nodes=True))"


class _ClientNodeFault:
    """Mixin for faults on client nodes."""

    name: str
    roles: Sequence[str] = (CLIENT_ROLE,)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        return _to_client_target(self.name, rng, census, target), {}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return await probe_processes(list_clients(cluster), NONE_HERE)


class _ClientCutFault(_ClientNodeFault):
    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return await super().probe(cluster, system) or await probe_counters(cluster)


class StopConsumer(_ClientNodeFault, Stop):
    """SIGSTOP of client nodes."""

    name = "stop-consumer"
    description = "a consumer is paused (SIGSTOP) past its session; half the interval must be longer than that"


class KillConsumer(_ClientNodeFault, Kill):
    """SIGKILL of client nodes' processes."""

    name = "kill-consumer"
    description = "a consumer's process is killed (SIGKILL) and started again at the heal"


class CutConsumer(_ClientCutFault, PartitionFault):
    """Client nodes cut from all servers."""

    name = "cut-consumer"
    description = "a consumer's node cut from all servers, not from ZooKeeper"
    variants = (PartitionShape.ONE,)


class ConsumerFromZooKeeper(_ClientCutFault, PartitionFault):
    """Client nodes cut from every ZooKeeper node."""

    name = "consumer-from-zookeeper"
    description = "a consumer's node cut from every ZooKeeper node, not from the servers"
    variants = (PartitionShape.FROM_ZOOKEEPER,)
    roles = (CLIENT_ROLE, ZOOKEEPER_ROLE)
    capabilities: Sequence[type] = (SupportsClientSessions,)


class ConsumerFromCoordinator(_ClientCutFault, CutFault):
    """Client nodes cut from the coordinator of the group in the parameter ``group``."""

    name = "consumer-from-coordinator"
    description = "a consumer's node cut from the server that coordinates its group, not from the others"
    capabilities: Sequence[type] = (SupportsGroups,)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        whom = _to_client_target(self.name, rng, census, target)
        if not census.groups:
            raise ScheduleError(
                f"{self.name}: this system has no groups, so no node coordinates one: choose another fault"
            )
        return whom, {GROUP: rng.choice(census.groups)}

    async def inject(self, injection: Injection) -> None:
        """Cuts the coordinator's link.

        If no coordinator is known, cuts the link to another server, and the evidence says so.
        """
        context, named = injection.context, injection.step.parameters.get(GROUP)
        known = list_groups(context.system)
        if named is not None and named not in known:
            groups = ", ".join(known) or "none"
            raise TargetError(f"{self.name}: the system has no group {named!r}; its groups are: {groups}")
        target = Target(TargetKind.COORDINATOR, None if named is None else str(named))
        scene = TargetScene(servers(context.cluster, context.system), (), (), context.find, groups=known)
        chosen = await resolve_target(target, scene, random.Random(injection.seed))
        injection.evidence["coordinator"] = chosen.nodes[0].name
        injection.evidence[GROUP] = chosen.key
        if chosen.note is not None:
            injection.evidence["note"] = chosen.note
        await super().inject(injection)

    def links(self, injection: Injection) -> list[Drop]:
        return cut_both_ways(injection.names, [injection.evidence["coordinator"]])


class ConsumerZooKeeperResets(ConsumerFromZooKeeper):
    """Client nodes whose connections to ZooKeeper break again and again."""

    scope = Scope.CONNECTION
    manner = CutManner.REJECT
    name = "consumer-zookeeper-resets"
    description = "a consumer's connection to ZooKeeper breaks every few answers, and is made again"

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        return _to_client_target(self.name, rng, census, target), {"every": rng.choice(EVERY)}

    def links(self, injection: Injection) -> list[Drop]:
        flow = Flow(ZOOKEEPER_PORT, from_server=True, every=int(injection.step.parameters.get("every", EVERY[0])))
        keepers = list_zookeepers(injection.context.cluster)
        return sorted((name, f"{keeper.name}{flow}") for name in injection.names for keeper in keepers)


def _to_client_target(fault: str, rng: random.Random, census: Census, target: Target | None) -> Target:
    if target is not None and not means_clients(target):
        raise ScheduleError(
            f"{fault} hits consumers, so its target cannot be {target}: use consumer, consumers or client1"
        )
    if not census.clients:
        raise ScheduleError(
            f"{fault}: no client runs on a node of its own: declare @experiment(..., client_nodes=True)"
        )
    return complete_target(target if target is not None else Target(TargetKind.CONSUMER), rng, census)
