"""Faults of packets: the packets that a server sends are delayed, lost, duplicated, reordered or rate-limited.

- ``slow-network``: packets are late by up to ``seconds``, in order
- ``packets-loss``: a ``share`` of the packets is lost
- ``packets-duplicate``: a ``share`` of the packets arrives twice
- ``packets-reorder``: a ``share`` of the packets is late by up to ``seconds``, and the others overtake them
- ``packets-rate``: only ``rate`` bytes are sent per second
- ``packets``: one of these, drawn as the parameter ``way``

The fault affects all packets that a server sends. With the parameter ``to``, it affects only packets to one node (by
name), or to every ZooKeeper node (``zookeeper``). Connections are TCP: in the end no byte is lost or duplicated, but
data arrive later and unevenly. So a moment of tenths of a millisecond becomes long enough for another fault to hit.
Proof: the sending node counted packets that were late, lost or doubled.
"""

import enum
import random
from collections.abc import Mapping, Sequence
from typing import Final, cast

from assay.cluster.node import Node, SupportsPacketShaping, Traffic
from assay.nemesis.faults.abilities import PACKET_SHAPING
from assay.nemesis.faults.fault import LINGER_SECONDS, Census, Impact, Injection, Proof, Scope
from assay.nemesis.faults.process import ServerFault, read_number
from assay.nemesis.faults.varied import VariedFault
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import Target, TargetError, list_zookeepers

SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.2)
SHARES: Final = (0.02, 0.1, 0.3)
RATES: Final = (30_000, 100_000)
"""Bytes per second. A server of a workload at 80 operations a second sends some tens of thousands."""
LIMITS: Final = {"seconds": 1.0, "share": 0.9, "rate": 1e9}
"""Maximum values of the parameters."""
ZOOKEEPER: Final = "zookeeper"
ZOOKEEPER_ONLY: Final = 0.3
"""Probability that only traffic to ZooKeeper is hit, if there is a ZooKeeper."""


class PacketEffect(enum.StrEnum):
    DELAY = "delay"
    LOSS = "loss"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    RATE = "rate"


COUNTED: Final = {
    PacketEffect.DELAY: ("late",),
    PacketEffect.LOSS: ("lost",),
    PacketEffect.DUPLICATE: ("doubled",),
    PacketEffect.REORDER: ("late",),
    PacketEffect.RATE: ("late", "lost"),
}
"""The node's counts that prove each effect."""


class Packets(VariedFault[PacketEffect], ServerFault):
    """A fault on packets with one effect, or with a drawn one."""

    name = "packets"
    description = "the server's packets are late, lost, duplicated, reordered or rate-limited"
    descriptions: Mapping[PacketEffect, str] = {
        PacketEffect.LOSS: "up to 30 % of the packets that the server sends are lost",
        PacketEffect.DUPLICATE: "up to 30 % of the packets that the server sends arrive twice",
        PacketEffect.REORDER: "up to 30 % of the packets that the server sends are late, and others overtake them",
        PacketEffect.RATE: "the server's packets go out at 30 or 100 kB/s",
    }
    parameter = "way"
    variants = tuple(PacketEffect)
    abilities = (PACKET_SHAPING,)
    scope = Scope.CONNECTION
    impact = Impact()
    lingers = LINGER_SECONDS  # maximum seconds beyond the duration while it has no effect yet

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        whom, _ = super().draw(rng, census, target)
        way = self.draw_variant(rng, census, target) if len(self.variants) > 1 else self.variants[0]
        parameters: dict[str, Parameter] = {"way": str(way)} if len(self.variants) > 1 else {}
        if way in (PacketEffect.DELAY, PacketEffect.REORDER):
            parameters["seconds"] = rng.choice(SECONDS)
        if way in (PacketEffect.LOSS, PacketEffect.DUPLICATE, PacketEffect.REORDER):
            parameters["share"] = rng.choice(SHARES)
        if way is PacketEffect.RATE:
            parameters["rate"] = rng.choice(RATES)
        if census.zookeepers and rng.random() < ZOOKEEPER_ONLY:
            parameters["to"] = ZOOKEEPER
        return whom, parameters

    async def inject(self, injection: Injection) -> None:
        self._traffic(injection)
        if (peers := self._peers(injection)) is not None:
            injection.evidence["to"] = [peer.name for peer in peers]
        await super().inject(injection)

    async def strike(self, injection: Injection, node: Node) -> None:
        injection.evidence[node.name] = {}
        await cast(SupportsPacketShaping, node).shape(self._traffic(injection), self._peers(injection))

    async def observe_node(self, injection: Injection, node: Node) -> None:
        injection.evidence[node.name] = dict(await cast(SupportsPacketShaping, node).shaped())

    async def undo(self, injection: Injection, node: Node) -> None:
        if isinstance(node, SupportsPacketShaping):
            await node.shape(None)

    def proof(self, injection: Injection) -> Proof:
        counted = COUNTED[self.variant_of(injection)]
        seen = {name: injection.evidence.get(name, {}) for name in injection.names}
        quiet = [name for name, counts in seen.items() if not any(counts.get(what) for what in counted)]
        reason = f"{', '.join(quiet)} sent nothing that was {' or '.join(counted)}" if quiet else None
        return Proof(not quiet, injection.evidence, reason)

    def _traffic(self, injection: Injection) -> Traffic:
        def read(name: str) -> float:
            return read_number(injection, name, LIMITS[name])

        match self.variant_of(injection):
            case PacketEffect.DELAY:
                return Traffic(delay=read("seconds"))
            case PacketEffect.LOSS:
                return Traffic(loss=read("share"))
            case PacketEffect.DUPLICATE:
                return Traffic(copies=read("share"))
            case PacketEffect.REORDER:
                return Traffic(delay=read("seconds"), late=read("share"), overtaking=True)
            case PacketEffect.RATE:
                return Traffic(rate=read("rate"))

    def _peers(self, injection: Injection) -> Sequence[Node] | None:
        """Returns the peers to which packets are affected; None for all."""
        to = injection.step.parameters.get("to")
        if to is None:
            return None
        cluster = injection.context.cluster
        peers = list_zookeepers(cluster) if to == ZOOKEEPER else [node for node in cluster.nodes if node.name == to]
        if not peers:
            raise TargetError(f"{self.name}: the parameter to is {to!r}; it must be {ZOOKEEPER} or the name of a node")
        return peers


class SlowNetwork(Packets):
    """Late packets to every node."""

    name = "slow-network"
    description = "what the server sends arrives up to 0.2 s later, in order"
    variants = (PacketEffect.DELAY,)
    drawn: Mapping[str, Sequence[Parameter]] = {"seconds": SECONDS}

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        return ServerFault.draw(self, rng, census, target)
