"""A kill or power loss between two changes to the disk.

- ``kill-in-write``: the process ends at a change to the disk. ``change`` is the kind of change, and ``after`` the
  number of such changes to let pass first. ``side`` says whether the process ends just before or just after the change.
- ``power-loss-in-write``: the machine loses power at that moment as well.

Work that takes several changes is then half done: a file written under another name, fsynced and renamed; a log
truncated, and its epochs after it. The process ends at exactly that moment, however long the harness takes to notice.
:mod:`assay.nemesis.faults.disk_error` has the kinds of changes. Proof: that of a kill, and that it was at a change.
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from assay.cluster.node import Node, ProcessState, SupportsDiskErrors
from assay.nemesis.faults.abilities import DISK_ERRORS, Ability
from assay.nemesis.faults.disk_error import STRUCK_CHANGE, break_at_chosen, repair_disk, wait_within
from assay.nemesis.faults.fault import Injection, on_each, run_on_all
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.power_loss import PowerLoss
from assay.nemesis.faults.process import evidence_of, read_status
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import TargetError

SIDES: Final = ("before", "after")
PATIENCE: Final = 3.0
"""Seconds to wait for a change of any kind, if none of the chosen kind has occurred."""


class KillInWrite(Kill):
    """Ends the process of one server just before, or just after, a change to its disk."""

    name = "kill-in-write"
    description = "the process is killed just before or after a change to its disk; started again at the heal"
    abilities: Sequence[Ability] = (DISK_ERRORS,)
    drawn: Mapping[str, Sequence[Parameter]] = {**STRUCK_CHANGE, "side": SIDES}
    slow_disks = True

    async def inject(self, injection: Injection) -> None:
        """Injects the fault. If several machines lose power together, it is enough that one ends at a change."""

        async def note(node: Node) -> None:
            seen = evidence_of(injection, node)
            seen["before"] = await read_status(node)
            seen["ends"] = (await cast(SupportsDiskErrors, node).read_disk_errors()).ends

        await on_each(injection.targets, note)
        await break_at_chosen(injection, lambda: _has_ended(injection), after_change=_read_side(injection) == "after")
        await wait_within(PATIENCE, lambda: _has_ended(injection))
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
        """Kills the other targets, which have not ended at a change."""
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
        raise TargetError(f"{injection.step.fault} needs the parameter side, {wanted}, not {value!r}")
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
