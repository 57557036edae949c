"""Which role each node has, and its colour: nodes of a system with several roles are told apart at a glance."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.reports.palette import role_tone


@dataclass(frozen=True)
class Roles:
    """``of``: by node, in the cluster's order; empty where it is not known, as of an older run."""

    of: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The roles, in the order of their first nodes."""
        return tuple(dict.fromkeys(self.of.values()))

    @property
    def several(self) -> bool:
        """Whether there is anything to tell apart."""
        return len(self.names) > 1

    def nodes(self, role: str) -> tuple[str, ...]:
        return tuple(node for node, has in self.of.items() if has == role)

    def tone_of(self, role: str) -> str:
        """The colour of a role, as the palette names it, and its class in the page: ``role0``."""
        return role_tone(self.names.index(role))

    def tone(self, node: str) -> str | None:
        """The same of a node; None where there is one role alone, or the node is not known."""
        return self.tone_of(self.of[node]) if self.several and node in self.of else None

    def common(self, nodes: Collection[str]) -> str | None:
        """The role that all of these have; None where they differ, or nothing is to be told apart."""
        found = {self.of.get(node) for node in nodes}
        return next(iter(found)) if self.several and len(found) == 1 else None


def roles_of(settings: Mapping[str, Any]) -> Roles:
    """Of ``settings.json``, which names the nodes with their roles."""
    known = settings.get("nodes")
    if not isinstance(known, dict):
        return Roles()
    return Roles({str(node): role for node, role in known.items() if isinstance(role, str)})
