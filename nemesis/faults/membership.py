"""Membership: a server leaves the cluster, and an empty one joins it, while clients use it.

1. All replicas of the server are moved away, including those of the system's internal keys. If every other server has a
   replica of a key already, the key has one replica less until the server is back.
2. The process is ended cleanly and all its data are removed.
3. A process started on the node afterwards, with the same id, is a new server without data.

The changes (``membership`` draws one):

- ``membership-remove``: the cluster goes on without the server until the heal. Then an empty server is added.
- ``membership-replace``: an empty server takes its place at once, and has no replicas until the heal.
- ``membership-add``: a spare node becomes a server, and takes over replicas of other servers. At the heal it leaves as
  in steps 1 and 2.

At the heal the replicas return to their original servers, so that everything is copied.

A move waits until dead servers run again. So the changes and the return happen in the background, each step is repeated
until it succeeds, and the fault lingers until all replicas are back. A heal that waited for the return would keep the
other faults from being healed, and so the dead servers from starting. So the heal waits only if no other fault holds a
server. Otherwise the heal fails, and the conductor repeats it.

A key that clients have deleted or moved in the meantime is left alone. Clients may also create topics on the leaving
server. So after its process has ended, the server's replicas are read again. If there are new ones, the process is
started again, and they are moved away as well.

Proof of a leaving server:

- It had replicas, which were moved away, and had none after it had ended.
- Its process ended by itself, and its files are gone.
- The system listed its members without it. Later it was listed again, as another incarnation, and had its replicas.

Proof of an added server: the members were listed without it, with it, and without it again, and it had replicas.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from assay.cluster.node import Cluster, NodeError, ProcessState, SupportsDataRestore
from assay.cluster.system import SupportsDataFolder, SupportsMembership, SupportsMove, System
from assay.nemesis.faults.fault import Census, Impact, Injection, Proof, Scope
from assay.nemesis.faults.membership_actions import MOVE_SECONDS as RETURN_SECONDS
from assay.nemesis.faults.membership_actions import JoiningMember, LeavingMember
from assay.nemesis.faults.move import CHECK_SECONDS, SINGLE_SERVER_KINDS
from assay.nemesis.faults.process import draw_target
from assay.nemesis.faults.restart import Restart
from assay.nemesis.faults.varied import VariedFault
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import KEYS_REMEDY, Target, TargetError, TargetKind, servers

LINGER_SECONDS: Final = 120.0
"""Maximum seconds that the fault may outlast its duration. Meanwhile other faults may end servers, and a move waits
until these run again."""
PAUSE_SECONDS: Final = 1.0
"""Seconds from a failed step to its repetition."""


class MembershipChange(enum.StrEnum):
    """The kinds of membership changes."""

    REMOVE = "remove"
    REPLACE = "replace"
    ADD = "add"


class MembershipFault(VariedFault[MembershipChange], Restart):
    """Changes the members of the cluster; see the module. ``MovingMember`` describes the evidence."""

    name = "membership"
    description = "a server leaves the cluster without its replicas, and an empty one joins it; or the other way round"
    descriptions: Mapping[MembershipChange, str] = {
        MembershipChange.REMOVE: (
            "a server is removed, its replicas moved away first; an empty one is added at the heal"
        ),
        MembershipChange.REPLACE: "the same, but an empty server takes its place, and its id, at once",
        MembershipChange.ADD: "a server is added, and gets replicas; at the heal they go back, and it is removed",
    }
    parameter = "change"
    variants = tuple(MembershipChange)
    capabilities: Sequence[type] = (SupportsMove, SupportsMembership, SupportsDataFolder)
    scope = Scope.NODE
    impact = Impact(ends_process=True, gradual=True, moves_replicas=True)
    lingers = LINGER_SECONDS

    def __init__(self, change: MembershipChange | None = None) -> None:
        super().__init__(change)
        self.spares = int(MembershipChange.ADD in self.variants)
        """Number of spare nodes that the cluster must have."""

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        change = self.draw_variant(rng, census, target)
        kinds = (
            (TargetKind.SPARE,)
            if change is MembershipChange.ADD
            else (TargetKind.ONE, TargetKind.LEADER, TargetKind.CONTROLLER)
        )
        whom, _ = draw_target(rng, census, target, kinds)
        return whom, {"change": str(change)}

    def find_trouble(self, variant: MembershipChange, census: Census, target: Target | None) -> str | None:
        if census.lacks_keys:
            return f"{variant} needs a system with replicas: {KEYS_REMEDY}"
        if variant is MembershipChange.ADD:
            if not census.spares:
                return (
                    f"{variant} needs a spare node, and this cluster has none; name the fault in --nemesis, and "
                    "it gets one"
                )
            return (
                None
                if target in (None, Target(TargetKind.SPARE))
                else f"{variant} hits the spare node, so its target cannot be {target}: leave out the target"
            )
        if census.servers < 3:
            return f"{variant} needs three servers, but the cluster has {census.servers}: set --nodes=3"
        if target is not None and (target.kind not in SINGLE_SERVER_KINDS or len(target.names) > 1):
            return f"{variant} hits one server, so its target cannot be {target}: use one, leader, controller or a name"
        return None

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        everyone = servers(cluster, system)
        if self.variants != (MembershipChange.ADD,) and len(everyone) < 3:
            return "it needs two other servers, to which replicas move: set --nodes=3"
        if len(cluster.spares) < self.spares:
            return "the cluster has no spare node, which could join"
        if not all(isinstance(node, SupportsDataRestore) for node in (*everyone, *cluster.spares)):
            return f"the data of a {cluster.kind} node cannot be removed: use --cluster=sim or --cluster=docker"
        return await super().probe(cluster, system)

    async def inject(self, injection: Injection) -> None:
        if len(injection.targets) != 1:
            raise TargetError(
                f"{self.name} hits one server, but its targets are {', '.join(injection.names)}: name one"
            )
        change = self._get_change(injection)
        if change is MembershipChange.ADD:
            joining = JoiningMember(injection)
            await joining.begin()
            self._begin(injection, joining.run)
        else:
            leaving = await LeavingMember.choose_with_replicas(injection)
            self._begin(injection, partial(leaving.run, replaced=change is MembershipChange.REPLACE))

    async def observe(self, injection: Injection) -> None:
        """Begins the return once the server has left, or joined. Does not wait for the end of the return."""
        task, evidence = injection.background, injection.evidence
        if task is None or not task.done():
            return
        await task
        if "returning" not in evidence:
            self._begin_return(injection)

    async def heal(self, injection: Injection) -> None:
        """Raises ``NodeError`` while the replicas are not back. Then the return continues in the background."""
        evidence = injection.evidence
        if "members" not in evidence or "back" in evidence:
            await injection.end_background()
            return
        if "returning" not in evidence:
            await injection.end_background()
        task = injection.background or self._begin_return(injection)
        held = sorted(set(injection.context.unavailable_nodes()) - set(injection.names))
        await asyncio.wait([task], timeout=CHECK_SECONDS if held else RETURN_SECONDS)
        if not task.done():
            others = f"; other faults hold {', '.join(held)}" if held else ""
            raise NodeError(f"{evidence.get('trouble', 'the replicas are not back yet')}{others}")
        injection.background = None
        await task

    def _begin(self, injection: Injection, action: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begins to repeat ``action`` in the background until it raises no ``NodeError``."""

        async def repeat() -> None:
            while True:
                try:
                    await action()
                except NodeError as error:
                    injection.evidence["trouble"] = str(error)
                    await asyncio.sleep(PAUSE_SECONDS)
                else:
                    injection.evidence.pop("trouble", None)
                    return

        task = asyncio.get_running_loop().create_task(repeat(), name=f"{self.name} {injection.id}")
        injection.background = task
        return task

    def _begin_return(self, injection: Injection) -> asyncio.Task[None]:
        evidence = injection.evidence
        evidence["returning"] = True
        if "trouble" in evidence:
            evidence["unfinished"] = evidence.pop("trouble")
        if self._get_change(injection) is MembershipChange.ADD:
            return self._begin(injection, JoiningMember(injection).leave_again)
        return self._begin(injection, LeavingMember(injection).come_back)

    def proof(self, injection: Injection) -> Proof:
        (name,) = injection.names
        evidence = injection.evidence
        if self._get_change(injection) is MembershipChange.ADD:
            trouble = _find_missing_proof_of_added(name, evidence)
        else:
            ended = super().proof(injection)
            trouble = _find_missing_proof(name, evidence) if ended.took_effect else ended.reason
        if trouble is not None and "unfinished" in evidence:
            trouble = f"{trouble}: {evidence['unfinished']}"
        return Proof(trouble is None, evidence, trouble)

    def _get_change(self, injection: Injection) -> MembershipChange:
        """Returns the change of the members that a step requests."""
        return self.variant_of(injection) if self.parameter in injection.step.parameters else self.variants[0]


