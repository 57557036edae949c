"""Targets of faults: a target as planned (``leader of orders-0``) and its resolution to nodes.

A target usually names a part that a node plays, such as the leader, and not a machine, so that one schedule fits any
cluster. It is resolved at injection, because the leader is not known before. Resolution only uses nodes, a random
generator and the system's finder (``System.find``). The finder may know no node, for example during an election. Then
it is asked again for a moment. After that a random server is taken, and the record says so, because a fault on some
node is a better test than none.

*Servers* are the nodes of the system's own roles. They include neither ZooKeeper nor client nodes: ``all`` does not
kill ZooKeeper.
"""

import asyncio
import enum
import random
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from assay.cluster.node import Cluster, Node, by_role
from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, SupportsGroups, System

FIND_SECONDS = 1.0
"""Seconds that a finder is asked before ``one`` is taken instead. An election takes some tenths of a second."""
FIND_POLL_SECONDS = 0.1
MAIN = "main"
"""Name of a node's main process, among several."""

Find = Callable[[str, str | None], Awaitable[Node | None]]


class TargetError(ValueError):
    """A target is unreadable, or no node of this cluster satisfies it. The message names it and gives the reason."""


class HeldError(TargetError):
    """Another fault holds the target. It is free again after that fault's heal."""


class TargetKind(enum.StrEnum):
    """Kinds of targets. Sizes refer to the n servers: ``minority`` is less than half of them, ``half`` n // 2.

    - ``zookeeper`` is one of the ZooKeeper nodes, ``zookeepers`` all of them.
    - ``consumer`` is one of the client nodes, ``consumers`` all of them.
    - ``coordinator`` is the server that coordinates a group.
    - ``origin`` is the node whose event triggered the fault.
    - ``spare`` is a node that is not a server yet.
    """

    ONE = "one"
    MINORITY = "minority"
    HALF = "half"
    MAJORITY = "majority"
    ALL = "all"
    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    COORDINATOR = "coordinator"
    CONSUMER = "consumer"
    CONSUMERS = "consumers"
    ZOOKEEPER = "zookeeper"
    ZOOKEEPERS = "zookeepers"
    ORIGIN = "origin"
    SPARE = "spare"
    NAMED = "named"


