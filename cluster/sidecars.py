"""Processes beside a node's main one: an agent, a proxy, an exporter. Each has a name, a log, and may have a user.

What is done to a node is done to all of its processes, unless one is named; the main one is called ``main``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from assay.cluster.checked_hooks import asked, is_command
from assay.cluster.node import Node
from assay.cluster.second_copy import SECOND
from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, DeploymentError, System

NAME = re.compile(r"[a-z][a-z0-9-]*")
USER = re.compile(r"([a-z_][a-z0-9_-]*|[0-9]+)(:([a-z_][a-z0-9_-]*|[0-9]+))?")
"""Whom a process runs as: ``name``, ``name:group`` or numbers."""
TAKEN = ("main", "process", "packets", SECOND)
"""Names that something else on a node has."""


@dataclass(frozen=True)
class Sidecar:
    """``argv``: its command, which must stay in the foreground. ``environment`` is in addition to the main process's.
    ``user``: as in ``Software``; None: as the main process.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None


@runtime_checkable
class SupportsSidecars(Protocol):
    """A system with nodes that run more than one process. Real nodes alone do; such a system is not simulated."""

    def sidecars(self, node: Node) -> Mapping[str, Sidecar]:
        """What runs beside the node's main process, by name, in the order in which it is started, before that one."""


def sidecars(system: System, node: Node) -> Mapping[str, Sidecar]:
    """Of a node; none where the system has none. Raises :class:`DeploymentError` for what is none."""
    if node.role in (ZOOKEEPER_ROLE, CLIENT_ROLE) or not isinstance(system, SupportsSidecars):
        return {}
    with asked("sidecars", node):
        found = system.sidecars(node)
    for name, sidecar in found.items():
        if not NAME.fullmatch(name) or name in TAKEN:
            raise DeploymentError(
                f"sidecars() of {node.name}: {name!r} is no name of a process: small letters, digits and hyphens, and "
                f"not {', '.join(TAKEN)}"
            )
        if not isinstance(sidecar, Sidecar) or not is_command(sidecar.argv):
            raise DeploymentError(
                f"sidecars() of {node.name} has {sidecar!r} for {name}: it takes Sidecar([...]), a list of text, the "
                "program first"
            )
        if sidecar.user is not None and not USER.fullmatch(sidecar.user):
            raise DeploymentError(
                f"sidecars() of {node.name}: {sidecar.user!r}, the user of {name}, is no name, or name:group"
            )
    return found
