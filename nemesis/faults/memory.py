"""Memory: all of a server's limited memory is allocated, until the kernel kills its process.

For the process it is a SIGKILL. Before that it is briefly blocked each time it needs a page. It is started again at the
heal, when there is memory again.

Proof: that of the kill, and the kernel's own count of processes that it killed for lack of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from assay.cluster.node import Node, SupportsMemoryLimit
from assay.nemesis.faults.abilities import MEMORY_LIMIT
from assay.nemesis.faults.fault import Injection
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.process import evidence_of


class MemoryFault(Kill):
    """Exhausts a server's memory; see the module."""

    name = "memory"
    description = "the server runs out of memory, and the kernel ends its process; started again at the heal"
    abilities = (MEMORY_LIMIT,)
    own_memory = True
    """Containers get a limit for it."""

    async def end(self, injection: Injection, node: Node) -> None:
        evidence_of(injection, node)["memory"] = asdict(await cast(SupportsMemoryLimit, node).exhaust_memory())

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        ended = seen.get("memory", {}).get("ended")
        return super().find_missing_proof(seen) or (None if ended else "the kernel ended nothing for want of memory")
