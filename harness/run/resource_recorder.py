"""Samples the memory and the disk space that a run uses, and writes ``resources.json``.

- The trial calls :meth:`ResourceRecorder.sample` regularly for the harness's own usage. Its times are those of the
  run's clock, virtual in the simulation. A sample only reads, so it does not change a simulated run.
- A command on each real node prints the usage of the node. A broken connection or a frozen node leaves a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from assay.cluster import zookeeper
from assay.cluster.node import Cluster, Node, NodeError
from assay.cluster.operating_system import read_own_memory
from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, DeploymentError, SupportsDataFolder, System
from assay.harness.core.files import write_atomically
from assay.harness.core.resources import FILE, FIRST_INTERVAL, HARNESS, MOST_SAMPLES, RUN, Resources, SampleSeries

if TYPE_CHECKING:
    from assay.cluster.ssh.node import SshNode

WRITE_INTERVAL: Final = 60.0
"""Real seconds between two writes of the file. If the run is killed, the last written file remains."""


class ResourceRecorder:
    """Records the usage of one run, from ``start`` to ``stop``. ``folder``: the run's folder."""

    def __init__(self, folder: Path, system: System) -> None:
        self._folder = folder
        self._system = system
        self._memory: dict[str, SampleSeries] = defaultdict(SampleSeries)
        self._disk: dict[str, SampleSeries] = defaultdict(SampleSeries)
        self._disks: dict[str, Any] = {}
        """Disks of simulated nodes, by node."""
        self._tasks: list[asyncio.Task[None]] = []
        self._written = time.monotonic()

    def start(self, cluster: Cluster, origin: float) -> None:
        """Starts the commands on real nodes. ``origin``: when the run began, by the loop's clock."""
        nodes = (*cluster.nodes, *cluster.spares)
        if cluster.kind == "sim":
            self._disks = {node.name: getattr(node, "disk") for node in nodes}  # noqa: B009 - only there
            return
        from assay.cluster.ssh.node import SshNode

        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._follow(node, origin), name=f"usage of {node.name}")
            for node in nodes
            if isinstance(node, SshNode)
        ]

    def sample(self, now: float, *, last: bool = False) -> None:
        """Samples the harness, the run's folder and simulated disks, if a sample is due or this is the ``last`` one.

        ``now``: seconds since the run began.
        """
        if not (last or self._memory[HARNESS].is_due(now)):
            return
        self._memory[HARNESS].add(now, read_own_memory())
        self._disk[RUN].add(now, measure_folder(self._folder))
        for name, disk in self._disks.items():
            self._disk[name].add(now, disk.used)
        if last or time.monotonic() - self._written >= WRITE_INTERVAL:
            self._write()

    async def stop(self, now: float) -> None:
        """Takes the last sample, and writes the file. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.sample(now, last=True)

    def _write(self) -> None:
        memory = {name: one.samples for name, one in self._memory.items()}
        disk = {name: one.samples for name, one in self._disk.items()}
        data = msgspec.json.encode(Resources(memory=memory, disk=disk)) + b"\n"
        with contextlib.suppress(OSError):  # on a full disk, the store's reserve is for the run's other files
            write_atomically(self._folder / FILE, data)
        self._written = time.monotonic()

    async def _follow(self, node: SshNode, origin: float) -> None:
        from assay.cluster.ssh.usage import parse_usage

        loop, started = asyncio.get_running_loop(), math.inf
        try:
            async for line in node.usage(find_data_folder(self._system, node), FIRST_INTERVAL, MOST_SAMPLES):
                if (usage := parse_usage(line)) is None:
                    continue
                # A line that arrives late makes the estimate of the node's start too late. So the earliest is the best.
                started = min(started, loop.time() - usage.uptime)
                now = max(0.0, started + usage.uptime - origin)
                if usage.memory is not None:
                    self._memory[node.name].add(now, usage.memory)
                if usage.disk is not None:
                    self._disk[node.name].add(now, usage.disk)
        except (NodeError, OSError):
            return  # the samples so far are kept; nothing depends on the missing ones


def find_data_folder(system: System, node: Node) -> str | None:
    """Returns the folder of a node's data, if it is known."""
    if node.role == ZOOKEEPER_ROLE:
        return zookeeper.DATA
    if node.role == CLIENT_ROLE or not isinstance(system, SupportsDataFolder):
        return None
    try:
        return system.data_folder(node)
    except DeploymentError:  # this node has none
        return None


def measure_folder(folder: Path) -> int:
    """Returns the bytes of all files below a folder. Files that are removed meanwhile do not count."""
    return sum(_iterate_sizes(folder))


def _iterate_sizes(folder: str | os.PathLike[str]) -> Iterator[int]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _iterate_sizes(entry)
                else:
                    try:
                        yield entry.stat(follow_symlinks=False).st_size
                    except OSError:
                        continue
    except OSError:
        return


def return_free_memory() -> None:
    """Gives back to the kernel, where possible, the memory that the allocators of Arrow and of C keep for later."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
