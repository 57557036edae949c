"""The interface of every fault: probe, inject, observe, heal, and the proof that it took effect.

A fault object has no state of a run. The state of one injection is in an :class:`Injection`, which is created before
anything is done to a node. So a fault can be healed even if ``inject`` failed or was cancelled midway: ``heal``
examines the nodes and undoes what it finds. It can be called again after a failure.

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
    KEYED_KINDS,
    SIZE_KINDS,
    Target,
    TargetKind,
    list_clients,
    list_groups,
    list_zookeepers,
    servers,
)


@dataclass(frozen=True)
class Impact:
    """Effects of a fault on its targets, as the fault declares them. The fields are columns of the table ``faults``.

    A fault that sets none of them, such as a slow disk, leaves processes, links, files, clocks and replicas alone.
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
    """The targets' unsynced data may be lost. Containers get separate disks for such a fault."""
    damages_files: bool = False
    """The targets' files are changed."""
    wrong_clock: bool = False
    """The targets' wall clocks are wrong."""
    moves_replicas: bool = False
    """Replicas are assigned to other servers than before."""

    @property
    def on_sidecar(self) -> Impact:
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
        """Whether data on the targets' disks may be lost or damaged."""
        return self.loses_unsynced or self.damages_files


NOT_READY_ERRORS = (NodeError, DeploymentError, OSError, TimeoutError)
"""Errors that broken nodes and systems may raise when they are queried."""
LINGER_SECONDS = 3.0
"""Seconds that a fault may outlast its duration (``lingers``) while its effect has not been observed yet.

Such a fault waits for its first packet, for an event, or for a process to read its clock.
"""


class Scope(enum.StrEnum):
    """The part of a node that a fault occupies: process, network, clock, disk, replicas, or the whole node.

    Two faults whose scopes clash never hold one node at the same time. Faults of connections and disks clash with
    faults of processes, because they have no effect while the process is stopped or dead.
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

    - ``keys``: None if they are not known yet; then a step's key is drawn at injection. Empty if the system has none;
      then no node leads anything.
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
    """Roles of servers; None if they are not known."""
    named: tuple[str, ...] = ()
    """Names of the servers, if they are not ``n1``, ``n2``, ..."""

    @property
    def lacks_keys(self) -> bool:
        """Whether the system certainly has no keys."""
        return self.keys == ()

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
    """How often ``System.find`` was called, and how often it raised an error that is not an unreachable node's."""

    asked: int = 0
    failed: int = 0
    last: Exception | None = None
    """The last such error."""


@dataclass(frozen=True)
class FaultContext:
    """State shared by all injections of a run."""

    cluster: Cluster
    system: System
    cuts: CutLedger
    last_events: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The last line read from each node's event log, by name."""
    event_counts: Mapping[str, int] = field(default_factory=dict)
    """How often each event has been read, on any node."""
    ever_emptied: dict[str, None] = field(default_factory=dict)
    """Servers that have lost fsynced data in this run (:mod:`assay.nemesis.faults.data_loss`)."""
    emptied: dict[str, Injection] = field(default_factory=dict)
    """Servers that have not served since they lost fsynced data, with the fault. Others may consider them in sync."""
    unavailable_nodes: Callable[[], Collection[str]] = tuple
    """Returns the nodes that active faults stop, or cut from others."""
    recovering: Callable[[], Collection[str]] = tuple
    """Returns the nodes that do not serve yet after the heal of a fault."""
    finder_statistics: FinderStatistics = field(default_factory=FinderStatistics)
    listeners: dict[int, Callable[[str, Mapping[str, Any]], None]] = field(default_factory=dict)
    """Called with a node's name and each line of its event log as it is read; by the number of the injection."""

    async def find(self, what: str, key: str | None) -> Node | None:
        """Returns the result of ``System.find``, or None if it fails: during faults there may be no node to ask.

        ``what``: ``leader``, ``controller`` or ``coordinator``.
        """
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

    - ``seed`` decides the choices that the schedule leaves open until the injection.
    - ``background`` is work of the injection that continues after ``inject``.
    - ``others`` are servers that the fault may hit instead, if it would have no effect on its target.
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
        if background is not None:  # the field is cleared first, so that a repeated heal awaits no cancelled task
            background.cancel()
            await asyncio.gather(background, return_exceptions=True)


