"""What every fault is: probe, inject, observe, heal, and the proof that it took effect.

A fault object holds no state of a run; what a run knows of one injection is in :class:`Injection`. The injection exists
before anything is done to a node, so that a fault that fails midway, or a run that is stopped there, can still be
healed: ``heal`` looks at what the nodes are like and undoes what it finds, rather than trusting that ``inject`` came to
its end, and may be called again when it failed.

A fault that did nothing is a failed fault. Evidence is gathered while it is in force (``observe``, just before the
heal) and where needed by ``heal``; ``proof`` then judges it and does nothing else.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from assay.cluster.node import Cluster, Node, NodeError
from assay.cluster.system import DeploymentError, SupportsClientSessions, System
from assay.nemesis.engine.cut_ledger import Cuts
from assay.nemesis.faults.impact import Impact
from assay.nemesis.schedule.schedule import Parameter, ScheduleError, Step
from assay.nemesis.schedule.target import KEYED, OF_CLIENTS, SIZES, Kind, Target, clients, groups, servers, zookeepers

NOT_READY_ERRORS = (NodeError, DeploymentError, OSError, TimeoutError)
"""What nodes and systems that are being broken may raise when they are asked something."""
LINGER_SECONDS = 3.0
"""By so much a fault that strikes only what passes by may outlast its duration, until something has."""


class Scope(enum.StrEnum):
    """What of a node a fault holds: its process, its network, its clock, its disk, its replicas, or all of it.

    Two faults that clash never hold one node at the same time. One connection, or the speed of a disk, is the business
    of a process that runs: of one that stands still or is gone nothing would show.
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
    """What a schedule needs to know of a cluster before there is one: how many nodes of which sort, which keys.

    ``keys`` None: not known yet, they are drawn at injection; empty: the system has none, so no node leads anything.
    ``clients`` are nodes that clients live on; ``groups`` those whose coordinators the system can name; ``sessions``:
    do these clients speak to ZooKeeper? ``spares`` are nodes that are no servers yet.
    """

    servers: int
    zookeepers: int = 0
    keys: tuple[str, ...] | None = None
    clients: int = 0
    groups: tuple[str, ...] = ()
    sessions: bool = False
    spares: int = 0
    roles: tuple[str, ...] | None = None
    """Of servers; None: not known."""
    named: tuple[str, ...] = ()
    """How the servers are called, where some are not of the main role."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the servers: ``n1``, ``n2``, ... unless said otherwise."""
        return self.named or tuple(f"n{number}" for number in range(1, self.servers + 1))


def census(cluster: Cluster, system: System) -> Census:
    """Counts a cluster that exists."""
    everyone = servers(cluster, system)
    return Census(
        len(everyone),
        len(zookeepers(cluster)),
        tuple(system.keys()),
        len(clients(cluster)),
        groups(system),
        isinstance(system, SupportsClientSessions),
        len(cluster.spares),
        named=tuple(node.name for node in everyone),
    )


@dataclass
class Finds:
    """How often the system's finder was asked, and failed in a way that is not a node's being away."""

    asked: int = 0
    failed: int = 0
    last: Exception | None = None


@dataclass(frozen=True)
class FaultContext:
    """What all injections of a run share."""

    cluster: Cluster
    system: System
    cuts: Cuts
    last_events: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The latest line of each node's event log, by name, as far as it has been read."""
    seen: Mapping[str, int] = field(default_factory=dict)
    """How often each event has been read, of any node."""
    lost: dict[str, None] = field(default_factory=dict)
    """Servers that have lost data in this run, beyond what they had not fsynced
    (:mod:`assay.nemesis.faults.data_loss`)."""
    emptied: dict[str, Injection] = field(default_factory=dict)
    """Those that have not served since, and what took their data: others may still count on what they had."""
    away: Callable[[], Collection[str]] = tuple
    """The nodes that faults in force keep from working, or cut from others."""
    recovering: Callable[[], Collection[str]] = tuple
    """Those that faults have hit and that do not serve yet since the heal."""
    finds: Finds = field(default_factory=Finds)
    listeners: dict[int, Callable[[str, Mapping[str, Any]], None]] = field(default_factory=dict)
    """Called with a node's name and each line of its event log as it is read; by the number of the injection."""

    async def find(self, what: str, key: str | None) -> Node | None:
        """What the system's finder says. One that fails knows none: during other faults there may be no node to ask."""
        self.finds.asked += 1
        try:
            return await self.system.find(self.cluster, what, key)
        except NOT_READY_ERRORS:
            return None
        except Exception as error:  # noqa: BLE001 - a client library's, or the user's own slip: a run's end says so
            self.finds.failed += 1
            self.finds.last = error
            return None


@dataclass
class Injection:
    """One fault on its way through a run. ``evidence`` is plain data, as it goes into the history.

    ``seed`` feeds what is left open until the injection; ``background`` is what an injection goes on doing. ``others``
    are servers that it may hit instead of its target, where nothing would show on that one.
    """

    id: int
    step: Step
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
        """Ends what still goes on. What it raised is not raised here: ``observe`` is there to report it."""
        background, self.background = self.background, None
        if background is not None:  # a heal that failed is tried again, and who waited for this would be cancelled
            background.cancel()
            await asyncio.gather(background, return_exceptions=True)


