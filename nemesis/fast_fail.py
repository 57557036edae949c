"""Fast fail: a partition that rejects instead of dropping, as a firewall does, or a host whose process is gone.

Every packet of a cut link is answered with a TCP reset, so established connections break at once and new ones are
refused: no one waits for a timeout, all error paths run at the same moment, and reconnecting clients spin.
Resets themselves pass. The shapes are those of :mod:`assay.nemesis.partition`; proof: the counters of the rejecting
rules.
"""

from assay.nemesis.cuts import Manner
from assay.nemesis.partition import Partition
from assay.nemesis.shape import Shape


class FastFail(Partition):
    """REJECT with tcp-reset; one server from all others unless the step says another shape."""

    manner = Manner.REJECT

    def __init__(self) -> None:
        super().__init__(Shape.ONE)
        self.name = "partition-fast-fail"
        self.description = "one server whose packets to and from others are rejected with a reset, not dropped"
        self.roles = ()