@dataclass(frozen=True)
class Proof:
    """Whether the fault took effect.

    ``evidence`` has the observations of each node. ``reason`` says why the fault took no effect.
    """

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

        If some of them are roles of servers, the fault only hits servers of these roles.
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
        """Effects on its targets. Checks and reports read them from the rows of the history."""
        ...

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        """Returns target and parameters of one random step. A given target is kept.

        Raises ``ScheduleError`` if the fault cannot take that target or this cluster is too small for it.
        """
        ...

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        """Returns None if the fault can be injected here, else the reason and the remedy. Changes nothing."""
        ...

    async def inject(self, injection: Injection) -> None: ...

    async def observe(self, injection: Injection) -> None:
        """Gathers evidence just before the heal, because some shows only while the fault is active."""
        ...

    async def heal(self, injection: Injection) -> None:
        """Undoes every effect that it finds on the targets, even after an ``inject`` that failed midway."""
        ...

    def proof(self, injection: Injection) -> Proof:
        """Judges the evidence, after the heal."""
        ...


Declaration = Literal[
    "abilities",
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

    - ``abilities``: abilities that every server must have (:mod:`assay.nemesis.faults.abilities`)
    - ``excluded_from_all``: ``--nemesis=all`` has no run of the fault, because another fault includes it, or because it
      stops all service
    - ``lingers``: maximum seconds that the fault may outlast its duration, until ``observe`` and ``proof`` show an
      effect
    - ``everywhere``: the fault may strike any number of servers, so that no server is sure to be untouched
    - ``ends_late``: the fault may make a process end, possibly only after the heal; the process is then started again
    - ``takes_leave``: the fault asks processes to end, so that their sessions end at once, not after a timeout
    - ``own_disks``: containers get separate disks for the fault, although no data on them are lost
    - ``slow_disks``: processes are started such that their disks can be made slow, or fail
    - ``own_memory``: servers get a memory limit
    - ``spares``: number of spare nodes, which are not servers yet, that the cluster must have
    """
    return getattr(fault, name, None)


def may_end_sessions(fault: Fault) -> bool:
    """Returns whether the fault may make a process end by itself, which ends its sessions."""
    return bool(get_declaration(fault, "ends_late") or get_declaration(fault, "takes_leave"))


def needs_disks(fault: Fault) -> bool:
    """Returns whether servers in containers need separate disks for this fault."""
    return fault.impact.loses_unsynced or bool(get_declaration(fault, "own_disks"))


def count_spares(faults: Iterable[Fault]) -> int:
    """Returns how many spare nodes the cluster must have for these faults."""
    return max((get_declaration(fault, "spares") or 0 for fault in faults), default=0)


def complete_target(target: Target, rng: random.Random, census: Census) -> Target:
    """Returns the target with its key: a drawn one, if the target needs a key, has none, and the keys are known.

    Raises ``ScheduleError`` if no node of such a cluster can be the target.
    """
    if target.kind in (TargetKind.ZOOKEEPER, TargetKind.ZOOKEEPERS) and not census.zookeepers:
        raise ScheduleError(f"target {target}: this cluster has no ZooKeeper node: name servers")
    if target.kind is TargetKind.SPARE and not census.spares:
        raise ScheduleError(
            f"target {target}: this cluster has no spare node: name a fault that adds a server, and it gets one"
        )
    if target.kind in CLIENT_KINDS and not census.clients:
        raise ScheduleError(
            f"target {target}: no client runs on a node of its own: declare @experiment(..., client_nodes=True)"
        )
    if target.kind in SIZE_KINDS and target.key is not None and target.key not in (census.roles or (target.key,)):
        roles = ", ".join(census.roles or ())
        raise ScheduleError(f"target {target}: no server has that role; the roles are {roles}")
    grouped = target.kind is TargetKind.COORDINATOR
    known = census.groups if grouped else census.keys
    if target.kind not in KEYED_KINDS or known is None:
        return target
    if not known:
        lack = "has no groups, so no node coordinates one" if grouped else "has no keys, so no node leads one"
        raise ScheduleError(f"target {target.kind}: this system {lack}: name another target")
    if target.key is None:
        return msgspec.structs.replace(target, key=rng.choice(known))
    if target.key not in known:
        raise ScheduleError(
            f"target {target}: the system has no such {'group' if grouped else 'key'}; it has {', '.join(known[:8])}"
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
