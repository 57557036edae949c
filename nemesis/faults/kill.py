"""Kill: SIGKILL of the process at the injection, a new start at the heal.

Only the process dies. The node keeps its files, including the page cache (this is no power loss), and its network
rules. So a partition stays active over a kill, and the restarted process comes up behind it.

On a node with several processes all are killed, and the proof is about the main one, or only the one that the target
names.

Proof: the process was alive before, dead from the injection to the heal, and another incarnation runs afterwards.
"""

from collections.abc import Mapping
from typing import Any

from assay.cluster.node import Node, ProcessState
from assay.nemesis.faults.fault import Injection
from assay.nemesis.faults.impact import Impact
from assay.nemesis.faults.process import ServerFault, evidence_of, find_unseen, process_or_node, read_status


class Kill(ServerFault):
    """SIGKILL, and a new start at the heal."""

    name = "kill"
    description = "the process is killed (SIGKILL) and started again at the heal"
    impact = Impact(ends_process=True)

    async def strike(self, injection: Injection, node: Node) -> None:
        seen, one = evidence_of(injection, node), process_or_node(injection, node)
        if "before" not in seen:  # the process may already have ended, as kill-in-write intends
            seen["before"] = await read_status(one)
        if one is node:
            await self.end(injection, node)
        else:
            await one.kill()
        seen["killed"] = await read_status(one)

    async def end(self, injection: Injection, node: Node) -> None:
        """Ends the process."""
        await node.kill()

    async def undo(self, injection: Injection, node: Node) -> None:
        # Only dead ones, because a failed injection may not have killed every target.
        one = process_or_node(injection, node)
        if (await one.process()).state is ProcessState.DEAD:
            await one.start()
        evidence_of(injection, node)["after"] = await read_status(one)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        if (missing := find_unseen(seen, "before", "killed", "at_heal", "after")) is not None:
            return missing
        if seen["before"]["state"] == ProcessState.DEAD:
            return "was dead already when it should have been killed"
        if seen["killed"]["state"] != ProcessState.DEAD or seen["at_heal"]["state"] != ProcessState.DEAD:
            return "was not dead while the fault was in force"
        if seen["after"]["incarnation"] in (None, seen["before"]["incarnation"]):
            return "no other incarnation was seen after the heal"
        return None
