"""A kill or power loss during an fsync, or between two changes to the disk.

- ``kill-in-fsync``: fsyncs are delayed for ``slow_for`` seconds, each by ``seconds``. Then the process is killed in the
  middle of one (after ``part`` of it). The data of that fsync are then not on the disk, or torn.
- ``kill-in-write``: the process ends at a change to the disk. ``change`` is the kind of change
  (:mod:`assay.nemesis.faults.disk_error`), and ``after`` the number of such changes to let pass first. ``side`` says
  whether the process ends just before or just after the change. Work that takes several changes is then half done. For
  example, a file is written under another name, fsynced and then renamed.
- ``power-loss-in-fsync``, ``power-loss-in-write``: the machine loses power at that moment as well.

The process ends at exactly that moment, however long the harness takes to notice. The process that is caught in an
fsync may be a child of the main process, such as PostgreSQL's writers; then all are killed. The proof is that of
``kill``, and that the process was stopped in an fsync, or ended at a change.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, cast

from assay.cluster.node import Node, ProcessState, SupportsDiskErrors, SupportsSlowDisk
from assay.nemesis.faults.abilities import DISK_ERRORS, SLOW_DISK, Ability
from assay.nemesis.faults.disk_error import CHANGE_PARAMETERS, break_at_chosen, repair_disk, wait_within
from assay.nemesis.faults.fault import Injection, on_each, run_on_all
from assay.nemesis.faults.kill import Kill, PowerLoss
from assay.nemesis.faults.process import evidence_of, read_status
from assay.nemesis.faults.slow_disk import read_seconds, restore_speed
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import TargetError

DELAYS: Final = (0.05, 0.2, 0.8)
"""Seconds that each fsync is delayed."""
SLOW_FOR: Final = (0.0, 0.0, 0.5, 1.5)
"""Seconds of slow fsyncs before the kill, so that other work may go on meanwhile."""
PARTS: Final = (0.1, 0.5, 0.9)
"""Shares of the fsync's delay after which the process is killed."""
FSYNC_SECONDS: Final = 4.0
"""Maximum seconds to wait for an fsync. The broker makes one at least once a second while it gets writes."""
POLL_SECONDS: Final = 0.01


class KillInFsync(Kill):
    """Kills the process of one server during an fsync."""

    name = "kill-in-fsync"
    description = "fsyncs are slow for a moment, and in the middle of one the process is killed; started at the heal"
    abilities: Sequence[Ability] = (SLOW_DISK,)
    drawn: Mapping[str, Sequence[Parameter]] = {"seconds": DELAYS, "slow_for": SLOW_FOR, "part": PARTS}
    slow_disks = True  # processes are started so that their disks can be slow, or fail

    async def inject(self, injection: Injection) -> None:
        """Injects the fault. If several machines lose power together, it is enough that one of them is in an fsync."""
        seconds, parameters = read_seconds(injection), injection.step.parameters
        midway = seconds * min(float(parameters.get("part", 0.5)), 0.9)
        slow_for = float(parameters.get("slow_for", 0.0))
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def slow(node: Node) -> None:
            disk = cast(SupportsSlowDisk, node)
            evidence_of(injection, node)["halts"] = (await disk.read_disk_delays()).halts  # in an fsync so far
            await disk.slow_disk(seconds)

        await on_each(injection.targets, slow)
        await asyncio.sleep(slow_for)
        await on_each(injection.targets, lambda node: cast(SupportsSlowDisk, node).halt_in_fsync(midway))
        caught: list[str] = []
        while not caught and loop.time() <= began + slow_for + FSYNC_SECONDS:
            await asyncio.sleep(POLL_SECONDS)
            caught = await _find_halted(injection)
        injection.evidence["in_fsync"] = caught
        injection.evidence["waited"] = round(loop.time() - began, 3)
        await super().inject(injection)
        await on_each(injection.targets, _end_slowness)

    async def heal(self, injection: Injection) -> None:
        await on_each(injection.targets, _end_slowness)
        await super().heal(injection)

    def find_missing_effect(self, injection: Injection) -> str | None:
        caught = injection.evidence.get("in_fsync")
        return (
            None if caught else f"no fsync of {', '.join(injection.names)} was in progress when the process was killed"
        )


