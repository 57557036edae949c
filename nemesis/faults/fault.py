"""The interface of every fault: probe, inject, observe, heal, and the proof that it took effect.

A fault object has no state of a run. The state of one injection is in :class:`Injection`, which exists before anything
is done to a node. So a fault that fails midway, or a run that is stopped there, can still be healed: ``heal`` examines
the nodes and undoes what it finds. It does not assume that ``inject`` finished, and can be called again after a
failure.

A fault that did nothing is a failed fault. ``observe`` gathers evidence just before the heal, and ``heal`` adds to it
if needed. ``proof`` only judges that evidence.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import msgspec

from assay.cluster.node import Cluster, Node, NodeError
from assay.cluster.system import DeploymentError, SupportsClientSessions, System
from assay.nemesis.engine.cut_ledger import CutLedger
from assay.nemesis.schedule.schedule import FaultStep, Parameter, ScheduleError
from assay.nemesis.schedule.target import (
    CLIENT_KINDS,
    KEYED,
    SIZES,
    Target,
    TargetKind,
    list_clients,
    list_groups,
    list_zookeepers,
    servers,
)


@dataclass(frozen=True)
class Impact:
    """Declared by each fault. The fields are columns of the history's ``faults`` rows.

    A fault that sets none of them leaves processes, links, files, clocks and replicas alone (a slow disk).
    """

    ends_process: bool = False
    """The targets' main processes end and lose their memory."""
    pauses_process: bool = False
    """The targets' main processes are paused, and continue with their memory intact."""
    gradual: bool = False
    """Processes end or are paused at different times while the fault is active, not all at the injection."""
    cuts_links: bool = False
    """Packets between the targets and other nodes, or among ZooKeeper's nodes, are lost or rejected.

    Client nodes are only affected as targets.
    """
    loses_unsynced: bool = False
    """The targets' unsynced data may be lost. Containers get separate disks for it."""
    damages_files: bool = False
    """The targets' files are changed."""
    wrong_clock: bool = False
    """The targets' wall clocks are wrong."""
    moves_replicas: bool = False
    """Replicas are assigned to other servers than before."""

    @property
    def beside_main(self) -> Impact:
        """Impact of the same fault on a sidecar."""
        return replace(self, ends_process=False, pauses_process=False)

    @property
    def stops_work(self) -> bool:
        """Whether the targets' processes do not work at some time while the fault is active."""
        return self.ends_process or self.pauses_process

    @property
    def changes_members(self) -> bool:
        """Whether servers leave or join, with all their replicas."""
        return self.ends_process and self.moves_replicas

    @property
    def loses_data(self) -> bool:
        """Whether the targets' disks may have less data afterwards, or wrong data."""
        return self.loses_unsynced or self.damages_files


NOT_READY_ERRORS = (NodeError, DeploymentError, OSError, TimeoutError)
"""Errors that broken nodes and systems may raise when they are queried."""
LINGER_SECONDS = 3.0
"""Extra seconds that a fault on passing traffic may stay active while it waits for its first victim."""


class Scope(enum.StrEnum):
    """The part of a node that a fault occupies: process, network, clock, disk, replicas, or the whole node.

    Two clashing faults never hold one node at the same time. A connection, and the speed of a disk, clash with
    processes: if the process is stopped or gone, they would have no effect.
    """

    PROCESS = "process"
    NETWORK = "network"
    CLOCK = "clock"
    DISK = "disk"
    CONNECTION = "connection"
    REPLICAS = "replicas"
    NODE = "node"

    def clashes(self, other: Scope) -> bool:
        return self is other or Scope.NODE in (self, other) or {self, other} in _CLASHING


_CLASHING = ({Scope.CONNECTION, Scope.NETWORK}, {Scope.CONNECTION, Scope.PROCESS}, {Scope.DISK, Scope.PROCESS})


@dataclass(frozen=True)
class Census:
    """Facts about a cluster that a schedule is drawn from: node counts and keys.

    - ``keys``: None if not known yet, so that they are drawn at injection; empty if the system has none, so that no
      node leads anything
    - ``clients``: number of client nodes
    - ``groups``: groups whose coordinators the system can name
    - ``sessions``: whether the clients use ZooKeeper
    - ``spares``: number of nodes that are not servers yet
    """

    servers: int
    zookeepers: int = 0
    keys: tuple[str, ...] | None = None
    clients: int = 0
    groups: tuple[str, ...] = ()
    sessions: bool = False
    spares: int = 0
    roles: tuple[str, ...] | None = None
    """Roles of servers; None: not known."""
    named: tuple[str, ...] = ()
    """Names of the servers, if some are not of the main role."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the servers: by default ``n1``, ``n2``, ..."""
        return self.named or tuple(f"n{number}" for number in range(1, self.servers + 1))


