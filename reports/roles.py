"""The roles of nodes and their colours, so that nodes of different roles are easily told apart."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.reports.palette import get_role_tone


@dataclass(frozen=True)
class Roles:
    """``of``: role by node, in the cluster's order; empty if unknown, as in an older run."""

    of: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The roles, in the order of their first nodes."""
        return tuple(dict.fromkeys(self.of.values()))

    @property
    def several(self) -> bool:
        """Whether there is more than one role."""
        return len(self.names) > 1

    def nodes(self, role: str) -> tuple[str, ...]:
        return tuple(node for node, has in self.of.items() if has == role)

    def tone_of(self, role: str) -> str:
        """Returns the palette's name for a role's colour, which is also its CSS class: ``role0``."""
        return get_role_tone(self.names.index(role))

    def tone(self, node: str) -> str | None:
        """Returns the colour of a node's role; None if there is only one role, or the node is unknown."""
        return self.tone_of(self.of[node]) if self.several and node in self.of else None

    def common(self, nodes: Collection[str]) -> str | None:
        """Returns the role that all of these nodes share; None if they differ, or there is only one role."""
        found = {self.of.get(node) for node in nodes}
        return next(iter(found)) if self.several and len(found) == 1 else None


def read_roles(settings: Mapping[str, Any]) -> Roles:
    """Reads the roles from ``settings.json``."""
    known = settings.get("nodes")
    if not isinstance(known, dict):
        return Roles()
    return Roles({str(node): role for node, role in known.items() if isinstance(role, str)})
