"""The roles of nodes (broker, ZooKeeper, ...) and their colours."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.reports.palette import get_role_tone


@dataclass(frozen=True)
class Roles:
    """``by_node``: role by node, in the cluster's order; empty if unknown, as in a run of an earlier version."""

    by_node: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The roles, in the order of their first nodes."""
        return tuple(dict.fromkeys(self.by_node.values()))

    @property
    def has_several(self) -> bool:
        """Whether there is more than one role."""
        return len(self.names) > 1

    def nodes(self, role: str) -> tuple[str, ...]:
        return tuple(node for node, node_role in self.by_node.items() if node_role == role)

    def role_tone(self, role: str) -> str:
        """Returns the name of a role's colour in the palette, which is also its CSS class: ``role0``."""
        return get_role_tone(self.names.index(role))

    def node_tone(self, node: str) -> str | None:
        """Returns the colour of a node's role; None if there is only one role, or the node is unknown."""
        return self.role_tone(self.by_node[node]) if self.has_several and node in self.by_node else None

    def common_role(self, nodes: Collection[str]) -> str | None:
        """Returns the role that all of these nodes share; None if they differ, or there is only one role."""
        found = {self.by_node.get(node) for node in nodes}
        return next(iter(found)) if self.has_several and len(found) == 1 else None


def read_roles(settings: Mapping[str, Any]) -> Roles:
    """Reads the roles from ``settings.json``."""
    known = settings.get("nodes")
    if not isinstance(known, dict):
        return Roles()
    return Roles({str(node): role for node, role in known.items() if isinstance(role, str)})
