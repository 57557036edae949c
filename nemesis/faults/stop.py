"""Faults that pause a process at the injection, and continue it at the heal.

- ``stop``: SIGSTOP of the process. The kernel still acknowledges packets, so peers see a live connection to a process
  that does nothing. ZooKeeper expires its session. At the heal all its timers fire together, and the process may
  believe for a moment that it still leads. A long garbage collection pause has the same effect.
- ``freeze``: the whole machine stops, including its network stack, like a virtual machine suspended by its host.
  Nothing is acknowledged: peers see a machine that has vanished, retransmit, and may give up. A frozen machine cannot
  be changed, so no other fault may act on it meanwhile, and the random nemesis adds no second fault.

Proof: the process, or the machine, was seen paused (``T`` in ``/proc/PID/stat``) after the injection and still at the
heal, and the process is the same incarnation.
"""

import random
from collections.abc import Mapping
from typing import Any

from assay.cluster.node import Node, ProcessState
from assay.nemesis.faults.abilities import FREEZING
from assay.nemesis.faults.fault import Census, Impact, Injection, Scope
from assay.nemesis.faults.process import ServerFault, evidence_of, get_node_or_process, read_status, resume_stopped
from assay.nemesis.schedule.schedule import Parameter, ScheduleError
from assay.nemesis.schedule.target import Target, may_hit_clients


class Stop(ServerFault):
    """SIGSTOP, and SIGCONT at the heal."""

    name = "stop"
    description = "the process is paused (SIGSTOP) and goes on at the heal (SIGCONT)"
    impact = Impact(pauses_process=True)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        if target is not None and may_hit_clients(target):
            # A contract may tolerate effects of a paused client, and identifies this fault by its name, stop-consumer.
            raise ScheduleError(
                f"{self.name} hits servers, so its target cannot be {target}: use the fault stop-consumer"
            )
        return super().draw(rng, census, target)

    async def strike(self, injection: Injection, node: Node) -> None:
        target = get_node_or_process(injection, node)
        await target.stop()
        evidence_of(injection, node)["stopped"] = await read_status(target)

    async def undo(self, injection: Injection, node: Node) -> None:
        target = get_node_or_process(injection, node)
        await resume_stopped(target)
        evidence_of(injection, node)["after"] = await read_status(target)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        for moment in ("stopped", "at_heal"):
            if moment not in seen:
                return f"the state of its process could not be read ({moment})"
            if seen[moment]["state"] != ProcessState.STOPPED:
                return f"was {seen[moment]['state']}, not stopped ({moment})"
        if seen["stopped"]["incarnation"] != seen["at_heal"]["incarnation"]:
            return "another incarnation was running at the heal"
        return None


class Freeze(ServerFault):
    """Freezes the machine until the heal."""

    name = "freeze"
    description = "the whole machine is frozen, its network included, and thawed at the heal"
    scope = Scope.NODE
    impact = Impact(pauses_process=True)
    abilities = (FREEZING,)

    async def strike(self, injection: Injection, node: Node) -> None:
        seen = evidence_of(injection, node)
        seen["before"] = await read_status(node)
        await node.freeze()
        seen["frozen"] = await node.frozen()

    async def observe_node(self, injection: Injection, node: Node) -> None:
        evidence_of(injection, node)["frozen_at_heal"] = await node.frozen()

    async def undo(self, injection: Injection, node: Node) -> None:
        # Called for every target, because a failed injection may have silenced a machine without freezing it.
        await node.thaw()
        evidence_of(injection, node)["after"] = await read_status(node)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        if not seen.get("frozen"):
            return "was not frozen after the injection"
        if not seen.get("frozen_at_heal"):
            return "was not frozen any more at the heal"
        if seen.get("after") != seen["before"]:
            return f"its process was {seen['before']} before the fault and {seen.get('after')} after it"
        return None
