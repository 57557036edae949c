"""Wipe and rollback: a server comes back with an empty disk, or with an older state of it.

- ``wipe``: the process is killed and all its data are removed, as when a machine is replaced and keeps its id.
  Parameter ``end``: ``killed``, or ``stopped`` (SIGTERM first, as in a maintenance).
- ``rollback``: the server's data are copied. After half of the fault's duration the process is killed and the copy is
  restored, as when a virtual machine is reset to a snapshot. Parameter ``copied``: ``running`` copies the data of a
  running process; ``stopped`` ends the process cleanly before the copy and starts it after. The copy then records a
  clean end.

Unlike damage (:mod:`assay.nemesis.faults.file_damage`), these faults lose fsynced data too, and the remaining data do
not show the loss. No replicated system survives that on many servers. So these rules hold:

- All faults of this kind in a run hit the same server, the first one that was hit.
- The system may say that a server holds the only complete replica of a key (``SupportsSoleReplica``). Then the fault
  waits until another server has everything, and fails if none does. A server that does not serve yet after another
  fault does not count, because the in-sync set may still name its former incarnation.
- The fault fails at once if other faults hold the other complete replicas. A server that is cut off may be removed from
  an in-sync set before the server that lost its data. The server without data would then be the only one in the set.
- For the same reason no fault takes the last of the other servers away before that server serves again
  (:mod:`assay.nemesis.engine.active_faults`).

Proof: that of the kill. In addition the files are read back: none is left, or they equal the copy and not the state
before.
"""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from assay.cluster.node import Cluster, Node, SupportsDataRestore
from assay.cluster.system import SupportsDataFolder, SupportsLockFiles, SupportsSoleReplica, System
from assay.nemesis.faults.abilities import DATA_RESTORE
from assay.nemesis.faults.fault import NOT_READY_ERRORS, Census, FaultContext, Impact, Injection, on_each
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.process import evidence_of
from assay.nemesis.schedule.schedule import FaultStep, Parameter, ScheduleError
from assay.nemesis.schedule.target import Target, TargetError, TargetKind, servers

TOO_MANY = (TargetKind.MINORITY, TargetKind.HALF, TargetKind.MAJORITY, TargetKind.ALL)
"""Targets that may be more than one server."""
RUNNING, STOPPED, KILLED = "running", "stopped", "killed"
POLL_SECONDS = 0.1
"""Seconds between two checks whether another server has everything."""
REPLICA_SECONDS = 10.0
"""Maximum seconds to wait for another server with everything. Such a server may be about to become in sync."""
COPY_AGE = 0.5
"""Age of a copy when it is restored, as a share of the fault's duration."""


class Wipe(Kill):
    """Kills the process of a server and removes all its data; see the module."""

    name = "wipe"
    description = "the process is killed and all its data are removed; started again with nothing at the heal"
    capabilities: Sequence[type] = (SupportsDataFolder,)
    abilities = (DATA_RESTORE,)
    kinds = (TargetKind.ONE, TargetKind.LEADER, TargetKind.FOLLOWER, TargetKind.CONTROLLER)
    drawn: Mapping[str, Sequence[Parameter]] = {"end": (KILLED, STOPPED)}
    impact = Impact(ends_process=True, damages_files=True)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        if census.servers < 2:
            raise ScheduleError(f"{self.name} needs a second server, which keeps what the first loses: set --nodes=3")
        if target is not None and (target.kind in TOO_MANY or len(target.names) > 1):
            raise ScheduleError(f"{self.name} hits one server, so its target cannot be {target}: name one server")
        return super().draw(rng, census, target)

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        if len(servers(cluster, system)) == 1:
            return "it needs a second server, which keeps what the first loses: set --nodes=3"
        return await super().probe(cluster, system)

    async def inject(self, injection: Injection) -> None:
        how = injection.step.parameters.get("end", KILLED)
        if how not in (KILLED, STOPPED):
            raise TargetError(f"{self.name}: the parameter end is {how!r}; it must be {KILLED} or {STOPPED}")
        await self._choose_server(injection)
        _mark_emptied(injection)
        await super().inject(injection)

    async def _choose_server(self, injection: Injection) -> None:
        """Takes the server that was hit first in this run, if any, and waits until another server has everything."""
        context, loop = injection.context, asyncio.get_running_loop()
        if len(injection.targets) != 1:
            raise TargetError(
                f"{self.name} hits one server, but its targets are {', '.join(injection.names)}: name one"
            )
        others = {node.name: node for node in injection.others}
        if context.ever_emptied and injection.names[0] not in context.ever_emptied:
            name = next(iter(context.ever_emptied))
            if name not in others:
                raise TargetError(
                    f"{name} has lost its data in this run, so no other server may lose its data. {name} itself "
                    "cannot be hit now, because another fault is active on it, or it is no possible target"
                )
            injection.evidence["instead_of"] = injection.names[0]
            injection.targets = (others[name],)
        node, deadline = injection.targets[0], loop.time() + REPLICA_SECONDS
        everyone = [other for other in servers(context.cluster, context.system) if other is not node]
        while True:
            recovering = context.recovering()
            key = await find_sole_replica(context, node, [other for other in everyone if other.name in recovering])
            if key is None:
                break
            if loop.time() >= deadline:
                raise TargetError(
                    f"{node.name} must keep its data, because no other server is known to have all of {key}"
                )
            await asyncio.sleep(POLL_SECONDS)
        away = [other for other in everyone if other.name in context.unavailable_nodes()]
        if away and (key := await find_sole_replica(context, node, away)) is not None:
            names = ", ".join(other.name for other in away)
            raise TargetError(
                f"{node.name} must keep its data, because only it and servers under other faults ({names}) have "
                f"all of {key}"
            )
        context.ever_emptied[node.name] = None

    async def end(self, injection: Injection, node: Node) -> None:
        if is_ended_cleanly(injection.step):
            await node.terminate()
            # Again, because the end may have taken a while, and other servers may have left the in-sync sets.
            await self._choose_server(injection)
        else:
            await super().end(injection, node)
        folder, disk = _data_folder(injection, node), cast(SupportsDataRestore, node)
        kept = read_lock_files(injection.context.system, node)
        before = await disk.contents(folder, kept)
        await disk.remove_contents(folder, kept)
        left = await disk.contents(folder, kept)
        evidence_of(injection, node).update({"files": len(before), "left": len(left)})

    def find_missing_effect(self, injection: Injection) -> str | None:
        lacking = {name: self.find_missing_data_proof(injection.evidence[name]) for name in injection.names}
        return "; ".join(f"{name} {reason}" for name, reason in lacking.items() if reason is not None) or None

    def find_missing_data_proof(self, seen: Mapping[str, Any]) -> str | None:
        """Returns what is missing from the proof of one node's data, or None."""
        if not seen.get("files"):
            return "had no data that could be removed"
        return f"still had {seen['left']} of {seen['files']} files" if seen["left"] else None


