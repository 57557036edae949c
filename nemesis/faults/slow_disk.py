"""A slow disk: fsyncs take longer, or all reads and writes do.

- ``slow-fsync``: each fsync of the targets takes ``seconds`` more while the fault is active
- ``slow-disk``: each read and each write takes ``seconds`` more, and each fsync ten times that

Data are on the disk only once their fsync has ended. A system that acknowledges them earlier has promised too much. On
a slow disk, other faults often hit work that takes several fsyncs while it is half done. With ``slow-disk`` each call
blocks the process, so everything that it does is late. It answers and usually keeps its sessions, but delays every
process that waits for it.

Proof: the node's counts of slow calls.
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from assay.cluster.node import Node, Slowed, SupportsSlowDisk
from assay.nemesis.faults.abilities import SLOW_DISK
from assay.nemesis.faults.fault import LINGER_SECONDS, Impact, Injection, Proof, Scope
from assay.nemesis.faults.process import ServerFault, evidence_of, read_number
from assay.nemesis.schedule.schedule import Parameter

FSYNC_SECONDS: Final = (0.05, 0.2, 0.8)
CALL_SECONDS: Final = (0.002, 0.01, 0.03)
FSYNC_TIMES: Final = 10
"""Ratio of an fsync's delay to a write's delay on a slow disk. An fsync waits for all earlier writes."""
MAX_SECONDS: Final = 10.0


class SlowFsync(ServerFault):
    """Slows every fsync until the heal."""

    name = "slow-fsync"
    description = "each fsync of the server takes up to 0.8 s longer"
    abilities = (SLOW_DISK,)
    scope = Scope.DISK
    impact = Impact()
    lingers = LINGER_SECONDS  # maximum seconds beyond the duration while it has no effect yet
    slow_disks = True
    """Containers must start their processes in a way that allows to slow their disks."""
    drawn: Mapping[str, Sequence[Parameter]] = {"seconds": FSYNC_SECONDS}
    what = "fsync"
    """The slowed calls, for messages."""

    async def strike(self, injection: Injection, node: Node) -> None:
        seconds, disk = read_seconds(injection), cast(SupportsSlowDisk, node)
        evidence_of(injection, node)["before"] = self.count_slow(await disk.read_disk_delays())
        await self.slow(disk, seconds)

    async def slow(self, disk: SupportsSlowDisk, seconds: float) -> None:
        await disk.slow_disk(seconds)

    def count_slow(self, slowed: Slowed) -> int:
        """Returns how many calls of the kind that this fault slows have been slow."""
        return slowed.fsyncs

    async def observe_node(self, injection: Injection, node: Node) -> None:
        seen = evidence_of(injection, node)
        seen["slow"] = self.count_slow(await cast(SupportsSlowDisk, node).read_disk_delays()) - seen["before"]

    async def undo(self, injection: Injection, node: Node) -> None:
        await restore_speed(node)

    def proof(self, injection: Injection) -> Proof:
        fast = [name for name in injection.names if not injection.evidence.get(name, {}).get("slow")]
        reason = f"{', '.join(fast)} made no {self.what} that was slow" if fast else None
        return Proof(not fast, injection.evidence, reason)


class SlowDisk(SlowFsync):
    """Slows every call to the disk until the heal."""

    name = "slow-disk"
    description = "each read and write of the server takes up to 0.03 s longer, and each fsync up to 0.3 s"
    drawn: Mapping[str, Sequence[Parameter]] = {"seconds": CALL_SECONDS}
    what = "read or write"

    async def slow(self, disk: SupportsSlowDisk, seconds: float) -> None:
        await disk.slow_disk(FSYNC_TIMES * seconds, seconds)

    def count_slow(self, slowed: Slowed) -> int:
        return slowed.calls


def read_seconds(injection: Injection) -> float:
    """Returns the additional seconds. Raises ``TargetError`` if the parameter is invalid."""
    return read_number(injection, "seconds", MAX_SECONDS)


async def restore_speed(node: Node) -> None:
    """Restores the speed of a node's disk."""
    if isinstance(node, SupportsSlowDisk):
        await node.slow_disk(0.0)
