"""The links that are cut now, by whom and how, and how many packets died there.

A node can add drops and remove *all* of its drops, nothing finer. Two partitions may overlap: this ledger knows
which links are still meant to be cut when one of them heals. It re-applies what remains, and keeps the counts of rules
that were taken away, since counters vanish with their rules. A link that one partition drops and another rejects is
dropped.

When a node's rules are re-made its remaining links are open between the two calls (one SSH round trip on a real node);
this happens only when overlapping partitions share a node.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence

from assay.cluster.node import Cluster, Flow, Node, NodeError

Drop = tuple[str, str]
"""(node that drops, peer whose packets it drops); a cut link is two of them. ``n2:9092`` is one flow of n2 alone."""


class Manner(enum.StrEnum):
    """What becomes of a packet: nothing at all, or a reset for its sender."""

    DROP = "drop"
    REJECT = "reject"


def both_ways(left: Iterable[str], right: Iterable[str]) -> list[Drop]:
    """Every link between two groups, cut at both ends, sorted."""
    others = list(right)
    return sorted({drop for a in left for b in others if a != b for drop in ((a, b), (b, a))})


def parted(peer: str) -> tuple[str, Flow | None]:
    """The node of a drop, and its flow if it is one alone."""
    name, sign, flow = re.split("([:>])", peer, maxsplit=1) if re.search("[:>]", peer) else (peer, "", "")
    if not sign:
        return name, None
    port, _, every = flow.partition("/")
    return name, Flow(int(port), answers=sign == ":", every=int(every or 1))


class Cuts:
    """All drops of one run. Not safe for concurrent calls; the conductor makes them one after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = {node.name: node for node in cluster.nodes}
        self._held: dict[int, tuple[list[Drop], Manner]] = {}
        self._installed: dict[str, dict[str, Manner]] = {name: {} for name in self._nodes}
        self._kept: dict[Drop, int] = {}
        self.troubles: list[str] = []
        """Counters that could not be read before their rules were removed; such counts are lost, never guessed."""

    async def add(self, holder: int, drops: Sequence[Drop], manner: Manner = Manner.DROP) -> None:
        """Cuts these links for ``holder``, at every end even when one fails; then raises ``NodeError``."""
        self._held[holder] = (sorted(drops), manner)
        await self._bring_about()

    async def remove(self, holder: int) -> None:
        """Opens what no other holder wants cut. May be called again after it raised, and for an unknown holder."""
        self._held.pop(holder, None)
        await self._bring_about()

    async def counts(self, drops: Sequence[Drop]) -> dict[Drop, int]:
        """Packets dropped on each since the run began. Raises ``NodeError`` when a node cannot be asked."""
        now: dict[str, dict[str, int]] = {}
        for name in sorted({name for name, _ in drops}):
            now[name] = dict(await self._nodes[name].dropped()) if self._installed[name] else {}
        return {(name, peer): self._kept.get((name, peer), 0) + now[name].get(peer, 0) for name, peer in drops}

    def in_force(self) -> list[Drop]:
        """Every drop that a fault holds, sorted."""
        return sorted(self._wanted())

    def _wanted(self) -> dict[Drop, Manner]:
        wanted: dict[Drop, Manner] = {}
        for drops, manner in self._held.values():
            for drop in drops:
                wanted[drop] = Manner.DROP if Manner.DROP in (manner, wanted.get(drop)) else manner
        return wanted

    async def _bring_about(self) -> None:
        """Makes every node's rules what the holders want; a node that fails does not keep the others from it."""
        errors: list[NodeError] = []
        wanted = sorted(self._wanted().items())
        for name in self._nodes:
            try:
                await self._apply(name, {peer: manner for (dropper, peer), manner in wanted if dropper == name})
            except NodeError as error:
                errors.append(error)
        if errors:
            raise NodeError("; ".join(str(error) for error in errors)) from errors[0]

    async def _apply(self, name: str, peers: Mapping[str, Manner]) -> None:
        node = self._nodes[name]
        if any(peers.get(peer) is not manner for peer, manner in self._installed[name].items()):
            await self._keep_counts(name)
            await node.accept_all()
            self._installed[name] = {}
        for manner, call in ((Manner.DROP, node.drop_from), (Manner.REJECT, node.reject_from)):
            new = [peer for peer in peers if peers[peer] is manner and peer not in self._installed[name]]
            if new:
                # Noted before the call: after a failure the rules may be there, and must be removed at the heal.
                self._installed[name] |= dict.fromkeys(new, manner)
                whose: dict[Flow | None, list[Node]] = {}
                for peer, flow in map(parted, new):
                    whose.setdefault(flow, []).append(self._nodes[peer])
                for flow, nodes in whose.items():
                    await call(nodes, flow)

    async def _keep_counts(self, name: str) -> None:
        try:
            counts = await self._nodes[name].dropped()
        except NodeError as error:
            self.troubles.append(str(error))
            return
        for peer in self._installed[name]:
            self._kept[name, peer] = self._kept.get((name, peer), 0) + counts.get(peer, 0)
