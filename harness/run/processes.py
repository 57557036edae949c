"""Which servers' processes are there once every fault is healed: one that is not has ended by itself.

Rows of ``looks`` with look 0; what they mean is said where they are judged, in
``assay.checkers.servers.process_exits``.
"""

from collections.abc import Sequence
from typing import Final

from assay.cluster.node import Cluster, Node, NodeError, Part, ProcessState, SupportsParts
from assay.harness.core.history import History
from assay.harness.core.timestamps import Stamps

CRASHED: Final = "crashed:"
"""In what went wrong in a run: a process of the system ended by an exception."""


async def record_processes(cluster: Cluster, servers: Sequence[Node], history: History, stamps: Stamps) -> None:
    """Writes a row for each process of each server that can be asked (``n1``, ``n1/agent``), and one for each crash
    that the cluster knows of.

    A spare that had joined has left, so that it has no process is right; that it had one that crashed is not.
    """
    if cluster.kind == "attach":
        return  # nothing is known of their processes
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


def crashes(cluster: Cluster) -> list[str]:
    """Processes that ended by an exception of their own, where the cluster knows of them: the simulation does."""
    return [f"{crash.node} {CRASHED} {crash.traceback}" for crash in getattr(cluster, "crashes", ())]