def take_census(cluster: Cluster, system: System) -> Census:
    """Returns the facts about an existing cluster."""
    everyone = servers(cluster, system)
    return Census(
        len(everyone),
        len(list_zookeepers(cluster)),
        tuple(system.keys()),
        len(list_clients(cluster)),
        list_groups(system),
        isinstance(system, SupportsClientSessions),
        len(cluster.spares),
        named=tuple(node.name for node in everyone),
    )


@dataclass
class FinderStatistics:
    """How often the system's finder was asked, and how often it failed other than by an unreachable node."""

    asked: int = 0
    failed: int = 0
    last: Exception | None = None


@dataclass(frozen=True)
class FaultContext:
    """State shared by all injections of a run."""

    cluster: Cluster
    system: System
    cuts: CutLedger
    last_events: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The last line read from each node's event log, by name."""
    seen: Mapping[str, int] = field(default_factory=dict)
    """How often each event has been read, on any node."""
    ever_emptied: dict[str, None] = field(default_factory=dict)
    """Servers that have lost more than unsynced data in this run (:mod:`assay.nemesis.faults.data_loss`)."""
    emptied: dict[str, Injection] = field(default_factory=dict)
    """Servers that have not served since a loss, with the fault that took their data. Others may still count on it."""
    unavailable_nodes: Callable[[], Collection[str]] = tuple
    """Returns the nodes that active faults stop, or cut from others."""
    recovering: Callable[[], Collection[str]] = tuple
    """Returns the nodes that do not serve yet after the heal of a fault."""
    finder_statistics: FinderStatistics = field(default_factory=FinderStatistics)
    listeners: dict[int, Callable[[str, Mapping[str, Any]], None]] = field(default_factory=dict)
    """Called with a node's name and each line of its event log as it is read; by the number of the injection."""

    async def find(self, what: str, key: str | None) -> Node | None:
        """Returns the finder's answer, or None if it fails: during other faults there may be no node to ask."""
        self.finder_statistics.asked += 1
        try:
            return await self.system.find(self.cluster, what, key)
        except NOT_READY_ERRORS:
            return None
        except Exception as error:  # noqa: BLE001 - an error of the user's code: reported at the run's end
            self.finder_statistics.failed += 1
            self.finder_statistics.last = error
            return None


