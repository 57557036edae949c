"""Power loss: a machine stops at once, and of its files only what had been fsynced is left; it is started at the heal.

Unlike a kill, which leaves the page cache to the next process. One machine at a time, unless more are asked for: what a
system promises when several lose power together is a matter of its flush settings, and of its contract.

Proof: that of the kill, and what each file lost. That may be nothing, where all had been fsynced: a real node tries at
each loss whether bytes that were not are gone, and fails when they are not.
"""

from typing import cast

from assay.cluster.node import Cluster, Node, SupportsPowerLoss
from assay.cluster.system import System
from assay.nemesis.faults.fault import Injection, on_all
from assay.nemesis.faults.impact import Impact
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.process import not_here
from assay.nemesis.schedule.target import Kind


class PowerLoss(Kill):
    """A kill that takes what was not fsynced."""

    name = "power-loss"
    description = "the machine loses power: what was not fsynced is gone; started again at the heal"
    impact = Impact(ends_process=True, loses_unsynced=True)
    kinds = (Kind.ONE, Kind.LEADER, Kind.FOLLOWER, Kind.CONTROLLER)
    on_targets = staticmethod(on_all)
    """One after the other, the last would have had time to flush what it alone still had."""

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return not_here(cluster, system, SupportsPowerLoss, "cut", "power") or await super().probe(cluster, system)

    async def end(self, injection: Injection, node: Node) -> None:
        lost = dict(await cast(SupportsPowerLoss, node).power_loss())
        injection.evidence[node.name] |= {"lost": lost, "lost_bytes": sum(lost.values()), "lost_files": len(lost)}