KEYED_KINDS = (TargetKind.LEADER, TargetKind.FOLLOWER, TargetKind.COORDINATOR)
"""Kinds that belong to an object: the leader of a key, the coordinator of a group."""
SIZE_KINDS = (TargetKind.ONE, TargetKind.MINORITY, TargetKind.HALF, TargetKind.MAJORITY, TargetKind.ALL)
"""Kinds that mean a number of servers. The target's key can restrict them to the servers of one role."""
CLIENT_KINDS = (TargetKind.CONSUMER, TargetKind.CONSUMERS)
KEYS_REMEDY = (
    "give it keys() (one name if one node leads everything) and find(cluster, what, key), which returns the leader"
)
"""Remedy for the author of a system without keys."""


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The target of a step.

    - ``key``: the key of the leader or follower, or the group of the coordinator. None: drawn at injection. For a size,
      it is the role of the servers. None: servers of all roles.
    - ``names``: the nodes' names, for ``named`` only.
    - ``process``: one process of the node, ``main`` or a sidecar's name (``cluster/sidecars.py``). None: all processes.
    """

    kind: TargetKind
    key: str | None = None
    names: tuple[str, ...] = ()
    process: str | None = None

    def __post_init__(self) -> None:
        if self.key is not None and self.kind not in (*KEYED_KINDS, *SIZE_KINDS):
            raise TargetError(f"target {self.kind} takes no key, but has {self.key!r}: leave it out")
        if self.kind is TargetKind.NAMED and not self.names:
            raise TargetError("target named has no names: give the names of its nodes, or name another target")
        if self.kind is not TargetKind.NAMED and self.names:
            raise TargetError(f"target {self.kind} takes no names, but has {list(self.names)}: use the target named")
        if len(set(self.names)) != len(self.names):
            raise TargetError(f"the target names a node twice: {', '.join(self.names)}; name it once")

    @property
    def of_main(self) -> bool:
        """Whether the target includes the main process."""
        return self.process in (None, MAIN)

    def __str__(self) -> str:
        """Returns text like ``leader of orders-0``, ``n1+n2``, ``minority``, ``one, its process agent``."""
        return self._whom() if self.process is None else f"{self._whom()}, its process {self.process}"

    def _whom(self) -> str:
        if self.kind is TargetKind.NAMED:
            return "+".join(self.names)
        if self.kind in KEYED_KINDS:
            of = "any group" if self.kind is TargetKind.COORDINATOR else "any key"
            return f"{self.kind} of {self.key if self.key is not None else of}"
        return str(self.kind) if self.key is None else f"{self.kind} of role {self.key}"


ONE = Target(TargetKind.ONE)


def named_target(*names: str) -> Target:
    """Returns the target of exactly these nodes."""
    return Target(TargetKind.NAMED, names=names)


def parse_target(text: str) -> Target:
    """Parses a target of the command line: ``leader``, ``leader:orders-0``, ``minority``, ``n2``, ``n1+n2``.

    A suffix such as ``@agent`` restricts it to one process of each node. Raises :class:`TargetError`, which lists the
    possible targets.
    """
    whom, at, process = text.strip().partition("@")
    if at:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", process):
            raise TargetError(f"target {text!r} has no name of a process after @: write, for example, one@main")
        return msgspec.structs.replace(parse_target(whom), process=process)
    word, colon, key = text.strip().partition(":")
    kinds = [kind for kind in TargetKind if kind is not TargetKind.NAMED]
    if word in kinds:
        if colon and not key:
            raise TargetError(f"target {text!r} has no key after the colon: write, for example, leader:KEY")
        return Target(TargetKind(word), key=key or None)
    names = tuple(word.split("+"))
    if colon or not all(re.fullmatch(r"[a-z]+[0-9]{1,9}", name) for name in names):
        raise TargetError(
            f"unknown target {text!r}; it must be one of {', '.join(kinds)}, leader:KEY, follower:KEY, "
            "coordinator:GROUP, "
            "one:ROLE (and minority:ROLE, ...), or nodes by name: n2, n1+n2, zk1, client1; one process: one@NAME"
        )
    return named_target(*names)


def servers(cluster: Cluster, system: System) -> list[Node]:
    """Returns the nodes of the system's own roles, in the cluster's order."""
    roles = [role for role in system.roles if role not in (ZOOKEEPER_ROLE, CLIENT_ROLE)]
    return [node for node in cluster.nodes if node.role in roles]


def list_possible_servers(cluster: Cluster, system: System) -> list[Node]:
    """Returns the servers and the spares: all nodes that may have replicas or lead something."""
    return [*servers(cluster, system), *cluster.spares]


def list_zookeepers(cluster: Cluster) -> list[Node]:
    """Returns the ZooKeeper nodes, in the cluster's order."""
    return by_role(cluster, ZOOKEEPER_ROLE)


def list_clients(cluster: Cluster) -> list[Node]:
    """Returns the client nodes, in the cluster's order."""
    return by_role(cluster, CLIENT_ROLE)


def list_groups(system: System) -> tuple[str, ...]:
    """Returns the groups whose coordinators the system can name."""
    return tuple(system.groups) if isinstance(system, SupportsGroups) else ()


def means_clients(target: Target) -> bool:
    """Returns whether the target means client nodes only, by kind or by name."""
    return target.kind in CLIENT_KINDS or _is_named_like(r"client\d+", target, all)


def may_hit_clients(target: Target) -> bool:
    """Returns whether the target can be a client node, by kind or by one of its names."""
    return target.kind in CLIENT_KINDS or _is_named_like(r"client\d+", target, any)


def means_zookeepers(target: Target) -> bool:
    """Returns whether the target means ZooKeeper's nodes, by kind or by name."""
    return target.kind in (TargetKind.ZOOKEEPER, TargetKind.ZOOKEEPERS) or _is_named_like(r"zk\d+", target, all)


def _is_named_like(pattern: str, target: Target, quantifier: Callable[[Iterable[bool]], bool]) -> bool:
    return bool(target.names) and quantifier(re.fullmatch(pattern, name) is not None for name in target.names)


