"""A cluster that already runs: clients use it, and the harness changes nothing on it.

Only the addresses of its nodes are known. So there are no faults, no logs and no event logs, and nothing checks whether
the processes behind the addresses live.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from assay.cluster.hosts import inventory
from assay.cluster.naming import find_main_role, plan_nodes
from assay.cluster.node import Node, NodeError, ProcessState, ProcessStatus
from assay.cluster.system import System


class UnreachableError(NodeError, AttributeError):
    """The node has no such ability. The error is an ``AttributeError`` too, so that ``hasattr`` returns False."""


class AttachedNode:
    """The part of :class:`assay.cluster.node.Node` that needs no machine. Other methods raise :class:`NodeError`."""

    def __init__(self, name: str, role: str, index: int, address: str) -> None:
        self.name, self.role, self.index, self.address = name, role, index, address

    def __repr__(self) -> str:
        return f"<{self.name} {self.role} {self.address}>"

    async def start(self) -> None:
        """Does nothing, because the process is already running."""

    async def process(self) -> ProcessStatus:
        return ProcessStatus(ProcessState.RUNNING, "attached")

    async def events(self) -> AsyncIterator[str]:
        return
        yield ""  # makes this function a generator

    def __getattr__(self, what: str) -> Any:
        if what.startswith("_"):
            raise AttributeError(what)
        raise UnreachableError(f"{self.name} is known by its address alone: --cluster=attach has no {what} of a node")


class AttachedCluster:
    """See :class:`assay.cluster.node.Cluster`."""

    kind = "attach"
    spares: Sequence[Node] = ()

    def __init__(
        self,
        system: System,
        counts: Mapping[str, int],
        *,
        hosts: str,
        progress: Callable[[str], None] = lambda line: None,
        **_: Any,
    ) -> None:
        """``hosts``: the file that names the machines, or ``compose:PROJECT`` (:func:`inventory.read_addresses`)."""
        self._system, self._counts, self._hosts, self._progress = system, counts, hosts, progress
        self.nodes: list[Node] = []
        self.description: dict[str, str] = {}

    async def start(self) -> None:
        """Reads the inventory. Raises :class:`~assay.cluster.hosts.inventory.InventoryError`."""
        found = inventory.read_addresses(self._hosts)
        chosen = inventory.choose_by_role(found, find_main_role(self._system.roles), self._counts, Path(self._hosts))
        self.nodes = [
            cast(Node, AttachedNode(item.name, item.role, item.index, chosen[item.role][item.index - 1].ssh.address))
            for item in plan_nodes(self._system.roles, self._counts)
        ]
        self.description = {"hosts": ", ".join(f"{node.name} {node.address}" for node in self.nodes)}
        self._progress(f"attached to {self.description['hosts']}")

    async def collect_logs(self, folder: Path) -> list[str]:
        """Collects nothing."""
        return []

    async def close(self) -> None:
        """Does nothing, because nothing was created."""

    async def keep(self) -> None:
        """Does nothing, because nothing was created."""
