"""Records which server processes exist after every fault is healed: a missing one has ended by itself.

The rows go into ``looks`` with look 0. ``assay.checkers.servers.process_exits`` judges them and explains their meaning.
"""

from collections.abc import Sequence
from typing import Final

from assay.cluster.node import Cluster, Node, NodeError, Part, ProcessState, SupportsParts
from assay.harness.core.history import History
from assay.harness.core.timestamps import Stamps

CRASHED: Final = "crashed:"
"""Marks a problem of a run: a process of the system ended by an exception."""


async def record_processes(cluster: Cluster, servers: Sequence[Node], history: History, stamps: Stamps) -> None:
    """Writes a row per process of each server (``n1``, ``n1/agent``), and one per crash that the cluster knows of.

    Spares that had joined have left again. They need no process, but a crash of one counts.
    """
    if cluster.kind == "attach":
        return  # the state of these processes is unknown
    names = {node.name for node in (*servers, *cluster.spares)}
    for crash in getattr(cluster, "crashes", ()):
        moment = stamps.at(crash.time)
        if not crash.asked and crash.node in names:
            history.look(look=0, time=moment, ended=moment, what="crashed", node=crash.node)
    for server in servers:
        parts: dict[str, Node | Part] = {server.name: server}
        if isinstance(server, SupportsParts):
            parts |= {f"{server.name}/{named}": server.part(named) for named in server.beside}
        for name, part in parts.items():
            begun = stamps.now()
            try:
                status = await part.process()
            except NodeError:
                continue
            what = "ended" if status.state is ProcessState.DEAD else "process"
            history.look(look=0, time=begun, ended=stamps.now(), what=what, node=name)


def list_crashes(cluster: Cluster) -> list[str]:
    """Returns the processes that ended by their own exception, if the cluster knows (as the simulation does)."""
    return [f"{crash.node} {CRASHED} {crash.traceback}" for crash in getattr(cluster, "crashes", ())]
