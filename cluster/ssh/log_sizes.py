"""How long each text log of a cluster's nodes was, when: by that, lines that say no time have that of their arrival.

The nodes are asked twice a second, and a moment is that at which the answer is here, by the clock of the event loop. So
what lies below a size had arrived by its moment, whatever the clock of its node says.
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
"""In the folder of logs: by node, by the log's name, moments (seconds of the loop) with the size that it had."""
MOST: Final = 20_000
"""Sizes of one log that are kept; of more, every second one goes."""


class Sizes:
    """Of one node's logs, by path, as they were seen."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[float, int]]] = {}
        self._printed: list[str] = []

    def take(self, line: str, now: float) -> None:
        """One line of what :func:`assay.cluster.ssh.stream.looking` prints; a look ends with an empty one."""
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


class Growth:
    """Of the logs of some nodes, from ``start`` to ``stop``."""

    def __init__(self, system: System, nodes: Sequence[SshNode]) -> None:
        self._system = system
        self._nodes = nodes
        self._sizes = {node.name: Sizes() for node in nodes}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._follow(node), name=f"growth of {node.name}'s logs") for node in self._nodes
        ]

    async def stop(self) -> list[str]:
        """Why that of some nodes is not known to the end, for a reader. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        return [
            f"{node.name}: how its logs grew is not known to the end: {error}"
            for node, error in zip(self._nodes, ended, strict=False)
            if isinstance(error, NodeError | OSError)
        ]

    def save(self, folder: Path) -> None:
        """``folder/growth.json``. Raises ``OSError``."""
        known = {}
        for node in self._nodes:
            called, seen = logs.names(self._system, node), self._sizes[node.name].seen
            if seen:
                known[node.name] = {called.get(path, PurePosixPath(path).name): sizes for path, sizes in seen.items()}
        if known:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / FILE).write_text(json.dumps(known))

    async def _follow(self, node: SshNode) -> None:
        loop, sizes = asyncio.get_running_loop(), self._sizes[node.name]
        async for line in node.log_sizes(words(self._system, node)):
            sizes.take(line, loop.time())


def words(system: System, node: SshNode) -> list[str]:
    """The text logs that :mod:`assay.cluster.ssh.logs` brings home, as words of the shell."""
    own = f"{process.LOG.rpartition('/')[0]}/*.log"
    return [own] if node.role == ZOOKEEPER_ROLE else [own, *map(shlex.quote, system.logs(node))]
