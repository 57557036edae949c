"""Power loss: a machine stops at once, and only fsynced data of its files are left; it is started at the heal.

A kill, in contrast, leaves the page cache to the next process. Only one machine is hit at a time, unless more are
requested: a system's promise for a common power loss depends on its flush settings, and on its contract.

Proof: that of a kill, and the bytes that each file lost, which may be none. So a real node tests
at each loss that unsynced bytes are gone, and fails otherwise.
"""

from collections.abc import Sequence
from typing import cast

from assay.cluster.node import Node, SupportsPowerLoss
from assay.nemesis.faults.abilities import POWER_LOSS, Ability
from assay.nemesis.faults.fault import Injection, run_on_all
from assay.nemesis.faults.impact import Impact
from assay.nemesis.faults.kill import Kill
from assay.nemesis.schedule.target import TargetKind


class PowerLoss(Kill):
    """A kill that loses unsynced data."""

    name = "power-loss"
    description = "the machine loses power: what was not fsynced is gone; started again at the heal"
    impact = Impact(ends_process=True, loses_unsynced=True)
    abilities: Sequence[Ability] = (POWER_LOSS,)
    kinds = (TargetKind.ONE, TargetKind.LEADER, TargetKind.FOLLOWER, TargetKind.CONTROLLER)
    on_targets = staticmethod(run_on_all)
    """All targets lose power at once: otherwise the last one could flush data that only it has."""

    async def end(self, injection: Injection, node: Node) -> None:
        lost = dict(await cast(SupportsPowerLoss, node).cut_power())
        injection.evidence[node.name] |= {"lost": lost, "lost_bytes": sum(lost.values()), "lost_files": len(lost)}
