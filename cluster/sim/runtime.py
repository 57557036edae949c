"""Runtime of a simulated process: its disk, clock, random source, event log and ZooKeeper client.

It has the methods of ``assay.cluster.runtime.Runtime`` and of the broker's own interface of runtimes.
"""

import errno
from collections.abc import Callable

from assay.cluster.rng import RandomSources
from assay.cluster.sim.disk import SimDisk
from assay.cluster.sim.process import Process
from assay.cluster.sim.zookeeper.client import SimZooKeeper

EPOCH = 1_700_000_000.0
"""Seconds since 1970 at virtual time 0."""


class DeadProcessError(OSError):
    """A killed process tried to use its disk while it was being unwound. The disk was not changed."""


class SimRuntime:
    """Runtime of one process.

    ``process`` is None for the harness. The harness cannot be stopped, and its event log is not read.
    """

    def __init__(
        self,
        *,
        label: str,
        random_sources: RandomSources,
        process: Process | None,
        disk: SimDisk,
        clock: Callable[[], float],
        event_log: Callable[[str], None],
        host_name: str,
    ) -> None:
        """``label`` seeds the process's random sources: it has the run's seed, the node and the incarnation."""
        self._label = label
        self._random_sources = random_sources
        self._process = process
        self._disk = disk
        self._clock = clock
        self._event_log = event_log
        self._clients = 0
        self.host_name = host_name
        self.random = random_sources.source(label)
        delays = random_sources.source(f"{label} fsync")
        self.storage = disk.storage(
            check=self._require_alive,
            fsync_delay=lambda: 0.0002 + 0.0018 * delays.random(),
            process=process,
            name="" if process is None else process.incarnation,
        )

    def read_file(self, path: str) -> bytes:
        self._require_alive()
        return self._disk.read(path)

    def wall_clock(self) -> float:
        return self._clock()

    def zookeeper(self, servers: str, session_timeout: float) -> SimZooKeeper:
        self._clients += 1
        source = self._random_sources.source(f"{self._label} zookeeper {self._clients}")
        return SimZooKeeper(servers, session_timeout, source)

    def event_log(self, line: str) -> None:
        process = self._process
        if process is None or process.running:
            self._event_log(line)
        else:
            process.call_after_resume(self._event_log, line)

    def hold(self) -> None:
        """Stops the process. The calling step continues to its next ``await``.

        The step's effects on the outside world (network, event log) are delayed until the resume. Only the process's
        own disk and memory change immediately.
        """
        if self._process is not None:
            self._process.stop()

    def _require_alive(self) -> None:
        if self._process is not None and self._process.dead:
            raise DeadProcessError(errno.ESRCH, f"{self._process.name} was killed")