def parse_node_number(name: str) -> int:
    """Returns the number of a node within its role: 2 for ``n2`` and for ``client2``."""
    return int(re.sub(r"\D", "", name))


@dataclass(frozen=True)
class TargetScene:
    """Facts about a cluster and its active faults, from which targets are resolved.

    - ``busy``: names of nodes that a fault with a clashing scope holds
    - ``origin``: name of the node whose event triggered the step
    """

    servers: Sequence[Node]
    zookeepers: Sequence[Node]
    keys: Sequence[str]
    find: Find
    busy: Collection[str] = ()
    origin: str | None = None
    clients: Sequence[Node] = ()
    groups: Sequence[str] = ()
    spares: Sequence[Node] = ()

    def objects_of(self, kind: TargetKind) -> Sequence[str]:
        """Returns the groups for the kind ``coordinator``, and the keys for other kinds."""
        return self.groups if kind is TargetKind.COORDINATOR else self.keys


@dataclass(frozen=True)
class ChosenTarget:
    """The chosen nodes, in the cluster's order.

    - ``key``: the key whose leader, follower or coordinator was chosen
    - ``note``: how the nodes differ from the target
    - ``fell_back``: ``one`` was taken because the target was not available; ``note`` has the reason
    - ``others``: servers that could have been chosen as well, unless the step names its nodes
    - ``wait_reason``: why the step has to wait
    """

    nodes: tuple[Node, ...]
    key: str | None = None
    note: str | None = None
    fell_back: bool = False
    others: tuple[Node, ...] = ()
    wait_reason: str | None = None


async def resolve_target(target: Target, scene: TargetScene, rng: random.Random) -> ChosenTarget:
    """Returns the nodes that the target means now. Takes up to ``FIND_SECONDS`` if a finder knows none.

    Raises :class:`TargetError` if a named node does not exist, ``HeldError`` if it is busy, or no node is free.
    """
    if target.kind is TargetKind.NAMED:
        return ChosenTarget(_find_named(target.names, scene))
    if target.kind is TargetKind.ORIGIN:
        if scene.origin is None:
            raise TargetError(
                "target origin is the node of the triggering event, but this step has no trigger by an event: "
                "name another"
            )
        return ChosenTarget(_find_named([scene.origin], scene))
    if target.kind is TargetKind.ZOOKEEPERS:
        return ChosenTarget(tuple(_find_free(scene.zookeepers, scene, "ZooKeeper node")))
    if target.kind is TargetKind.ZOOKEEPER:
        return ChosenTarget((rng.choice(_find_free(scene.zookeepers, scene, "ZooKeeper node")),))
    if target.kind is TargetKind.CONSUMERS:
        return ChosenTarget(tuple(_find_free(scene.clients, scene, "client node")))
    if target.kind is TargetKind.CONSUMER:
        return ChosenTarget((rng.choice(_find_free(scene.clients, scene, "client node")),))
    if target.kind is TargetKind.SPARE:
        return ChosenTarget((rng.choice(_find_free(scene.spares, scene, "spare node")),))
    if target.kind in (TargetKind.LEADER, TargetKind.CONTROLLER, TargetKind.COORDINATOR):
        return await _choose_by_finder(target, scene, rng)
    if target.kind is TargetKind.FOLLOWER:
        return await _choose_follower(target, scene, rng)
    return _choose_by_size(target, scene, rng)


def count_targeted(kind: TargetKind, count: int) -> int:
    """Returns how many of ``count`` servers a size means. 0: there is no such number, as for the minority of two."""
    sizes = {
        TargetKind.ONE: min(1, count),
        TargetKind.MINORITY: (count - 1) // 2 if count else 0,
        TargetKind.HALF: count // 2,
        TargetKind.MAJORITY: count // 2 + 1 if count else 0,
        TargetKind.ALL: count,
    }
    return sizes[kind]


