"""Faults that pause or kill ZooKeeper's own processes. They test neither a lost session nor a paused broker.

- ``zookeeper-pause``: SIGSTOP. Clients keep their connections and get no answers. Sessions do not expire during the
  pause. After it, a single ZooKeeper server finds them overdue.
- ``zookeeper-kill``: SIGKILL, and a start at the heal. Clients are disconnected. A single ZooKeeper server that starts
  grants every session its full timeout again.

With several ZooKeeper nodes, a fault hits one node, and the ensemble goes on, or it hits all nodes. The proof is that
of ``stop`` or ``kill``.
"""

import random
from collections.abc import Sequence

from assay.cluster.node import Cluster
from assay.cluster.system import ZOOKEEPER_ROLE, System
from assay.nemesis.faults.fault import Census
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.process import probe_processes
from assay.nemesis.faults.stop import Stop
from assay.nemesis.schedule.schedule import Parameter, ScheduleError
from assay.nemesis.schedule.target import Target, TargetKind, list_zookeepers, means_zookeepers

KINDS = (TargetKind.ZOOKEEPER, TargetKind.ZOOKEEPERS)
NONE_HERE = "there is no ZooKeeper node to act on: set --zookeepers=1"


class _ZooKeeperNodeFault:
    """Mixin for faults on one ZooKeeper node or all."""

    name: str
    roles: Sequence[str] = (ZOOKEEPER_ROLE,)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        if not census.zookeepers:
            raise ScheduleError(f"{self.name} needs a ZooKeeper node, and this cluster has none: choose another fault")
        if target is not None and not means_zookeepers(target):
            raise ScheduleError(
                f"{self.name} hits ZooKeeper, so its target cannot be {target}: use zookeeper, zookeepers or zk1"
            )
        kinds = KINDS if census.zookeepers > 1 else KINDS[:1]
        return target or Target(rng.choice(kinds)), {}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return await probe_processes(list_zookeepers(cluster), NONE_HERE)


class ZooKeeperPause(_ZooKeeperNodeFault, Stop):
    """SIGSTOP of ZooKeeper nodes."""

    name = "zookeeper-pause"
    description = "ZooKeeper is paused (SIGSTOP), one node of it or all, and goes on at the heal"


class ZooKeeperKill(_ZooKeeperNodeFault, Kill):
    """SIGKILL of ZooKeeper nodes."""

    name = "zookeeper-kill"
    description = "ZooKeeper is killed (SIGKILL), one node of it or all, and started again at the heal"