class PowerLossInFsync(KillInFsync, PowerLoss):
    """Cuts the power of one server during an fsync."""

    name = "power-loss-in-fsync"
    description = "kill-in-fsync, and the machine loses power: what was not fsynced is gone; started again at the heal"
    abilities = (*KillInFsync.abilities, *PowerLoss.abilities)
    impact = PowerLoss.impact
    on_targets = staticmethod(run_on_all)  # all targets lose power at the same moment


async def _find_halted(injection: Injection) -> list[str]:
    """Returns the targets whose main process, or a child of it, is stopped in an fsync."""
    halted = []
    for node in injection.targets:
        slowed = await cast(SupportsSlowDisk, node).read_disk_delays()
        if slowed.halts > evidence_of(injection, node)["halts"] and slowed.is_halted:
            halted.append(node.name)
    return halted


async def _end_slowness(node: Node) -> None:
    """Cancels the halt, continues a halted process, and restores the disk's speed."""
    if isinstance(node, SupportsSlowDisk):
        await node.halt_in_fsync(0.0)
    await restore_speed(node)


SIDES: Final = ("before", "after")
CHANGE_SECONDS: Final = 3.0
"""Seconds to wait for a change of any kind, if none of the chosen kind has occurred."""


class KillInWrite(Kill):
    """Ends the process of one server just before, or just after, a change to its disk."""

    name = "kill-in-write"
    description = "the process is killed just before or after a change to its disk; started again at the heal"
    abilities: Sequence[Ability] = (DISK_ERRORS,)
    drawn: Mapping[str, Sequence[Parameter]] = {**CHANGE_PARAMETERS, "side": SIDES}
    slow_disks = True  # processes are started so that their disks can be slow, or fail

    async def inject(self, injection: Injection) -> None:
        """Injects the fault. If several machines lose power together, it is enough that one ends at a change."""

        async def note(node: Node) -> None:
            evidence = evidence_of(injection, node)
            evidence["before"] = await read_status(node)
            evidence["ends"] = (await cast(SupportsDiskErrors, node).read_disk_errors()).ends  # at a change so far

        await on_each(injection.targets, note)
        await break_at_chosen(injection, lambda: _has_ended(injection), after_change=_read_side(injection) == "after")
        await wait_within(CHANGE_SECONDS, lambda: _has_ended(injection))
        injection.evidence["in_write"] = await _find_ended(injection)
        await super().inject(injection)
        await on_each(injection.targets, repair_disk)

    async def heal(self, injection: Injection) -> None:
        await on_each(injection.targets, repair_disk)
        await super().heal(injection)

    def find_missing_effect(self, injection: Injection) -> str | None:
        caught = injection.evidence.get("in_write")
        return None if caught else f"{', '.join(injection.names)} was not killed at a change to the disk"

    async def end(self, injection: Injection, node: Node) -> None:
        """Kills the process if it has not ended at a change."""
        if (await node.process()).state is not ProcessState.DEAD:
            await super().end(injection, node)


class PowerLossInWrite(KillInWrite, PowerLoss):
    """Cuts the power of one server just before, or just after, a change to its disk."""

    name = "power-loss-in-write"
    description = "power is cut just before or after a change to the disk: unsynced data is gone; started at the heal"
    abilities = (*KillInWrite.abilities, *PowerLoss.abilities)
    impact = PowerLoss.impact
    on_targets = staticmethod(run_on_all)

    async def end(self, injection: Injection, node: Node) -> None:
        """Cuts the power, even if the process is dead already."""
        await PowerLoss.end(self, injection, node)


def _read_side(injection: Injection) -> str:
    value = injection.step.parameters.get("side", "before")
    if value not in SIDES:
        wanted = " or ".join(SIDES)
        raise TargetError(f"{injection.step.fault}: the parameter side is {value!r}; it must be {wanted}")
    return str(value)


async def _find_ended(injection: Injection) -> list[str]:
    """Returns the targets whose processes have ended at a change."""
    return [
        node.name
        for node in injection.targets
        if (await cast(SupportsDiskErrors, node).read_disk_errors()).ends > evidence_of(injection, node)["ends"]
    ]


async def _has_ended(injection: Injection) -> bool:
    return bool(await _find_ended(injection))
