"""Memory: all of a server's limited memory is allocated, until the kernel kills its process.

For the process it is a SIGKILL. Before that it is briefly blocked each time it needs a page. It is started again at the
heal, when there is memory again.

Proof: that of the kill, and the kernel's own count of processes that it killed for lack of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from assay.cluster.node import Cluster, Node, SupportsMemoryLimit
from assay.cluster.system import System
from assay.nemesis.faults.fault import Injection, Proof
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.process import evidence_of, proved
from assay.nemesis.schedule.target import servers


class MemoryFault(Kill):
    """Exhausts a server's memory; see the module."""

    name = "memory"
    description = "the server runs out of memory, and the kernel ends its process; started again at the heal"
    own_memory = True
    """Containers get a limit for it."""

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        for node in servers(cluster, system):
            if not isinstance(node, SupportsMemoryLimit):
                return f"a {cluster.kind} node cannot run out of memory; the simulation's can (--cluster=sim)"
            if (reason := await node.memory_unavailable()) is not None:
                return f"{node.name} cannot run out of memory: {reason}"
        return await super().probe(cluster, system)

    async def end(self, injection: Injection, node: Node) -> None:
        evidence_of(injection, node)["memory"] = asdict(await cast(SupportsMemoryLimit, node).exhaust_memory())

    def proof(self, injection: Injection) -> Proof:
        killed = super().proof(injection)
        return proved(injection, _find_missing_proof) if killed.took_effect else killed


def _find_missing_proof(seen: Mapping[str, Any]) -> str | None:
    """Returns what is missing from the proof for one node, beyond that of a kill."""
    return None if seen.get("memory", {}).get("ended") else "the kernel ended nothing for want of memory"
