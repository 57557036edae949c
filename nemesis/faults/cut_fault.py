"""Base of all faults that cut links: cutting, counting, healing, and the proof by counters.

Clients are not cut off unless they are the target, because a stale leader does harm only if clients still reach it. The
harness's control traffic is never cut.

Proof: the counters of the rules. For each affected node, at least one packet must be dropped on one of its links, at
either end, between the injection and the heal. A single link is enough, because some links have no traffic: servers
that do not follow each other send each other nothing. The evidence lists silent links.
"""

import re
from collections.abc import Sequence

from assay.cluster.node import Cluster, NodeError
from assay.cluster.system import System
from assay.nemesis.engine.cut_ledger import CutManner, Drop, parse_peer
from assay.nemesis.faults.fault import LINGER_SECONDS, Impact, Injection, Proof, Scope
from assay.nemesis.schedule.target import list_zookeepers


class CutFault:
    """A fault that cuts links.

    :meth:`links` defines the links. :meth:`affected_nodes` defines the nodes whose packets must be dropped.
    """

    scope = Scope.NETWORK
    impact = Impact(cuts_links=True)
    manner = CutManner.DROP
    lingers = LINGER_SECONDS  # maximum seconds beyond the duration while it has no effect yet
    everywhere = False
    """Whether the fault may hit all nodes, so that another fault of its scope would find no free node."""
    capabilities: Sequence[type] = ()
    roles: Sequence[str] = ()

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return await probe_counters(cluster)

    def links(self, injection: Injection) -> list[Drop]:
        """Returns the drops. They depend only on targets, parameters and cluster, so that a replay has the same ones.

        Raises ``TargetError`` if there are none.
        """
        raise TypeError(f"{type(self).__name__} does not say which links it cuts: define its method links")

    def manner_of(self, injection: Injection) -> CutManner:
        """Returns how these links are cut."""
        return self.manner

    def affected_nodes(self, injection: Injection, drops: Sequence[Drop]) -> list[str]:
        """Returns the targets with a cut link."""
        ends = {name for drop in drops for name in drop}
        return [name for name in injection.names if name in ends]

    async def inject(self, injection: Injection) -> None:
        cuts = injection.context.cuts
        drops = self.links(injection)
        isolated = self.affected_nodes(injection, drops)
        injection.evidence["isolated"] = isolated
        injection.evidence["cut"] = describe_drops(drops)
        keepers = {node.name for node in list_zookeepers(injection.context.cluster)}
        if keepers:
            injection.evidence["zookeeper"] = any(parse_peer(name)[0] in keepers for drop in drops for name in drop)
        # Rules of another partition may have dropped packets of these links before. Only later drops count here.
        injection.evidence["before"] = counts_to_text(await cuts.counts(drops))
        await cuts.add(injection.id, drops, self.manner_of(injection))

    async def observe(self, injection: Injection) -> None:
        drops = self.links(injection)
        now = counts_to_text(await injection.context.cuts.counts(drops))
        before: dict[str, int] = injection.evidence["before"]
        injection.evidence["dropped"] = {link: count - before[link] for link, count in now.items()}

    async def heal(self, injection: Injection) -> None:
        await injection.context.cuts.remove(injection.id)

    def proof(self, injection: Injection) -> Proof:
        dropped: dict[str, int] = injection.evidence.get("dropped", {})
        isolated: list[str] = injection.evidence.get("isolated", [])
        untouched = [name for name in isolated if not sum(n for link, n in dropped.items() if name in _link_ends(link))]
        evidence = {
            "isolated": isolated,
            "cut": injection.evidence.get("cut", []),
            "dropped": {link: count for link, count in dropped.items() if count > 0},
            "quiet": [link for link, count in dropped.items() if count <= 0],
        }
        if not dropped or not isolated:
            return Proof(False, evidence, "the counters of dropped packets could not be read")
        if untouched:
            return Proof(False, evidence, f"no packet to or from {', '.join(untouched)} was dropped")
        return Proof(True, evidence)


async def probe_counters(cluster: Cluster) -> str | None:
    """Returns None if packets can be dropped and counted on every node, else the reason."""
    try:
        for node in cluster.nodes:
            await node.dropped()
    except NodeError as error:
        return f"packets cannot be dropped and counted: {error}"
    return None


def describe_drops(drops: Sequence[Drop]) -> list[str]:
    """Returns text: ``n1|n2`` is cut both ways; with ``n1<-n2`` only n1 drops n2's packets."""
    both = {drop for drop in drops if drop[::-1] in drops}
    return sorted({"|".join(sorted(drop)) if drop in both else f"{drop[0]}<-{drop[1]}" for drop in drops})


def _link_ends(link: str) -> list[str]:
    """Returns the nodes of a link in the text of :func:`counts_to_text`."""
    return re.split("[:>]|<-", link)


def counts_to_text(counts: dict[Drop, int]) -> dict[str, int]:
    """Returns the counts by text: ``n1<-n2`` is what n1 dropped of n2's packets."""
    return {f"{node}<-{peer}": count for (node, peer), count in counts.items()}
