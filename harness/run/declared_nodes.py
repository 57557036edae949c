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

from assay.cluster.node_counts import SupportsNodeCounts
from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, System
from assay.harness.run.settings import Settings

if TYPE_CHECKING:
    from assay.cluster.node_counts import NodeCounts

Declared = Mapping[str, tuple[int, ...]]
"""By role, its possible numbers, the default first. A role that is missing can have any number."""


def read_declarations(system: System, more: NodeCounts | None = None) -> Declared:
    """Returns the system's declaration, overridden role by role by ``more``.

    Raises ``ValueError`` for an invalid declaration.
    """
    found = (
        parse_declaration(system, system.node_counts, "node_counts") if isinstance(system, SupportsNodeCounts) else {}
    )
    return found if more is None else {**found, **parse_declaration(system, more, "node_counts of the experiment")}


def parse_declaration(system: System, given: object, what: str) -> dict[str, tuple[int, ...]]:
    """Parses a declaration to numbers per role. Raises ``ValueError`` if it is invalid."""
    shape = "it takes a number for each role, or several with the usual one first, such as {'server': (3, 5)}"
    if not isinstance(given, Mapping):
        raise ValueError(f"{system.name}: {what} is {given!r}: {shape}")
    found = {}
    for role, counts in given.items():
        if role not in list_own_roles(system):
            raise ValueError(f"{system.name}: {what} has {role!r}; its roles are {', '.join(list_own_roles(system))}")
        numbers = (counts,) if isinstance(counts, int) else counts
        if not isinstance(numbers, Sequence) or not numbers or not all(map(_is_count, numbers)):
            raise ValueError(f"{system.name}: {what} has {counts!r} for {role}: {shape}")
        found[role] = tuple(numbers)
    return found


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def list_own_roles(system: System) -> list[str]:
    """Returns the roles whose nodes ``--nodes`` counts."""
    return [role for role in system.roles if role not in (ZOOKEEPER_ROLE, CLIENT_ROLE)]


def with_counts(settings: Settings, asked: str | None, system: System, counts: Declared) -> Settings:
    """Returns the settings with the number of each role of this system, if anything is declared.

    ``asked``: ``--nodes`` as given, which the settings already contain; None: not given.
    """
    if not counts:
        return settings
    named = {role: int(number) for role, _, number in (one.partition("=") for one in settings.role_nodes)}
    for_all = asked is not None and any("=" not in part for part in asked.split(","))
    found = {}
    for role in list_own_roles(system):
        usual = settings.nodes if for_all or role not in counts else counts[role][0]
        found[role] = named.pop(role, usual)
    unknown = [f"{role}={number}" for role, number in named.items()]
    every = (*(f"{role}={number}" for role, number in found.items()), *unknown)
    return replace(settings, nodes=next(iter(found.values()), settings.nodes), role_nodes=every)


def check_declared(settings: Settings, asked: str | None, system: System, counts: Declared) -> str | None:
    """Returns an error if ``--nodes`` asks for a number that is not declared, with the possible ones; else None."""
    chosen = {role: int(number) for role, _, number in (one.partition("=") for one in settings.role_nodes)}
    for role, numbers in counts.items():
        if chosen[role] not in numbers:
            *others, last = map(str, numbers)
            known = f"{', '.join(others)} or {last}" if others else last
            plural = "" if numbers == (1,) else "s"
            fitting = {one: number for one, number in chosen.items() if number in counts.get(one, (number,))}
            better = ",".join(f"{one}={fitting.get(one) or counts[one][0]}" for one in chosen)
            remedy = "leave --nodes out" if len(chosen) == 1 else f"say --nodes={better}"
            return f"--nodes={asked}: {system.name} can have {known} node{plural} of the role {role}; {remedy}"
    return None
