"""Methods of a node that rely on libraries preloaded into its main process: shifted clock, slow and failing disk."""

import asyncio
import shlex
from collections.abc import Collection

from assay.cluster.node import DiskChange, DiskErrorEffects, NodeError, Slowed
from assay.cluster.ssh import clock, disk_slowness, process
from assay.cluster.ssh.node_processes import CommandMethods


class PreloadMethods(CommandMethods):
    """Mixin of :class:`assay.cluster.ssh.node.SshNode`."""

    def __init__(self) -> None:
        self._clock: str | None = "its processes were started without the library that shifts clocks"
        self._slowness: str | None = "its processes were started without the library that slows disks"
        self._read_before = 0

    def set_missing_preloads(self, *, clock: str | None, slowness: str | None) -> None:
        """Sets why the processes lack each preloaded library; None means that they have it."""
        self._clock, self._slowness = clock, slowness

    async def shift_clock(self, seconds: float) -> None:
        self._needs_clock()
        if seconds:
            await self._record_undo("clock", clock.UNDO)
        await self.shell(clock.shift_command(seconds))
        self._read_before = clock.parse_shown(await self.shell(clock.READ))[1]
        if not seconds:
            await self._mark_undone("clock")

    async def clock_shift(self) -> float:
        """Returns the shift that the main process has read since the last change, or 0 if it has not read the clock."""
        self._needs_clock()
        for _ in range(clock.READ_ATTEMPTS):
            seconds, times = clock.parse_shown(await self.shell(clock.READ))
            if times > self._read_before:
                return seconds
            await asyncio.sleep(clock.READ_INTERVAL)
        return 0.0

    def _needs_clock(self) -> None:
        if self._clock is not None:
            raise NodeError(f"the clock of {self.name} cannot be shifted: {self._clock}")

    def slowness_unavailable(self) -> str | None:
        return self._slowness

    async def slow_disk(self, fsync: float, call: float = 0.0) -> None:
        self._needs_slowness()
        if fsync or call:
            await self._record_undo("slow", disk_slowness.UNDO)
        await self.shell(disk_slowness.slow_command(fsync, call))
        if not fsync and not call:
            await self._mark_undone("slow")

    async def halt_in_fsync(self, after: float) -> None:
        self._needs_slowness()
        if after:
            await self._record_undo("halt", process.UNDO_STOP)
        await self.shell(disk_slowness.halt_command(after))
        if not after:
            await self.shell(shlex.join(process.UNDO_STOP))
            await self._mark_undone("halt")

    async def read_disk_delays(self) -> Slowed:
        self._needs_slowness()
        return disk_slowness.parse_slowed(await self.shell(disk_slowness.READ))

    async def break_disk(
        self, changes: Collection[DiskChange], after: int = 0, errors: int = 1, *, after_change: bool = False
    ) -> None:
        self._needs_slowness()
        if changes:
            await self._record_undo("break", disk_slowness.UNDO_FAILING)
        await self.shell(disk_slowness.fail_command(changes, after, errors, after_change))
        if not changes:
            await self._mark_undone("break")

    async def read_disk_errors(self) -> DiskErrorEffects:
        self._needs_slowness()
        return disk_slowness.parse_failures(await self.shell(disk_slowness.READ))

    def _needs_slowness(self) -> None:
        if self._slowness is not None:
            raise NodeError(f"the disk of {self.name} cannot be made slow, or to fail: {self._slowness}")