@dataclass(frozen=True)
class Proof:
    """Did the fault do what it says? ``evidence`` is what was seen, node by node; ``reason`` why it did not."""

    took_effect: bool
    evidence: Mapping[str, Any]
    reason: str | None = None


class Fault(Protocol):
    """One kind of fault. Node calls may raise ``NodeError``; the conductor records that and the run goes on."""

    @property
    def name(self) -> str:
        """As on the command line."""
        ...

    @property
    def description(self) -> str:
        """One line for ``--nemesis-list``."""
        ...

    @property
    def roles(self) -> Sequence[str]:
        """Roles that the cluster must have in addition to at least one server. Of servers it hits those of these roles
        alone, where it names any."""
        ...

    @property
    def capabilities(self) -> Sequence[type]:
        """Protocols of :mod:`assay.cluster.system` that the system must satisfy in addition to ``System``."""
        ...

    @property
    def scope(self) -> Scope: ...

    @property
    def impact(self) -> Impact:
        """What it does to its targets. Checks and reports read it, from the rows of the history."""
        ...

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        """The target and parameters of one random step; a target that is given is kept.

        Raises ``ScheduleError`` when the fault cannot take that target or this cluster is too small for it.
        """
        ...

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        """None when it can be injected here, else why not and the remedy. Changes nothing."""
        ...

    async def inject(self, injection: Injection) -> None: ...

    async def observe(self, injection: Injection) -> None:
        """Gathers, just before the heal, evidence that only shows while the fault is in force."""
        ...

    async def heal(self, injection: Injection) -> None:
        """Undoes what there is to undo on every target, also after an ``inject`` that failed midway."""
        ...

    def proof(self, injection: Injection) -> Proof:
        """Judges the evidence, after the heal."""
        ...


Declaration = Literal[
    "lingers", "everywhere", "ends_late", "takes_leave", "own_disks", "slow_disks", "own_memory", "spares"
]


def declared(fault: Fault, name: Declaration) -> Any:
    """What a fault declares beyond :class:`Fault`, or something false. It may have

    ``lingers``: by how many seconds at most it may outlast its duration, until ``observe`` and ``proof`` say that it
    has had its effect; ``everywhere``: it may strike more servers than a majority can spare, and so leaves no other
    server in peace; ``ends_late``: a process ends of it by itself, and may be about to when it is healed, and is
    started again then; ``takes_leave``: it asks processes to end, so that their sessions are over at once, those of one
    that is killed later; ``own_disks``: containers get disks of their own for it, although it loses nothing of what is
    on them; ``slow_disks``: their processes are started such that their disks can be made slow, or to fail;
    ``own_memory``: they may not use more memory than a limit; ``spares``: so many nodes must wait for it that are no
    servers yet.
    """
    return getattr(fault, name, None)


def strikes_everywhere(fault: Fault) -> bool:
    """Does it say so?"""
    return bool(declared(fault, "everywhere"))


def ends_late(fault: Fault) -> bool:
    """Does it say that a process may?"""
    return bool(declared(fault, "ends_late"))


def takes_leave(fault: Fault) -> bool:
    """May a process end by itself, and with it its sessions?"""
    return ends_late(fault) or bool(declared(fault, "takes_leave"))


def needs_disks(fault: Fault) -> bool:
    """Must servers in containers have disks of their own for it?"""
    return fault.impact.loses_unsynced or bool(declared(fault, "own_disks"))


def needs_slow_disks(fault: Fault) -> bool:
    """Must they be able to be slow, or to fail, for it?"""
    return bool(declared(fault, "slow_disks"))


def needs_memory(fault: Fault) -> bool:
    """Must they have a limit of memory for it?"""
    return bool(declared(fault, "own_memory"))


def spares(faults: Iterable[Fault]) -> int:
    """How many nodes must wait to join so that all of these can be had."""
    return max((declared(fault, "spares") or 0 for fault in faults), default=0)


def with_key(target: Target, rng: random.Random, census: Census) -> Target:
    """The same target with its key drawn, where keys are known and it was left open; checked against the census.

    Raises ``ScheduleError`` for a part that no node can have in such a cluster.
    """
    if target.kind in (Kind.ZOOKEEPER, Kind.ZOOKEEPERS) and not census.zookeepers:
        raise ScheduleError(f"target {target}: this cluster has no ZooKeeper node")
    if target.kind is Kind.SPARE and not census.spares:
        raise ScheduleError(f"target {target}: no node waits to join here; a fault that has one join gets one")
    if target.kind in OF_CLIENTS and not census.clients:
        raise ScheduleError(
            f"target {target}: no client lives on a node here; @experiment(..., client_nodes=True) has them"
        )
    if target.kind in SIZES and target.key is not None and target.key not in (census.roles or (target.key,)):
        roles = ", ".join(census.roles or ())
        raise ScheduleError(f"target {target}: no server has that role; there are {roles}")
    grouped = target.kind is Kind.COORDINATOR
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
    """Runs ``action`` on every node, even when it fails on some; then raises one ``NodeError`` for all failures."""
    errors: list[NodeError] = []
    for node in nodes:
        try:
            await action(node)
        except NodeError as error:
            errors.append(error)
    _raise_all(errors)


async def on_all(nodes: Iterable[Node], action: Callable[[Node], Awaitable[None]]) -> None:
    """As :func:`on_each`, on all of them at the same time."""
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
