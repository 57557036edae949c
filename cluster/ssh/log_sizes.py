"""Records how long each text log was at which time. Log lines without a timestamp get their time from it.

Each node reports sizes twice a second. A size's time is the arrival of the answer, by the clock of the event loop. So
all data below a size had been written by that time, whatever the node's clock says.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from assay.cluster.node import NodeError
from assay.cluster.ssh import logs, process
from assay.cluster.ssh.node import SshNode
from assay.cluster.system import ZOOKEEPER_ROLE, System

FILE: Final = "growth.json"
"""File in the folder of logs: node to log name to pairs of time (seconds of the loop) and size."""
MOST: Final = 20_000
"""Maximum number of sizes kept for one log. Beyond it every second one is dropped."""


class LogSizes:
    """Observed sizes of one node's logs, by path."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[float, int]]] = {}
        self._printed: list[str] = []

    def take(self, line: str, now: float) -> None:
        """Takes one line printed by :func:`assay.cluster.ssh.stream.size_watch_command`. An empty line ends a look."""
        if line:
            self._printed.append(line)
            return
        printed, self._printed = self._printed, []
        for one in printed:
            size, _, path = one.partition(" ")
            if size.isdecimal():
                self._note(path, int(size), now)

    def _note(self, path: str, size: int, now: float) -> None:
        known = self.seen.setdefault(path, [])
        if not known or known[-1][1] != size:
            known.append((now, size))
        if len(known) > MOST:
            del known[:-1:2]


class LogGrowthRecorder:
    """Records the sizes of some nodes' logs, from ``start`` to ``stop``."""

    def __init__(self, system: System, nodes: Sequence[SshNode]) -> None:
        self._system = system
        self._nodes = nodes
        self._sizes = {node.name: LogSizes() for node in nodes}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._follow(node), name=f"growth of {node.name}'s logs") for node in self._nodes
        ]

    async def stop(self) -> list[str]:
        """Stops recording. Returns an error text for each node whose record is incomplete. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        return [
            f"{node.name}: the sizes of its logs are not known to the end: {error}"
            for node, error in zip(self._nodes, ended, strict=False)
            if isinstance(error, NodeError | OSError)
        ]

    def save(self, folder: Path) -> None:
        """Writes ``folder/growth.json``. Raises ``OSError``."""
        known = {}
        for node in self._nodes:
            called, seen = logs.local_log_names(self._system, node), self._sizes[node.name].seen
            if seen:
                known[node.name] = {called.get(path, PurePosixPath(path).name): sizes for path, sizes in seen.items()}
        if known:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / FILE).write_text(json.dumps(known))

    async def _follow(self, node: SshNode) -> None:
        loop, sizes = asyncio.get_running_loop(), self._sizes[node.name]
        async for line in node.log_sizes(log_patterns(self._system, node)):
            sizes.take(line, loop.time())


def log_patterns(system: System, node: SshNode) -> list[str]:
    """Returns the text logs that :mod:`assay.cluster.ssh.logs` collects, as words of the shell."""
    own = f"{process.LOG.rpartition('/')[0]}/*.log"
    return [own] if node.role == ZOOKEEPER_ROLE else [own, *map(shlex.quote, system.logs(node))]
