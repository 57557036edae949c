"""Faults of a single connection: its packets in one direction are held back or lost. All other packets pass.

The parameter ``connection`` is one of these:

- ``fetch``: a follower's connection to the leader of a key
- ``controller``: the controller's connection to one other server
- ``zookeeper``: a server's connection to ZooKeeper: its requests, writes and notifications

Parameters:

- ``way``: ``answers`` to the target's requests, or its ``requests``
- ``lost``: false drops packets. TCP sends them again, so they arrive after the heal, or the connection is given up.
  True breaks the connection: the sender gets a reset. With ``answers``, a request is then executed but its answer is
  lost.
- ``every``: 1 affects all packets, 3 every third packet, 7 every seventh. A server makes several requests
  to ZooKeeper for one change. With 7, one of these requests is lost, and the others pass.

A connection is identified by the node that opened it, and by the node and port of its other end. New connections
between the two nodes are affected too. Proof: the counters of the rules. The controller's connection is silent unless
something happens: combine it with another fault.

A server fetches only from the leaders that it follows, and during other faults it may follow none. So the fault looks
for dropped packets. If there are none, it removes the rules and tries another connection.
"""

import asyncio
import enum
import random
from collections.abc import Mapping, Sequence
from typing import Final

from assay.cluster.node import Cluster, Flow, Node
from assay.cluster.system import ZOOKEEPER_PORT, ZOOKEEPER_ROLE, System
from assay.nemesis.engine.cut_ledger import CutManner, Drop
from assay.nemesis.faults.cut_fault import CutFault
from assay.nemesis.faults.fault import Census, Injection, Scope, complete_target
from assay.nemesis.faults.partition import find_leader_or_other
from assay.nemesis.faults.varied import VariedFault
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import (
    CLIENT_KINDS,
    KEYED_KINDS,
    KEYS_REMEDY,
    Target,
    TargetError,
    TargetKind,
    list_zookeepers,
    servers,
)

ANSWERS, REQUESTS = "answers", "requests"
NOT_ONE_SERVER: Final = (
    *CLIENT_KINDS,
    TargetKind.ZOOKEEPER,
    TargetKind.ZOOKEEPERS,
    TargetKind.MINORITY,
    TargetKind.HALF,
    TargetKind.MAJORITY,
    TargetKind.ALL,
)
"""Targets that are more than one server, or not servers."""
EVERY: Final = (1, 1, 3)
"""Values that the parameter ``every`` is drawn from."""
EVERY_OF_ZOOKEEPER: Final = (*EVERY, 7)
"""Includes 7, because a server makes several requests to ZooKeeper for one change."""
TRAFFIC_SECONDS: Final = 0.6
"""Seconds to see a follower's packet. A follower that has caught up asks again after 0.5 s at most."""
TRAFFIC_POLL_SECONDS: Final = 0.1


class ConnectionKind(enum.StrEnum):
    """The kinds of connections that can be chosen."""

    FETCH = "fetch"
    CONTROLLER = "controller"
    ZOOKEEPER = "zookeeper"


OPENERS = {
    ConnectionKind.FETCH: (TargetKind.FOLLOWER,),
    ConnectionKind.CONTROLLER: (TargetKind.CONTROLLER,),
    ConnectionKind.ZOOKEEPER: (TargetKind.ONE, TargetKind.LEADER, TargetKind.CONTROLLER),
}
"""The possible targets of each kind. The target is the node that opened the connection."""


