"""The active faults (injected and not healed), and which nodes the next fault may hit."""

import dataclasses
import random
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from assay.cluster.node import Node
from assay.cluster.system import ZOOKEEPER_ROLE
from assay.nemesis.engine.cut_ledger import parse_peer
from assay.nemesis.faults.data_loss import find_sole_replica, is_ended_cleanly
from assay.nemesis.faults.fault import Fault, FaultContext, Impact, Injection, may_end_sessions
from assay.nemesis.schedule.schedule import FaultStep
from assay.nemesis.schedule.target import (
    KEYED_KINDS,
    SIZE_KINDS,
    ChosenTarget,
    HeldError,
    TargetKind,
    TargetScene,
    list_clients,
    list_groups,
    list_zookeepers,
    resolve_target,
    servers,
)
from assay.nemesis.schedule.trigger import FiredTrigger


class ActiveFaults:
    """Active faults of one run, oldest first. A fault is active from before its first call to a node until its heal."""

    def __init__(self, context: FaultContext, catalogue: Mapping[str, Fault]) -> None:
        self._context = context
        self._catalogue = catalogue
        self._servers = servers(context.cluster, context.system)
        self._injections: dict[int, Injection] = {}

    def __iter__(self) -> Iterator[Injection]:
        return iter(self._injections.values())

    def __len__(self) -> int:
        return len(self._injections)

    def add(self, injection: Injection) -> None:
        self._injections[injection.id] = injection

    def get(self, number: int) -> Injection | None:
        return self._injections.get(number)

    def remove(self, number: int) -> None:
        del self._injections[number]

    def find_ended_or_paused(self) -> set[str]:
        """Returns the nodes whose main processes a fault has ended or paused."""
        return self._filter_by_impact(lambda impact: impact.stops_work)

    def find_paused(self) -> set[str]:
        """Returns the nodes whose main processes a fault has paused and will continue."""
        return self._filter_by_impact(lambda impact: impact.pauses_process)

    def _filter_by_impact(self, by: Callable[[Impact], bool]) -> set[str]:
        on_main = [injection for injection in self if injection.step.target.of_main]
        matching = [injection for injection in on_main if by(self._catalogue[injection.step.fault].impact)]
        return {name for injection in matching for name in injection.names}

    def find_unavailable(self) -> set[str]:
        """Returns the nodes that faults stop or cut off: their targets, and all nodes cut off from ZooKeeper."""
        cut = [one for one in self if self._catalogue[one.step.fault].impact.cuts_links]
        keepers = {node.name for node in list_zookeepers(self._context.cluster)}
        links = [{near, parse_peer(far)[0]} for near, far in self._context.cuts.list_drops()]
        without_zookeeper = {name for link in links if link & keepers for name in link}
        return self.find_ended_or_paused() | {name for injection in cut for name in injection.names} | without_zookeeper

    def hinders_start(self) -> bool:
        """Returns whether a starting process may lack something because of a fault: a link, or a ZooKeeper node."""
        return any(
            (impact := self._catalogue[one.step.fault].impact).cuts_links
            or (impact.stops_work and any(node.role == ZOOKEEPER_ROLE for node in one.targets))
            for one in self
        )

    def _find_held(self, by: Callable[[Fault], bool]) -> set[str]:
        """Returns the targets of active faults that satisfy ``by``."""
        matching = [injection for injection in self if by(self._catalogue[injection.step.fault])]
        return {name for injection in matching for name in injection.names}

    async def choose(
        self, step: FaultStep, seed: int, fired: FiredTrigger | None, *, waits: bool = True
    ) -> ChosenTarget:
        """Returns the targets of the next fault, or why it has to wait.

        Raises ``TargetError`` if there are no targets, and, without ``waits``, if other faults hold all of them.
        """
        context, fault = self._context, self._catalogue[step.fault]
        scope, servers = fault.scope, self._list_candidates(fault)
        scene = TargetScene(
            servers=servers,
            zookeepers=list_zookeepers(context.cluster),
            keys=context.system.keys(),
            find=context.find,
            busy=sorted(self._find_held(lambda other: other.scope.clashes(scope))),
            origin=None if fired is None else fired.origin,
            clients=list_clients(context.cluster),
            groups=list_groups(context.system),
            spares=context.cluster.spares,
        )
        target = step.target
        if fired is not None and fired.line is not None and target.kind in KEYED_KINDS and target.key is None:
            # The target is the leader, or a follower, of the event's key.
            key = fired.line.get("key")
            target = msgspec.structs.replace(target, key=key if key in scene.objects_of(target.kind) else None)
        try:
            chosen = await resolve_target(target, scene, random.Random(seed))
        except HeldError as error:
            if not waits:
                raise
            return ChosenTarget((), wait_reason=str(error))
        # For a kind that means a number of servers, the target's key is a role.
        of_role = [node for node in servers if target.kind not in SIZE_KINDS or target.key in (None, node.role)]
        if target.kind not in (TargetKind.NAMED, TargetKind.ORIGIN, TargetKind.SPARE):
            free = (node for node in of_role if node.name not in scene.busy and node not in chosen.nodes)
            chosen = dataclasses.replace(chosen, others=tuple(free))
        chosen = self._keep_majority(chosen, scene.busy, of_role) if step.keep_majority else chosen
        return dataclasses.replace(chosen, wait_reason=await self._explain_wait(step, chosen.nodes))

    async def _explain_wait(self, step: FaultStep, nodes: Collection[Node]) -> str | None:
        """Returns why these nodes must not be taken away yet, or None. There are two reasons:

        - A server has lost its data and does not serve again yet. Other servers may still consider it in sync. If they
          were taken away, it would be the only server of an in-sync set.
        - Two servers would leave the cluster at once. Each would be given the other's replicas, and keys would lose
          replicas.
        """
        context, fault = self._context, self._catalogue[step.fault]
        impact = fault.impact if step.target.of_main else fault.impact.on_sidecar
        changing = [one for one in self if self._catalogue[one.step.fault].impact.changes_members]
        if impact.changes_members and changing:
            return (
                f"only one server may leave or join the cluster at a time, and {'+'.join(changing[0].names)} does now "
                f"(fault {changing[0].id})"
            )
        if not (impact.stops_work or impact.cuts_links):
            return None
        held = self.find_unavailable()
        for server in [node for node in self._servers if node.name in context.emptied]:  # these have lost their data
            if is_ended_cleanly(context.emptied[server.name].step) and not may_end_sessions(fault):
                # Its session ended at once. The sessions of the other nodes must first expire, so the controller learns
                # of the emptied server's end before it learns of theirs.
                continue
            away = [one for one in self._servers if one is not server and (one in nodes or one.name in held)]
            if not any(one in nodes for one in away):
                continue
            if (key := await find_sole_replica(context, server, away)) is not None:
                names = ", ".join(node.name for node in away)
                return (
                    f"{server.name} has lost its data and does not serve again yet. Apart from it and {names}, no "
                    "server "
                    f"is known to have all of {key}"
                )
        return None

    def _list_candidates(self, fault: Fault) -> list[Node]:
        """Returns the servers that a fault may hit: all, or those of the fault's roles."""
        wanted = {node.role for node in self._servers} & set(fault.roles)
        return [node for node in self._servers if not wanted or node.role in wanted]

    def _keep_majority(self, chosen: ChosenTarget, busy: Collection[str], of_role: Collection[Node]) -> ChosenTarget:
        """Returns the targets. If active faults and these targets together affect a majority of servers, returns
        instead one server that a fault already affects.
        """
        if not any(node in self._servers for node in chosen.nodes):
            return chosen
        affected = {name for injection in self for name in injection.names}
        together = affected | {node.name for node in chosen.nodes}
        count = sum(node.name in together for node in self._servers)
        free: list[Node] = [node for node in of_role if node.name in affected and node.name not in busy]
        if count <= (len(self._servers) - 1) // 2 or not free:
            return chosen
        note = f"took {free[0].name}, which another fault already holds, so that a majority stays undisturbed"
        return ChosenTarget((free[0],), key=chosen.key, note=note)
