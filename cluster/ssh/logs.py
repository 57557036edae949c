"""Collects the logs of a cluster's nodes after a run."""

import asyncio
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from assay.cluster.node import NodeError
from assay.cluster.second_copy import SECOND, second_log
from assay.cluster.ssh import process
from assay.cluster.ssh.node import SshNode
from assay.cluster.system import ZOOKEEPER_ROLE, System

COMMANDS: Final = "assay-commands.log"
"""Commands of a user's system, fault or workload that changed something on the node."""


async def collect(system: System, nodes: Sequence[SshNode], folder: Path) -> list[str]:
    """Copies each node's process, system and event logs to ``folder/NODE/NAME``. Returns the unavailable ones."""
    missing = await asyncio.gather(*(_collect_node(system, node, folder / node.name) for node in nodes))
    return [line for lines in missing for line in lines]


def local_log_names(system: System, node: SshNode) -> dict[str, str]:
    """Returns the local name of each of a node's logs, by path.

    It is the file's name, or the whole path with hyphens if an earlier log has that name.
    """
    paths = [process.log_path(named) for named in (process.MAIN, *node.sidecars)]
    if node.had_second:
        paths.append(process.log_path(SECOND))
    if node.role != ZOOKEEPER_ROLE:
        events = system.event_log(node)
        paths += [*system.logs(node), *([] if events is None else [events])]
        if events is not None and node.had_second:
            paths.append(second_log(events))
    found: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        name = PurePosixPath(path).name
        found[path] = path.strip("/").replace("/", "-") if name in found.values() else name
    return found


async def _collect_node(system: System, node: SshNode, folder: Path) -> list[str]:
    missing = []
    events = None if node.role == ZOOKEEPER_ROLE else system.event_log(node)
    optional = None if events is None else second_log(events)  # a second copy that is refused at its start opens none
    for path, name in local_log_names(system, node).items():
        try:
            data = await node.read_file(path)
        except FileNotFoundError:
            if path != optional:
                missing.append(f"{node.name}: {path} does not exist")
        except (NodeError, OSError) as error:
            missing.append(f"{node.name}: {path}: {error}")
        else:
            await asyncio.to_thread(_store, folder / name, data)
    if node.changes:
        lines = "".join(f"{line}\n" for line in node.changes)
        await asyncio.to_thread(_store, folder / COMMANDS, lines.encode())
    return missing


def _store(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
