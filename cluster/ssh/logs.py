"""The logs of a cluster's nodes: their sizes during a run, and their collection after it.

Each node reports the sizes of its text logs twice a second. The harness notes the time at which a report arrives, by
the clock of the event loop. So all bytes up to that size had been written by that time, whatever the node's clock says.
Log lines without a timestamp get their times from these sizes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from assay.cluster.log_excerpt import read_omission
from assay.cluster.naming import choose_log_names
from assay.cluster.node import NodeError
from assay.cluster.second_copy import SECOND_COPY, second_log
from assay.cluster.ssh import process
from assay.cluster.ssh.node import SshNode
from assay.cluster.system import ZOOKEEPER_ROLE, System

COMMANDS: Final = "assay-commands.log"
"""Commands of a user's system, fault or workload that changed something on the node."""
GROWTH: Final = "growth.json"
"""File in the folder of logs. For each node and log, it has pairs of time (seconds of the loop) and size."""
OWN_LOGS: Final = f"{process.LOG.rpartition('/')[0]}/*.log"
"""Pattern of the shell for the logs of processes that :func:`collect` copies."""
MAX_SIZES: Final = 20_000
"""Maximum number of sizes kept for one log. If there are more, every second one is dropped."""


async def collect(system: System, nodes: Sequence[SshNode], folder: Path) -> list[str]:
    """Copies each node's process, system and event logs to ``folder/NODE/NAME``. Returns the unavailable ones."""
    missing = await asyncio.gather(*(_collect_node(system, node, folder / node.name) for node in nodes))
    return [line for lines in missing for line in lines]


def local_log_names(system: System, node: SshNode) -> dict[str, str]:
    """Returns the local name of each of a node's logs, by path."""
    paths = [process.log_path(process_name) for process_name in (process.MAIN, *node.sidecars)]
    if node.had_second_copy:
        paths.append(process.log_path(SECOND_COPY))
    if node.role != ZOOKEEPER_ROLE:
        events = system.event_log(node)
        paths += [*system.logs(node), *([] if events is None else [events])]
        if events is not None and node.had_second_copy:
            paths.append(second_log(events))
    return choose_log_names(paths, taken=(COMMANDS,))


async def _collect_node(system: System, node: SshNode, folder: Path) -> list[str]:
    missing = []
    events = None if node.role == ZOOKEEPER_ROLE else system.event_log(node)
    optional = None if events is None else second_log(events)  # a second copy may end before it opens its log
    for path, name in local_log_names(system, node).items():
        try:
            await node.copy_log(path, folder / name)
        except FileNotFoundError:
            if path != optional:
                missing.append(f"{node.name}: {path} does not exist")
        except NodeError as error:
            missing.append(f"{node.name}: {path}: {error}")
    if node.changes:
        lines = "".join(f"{line}\n" for line in node.changes)
        await asyncio.to_thread(_store, folder / COMMANDS, lines.encode())
    return missing


def _store(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class LogSizes:
    """Observed sizes of one node's logs, by path."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[float, int]]] = {}
        self._printed: list[str] = []

    def add_line(self, line: str, now: float) -> None:
        """Adds a line that :func:`assay.cluster.ssh.stream.size_watch_command` printed. An empty line ends a round."""
        if line:
            self._printed.append(line)
            return
        printed, self._printed = self._printed, []
        for entry in printed:
            size, _, path = entry.partition(" ")
            if size.isdecimal():
                self._note(path, int(size), now)

    def _note(self, path: str, size: int, now: float) -> None:
        known = self.seen.setdefault(path, [])
        if not known or known[-1][1] != size:
            known.append((now, size))
        if len(known) > MAX_SIZES:
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
            names, seen = local_log_names(self._system, node), self._sizes[node.name].seen
            if seen:
                by_name = {names.get(path, PurePosixPath(path).name): sizes for path, sizes in seen.items()}
                known[node.name] = {
                    name: _to_excerpt_sizes(sizes, folder / node.name / name) for name, sizes in by_name.items()
                }
        if known:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / GROWTH).write_text(json.dumps(known))

    async def _follow(self, node: SshNode) -> None:
        loop, sizes = asyncio.get_running_loop(), self._sizes[node.name]
        async for line in node.log_sizes(OWN_LOGS, list_system_logs(self._system, node)):
            sizes.add_line(line, loop.time())


def _to_excerpt_sizes(sizes: list[tuple[float, int]], excerpt: Path) -> list[tuple[float, int]]:
    """Returns observed sizes of a log as positions in its stored excerpt."""
    left_out = read_omission(excerpt)
    if left_out is None:
        return sizes
    positions = [(time, left_out.to_excerpt_offset(size)) for time, size in sizes]
    return [(time, position) for time, position in positions if position is not None]


def list_system_logs(system: System, node: SshNode) -> Sequence[str]:
    """Returns the paths of the text logs of the system itself."""
    return () if node.role == ZOOKEEPER_ROLE else system.logs(node)
