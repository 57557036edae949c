"""Membership: a server leaves the cluster, and an empty one joins it, while clients use it.

All replicas of the server are moved away, also those that the system keeps for itself; where every other server has one
already, the key has one fewer meanwhile. Then the process is ended cleanly and all its data are removed. What comes up
on the node afterwards, with the same id, is a new server that has nothing.

``membership-remove``   the cluster does without it until the heal, when an empty one is added
``membership-replace``  an empty one takes its place at once, and has no replicas until the heal

At the heal the replicas come back, so that everything is copied. ``membership`` draws one of both.

A move waits for servers that are dead, so all of it goes on in the background: the fault lingers until everything is
where it was. A key that clients have deleted, or moved since, is left alone then. Clients may also make topics
meanwhile, on this server, too. So it is looked at again once the process has ended; when it was given something, the
process is started again, and that is moved away as well.

Proof: the server had replicas, which were moved away; it had none when it had ended; its process ended by itself; the
system listed its members without it; its files are gone; and another incarnation was listed again and has its replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from assay.cluster.membership import Membered, Standing
from assay.cluster.node import Cluster, NodeError, ProcessState, Restorable
from assay.cluster.system import Durable, Movable, System
from assay.nemesis.fault import NOT_READY_ERRORS, Census, Injection, Proof, Scope
from assay.nemesis.impact import Impact
from assay.nemesis.move import ASK_EVERY, MOVE_SECONDS, SINGLE, elsewhere
from assay.nemesis.process import draw_target, seen_of, status
from assay.nemesis.restart import Restart, serves
from assay.nemesis.schedule import Parameter, ScheduleError
from assay.nemesis.target import Kind, Target, TargetError, servers

ASK_SECONDS = 5.0
"""For the system to say who has what, and to take one order."""
LEAVE_SECONDS = 20.0
"""For all replicas to be elsewhere."""
RETURN_SECONDS = 20.0
"""For the server to be a member again, with its replicas."""
TRIES = 3
"""How often at most it is ended, in case that it has been given replicas meanwhile."""


class Change(enum.StrEnum):
    """When an empty server comes."""

    REMOVE = "remove"
    REPLACE = "replace"


DESCRIPTIONS = {
    Change.REMOVE: "a server is removed, its replicas moved away first; an empty one is added at the heal",
    Change.REPLACE: "the same, but an empty server takes its place, and its id, at once",
}


class Membership(Restart):
    """See the module."""

    capabilities: Sequence[type] = (Movable, Membered, Durable)
    scope = Scope.NODE
    impact = Impact(ends_process=True, gradual=True, moves_replicas=True)
    lingers = MOVE_SECONDS

    def __init__(self, change: Change | None = None) -> None:
        self._changes = tuple(Change) if change is None else (change,)
        self.name = "membership" if change is None else f"membership-{change}"
        self.description = (
            "a server leaves the cluster without its replicas, and an empty one joins it"
            if change is None
            else DESCRIPTIONS[change]
        )

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        if census.keys == () or census.servers < 3:
            raise ScheduleError(f"{self.name} needs a key with replicas, and three servers (--nodes=3)")
        if target is not None and (target.kind not in SINGLE or len(target.names) > 1):
            raise ScheduleError(f"{self.name} takes one server, not {target}: one, leader, controller, a name")
        whom, _ = draw_target(rng, census, target, (Kind.ONE, Kind.LEADER, Kind.CONTROLLER))
        return whom, {"change": str(rng.choice(self._changes))}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        everyone = servers(cluster, system)
        if len(everyone) < 3:
            return "there are not two other servers to move to (--nodes=3)"
        if not all(isinstance(node, Restorable) for node in everyone):
            return f"a {cluster.kind} node's data cannot be removed"
        return await super().probe(cluster, system)

    async def inject(self, injection: Injection) -> None:
        if len(injection.targets) != 1:
            raise TargetError(f"{self.name} is of one server, not of {', '.join(injection.names)}")
        move = await _Leaving.of_one_with_replicas(injection)
        injection.background = asyncio.get_running_loop().create_task(move.leave(), name=f"{self.name} {injection.id}")

    async def observe(self, injection: Injection) -> None:
        """Once it is gone, its return begins, which the last look waits for no longer than any other."""
        task, evidence = injection.background, injection.evidence
        if task is None or not task.done():
            return
        await task
        if "returning" not in evidence:
            evidence["returning"] = True
            injection.background = asyncio.get_running_loop().create_task(_Leaving(injection).come_back())

    async def heal(self, injection: Injection) -> None:
        task, evidence = injection.background, injection.evidence
        if task is not None and not task.done():
            if "returning" in evidence:
                await asyncio.wait([task], timeout=RETURN_SECONDS)
            task.cancel()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)  # observe has reported what it raised
        if "held" in evidence and "back" not in evidence:
            await _Leaving(injection).come_back()

    def proof(self, injection: Injection) -> Proof:
        ended = super().proof(injection)
        if not ended.took_effect:
            return ended
        (name,) = injection.names
        trouble = _lacking(name, injection.evidence)
        return Proof(trouble is None, injection.evidence, trouble)


class _Leaving:
    """One server on its way out of the cluster and into it. What it knows is in the evidence, so that another goes on
    where one ended.
    """

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        self._evidence = injection.evidence
        (self._node,) = injection.targets
        self._system: Any = injection.context.system
        """``Movable``, ``Membered`` and ``Durable``."""
        self._nodes = {node.index: node for node in servers(injection.context.cluster, self._system)}
        self._rng = random.Random(injection.seed)

    @classmethod
    async def of_one_with_replicas(cls, injection: Injection) -> _Leaving:
        """The target, or one that might as well be it. Raises ``NodeError``, or ``TargetError`` when none has any."""
        meant = injection.targets[0]
        standing = await cls(injection)._standing(ASK_SECONDS, lambda found: True, "does not say who has what")
        for node in (meant, *injection.others):
            injection.targets = (node,)
            leaving = cls(injection)
            held = leaving._held(standing)
            if held and node.index in standing.members:
                injection.evidence.update(held=sorted(held), moved={}, members=leaving._names(standing.members))
                injection.evidence[node.name] = {"before": await status(node)}
                return leaving
        injection.targets = (meant,)
        raise TargetError(f"{meant.name} has no replica that could be moved away")

    @property
    def _seen(self) -> dict[str, Any]:
        return seen_of(self._injection, self._node)

    async def leave(self) -> None:
        index = self._node.index
        for _ in range(TRIES):
            await self._move_away()
            self._seen["asked"] = True
            await self._node.terminate()
            self._seen["ended"] = await status(self._node)
            standing = await self._standing(
                ASK_SECONDS, lambda found: index not in found.members, f"still has {self._node.name} as a member"
            )
            self._evidence["without"] = self._names(standing.members)
            self._evidence["kept"] = sorted(self._held(standing))
            if not self._evidence["kept"]:
                break
            await self._node.start()
            await serves(self._system, self._node)
        else:
            raise NodeError(
                f"{self._node.name} was given replicas again and again: {', '.join(self._evidence['kept'])}"
            )
        folder, disk = self._system.data_folder(self._node), cast(Restorable, self._node)
        self._seen["files"] = len(await disk.contents(folder))
        await disk.remove_contents(folder)
        self._seen["left"] = len(await disk.contents(folder))
        if self._injection.step.parameters.get("change") == Change.REPLACE:
            await self._join()

    async def _join(self) -> None:
        if (await self._node.process()).state is ProcessState.DEAD:
            await self._node.start()
        self._seen["after"] = await status(self._node)
        await serves(self._system, self._node)
        index = self._node.index
        standing = await self._standing(
            ASK_SECONDS, lambda found: index in found.members, f"does not have {self._node.name} as a member"
        )
        self._evidence["with"] = self._names(standing.members)

    async def come_back(self) -> None:
        """The server is a member, and has the replicas that it had. Raises ``NodeError``."""
        await self._join()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETURN_SECONDS
        while True:
            standing = await self._standing(ASK_SECONDS, lambda found: True, "does not say who has what")
            missing = [key for key in self._evidence["moved"] if self._is_missing(key, standing)]
            if not missing:
                held = self._held(standing)
                self._evidence["back"] = [key for key in self._evidence["moved"] if key in held]
                return
            if loop.time() >= deadline:
                raise NodeError(f"{', '.join(missing)} did not come back to {self._node.name}; the dead are waited for")
            for key in missing:
                if key in standing.replicas:
                    await self._order(key, self._evidence["moved"][key][0])
            await asyncio.sleep(ASK_EVERY)

    def _is_missing(self, key: str, standing: Standing) -> bool:
        """Is it to come back, or on its way? Not one that was deleted, or moved by someone else."""
        if key in standing.moving:
            return True
        now = standing.replicas.get(key)
        return now is not None and self._names(now) == self._evidence["moved"][key][1]

    async def _move_away(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LEAVE_SECONDS
        while True:
            standing = await self._standing(ASK_SECONDS, lambda found: True, "does not say who has what")
            held = self._held(standing)
            if not held:
                return
            if loop.time() >= deadline:
                raise NodeError(f"{', '.join(sorted(held))} did not leave {self._node.name}; the dead are waited for")
            for key in sorted(held & standing.replicas.keys()):
                before = self._names(standing.replicas[key])
                after = elsewhere(before, self._node.name, self._names(standing.members), self._rng)
                if await self._order(key, after):
                    self._evidence["moved"][key] = [before, after]
            await asyncio.sleep(ASK_EVERY)

    async def _order(self, key: str, names: Collection[str]) -> bool:
        """Was it accepted? If not it is given again, unless there is no reason any more."""
        nodes = [node for name in names for node in self._nodes.values() if node.name == name]
        with contextlib.suppress(*NOT_READY_ERRORS):
            async with asyncio.timeout(ASK_SECONDS):
                return await self._system.move(self._injection.context.cluster, key, nodes) is None
        return False

    def _held(self, standing: Standing) -> set[str]:
        everything: dict[str, Collection[int]] = {**standing.replicas, **standing.moving}
        return {key for key, indexes in everything.items() if self._node.index in indexes}

    def _names(self, indexes: Collection[int]) -> list[str]:
        ordered = indexes if isinstance(indexes, Sequence) else sorted(indexes)
        return [self._nodes[index].name for index in ordered if index in self._nodes]

    async def _standing(self, seconds: float, fits: Callable[[Standing], bool], trouble: str) -> Standing:
        """Asks until the answer fits. Raises ``NodeError`` when none does in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(*NOT_READY_ERRORS):
                        found: Standing | None = await self._system.standing(self._injection.context.cluster)
                        if found is not None and fits(found):
                            return found
                    await asyncio.sleep(ASK_EVERY)
        raise NodeError(f"{self._system.name} {trouble} within {seconds:g} s")


def _lacking(name: str, evidence: Mapping[str, Any]) -> str | None:
    """What is missing from the proof, beyond that of a restart."""
    if not evidence.get("moved"):
        return f"no replica of {name} was moved away"
    if name not in evidence["members"] or name in evidence.get("without", [name]):
        return f"{name} was a member all the time"
    if evidence.get("kept") != []:
        return f"{name} still had {', '.join(evidence.get('kept', ['all']))} when it had ended"
    seen = evidence[name]
    if not seen.get("files") or seen["left"]:
        return f"{seen.get('left', 0)} of {seen.get('files', 0)} files of {name} were left"
    if name not in evidence.get("with", ()):
        return f"{name} did not become a member again"
    return None if "back" in evidence else f"the replicas of {name} have not come back"
