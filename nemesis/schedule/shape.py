"""The shapes of a partition and their targets; :mod:`assay.nemesis.faults.partition` explains them."""

import enum

from assay.nemesis.schedule.target import Kind


class Shape(enum.StrEnum):
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
    Shape.ONE: Kind.ONE,
    Shape.HALVES: Kind.HALF,
    Shape.MAJORITY_MINORITY: Kind.MINORITY,
    Shape.RANDOM_HALVES: Kind.HALF,
    Shape.ISOLATE_LEADER: Kind.LEADER,
    Shape.ISOLATE_CONTROLLER: Kind.CONTROLLER,
    Shape.MAJORITIES_RING: Kind.ALL,
    Shape.BRIDGE: Kind.ONE,
    Shape.LEADER_AND_FOLLOWER: Kind.LEADER,
    Shape.FOLLOWER_FROM_LEADER: Kind.FOLLOWER,
}
"""The target that each shape isolates (or that is the bridge). ``one`` takes other targets, too."""
