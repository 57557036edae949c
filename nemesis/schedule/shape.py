"""The shapes of a partition and their targets; :mod:`assay.nemesis.faults.partition` explains them."""

import enum

from assay.nemesis.schedule.target import TargetKind


class PartitionShape(enum.StrEnum):
    ONE = "one"
    HALVES = "halves"
    MAJORITY_MINORITY = "majority-minority"
    RANDOM_HALVES = "random-halves"
    ISOLATE_LEADER = "isolate-leader"
    ISOLATE_CONTROLLER = "isolate-controller"
    MAJORITIES_RING = "majorities-ring"
    BRIDGE = "bridge"
    FROM_ZOOKEEPER = "from-zookeeper"
    LEADER_AND_FOLLOWER = "leader-and-follower"
    FOLLOWER_FROM_LEADER = "follower-from-leader"
    LINKS = "links"


ISOLATED = {
    PartitionShape.ONE: TargetKind.ONE,
    PartitionShape.HALVES: TargetKind.HALF,
    PartitionShape.MAJORITY_MINORITY: TargetKind.MINORITY,
    PartitionShape.RANDOM_HALVES: TargetKind.HALF,
    PartitionShape.ISOLATE_LEADER: TargetKind.LEADER,
    PartitionShape.ISOLATE_CONTROLLER: TargetKind.CONTROLLER,
    PartitionShape.MAJORITIES_RING: TargetKind.ALL,
    PartitionShape.BRIDGE: TargetKind.ONE,
    PartitionShape.LEADER_AND_FOLLOWER: TargetKind.LEADER,
    PartitionShape.FOLLOWER_FROM_LEADER: TargetKind.FOLLOWER,
}
"""The target that each shape isolates (or that is the bridge). ``one`` takes other targets, too."""
