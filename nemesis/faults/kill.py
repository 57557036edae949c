"""Faults that end a process at once, at the injection. It is started again at the heal.

- ``kill``: SIGKILL. Only the process dies. The node keeps its files, including the page cache, and its network rules.
  So a partition stays active over a kill, and the restarted process is still cut off. On a node with several processes
  all are killed, and the proof is about the main process. If the target names a process, the kill and the proof are
  about that process alone.
- ``memory``: all of a server's limited memory is allocated, until the kernel kills its process. Before that the process
  is briefly blocked each time it needs a page.
- ``power-loss``: the machine stops, and only fsynced data of its files are left. By default only one machine is hit at
  a time, because the system's settings and contract decide whether data survive a power loss of all.

Proof: the process was alive before, dead from the injection to the heal, and another incarnation runs afterwards. For
``memory``, the kernel must also have counted a process that it killed for lack of memory. For ``power-loss``, the
evidence has the bytes that each file lost, which may be none. So each power loss of a real node also writes an unsynced
file of its own, and fails if that file survives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from assay.cluster.node import Node, ProcessState, SupportsMemoryLimit, SupportsPowerLoss
from assay.nemesis.faults.abilities import MEMORY_LIMIT, POWER_LOSS, Ability
from assay.nemesis.faults.fault import Impact, Injection, run_on_all
from assay.nemesis.faults.process import ServerFault, evidence_of, find_unseen, get_node_or_process, read_status
from assay.nemesis.schedule.target import TargetKind


class Kill(ServerFault):
    """SIGKILL, and a new start at the heal."""

    name = "kill"
    description = "the process is killed (SIGKILL) and started again at the heal"
    impact = Impact(ends_process=True)

    async def strike(self, injection: Injection, node: Node) -> None:
        seen, target = evidence_of(injection, node), get_node_or_process(injection, node)
        if "before" not in seen:  # the process may already have ended, as kill-in-write intends
            seen["before"] = await read_status(target)
        if target is node:
            await self.end(injection, node)
        else:
            await target.kill()
        seen["killed"] = await read_status(target)

    async def end(self, injection: Injection, node: Node) -> None:
        """Ends the process."""
        await node.kill()

    async def undo(self, injection: Injection, node: Node) -> None:
        # Only dead processes are started, because a failed injection may not have killed every target.
        target = get_node_or_process(injection, node)
        if (await target.process()).state is ProcessState.DEAD:
            await target.start()
        evidence_of(injection, node)["after"] = await read_status(target)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        # `ServerFault.observe_node` sets "at_heal".
        if (missing := find_unseen(seen, "before", "killed", "at_heal", "after")) is not None:
            return missing
        if seen["before"]["state"] == ProcessState.DEAD:
            return "was dead already when it should have been killed"
        if seen["killed"]["state"] != ProcessState.DEAD or seen["at_heal"]["state"] != ProcessState.DEAD:
            return "was not dead while the fault was in force"
        if seen["after"]["incarnation"] in (None, seen["before"]["incarnation"]):
            return "no new process ran after the heal"
        return None


class MemoryFault(Kill):
    """Exhausts a server's memory; see the module."""

    name = "memory"
    description = "the server runs out of memory, and the kernel ends its process; started again at the heal"
    abilities = (MEMORY_LIMIT,)
    own_memory = True
    """Containers get a memory limit for this fault."""

    async def end(self, injection: Injection, node: Node) -> None:
        evidence_of(injection, node)["memory"] = asdict(await cast(SupportsMemoryLimit, node).exhaust_memory())

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        ended = seen.get("memory", {}).get("ended")
        return super().find_missing_proof(seen) or (None if ended else "the kernel ended nothing for lack of memory")


class PowerLoss(Kill):
    """A kill that loses unsynced data."""

    name = "power-loss"
    description = "the machine loses power: what was not fsynced is gone; started again at the heal"
    impact = Impact(ends_process=True, loses_unsynced=True)
    abilities: Sequence[Ability] = (POWER_LOSS,)
    kinds = (TargetKind.ONE, TargetKind.LEADER, TargetKind.FOLLOWER, TargetKind.CONTROLLER)
    on_targets = staticmethod(run_on_all)
    """All targets lose power at once: otherwise the last one could flush data that only it has."""

    async def end(self, injection: Injection, node: Node) -> None:
        lost = dict(await cast(SupportsPowerLoss, node).cut_power())
        injection.evidence[node.name] |= {"lost": lost, "lost_bytes": sum(lost.values()), "lost_files": len(lost)}