class Rollback(Wipe):
    """Restores older data of a server; see the module."""

    name = "rollback"
    description = "the process is killed, its data are put back to an older copy, and it is started with that"
    impact = Impact(ends_process=True, gradual=True, damages_files=True)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        whom, _ = super().draw(rng, census, target)  # draws a wipe's parameters too: stored seeds stay reproducible
        return whom, {"copied": rng.choice((RUNNING, STOPPED))}

    async def inject(self, injection: Injection) -> None:
        copied = injection.step.parameters.get("copied", RUNNING)
        if copied not in (RUNNING, STOPPED):
            raise TargetError(f"{self.name}: the parameter copied is {copied!r}; it must be {RUNNING} or {STOPPED}")
        await self._choose_server(injection)
        (node,) = injection.targets
        folder = _data_folder(injection, node)
        if copied == STOPPED:
            await node.terminate()
        copy = await cast(SupportsDataRestore, node).save(folder, read_lock_files(injection.context.system, node))
        evidence_of(injection, node).update({"copied": copied, "copy": dict(copy)})
        if copied == STOPPED:
            await node.start()

        async def put_back() -> None:
            await asyncio.sleep(injection.step.duration * COPY_AGE)
            _mark_emptied(injection)  # first, because other faults may begin while a complete replica is awaited
            await self._choose_server(injection)
            await Kill.inject(self, injection)

        injection.background = asyncio.get_running_loop().create_task(put_back())

    async def observe(self, injection: Injection) -> None:
        """Waits until the copy is restored, and raises the error of that."""
        if injection.background is not None:
            await asyncio.shield(injection.background)
        await super().observe(injection)

    async def end(self, injection: Injection, node: Node) -> None:
        await Kill.end(self, injection, node)
        folder, disk = _data_folder(injection, node), cast(SupportsDataRestore, node)
        seen = evidence_of(injection, node)
        kept = read_lock_files(injection.context.system, node)
        copy, before = seen.pop("copy"), await disk.contents(folder, kept)
        await disk.restore(folder, kept)
        after = await disk.contents(folder, kept)
        changed = sum(before.get(path) != copy.get(path) for path in {*before, *copy})
        back = sum(after.get(path) == copy.get(path) != before.get(path) for path in {*after, *before, *copy})
        seen.update({"files": len(copy), "changed": changed, "back": back})

    async def heal(self, injection: Injection) -> None:
        async def tidy(node: Node) -> None:
            evidence_of(injection, node).pop("copy", None)
            if isinstance(node, SupportsDataRestore):
                await node.discard(_data_folder(injection, node))

        await injection.end_background()
        await super().heal(injection)
        await on_each(injection.targets, tidy)

    def find_missing_data_proof(self, seen: Mapping[str, Any]) -> str | None:
        if not seen.get("changed"):
            return "had changed nothing since its data were copied"
        wrong = seen["changed"] - seen["back"]
        return f"had {wrong} of {seen['changed']} changed files that differed from the copy" if wrong else None


def _data_folder(injection: Injection, node: Node) -> str:
    system = injection.context.system
    if not isinstance(system, SupportsDataFolder):
        raise TargetError(f"{system.name} does not say where its data are: define its method data_folder")
    return system.data_folder(node)


def read_lock_files(system: System, node: Node) -> Sequence[str]:
    """Returns the lock files in a node's data folder, which no fault removes or restores."""
    return system.lock_files(node) if isinstance(system, SupportsLockFiles) else ()


def _mark_emptied(injection: Injection) -> None:
    """Marks the target as a server without its data, until it serves again."""
    injection.context.emptied[injection.names[0]] = injection


def is_ended_cleanly(step: FaultStep) -> bool:
    """Returns whether a server is asked to end before it loses its data."""
    return step.parameters.get("end") == STOPPED


async def find_sole_replica(context: FaultContext, node: Node, away: Collection[Node] = ()) -> str | None:
    """Returns a key if no other server is known to have all of its data; None if there is none.

    Servers in ``away`` do not count. Also returns None if the system cannot tell (``SupportsSoleReplica``). If the
    system does not answer, returns a text that takes the place of the key in messages.
    """
    system = context.system
    if not isinstance(system, SupportsSoleReplica):
        return None
    try:
        return await system.alone_with(context.cluster, node, away)
    except NOT_READY_ERRORS as error:
        return f"its data (the system did not say who has them: {error})"