class ConnectionFault(VariedFault[ConnectionKind], CutFault):
    """A fault on one kind of connection, or on a drawn kind that always has traffic."""

    name = "connection"
    description = "one connection alone: a follower's or one to ZooKeeper, held back or lost"
    descriptions: Mapping[ConnectionKind, str] = {
        ConnectionKind.FETCH: "a follower's connection to a leader: answers or requests held back, or lost",
        ConnectionKind.CONTROLLER: (
            "the controller's connection to one server, likewise (combine it: alone it is quiet)"
        ),
        ConnectionKind.ZOOKEEPER: "a server's connection to ZooKeeper, likewise",
    }
    parameter = "connection"
    variants = (ConnectionKind.FETCH, ConnectionKind.ZOOKEEPER)
    scope = Scope.CONNECTION

    def __init__(self, connection: ConnectionKind | None = None) -> None:
        super().__init__(connection)
        if connection is ConnectionKind.ZOOKEEPER:
            self.roles = (ZOOKEEPER_ROLE,)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        connection = self.draw_variant(rng, census, target)
        kinds = [kind for kind in OPENERS[connection] if kind not in KEYED_KINDS or not census.lacks_keys]
        whom = target if target is not None else Target(rng.choice(kinds))
        parameters: dict[str, Parameter] = {
            "connection": str(connection),
            "way": rng.choice((ANSWERS, ANSWERS, REQUESTS)),
            "lost": rng.random() < 0.5,
            "every": rng.choice(EVERY_OF_ZOOKEEPER if connection is ConnectionKind.ZOOKEEPER else EVERY),
        }
        whom = complete_target(whom, rng, census)
        if connection is ConnectionKind.FETCH and whom.key is not None:
            parameters["key"] = whom.key
        return whom, parameters

    def find_trouble(self, variant: ConnectionKind, census: Census, target: Target | None) -> str | None:
        if variant is ConnectionKind.ZOOKEEPER and not census.zookeepers:
            return f"{variant} needs a ZooKeeper node, and this cluster has none: choose another fault"
        least = 1 if variant is ConnectionKind.ZOOKEEPER else 2
        if census.servers < least:
            return (
                f"{variant} needs {least} server{'s' * (least > 1)}, but the cluster has {census.servers}: set "
                "--nodes=3"
            )
        if variant is ConnectionKind.FETCH and census.lacks_keys:
            return f"{variant} needs a system with keys that have a leader: {KEYS_REMEDY}"
        if target is not None and (target.kind in NOT_ONE_SERVER or len(target.names) > 1):
            return f"{variant} affects a connection of one server, so its target cannot be {target}: name one server"
        return None

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return self.explain_impossible(cluster, system) or await super().probe(cluster, system)

    def manner_of(self, injection: Injection) -> CutManner:
        return CutManner.REJECT if injection.step.parameters.get("lost", False) else CutManner.DROP

    async def inject(self, injection: Injection) -> None:
        """Finds the connection's other end and cuts it. If a follower's leader is unknown, tries other servers."""
        context, (opener, *further) = injection.context, injection.targets
        if further:
            raise TargetError(
                f"{self.name} hits one server, but its targets are {', '.join(injection.names)}: name one"
            )
        everyone = servers(context.cluster, context.system)
        others = [node for node in everyone if node is not opener]
        match self.variant_of(injection):
            case ConnectionKind.ZOOKEEPER:
                pairs = [(opener, list_zookeepers(context.cluster))]
            case ConnectionKind.CONTROLLER:
                pairs = [(opener, others and [random.Random(injection.seed).choice(others)])]
            case ConnectionKind.FETCH:
                leader = await find_leader_or_other(injection)
                pairs = [(opener, [end]) for end in sorted(others, key=lambda node: node is not leader)]
                pairs += [(other, [end]) for other in injection.others for end in everyone if end is not other]
        if not pairs[0][1]:
            raise TargetError(f"{self.name}: there is no node to which {opener.name} could be connected: set --nodes=3")
        await self._cut_active_pair(injection, pairs)

    async def _cut_active_pair(self, injection: Injection, pairs: Sequence[tuple[Node, Sequence[Node]]]) -> None:
        """Cuts the first pair with traffic. If none is found by half of the duration, cuts the requested pair."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + injection.step.duration / 2
        silent: list[str] = []
        for opener, ends in pairs:
            injection.targets = (opener,)
            injection.evidence["ends"] = [node.name for node in ends]
            await super().inject(injection)
            if len(pairs) == 1 or await self._has_traffic(injection):
                break
            silent.append(f"{opener.name} to {', '.join(node.name for node in ends)}")
            await injection.context.cuts.remove(injection.id)
            if len(silent) == len(pairs) or loop.time() >= deadline:
                await self._cut_active_pair(injection, pairs[:1])
                break
        if silent:
            injection.evidence["silent"] = silent

    async def _has_traffic(self, injection: Injection) -> bool:
        """Returns whether a packet is dropped within ``TRAFFIC_SECONDS``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TRAFFIC_SECONDS
        while True:
            await self.observe(injection)
            if any(injection.evidence["dropped"].values()):
                return True
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(TRAFFIC_POLL_SECONDS)

    def links(self, injection: Injection) -> list[Drop]:
        context, parameters, opener = injection.context, injection.step.parameters, injection.names[0]
        way, every = parameters.get("way", ANSWERS), parameters.get("every", 1)
        if way not in (ANSWERS, REQUESTS):
            raise TargetError(f"{self.name}: the parameter way is {way!r}; it must be {ANSWERS} or {REQUESTS}")
        if not isinstance(every, int) or every < 1:
            raise TargetError(f"{self.name}: the parameter every is {every!r}; it must be a whole number from 1 on")
        to_zookeeper = self.variant_of(injection) is ConnectionKind.ZOOKEEPER
        port = ZOOKEEPER_PORT if to_zookeeper else context.system.port(injection.targets[0].role)
        flow = Flow(port, from_server=way == ANSWERS, every=every)
        ends: list[str] = injection.evidence["ends"]
        return sorted((opener, f"{end}{flow}") if flow.from_server else (end, f"{opener}{flow}") for end in ends)

    def affected_nodes(self, injection: Injection, drops: Sequence[Drop]) -> list[str]:
        return list(injection.names)