def _find_missing_proof(name: str, evidence: Mapping[str, Any]) -> str | None:
    """Returns what is missing from the proof of a leaving server, in addition to that of a restart; or None."""
    if not evidence.get("moved"):
        return f"no replica of {name} was moved away"
    if name not in evidence["members"] or name in evidence.get("without", [name]):
        return f"{name} was a member all the time"
    if evidence.get("kept") != []:
        return f"{name} still had {', '.join(evidence.get('kept', ['all']))} when it had ended"
    seen = evidence[name]
    if (left := _find_left_files(name, seen)) is not None:
        return left
    if name not in evidence.get("with", ()):
        return f"{name} did not become a member again"
    return None if "back" in evidence else f"the replicas of {name} have not come back"


def _find_missing_proof_of_added(name: str, evidence: Mapping[str, Any]) -> str | None:
    """Returns what is missing from the proof of an added server, or None."""
    seen = evidence.get(name, {})
    if name in evidence.get("members", [name]):
        return f"{name} was a member before"
    if name not in evidence.get("with", ()):
        return f"{name} did not become a member"
    if not evidence.get("taken"):
        return f"{name} got no replica"
    if name in evidence.get("without", [name]) or seen.get("ended", {}).get("state") != ProcessState.DEAD:
        return f"{name} is still a member, or runs"
    if evidence.get("kept") != []:
        return f"{name} still had {', '.join(evidence.get('kept', ['all']))} when it had ended"
    return _find_left_files(name, seen)


def _find_left_files(name: str, seen: Mapping[str, Any]) -> str | None:
    """Returns how many files were left, or None if the data folder was emptied.

    The files may not have been examined yet, because a proof may be asked for while the change still runs.
    """
    if seen.get("files") and seen.get("left") == 0:
        return None
    return f"{seen.get('left', 'all')} of {seen.get('files', 0)} files of {name} were left"
