"""What faults of processes share: which targets they draw, and how they read a process's state."""

from __future__ import annotations

import random
from collections.abc import Sequence

from assay.cluster.node import Cluster, Node, NodeError, ProcessStatus
from assay.cluster.system import System
from assay.nemesis.fault import Census, with_key
from assay.nemesis.schedule import Parameter, ScheduleError
from assay.nemesis.target import KEYED, Kind, Target, servers

DEFAULT_TARGETS = (Kind.ONE, Kind.MINORITY, Kind.LEADER, Kind.FOLLOWER, Kind.CONTROLLER)
"""What is drawn from when no target is asked for. Not ``majority`` and ``all``: with min_insync=2 nothing can be
acknowledged meanwhile, and a run in which little happened proves little; ``--nemesis-target`` asks for them."""


def draw_target(
    rng: random.Random, census: Census, target: Target | None, defaults: Sequence[Kind] = DEFAULT_TARGETS
) -> tuple[Target, dict[str, Parameter]]:
    """The given target, or one of the defaults that a cluster of this size has."""
    if census.servers < 1:
        raise ScheduleError("a process fault needs a server, there is none (--nodes=3)")
    if target is None:
        kinds = [kind for kind in defaults if _possible(kind, census)]
        target = Target(rng.choice(kinds))
    return with_key(target, rng, census), {}


def _possible(kind: Kind, census: Census) -> bool:
    if kind in KEYED and census.keys == ():
        return False
    if kind is Kind.MINORITY:
        return census.servers > 2
    return kind is not Kind.FOLLOWER or census.servers > 1


async def probe_processes(cluster: Cluster, system: System) -> str | None:
    """None when every server's process can be looked at."""
    nodes = servers(cluster, system)
    if not nodes:
        return "there is no server to do it to (--nodes=3)"
    try:
        for node in nodes:
            await node.process()
    except NodeError as error:
        return f"the processes cannot be seen: {error}"
    return None


async def status(node: Node) -> dict[str, str | None]:
    """A process's state as evidence."""
    return written(await node.process())


def written(seen: ProcessStatus) -> dict[str, str | None]:
    """As plain data."""
    return {"state": str(seen.state), "incarnation": seen.incarnation}