def _find_named(names: Sequence[str], scene: TargetScene) -> tuple[Node, ...]:
    everyone = [*scene.servers, *scene.zookeepers, *scene.clients, *scene.spares]
    unknown = [name for name in names if name not in [node.name for node in everyone]]
    if unknown:
        raise TargetError(
            f"there is no node {', '.join(unknown)}; the nodes are {', '.join(node.name for node in everyone)}"
        )
    held = [name for name in names if name in scene.busy]
    if held:
        raise HeldError(f"another fault of the same scope is active on {', '.join(held)}")
    return tuple(node for node in everyone if node.name in names)


def _find_free(nodes: Sequence[Node], scene: TargetScene, what: str) -> list[Node]:
    if not nodes:
        raise TargetError(f"this cluster has no {what}")
    free = [node for node in nodes if node.name not in scene.busy]
    if not free:
        raise HeldError(f"other faults of the same scope are active on every {what}")
    return free


def _choose_by_size(target: Target, scene: TargetScene, rng: random.Random) -> ChosenTarget:
    kind, role = target.kind, target.key
    servers = [node for node in scene.servers if role in (None, node.role)]
    of_role = "" if role is None else f" of role {role}"
    free = _find_free(servers, scene, f"server{of_role}")
    wanted = count_targeted(kind, len(servers))
    note, fell_back = None, False
    if wanted == 0:
        wanted, fell_back = 1, True
        note = f"{len(servers)} servers{of_role} have no {kind}; took one"
    elif wanted > len(free):
        note = f"{kind} is {wanted} of {len(servers)} servers{of_role}, only {len(free)} were free"
        wanted = len(free)
    picked = [node.name for node in rng.sample(free, wanted)]
    return ChosenTarget(tuple(node for node in servers if node.name in picked), note=note, fell_back=fell_back)


async def _choose_by_finder(target: Target, scene: TargetScene, rng: random.Random) -> ChosenTarget:
    _find_free(scene.servers, scene, "server")  # first, because asking a finder may take a while
    key = _choose_key(target, scene, rng)
    node, trouble = await _ask_finder(target.kind, key, scene)
    if node is not None and node.name not in scene.busy:
        return ChosenTarget((node,), key=key)
    what = f"{target.kind} of {key}" if key is not None else str(target.kind)
    why = trouble if node is None else f"{node.name}, {what}, is held by another fault of this scope"
    other = _choose_by_size(ONE, scene, rng)
    return ChosenTarget(other.nodes, key=key, note=f"{why}; took one", fell_back=True)


async def _choose_follower(target: Target, scene: TargetScene, rng: random.Random) -> ChosenTarget:
    """Returns a server that does not lead the key. It may have no replica, because finders do not know replicas."""
    _find_free(scene.servers, scene, "server")
    key = _choose_key(target, scene, rng)
    leader, trouble = await _ask_finder(TargetKind.LEADER, key, scene)
    others = [node for node in scene.servers if leader is None or node.name != leader.name]
    free = [node for node in others if node.name not in scene.busy]
    if free and leader is not None:
        return ChosenTarget((rng.choice(free),), key=key)
    why = trouble if leader is None else f"no follower of {key} is free of another fault of this scope"
    other = _choose_by_size(ONE, scene, rng)
    return ChosenTarget(other.nodes, key=key, note=f"{why}; took one", fell_back=True)


def _choose_key(target: Target, scene: TargetScene, rng: random.Random) -> str | None:
    if target.kind not in KEYED_KINDS or target.key is not None:
        return target.key
    known = list(scene.objects_of(target.kind))
    return rng.choice(known) if known else None


async def _ask_finder(what: TargetKind, key: str | None, scene: TargetScene) -> tuple[Node | None, str]:
    """Returns the node, or None and the reason. An answer that is not a server of this cluster is ignored."""
    loop = asyncio.get_running_loop()
    subject = f"{what} of {key}" if key is not None else str(what)
    deadline = loop.time() + FIND_SECONDS
    names = [node.name for node in scene.servers]
    trouble = f"no node is known to be {subject}"
    try:
        async with asyncio.timeout_at(deadline):
            while True:
                node = await scene.find(str(what), key)
                if node is not None and node.name in names:
                    return node, ""
                await asyncio.sleep(FIND_POLL_SECONDS)
    except TimeoutError:
        return None, f"{trouble} within {FIND_SECONDS:g} s"
