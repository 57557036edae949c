"""Base class of most faults of servers, with functions that draw targets and read the state of processes."""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from assay.cluster.node import (
    Cluster,
    Node,
    NodeError,
    Part,
    ProcessState,
    ProcessStatus,
    SupportsParts,
)
from assay.cluster.system import System
from assay.nemesis.faults.abilities import Ability
from assay.nemesis.faults.fault import Census, Fault, Impact, Injection, Proof, Scope, complete_target, on_each
from assay.nemesis.schedule.schedule import Parameter, ScheduleError
from assay.nemesis.schedule.target import KEYED_KINDS, SIZE_KINDS, Target, TargetError, TargetKind, servers

DEFAULT_TARGETS = (TargetKind.ONE, TargetKind.MINORITY, TargetKind.LEADER, TargetKind.FOLLOWER, TargetKind.CONTROLLER)
"""Targets that are drawn if none is requested.

``majority`` and ``all`` are excluded, because with min_insync=2 nothing could be acknowledged, and a run with few
operations proves little. ``--nemesis-target`` can request them.
"""


def draw_target(
    rng: random.Random, census: Census, target: Target | None, defaults: Sequence[TargetKind] = DEFAULT_TARGETS
) -> tuple[Target, dict[str, Parameter]]:
    """Returns the given target, or one of the defaults that a cluster of this size has."""
    if census.servers < 1:
        raise ScheduleError("a fault of processes needs a server, and the cluster has none: set --nodes=3")
    if target is None:
        kinds = [kind for kind in defaults if _is_possible(kind, census)]
        target = Target(rng.choice(kinds))
    return complete_target(target, rng, census), {}


def _is_possible(kind: TargetKind, census: Census) -> bool:
    if kind in KEYED_KINDS and census.lacks_keys:
        return False
    if kind is TargetKind.MINORITY:
        return census.servers > 2
    return kind is not TargetKind.FOLLOWER or census.servers > 1


SINGLE_PROCESS_FAULTS = ("kill", "stop", "restart")
"""Faults that can hit one process of a node (``one@agent``). Others hit its main process, or the machine."""


def require_whole_node(fault: str, target: Target) -> None:
    """Raises ``ScheduleError`` if a fault of whole nodes has a target with one process."""
    if target.process is not None and fault not in SINGLE_PROCESS_FAULTS:
        raise ScheduleError(
            f"{fault} hits whole nodes: leave out @{target.process}. Only {', '.join(SINGLE_PROCESS_FAULTS)} can "
            "hit one process"
        )


def get_node_or_process(injection: Injection, node: Node) -> Node | Part:
    """Returns the node, for all its processes, or the one process that the step's target names.

    Raises ``NodeError``.
    """
    process = injection.step.target.process
    if process is None:
        return node
    if not isinstance(node, SupportsParts):
        raise NodeError(f"{node.name} has only one process, and it is not named {process}: leave out @{process}")
    return node.part(process)


async def probe_processes(
    nodes: Sequence[Node], missing: str = "there is no server to act on: set --nodes=3"
) -> str | None:
    """Returns None if every node's process can be examined, else the reason.

    ``missing``: the reason if there are no nodes.
    """
    if not nodes:
        return missing
    try:
        for node in nodes:
            await node.process()
    except NodeError as error:
        return f"the state of the processes cannot be read: {error}"
    return None


