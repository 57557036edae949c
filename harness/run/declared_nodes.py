"""Number of nodes per role, if the system or the experiment declares which numbers are possible.

The first rule that applies gives the number of a role:

1. ``--nodes`` with the role.
2. ``--nodes`` without a role.
3. The default: the first declared number, or else three.

A number that is not declared is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, SupportsNodeCounts, System
from assay.harness.run.settings import Settings

if TYPE_CHECKING:
    from assay.cluster.system import NodeCounts

NodeDeclarations = Mapping[str, tuple[int, ...]]
"""The possible numbers of nodes by role, the default first. A role that is missing can have any number."""


def read_declarations(system: System, more: NodeCounts | None = None) -> NodeDeclarations:
    """Returns the system's declaration, overridden role by role by ``more``.

    Raises ``ValueError`` for an invalid declaration.
    """
    own = system.node_counts if isinstance(system, SupportsNodeCounts) else {}
    declared = parse_declaration(system, own, "node_counts")
    return (
        declared if more is None else {**declared, **parse_declaration(system, more, "node_counts of the experiment")}
    )


def parse_declaration(system: System, declaration: object, what: str) -> dict[str, tuple[int, ...]]:
    """Parses a declaration to numbers per role. Raises ``ValueError`` if it is invalid."""
    shape = "it takes a number for each role, or several with the usual one first, such as {'server': (3, 5)}"
    if not isinstance(declaration, Mapping):
        raise ValueError(f"{system.name}: {what} is {declaration!r}: {shape}")
    found = {}
    for role, counts in declaration.items():
        if role not in list_own_roles(system):
            raise ValueError(f"{system.name}: {what} has {role!r}; its roles are {', '.join(list_own_roles(system))}")
        numbers = (counts,) if isinstance(counts, int) else counts
        if not isinstance(numbers, Sequence) or not numbers or not all(type(n) is int and n >= 1 for n in numbers):
            raise ValueError(f"{system.name}: {what} has {counts!r} for {role}: {shape}")
        found[role] = tuple(numbers)
    return found


def list_own_roles(system: System) -> list[str]:
    """Returns the roles whose nodes ``--nodes`` counts."""
    return [role for role in system.roles if role not in (ZOOKEEPER_ROLE, CLIENT_ROLE)]


def with_counts(settings: Settings, option: str | None, system: System, counts: NodeDeclarations) -> Settings:
    """Returns the settings with the number of nodes of each role of this system, if anything is declared.

    ``option``: ``--nodes`` as given, which the settings already contain; None: not given.
    """
    if not counts:
        return settings
    named = settings.counts_by_role
    for_all = option is not None and any("=" not in part for part in option.split(","))
    chosen = {}
    for role in list_own_roles(system):
        default = settings.nodes if for_all or role not in counts else counts[role][0]
        chosen[role] = named.get(role, default)
    nodes = next(iter(chosen.values()), settings.nodes)
    # A role that the system does not have is kept, and rejected later.
    return replace(settings, nodes=nodes, role_nodes=tuple(f"{role}={n}" for role, n in {**chosen, **named}.items()))


def check_node_counts(settings: Settings, option: str | None, system: System, counts: NodeDeclarations) -> str | None:
    """Returns an error if ``--nodes`` asks for a number that is not declared, with the possible ones; else None."""
    chosen = settings.counts_by_role
    for role, numbers in counts.items():
        if chosen[role] not in numbers:
            *others, last = map(str, numbers)
            possible = f"{', '.join(others)} or {last}" if others else last
            plural = "" if numbers == (1,) else "s"
            valid = {one: n if n in counts.get(one, (n,)) else counts[one][0] for one, n in chosen.items()}
            example = ",".join(f"{one}={n}" for one, n in valid.items())
            remedy = "leave --nodes out" if len(chosen) == 1 else f"say --nodes={example}"
            return f"--nodes={option}: {system.name} can have {possible} node{plural} of the role {role}; {remedy}"
    return None
