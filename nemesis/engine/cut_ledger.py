"""Ledger of the cut links: which fault cuts each link, how, and how many packets were dropped.

A node can add drop rules, but can only remove *all* of them. Two partitions may overlap. When one of them heals, the
ledger removes all rules of a node and adds those of the other partition again. It also keeps the counts of removed
rules, because counters vanish with their rules. If one partition drops packets of a link and another rejects them, the
link drops them.

Between the removal and the new rules, all links of the node are open, on a real node for one SSH round trip. This only
happens if overlapping partitions share a node.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence

from assay.cluster.node import Cluster, Flow, Node, NodeError

Drop = tuple[str, str]
"""(node that drops, peer whose packets it drops). A link cut in both directions has two drops.

A peer may stand for a single flow of a node (``Flow``): ``n2:9092`` for the answers of n2's server, ``n2>9092/3`` for
every third request of n2.
"""


class CutManner(enum.StrEnum):
    """Effect on a packet: it is dropped, or its sender gets a reset."""

    DROP = "drop"
    REJECT = "reject"


def cut_both_ways(left: Iterable[str], right: Iterable[str]) -> list[Drop]:
    """Returns the drops that cut every link between two groups at both ends, sorted."""
    others = list(right)
    return sorted({drop for a in left for b in others if a != b for drop in ((a, b), (b, a))})


def parse_peer(peer: str) -> tuple[str, Flow | None]:
    """Returns the peer's node, and its flow if the drop is restricted to one."""
    name, sign, flow = re.split("([:>])", peer, maxsplit=1) if re.search("[:>]", peer) else (peer, "", "")
    if not sign:
        return name, None
    port, _, every = flow.partition("/")
    return name, Flow(int(port), from_server=sign == ":", every=int(every or 1))


class CutLedger:
    """All drops of one run. Not safe for concurrent calls; the conductor calls it sequentially."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = {node.name: node for node in cluster.nodes}
        self._held: dict[int, tuple[list[Drop], CutManner]] = {}
        """By fault: its drops, and how they act."""
        self._installed: dict[str, dict[str, CutManner]] = {name: {} for name in self._nodes}
        """By node: the peers for which it has a rule."""
        self._removed_counts: dict[Drop, int] = {}
        """Packets that removed rules had counted."""
        self.troubles: list[str] = []
        """Errors of nodes whose counters could not be read before their rules were removed.

        The counts are lost, never guessed.
        """

    async def add(self, holder: int, drops: Sequence[Drop], manner: CutManner = CutManner.DROP) -> None:
        """Cuts these links for a fault, at every end even if one fails. Raises ``NodeError`` afterwards.

        ``holder``: the fault's number in the schedule.
        """
        self._held[holder] = (sorted(drops), manner)
        await self._apply_all()

    async def remove(self, holder: int) -> None:
        """Opens links that no other holder cuts. May be repeated after an error, and called for an unknown holder."""
        self._held.pop(holder, None)
        await self._apply_all()

    async def counts(self, drops: Sequence[Drop]) -> dict[Drop, int]:
        """Returns how many packets each rule dropped in this run. Raises ``NodeError`` if a node does not answer."""
        now: dict[str, dict[str, int]] = {}
        for name in sorted({name for name, _ in drops}):
            now[name] = dict(await self._nodes[name].dropped()) if self._installed[name] else {}
        return {
            (name, peer): self._removed_counts.get((name, peer), 0) + now[name].get(peer, 0) for name, peer in drops
        }

    def list_drops(self) -> list[Drop]:
        """Returns every drop that a fault holds, sorted."""
        return sorted(self._wanted())

    def _wanted(self) -> dict[Drop, CutManner]:
        wanted: dict[Drop, CutManner] = {}
        for drops, manner in self._held.values():
            for drop in drops:
                wanted[drop] = CutManner.DROP if CutManner.DROP in (manner, wanted.get(drop)) else manner
        return wanted

    async def _apply_all(self) -> None:
        """Applies the wanted rules to every node, even after an error of another node. Raises ``NodeError``."""
        errors: list[NodeError] = []
        wanted = sorted(self._wanted().items())
        for name in self._nodes:
            try:
                await self._apply(name, {peer: manner for (dropper, peer), manner in wanted if dropper == name})
            except NodeError as error:
                errors.append(error)
        if errors:
            raise NodeError("; ".join(str(error) for error in errors)) from errors[0]

    async def _apply(self, name: str, peers: Mapping[str, CutManner]) -> None:
        node = self._nodes[name]
        if any(peers.get(peer) is not manner for peer, manner in self._installed[name].items()):
            await self._save_counts(name)
            await node.accept_all()
            self._installed[name] = {}
        for manner, call in ((CutManner.DROP, node.drop_from), (CutManner.REJECT, node.reject_from)):
            new = [peer for peer in peers if peers[peer] is manner and peer not in self._installed[name]]
            if new:
                # Noted before the call: after an error the rules may exist, and the heal must remove them.
                self._installed[name] |= dict.fromkeys(new, manner)
                by_flow: dict[Flow | None, list[Node]] = {}
                for peer, flow in map(parse_peer, new):
                    by_flow.setdefault(flow, []).append(self._nodes[peer])
                for flow, nodes in by_flow.items():
                    await call(nodes, flow)

    async def _save_counts(self, name: str) -> None:
        try:
            counts = await self._nodes[name].dropped()
        except NodeError as error:
            self.troubles.append(str(error))
            return
        for peer in self._installed[name]:
            self._removed_counts[name, peer] = self._removed_counts.get((name, peer), 0) + counts.get(peer, 0)
