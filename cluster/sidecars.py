"""Sidecars: named processes that run on a node in addition to its main process, such as an agent or a proxy.

Each sidecar has its own log and may have its own user. Actions on a node affect all of its processes, unless they name
one process. The main process is called ``main``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from assay.cluster.checked_methods import is_command, wrap_errors_of
from assay.cluster.node import Node
from assay.cluster.second_copy import SECOND_COPY
from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, DeploymentError, System

NAME = re.compile(r"[a-z][a-z0-9-]*")
USER = re.compile(r"([a-z_][a-z0-9_-]*|[0-9]+)(:([a-z_][a-z0-9_-]*|[0-9]+))?")
"""User of a process: ``name``, ``name:group`` or numbers."""
RESERVED_NAMES = ("main", "process", "packets", SECOND_COPY)
"""Names that are already used for something else on a node."""


@dataclass(frozen=True)
class Sidecar:
    """Command and settings of a sidecar.

    - ``argv``: the command. It must stay in the foreground.
    - ``environment``: variables that are added to those of the main process
    - ``user``: as in ``Software``; None means the main process's user
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None


@runtime_checkable
class SupportsSidecars(Protocol):
    """A system with nodes that run more than one process.

    Such a system runs on real nodes only, not in the simulation.
    """

    def sidecars(self, node: Node) -> Mapping[str, Sidecar]:
        """Returns the sidecars of a node by name. They start in this order, before the main process."""


def find_sidecars(system: System, node: Node) -> Mapping[str, Sidecar]:
    """Returns the sidecars of a node, empty if the system has none.

    Raises :class:`DeploymentError` if one is invalid.
    """
    if node.role in (ZOOKEEPER_ROLE, CLIENT_ROLE) or not isinstance(system, SupportsSidecars):
        return {}
    with wrap_errors_of("sidecars", node):
        found = system.sidecars(node)
    for name, sidecar in found.items():
        if not NAME.fullmatch(name) or name in RESERVED_NAMES:
            raise DeploymentError(
                f"sidecars() of {node.name}: {name!r} is not a valid process name: use small letters, digits and "
                f"hyphens, but not {', '.join(RESERVED_NAMES)}"
            )
        if not isinstance(sidecar, Sidecar) or not is_command(sidecar.argv):
            raise DeploymentError(
                f"sidecars() of {node.name} has {sidecar!r} for {name}: it takes Sidecar([...]), a list of text, the "
                "program first"
            )
        if sidecar.user is not None and not USER.fullmatch(sidecar.user):
            raise DeploymentError(
                f"sidecars() of {node.name}: {sidecar.user!r}, the user of {name}, is neither a name nor name:group"
            )
    return found
