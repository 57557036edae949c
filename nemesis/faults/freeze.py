"""Freeze: the whole machine stops, including its network stack, and continues at the heal.

A virtual machine suspended by its host behaves like this. Unlike with ``stop``, nothing is acknowledged: peers see a
machine that has vanished, retransmit, and may give up. Its clock has advanced, so at the heal all timers that are due
fire together. Packets sent to it are lost, and sent again once it answers.

A frozen machine answers nothing, so no other fault may hold it, and the random nemesis adds no companion. Proof: it was
seen frozen after the injection and at the heal, and the same process runs before and after.
"""

from collections.abc import Mapping
from typing import Any

from assay.cluster.node import Cluster, Node, NodeError
from assay.cluster.system import System
from assay.nemesis.faults.fault import Injection, Scope
from assay.nemesis.faults.impact import Impact
from assay.nemesis.faults.process import ServerFault, evidence_of, read_status
from assay.nemesis.schedule.target import servers


class Freeze(ServerFault):
    """Freezes the machine until the heal."""

    name = "freeze"
    description = "the whole machine is frozen, its network included, and thawed at the heal"
    scope = Scope.NODE
    impact = Impact(pauses_process=True)

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        try:
            for node in servers(cluster, system):
                await node.frozen()
        except NodeError as error:
            return f"machines cannot be frozen here: {error}"
        return await super().probe(cluster, system)

    async def strike(self, injection: Injection, node: Node) -> None:
        seen = evidence_of(injection, node)
        seen["before"] = await read_status(node)
        await node.freeze()
        seen["frozen"] = await node.frozen()

    async def look(self, injection: Injection, node: Node) -> None:
        evidence_of(injection, node)["frozen_at_heal"] = await node.frozen()

    async def undo(self, injection: Injection, node: Node) -> None:
        # Always, because a failed injection may have silenced a machine without freezing it.
        await node.thaw()
        evidence_of(injection, node)["after"] = await read_status(node)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        if not seen.get("frozen"):
            return "was not frozen after the injection"
        if not seen.get("frozen_at_heal"):
            return "was not frozen any more at the heal"
        if seen.get("after") != seen["before"]:
            return f"its process was {seen['before']} before and {seen.get('after')} after"
        return None
