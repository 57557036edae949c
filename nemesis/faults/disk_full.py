"""Disk full: not one byte more fits on the disk with the servers' data, until the heal.

What is there can be read, and what was allocated can be written again. A system may reject what it cannot store, or
end; what it has acknowledged must be there. Where its process has ended it is started again at the heal.

Proof: a write that was tried on the node was rejected for want of space, after the injection, and at the heal unless
the process has ended meanwhile, which may have left some space.
"""

from collections.abc import Mapping
from typing import Any, cast

from assay.cluster.node import Cluster, Node, SupportsDiskFull
from assay.cluster.system import System
from assay.nemesis.faults.fault import Injection, Scope
from assay.nemesis.faults.impact import Impact
from assay.nemesis.faults.process import ServerFault, not_here, seen_of, started_if_dead, status


class DiskFull(ServerFault):
    """Nothing more can be stored; at the heal as much as before."""

    name = "disk-full"
    description = "the disk with the server's data has no free byte"
    scope = Scope.DISK
    impact = Impact(ends_process=True, gradual=True)
    """Of a system that goes on, no process ends; this one's followers do."""
    own_disks = True
    """Containers get disks of their own for it."""
    ends_late = True

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        lacking = not_here(cluster, system, SupportsDiskFull, "filled")
        return lacking or await super().probe(cluster, system)

    async def strike(self, injection: Injection, node: Node) -> None:
        seen_of(injection, node)["before"] = await status(node)
        await cast(SupportsDiskFull, node).fill_disk()
        await _look(injection, node, "filled")

    async def look(self, injection: Injection, node: Node) -> None:
        seen_of(injection, node)["process"] = await status(node)
        await _look(injection, node, "at_heal")

    async def undo(self, injection: Injection, node: Node) -> None:
        if isinstance(node, SupportsDiskFull):
            await node.free_disk()
        await started_if_dead(injection, node)

    def lacking(self, seen: Mapping[str, Any]) -> str | None:
        ended = [seen.get(moment, {}).get("state") for moment in ("before", "process")] == ["running", "dead"]
        for moment, when in (("filled", "after the injection"), ("at_heal", "at the heal")):
            if not seen.get(moment, {}).get("refused") and not (ended and moment == "at_heal"):
                return f"a write was not rejected for want of space {when}"
        return None


async def _look(injection: Injection, node: Node, moment: str) -> None:
    free, refused = await cast(SupportsDiskFull, node).room()
    seen_of(injection, node)[moment] = {"free": free, "refused": refused}
