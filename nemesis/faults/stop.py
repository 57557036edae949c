"""Stop: SIGSTOP of the process at the injection, SIGCONT at the heal.

The kernel still acknowledges packets, so peers see a live connection to a process that does nothing. ZooKeeper expires
its session. At the heal all its timers fire together, and it may believe for a moment that it still leads. This is the
long garbage collection pause of the literature.

Proof: the process was seen stopped (``T`` in ``/proc/PID/stat``) after the injection and still at the heal, and is the
same incarnation.
"""

import random
from collections.abc import Mapping
from typing import Any

from assay.cluster.node import Node, ProcessState
from assay.nemesis.faults.fault import Census, Injection
from assay.nemesis.faults.impact import Impact
from assay.nemesis.faults.process import ServerFault, evidence_of, process_or_node, read_status, resume_stopped
from assay.nemesis.schedule.schedule import Parameter, ScheduleError
from assay.nemesis.schedule.target import Target, means_clients


class Stop(ServerFault):
    """SIGSTOP, and SIGCONT at the heal."""

    name = "stop"
    description = "the process is paused (SIGSTOP) and goes on at the heal (SIGCONT)"
    impact = Impact(pauses_process=True)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        if target is not None and means_clients(target, any):
            # A contract may tolerate actions of a client that was paused, and identifies the fault by its name.
            raise ScheduleError(f"{self.name} takes no target {target}: that is the fault stop-consumer")
        return super().draw(rng, census, target)

    async def strike(self, injection: Injection, node: Node) -> None:
        one = process_or_node(injection, node)
        await one.stop()
        evidence_of(injection, node)["stopped"] = await read_status(one)

    async def undo(self, injection: Injection, node: Node) -> None:
        one = process_or_node(injection, node)
        await resume_stopped(one)
        evidence_of(injection, node)["after"] = await read_status(one)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        for moment in ("stopped", "at_heal"):
            if moment not in seen:
                return f"its process was not seen ({moment})"
            if seen[moment]["state"] != ProcessState.STOPPED:
                return f"was {seen[moment]['state']}, not stopped ({moment})"
        if seen["stopped"]["incarnation"] != seen["at_heal"]["incarnation"]:
            return "another incarnation was running at the heal"
        return None
