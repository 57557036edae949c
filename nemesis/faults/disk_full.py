"""Disk full: the disk with a server's data has no free byte until the heal.

Existing data can be read, and allocated space can be overwritten. A server may reject requests, or end. Acknowledged
data must survive. At the heal a process that has ended is started again.

Proof: a write that the fault tried on the node failed for lack of space, after the injection and at the heal. If the
process has ended meanwhile, the write at the heal need not fail, because the end may have freed space.
"""

from collections.abc import Mapping
from typing import Any, cast

from assay.cluster.node import Node, SupportsDiskFull
from assay.nemesis.faults.abilities import DISK_FULL
from assay.nemesis.faults.fault import Impact, Injection, Scope
from assay.nemesis.faults.process import ServerFault, evidence_of, read_status, start_if_dead


class DiskFull(ServerFault):
    """Fills the disk until the heal."""

    name = "disk-full"
    description = "the disk with the server's data has no free byte"
    abilities = (DISK_FULL,)
    scope = Scope.DISK
    impact = Impact(ends_process=True, gradual=True)
    """Processes may end, each at its own time: the broker's followers do. In other systems all processes continue."""
    own_disks = True
    """Containers get separate disks for this fault."""
    ends_late = True  # a process may end only after the heal

    async def strike(self, injection: Injection, node: Node) -> None:
        evidence_of(injection, node)["before"] = await read_status(node)
        await cast(SupportsDiskFull, node).fill_disk()
        await _try_write(injection, node, "filled")

    async def observe_node(self, injection: Injection, node: Node) -> None:
        evidence_of(injection, node)["process"] = await read_status(node)
        await _try_write(injection, node, "at_heal")

    async def undo(self, injection: Injection, node: Node) -> None:
        if isinstance(node, SupportsDiskFull):
            await node.free_disk()
        await start_if_dead(injection, node)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        ended = [seen.get(moment, {}).get("state") for moment in ("before", "process")] == ["running", "dead"]
        for moment, when in (("filled", "after the injection"), ("at_heal", "at the heal")):
            if not seen.get(moment, {}).get("refused") and not (ended and moment == "at_heal"):
                return f"a write was not rejected for lack of space {when}"
        return None


async def _try_write(injection: Injection, node: Node, moment: str) -> None:
    free, refused = await cast(SupportsDiskFull, node).room()  # tries a write
    evidence_of(injection, node)[moment] = {"free": free, "refused": refused}
