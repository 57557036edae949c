"""A kill or power loss during an fsync.

- ``kill-in-fsync``: fsyncs are delayed for ``slow_for`` seconds, each by ``seconds``. Then the process is killed in the
  middle of one (after ``part`` of it).
- ``power-loss-in-fsync``: the same, but the power is lost (``power_loss``).

The data of that fsync are then not on the disk, or torn. The disk stops the process at exactly that moment, and it dies
there, however long the harness takes to notice. The stopped process may be one that the main process has started, such
as PostgreSQL's writers. All of them are killed then. Proof: it was stopped so, and the proof of the end.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, cast

from assay.cluster.node import Node, SupportsSlowDisk
from assay.nemesis.faults.abilities import SLOW_DISK, Ability
from assay.nemesis.faults.fault import Injection, on_each, run_on_all
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.power_loss import PowerLoss
from assay.nemesis.faults.process import evidence_of
from assay.nemesis.faults.slow_disk import read_seconds, restore_speed
from assay.nemesis.schedule.schedule import Parameter

LONG: Final = (0.05, 0.2, 0.8)
SLOW_FOR: Final = (0.0, 0.0, 0.5, 1.5)
"""Seconds. Work that is begun, appended or counted during a slow fsync shows after it."""
PARTS: Final = (0.1, 0.5, 0.9)
PATIENCE: Final = 4.0
"""Seconds for an fsync to begin. The broker makes one at least once a second while it gets writes."""
LOOK_EVERY: Final = 0.01


class KillInFsync(Kill):
    """Kills the process of one server during an fsync."""

    name = "kill-in-fsync"
    description = "fsyncs are slow for a moment, and in the middle of one the process is killed; started at the heal"
    abilities: Sequence[Ability] = (SLOW_DISK,)
    drawn: Mapping[str, Sequence[Parameter]] = {"seconds": LONG, "slow_for": SLOW_FOR, "part": PARTS}
    slow_disks = True

    async def inject(self, injection: Injection) -> None:
        """Injects the fault. If several machines lose power together, one of them in an fsync is enough."""
        seconds, parameters = read_seconds(injection), injection.step.parameters
        midway = seconds * min(float(parameters.get("part", 0.5)), 0.9)
        slow_for = float(parameters.get("slow_for", 0.0))
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def slow(node: Node) -> None:
            disk = cast(SupportsSlowDisk, node)
            evidence_of(injection, node)["halts"] = (await disk.read_disk_delays()).halts
            await disk.slow_disk(seconds)

        await on_each(injection.targets, slow)
        await asyncio.sleep(slow_for)
        await on_each(injection.targets, lambda node: cast(SupportsSlowDisk, node).halt_in_fsync(midway))
        caught: list[str] = []
        while not caught and loop.time() <= began + slow_for + PATIENCE:
            await asyncio.sleep(LOOK_EVERY)
            caught = await _find_halted(injection)
        injection.evidence["in_fsync"] = caught
        injection.evidence["waited"] = round(loop.time() - began, 3)
        await super().inject(injection)
        await on_each(injection.targets, _repair_disk)

    async def heal(self, injection: Injection) -> None:
        await on_each(injection.targets, _repair_disk)
        await super().heal(injection)

    def find_missing_effect(self, injection: Injection) -> str | None:
        caught = injection.evidence.get("in_fsync")
        return None if caught else f"no fsync of {', '.join(injection.names)} was under way"


class PowerLossInFsync(KillInFsync, PowerLoss):
    """Cuts the power of one server during an fsync."""

    name = "power-loss-in-fsync"
    description = "the same, and the machine loses power: what was not fsynced is gone; started again at the heal"
    abilities = (*KillInFsync.abilities, *PowerLoss.abilities)
    impact = PowerLoss.impact
    on_targets = staticmethod(run_on_all)


async def _find_halted(injection: Injection) -> list[str]:
    """Returns the targets with a process, main or started by the main one, that is stopped in an fsync."""
    halted = []
    for node in injection.targets:
        slowed = await cast(SupportsSlowDisk, node).read_disk_delays()
        if slowed.halts > evidence_of(injection, node)["halts"] and slowed.standing:
            halted.append(node.name)
    return halted


async def _repair_disk(node: Node) -> None:
    """Cancels the halt, continues a halted process, and restores the disk's speed."""
    if isinstance(node, SupportsSlowDisk):
        await node.halt_in_fsync(0.0)
    await restore_speed(node)