@dataclass
class Injection:
    """A fault in a run. ``evidence`` is plain data, as in the history.

    - ``seed`` feeds the choices left open until the injection.
    - ``background`` is work that the injection continues.
    - ``others`` are servers that it may hit instead of its target, if it would have no effect there.
    """

    id: int
    step: FaultStep
    targets: tuple[Node, ...]
    context: FaultContext
    evidence: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    background: asyncio.Task[None] | None = None
    others: tuple[Node, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The targets' names."""
        return tuple(node.name for node in self.targets)

    async def end_background(self) -> None:
        """Ends the background work without raising its error, which ``observe`` reports."""
        background, self.background = self.background, None
        if background is not None:  # cleared first, so that a repeated heal does not await a cancelled task
            background.cancel()
            await asyncio.gather(background, return_exceptions=True)


@dataclass(frozen=True)
class Proof:
    """Whether the fault took effect. ``evidence`` has the observations of each node, ``reason`` why it did not."""

    took_effect: bool
    evidence: Mapping[str, Any]
    reason: str | None = None


class Fault(Protocol):
    """A kind of fault. Node calls may raise ``NodeError``; the conductor records that and the run goes on."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        ...

    @property
    def description(self) -> str:
        """A line for ``--nemesis-list``."""
        ...

    @property
    def roles(self) -> Sequence[str]:
        """Roles that the cluster must have, in addition to at least one server.

        If roles of servers are named, it only hits servers of these roles.
        """
        ...

    @property
    def capabilities(self) -> Sequence[type]:
        """Protocols of :mod:`assay.cluster.system` that the system must satisfy in addition to ``System``."""
        ...

    @property
    def scope(self) -> Scope: ...

    @property
    def impact(self) -> Impact:
        """Effect on its targets. Checks and reports read it from the rows of the history."""
        ...

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        """Returns target and parameters of one random step. A given target is kept.

        Raises ``ScheduleError`` if the fault cannot take that target or this cluster is too small for it.
        """
        ...

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        """Returns None if it can be injected here, else the reason and the remedy. Changes nothing."""
        ...

    async def inject(self, injection: Injection) -> None: ...

    async def observe(self, injection: Injection) -> None:
        """Gathers, just before the heal, evidence that only shows while the fault is active."""
        ...

    async def heal(self, injection: Injection) -> None:
        """Undoes everything that it finds on the targets, even after an ``inject`` that failed midway."""
        ...

    def proof(self, injection: Injection) -> Proof:
        """Judges the evidence, after the heal."""
        ...


Declaration = Literal[
    "excluded_from_all",
    "lingers",
    "everywhere",
    "ends_late",
    "takes_leave",
    "own_disks",
    "slow_disks",
    "own_memory",
    "spares",
]


def get_declaration(fault: Fault, name: Declaration) -> Any:
    """Returns an optional declaration of a fault, or a false value. Possible declarations:

    - ``excluded_from_all``: ``--nemesis=all`` has no run of it, because another fault includes it, or it stops all
      service
    - ``lingers``: maximum seconds that it may outlast its duration, until ``observe`` and ``proof`` show an effect
    - ``everywhere``: it may strike more servers than a majority can spare, and so leaves no other server untouched
    - ``ends_late``: it may make a process end, possibly only after the heal; the process is then started again
    - ``takes_leave``: it asks processes to end, so that their sessions end at once, and not only after a timeout
    - ``own_disks``: containers get separate disks for it, although no data on them are lost
    - ``slow_disks``: processes are started such that their disks can be made slow, or fail
    - ``own_memory``: servers get a memory limit
    - ``spares``: number of nodes that must wait for it and are not servers yet
    """
    return getattr(fault, name, None)


def may_end_sessions(fault: Fault) -> bool:
    """Returns whether a process may end by itself, and its sessions with it."""
    return bool(get_declaration(fault, "ends_late") or get_declaration(fault, "takes_leave"))


def needs_disks(fault: Fault) -> bool:
    """Returns whether servers in containers need separate disks for it."""
    return fault.impact.loses_unsynced or bool(get_declaration(fault, "own_disks"))


def count_spares(faults: Iterable[Fault]) -> int:
    """Returns how many nodes must wait to join for all of these faults."""
    return max((get_declaration(fault, "spares") or 0 for fault in faults), default=0)


def draw_key(target: Target, rng: random.Random, census: Census) -> Target:
    """Returns the target with its key drawn, if keys are known and it has none. Checks it against the census.

    Raises ``ScheduleError`` for a part that no node can have in such a cluster.
    """
    if target.kind in (TargetKind.ZOOKEEPER, TargetKind.ZOOKEEPERS) and not census.zookeepers:
        raise ScheduleError(f"target {target}: this cluster has no ZooKeeper node")
    if target.kind is TargetKind.SPARE and not census.spares:
        raise ScheduleError(f"target {target}: no node waits to join here; a fault that has one join gets one")
    if target.kind in CLIENT_KINDS and not census.clients:
        raise ScheduleError(
            f"target {target}: no client lives on a node here; @experiment(..., client_nodes=True) has them"
        )
    if target.kind in SIZES and target.key is not None and target.key not in (census.roles or (target.key,)):
        roles = ", ".join(census.roles or ())
        raise ScheduleError(f"target {target}: no server has that role; there are {roles}")
    grouped = target.kind is TargetKind.COORDINATOR
    known = census.groups if grouped else census.keys
    if target.kind not in KEYED or known is None:
        return target
    if not known:
        lack = "names no groups, so no node coordinates one" if grouped else "has no keys, so no node leads one"
        raise ScheduleError(f"target {target.kind}: this system {lack}")
    if target.key is None:
        return msgspec.structs.replace(target, key=rng.choice(known))
    if target.key not in known:
        raise ScheduleError(
            f"target {target}: no such {'group' if grouped else 'key'}; there are {', '.join(known[:8])}"
        )
    return target


async def on_each(nodes: Iterable[Node], action: Callable[[Node], Awaitable[None]]) -> None:
    """Runs ``action`` on every node, even after failures. Raises one ``NodeError`` for all failures afterwards."""
    errors: list[NodeError] = []
    for node in nodes:
        try:
            await action(node)
        except NodeError as error:
            errors.append(error)
    _raise_all(errors)


async def run_on_all(nodes: Iterable[Node], action: Callable[[Node], Awaitable[None]]) -> None:
    """Does the same as :func:`on_each`, on all nodes at the same time."""
    errors: list[NodeError] = []

    async def attempt(node: Node) -> None:
        try:
            await action(node)
        except NodeError as error:
            errors.append(error)

    await asyncio.gather(*(attempt(node) for node in nodes))
    _raise_all(errors)


def _raise_all(errors: Sequence[NodeError]) -> None:
    if errors:
        raise NodeError("; ".join(str(error) for error in errors)) from errors[0]