class ServerFault:
    """Base of most faults of servers, which treat all targets alike.

    ``strike`` injects the fault into one target. ``observe_node`` observes the target just before the heal, and
    ``undo`` heals it. They store observations in the target's evidence, which ``find_missing_proof`` judges. A fault
    defines ``name``, ``description``, ``impact``, ``strike`` and ``find_missing_proof``, and ``undo`` if its effect
    does not end by itself.
    """

    roles: Sequence[str] = ()
    capabilities: Sequence[type] = ()
    abilities: Sequence[Ability] = ()
    """Optional abilities of nodes that every server must have."""
    scope = Scope.PROCESS
    impact: Impact
    lingers = 0.0
    """Maximum seconds that the fault may outlast its duration while it has had no effect."""
    struck_role: str | None = None
    """Role of the servers that the run's faults may strike; None: any role."""
    kinds: Sequence[TargetKind] = DEFAULT_TARGETS
    """Targets that are drawn if none is requested."""
    drawn: Mapping[str, Sequence[Parameter]] = {}
    """Parameters of a random step, with the values that each is drawn from."""
    on_targets = staticmethod(on_each)
    """``on_each`` strikes one target after the other, ``run_on_all`` strikes all at once."""

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        return draw_target(rng, census, target, self.kinds)[0], self.parameters(rng, census)

    def parameters(self, rng: random.Random, census: Census) -> dict[str, Parameter]:
        """Returns parameters of one random step."""
        return {name: rng.choice(values) for name, values in self.drawn.items()}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        nodes = self.find_candidates(cluster, system)
        for ability in self.abilities:
            if (reason := await ability.explain_lack(cluster, nodes)) is not None:
                return reason
        return await probe_processes(nodes)

    def find_candidates(self, cluster: Cluster, system: System) -> Sequence[Node]:
        """Returns the servers that the fault may strike."""
        return [node for node in servers(cluster, system) if self.struck_role in (None, node.role)]

    async def inject(self, injection: Injection) -> None:
        await self.on_targets(injection.targets, partial(self.strike, injection))

    async def observe(self, injection: Injection) -> None:
        await on_each(injection.targets, partial(self.observe_node, injection))

    async def heal(self, injection: Injection) -> None:
        await on_each(injection.targets, partial(self.undo, injection))

    def proof(self, injection: Injection) -> Proof:
        proof = proved(injection, self.find_missing_proof)
        missing = self.find_missing_effect(injection) if proof.took_effect else None
        return proof if missing is None else Proof(False, proof.evidence, missing)

    @staticmethod
    def find_missing_methods(kind: type["ServerFault"]) -> list[str]:
        """Returns the methods that a fault must define and that the class ``kind`` does not define."""
        acts = any(getattr(kind, name) is not getattr(ServerFault, name) for name in ("strike", "inject"))
        proves = any(getattr(kind, name) is not getattr(ServerFault, name) for name in ("find_missing_proof", "proof"))
        return [name for name, there in (("strike", acts), ("find_missing_proof", proves)) if not there]

    async def strike(self, injection: Injection, node: Node) -> None:
        """Acts on one target at the injection."""
        raise NotImplementedError(type(self).__name__)

    async def observe_node(self, injection: Injection, node: Node) -> None:
        """Observes one target just before the heal."""
        evidence_of(injection, node)["at_heal"] = await read_status(get_node_or_process(injection, node))

    async def undo(self, injection: Injection, node: Node) -> None:
        """Undoes the fault, even after an injection that failed midway."""

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        """Returns what is missing from the proof for one target, given its evidence; None if nothing is."""
        raise NotImplementedError(type(self).__name__)

    def find_missing_effect(self, injection: Injection) -> str | None:
        """Returns what else is missing from the proof if that of every target is complete; or None."""
        return None


def evidence_of(injection: Injection, node: Node | Part) -> dict[str, Any]:
    """Returns a target's part of the evidence."""
    seen: dict[str, Any] = injection.evidence.setdefault(node.name, {})
    return seen


async def read_status(node: Node | Part) -> dict[str, str | None]:
    """Returns the state of a process as evidence. For a node, that is the state of its main process."""
    return status_to_evidence(await node.process())


async def resume_stopped(target: Node | Part) -> None:
    """Continues all stopped processes. A sidecar may be stopped even if the main process runs again, or has ended."""
    if (await target.process()).state is ProcessState.STOPPED:
        await target.resume()
    elif isinstance(target, SupportsParts):
        for part in map(target.part, target.sidecars):
            if (await part.process()).state is ProcessState.STOPPED:
                await part.resume()


async def start_if_dead(injection: Injection, node: Node) -> None:
    """Starts a process again that ended because of a fault other than a kill."""
    if (await node.process()).state is ProcessState.DEAD:
        await node.start()
        evidence_of(injection, node)["started"] = True


def find_unseen(seen: Mapping[str, Any], *moments: str) -> str | None:
    """Returns a reason if the process was not examined at each of these moments, or None."""
    missing = next((moment for moment in moments if moment not in seen), None)
    return None if missing is None else f"the state of its process could not be read ({missing})"


def read_number(injection: Injection, name: str, most: float) -> float:
    """Returns a parameter above 0 and at most ``most``. Raises ``TargetError``."""
    value = injection.step.parameters.get(name)
    if isinstance(value, str) or value is None or not 0 < value <= most:
        wanted, given = f"more than 0 and at most {most:g}", "missing" if value is None else repr(value)
        raise TargetError(f"{injection.step.fault}: the parameter {name} is {given}; it must be {wanted}")
    return float(value)


def status_to_evidence(seen: ProcessStatus) -> dict[str, str | None]:
    """Returns a process's state as plain data."""
    return {"state": str(seen.state), "incarnation": seen.incarnation}


def proved(injection: Injection, lack: Callable[[Mapping[str, Any]], str | None]) -> Proof:
    """Returns the proof of a fault that took effect only if it took effect on every target.

    ``lack``: returns what is missing from one node's evidence, or None.
    """
    missing = {name: lack(injection.evidence.get(name, {})) for name in injection.names}
    reasons = [f"{name}: {reason}" for name, reason in missing.items() if reason is not None]
    return Proof(not reasons, injection.evidence, "; ".join(reasons) or None)


def restrict(fault: Fault, target: Target | None) -> Fault:
    """Returns the fault as its probe must see it if all faults of the run have this target.

    Servers of other roles then need no ability for the fault.
    """
    if target is None or target.key is None or target.kind not in SIZE_KINDS or not isinstance(fault, ServerFault):
        return fault
    restricted = copy.copy(fault)
    restricted.struck_role = target.key
    return restricted
