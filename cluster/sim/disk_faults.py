"""Faults of a simulated node's disk: full, slow or failing."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from assay.cluster.node import DiskChange, DiskErrorEffects, ProcessState, ProcessStatus, Slowed
from assay.cluster.sim.disk import SimDisk

PROBE_BYTES = 4096
"""Size of the write that is tried when a disk is examined."""


class DiskFaultMethods:
    """Mixin of :class:`assay.cluster.sim.node.SimNode` for its disk."""

    disk: SimDisk

    def _require_reachable(self) -> None:
        raise NotImplementedError

    async def find_files(self, pattern: str) -> Mapping[str, int]:
        raise NotImplementedError

    async def process(self) -> ProcessStatus:
        raise NotImplementedError

    async def resume(self) -> None:
        raise NotImplementedError

    async def fill_disk(self) -> None:
        self._require_reachable()
        self.disk.capacity = self.disk.used

    async def free_disk(self) -> None:
        self._require_reachable()
        self.disk.capacity = None

    async def room(self) -> tuple[int, bool]:
        self._require_reachable()
        free = self.disk.free
        return free, free < PROBE_BYTES

    def own_disk_unavailable(self) -> str | None:
        return None

    async def unsynced(self, pattern: str) -> Mapping[str, int]:
        return {path: size for path in await self.find_files(pattern) if (size := self.disk.state(path).unsynced)}

    def slowness_unavailable(self) -> str | None:
        return None

    async def slow_disk(self, fsync: float, call: float = 0.0) -> None:
        self._require_reachable()
        self.disk.slowness.fsync, self.disk.slowness.call = fsync, call

    async def halt_in_fsync(self, after: float) -> None:
        self._require_reachable()
        self.disk.slowness.halt = after
        if not after:
            await self.resume()

    async def read_disk_delays(self) -> Slowed:
        self._require_reachable()
        standing = (await self.process()).state is ProcessState.STOPPED
        return replace(self.disk.slowness.so_far, standing=standing)

    async def break_disk(
        self, changes: Collection[DiskChange], after: int = 0, errors: int = 1, *, after_change: bool = False
    ) -> None:
        self._require_reachable()
        breaking = self.disk.breaking
        breaking.changes, breaking.after, breaking.errors = frozenset(changes), after, errors
        breaking.after_change = after_change

    async def read_disk_errors(self) -> DiskErrorEffects:
        self._require_reachable()
        return self.disk.breaking.so_far
