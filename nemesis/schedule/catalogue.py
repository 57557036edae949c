"""The faults of a session by name, and the syntax of names on the command line.

A session has one :class:`FaultCatalogue` with the project's faults and those of plugins. It is passed to all code that
looks faults up.

- ``partition,kill`` combines faults in one run. Its canonical id is ``kill+partition``, sorted, for stable test ids.
- ``none`` is a run without faults. It cannot be combined.
- ``all`` means one run per fault.
- ``mix`` is one run of many kinds (:mod:`assay.nemesis.schedule.mix`).
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay.cluster.system import SupportsMove, System
from assay.nemesis import faults
from assay.nemesis.faults.fault import Fault, get_declaration
from assay.nemesis.faults.process import ServerFault, require_whole_node
from assay.nemesis.schedule.schedule import FaultSchedule, ScheduleError
from assay.nemesis.schedule.target import KEYS_REMEDY

NONE = "none"
ALL = "all"
MIX = "mix"


class FaultError(ValueError):
    """A fault that cannot be used in a session. The message names it and gives the reason."""


class FaultNameError(FaultError):
    """An unknown fault name, or an invalid combination. The message lists the existing faults."""


@dataclass(frozen=True)
class FaultCombination:
    """The faults of one run, sorted and unique; empty for ``none``."""

    names: tuple[str, ...]

    @property
    def id(self) -> str:
        """Stable part of a test id: ``kill+partition``, ``none``."""
        return "+".join(self.names) or NONE

    def __str__(self) -> str:
        return self.id


class FaultCatalogue(Mapping[str, Fault]):
    """Faults by name, sorted.

    Raises :class:`FaultNameError` if two faults have one name, or a name is not allowed on the command line. Raises
    :class:`FaultError` if a fault is incomplete.
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults: dict[str, Fault] = {}
        faults = list(faults)
        for fault in faults:
            _require_complete(fault)
        for fault in sorted(faults, key=lambda fault: fault.name):
            if fault.name in self._faults:
                raise FaultNameError(f"two faults have the name {fault.name}: rename one")
            if fault.name in (NONE, ALL, MIX) or not re.fullmatch(r"[\w.-]+", fault.name):
                raise FaultNameError(
                    f"a fault cannot be called {fault.name!r}: use letters, digits and -, not none, all or mix"
                )
            self._faults[fault.name] = fault

    @classmethod
    def standard(cls, *more: Fault) -> FaultCatalogue:
        """Returns the catalogue of the project's faults and ``more``."""
        return cls((*standard_faults(), *more))

    def __getitem__(self, name: str) -> Fault:
        return self._faults[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._faults)

    def __len__(self) -> int:
        return len(self._faults)

    @property
    def in_nemesis_all(self) -> tuple[str, ...]:
        """The faults of ``--nemesis=all``, each with its own run."""
        return tuple(name for name, fault in self.items() if not get_declaration(fault, "excluded_from_all"))

    def check(self, schedule: FaultSchedule) -> None:
        """Raises ``ScheduleError`` if a step's fault is not in this catalogue, or cannot take its target."""
        unknown = sorted({step.fault for step in schedule.all_steps} - set(self))
        if unknown:
            raise ScheduleError(f"there is no fault {', '.join(unknown)}; the faults are {', '.join(self)}")
        for step in schedule.all_steps:
            require_whole_node(step.fault, step.target)

    def descriptions(self) -> dict[str, str]:
        """Maps each name to one line for ``--nemesis-list``, ``none`` and ``mix`` first."""
        special = {
            NONE: "no fault at all",
            MIX: "many kinds by weight, overlapping, with settings of the system drawn too",
        }
        return {**special, **{name: fault.description for name, fault in self.items()}}

    def parse(self, text: str) -> FaultCombination:
        """Parses one combination: ``partition,kill``, ``kill+partition`` or ``none``.

        Raises :class:`FaultNameError`.
        """
        names = sorted({word.strip() for word in text.replace("+", ",").split(",")})
        if names == [NONE]:
            return FaultCombination(())
        if names == [MIX]:
            return FaultCombination((MIX,))
        for alone in {NONE, MIX} & set(names):
            raise FaultNameError(f"--nemesis={text}: {alone} cannot be combined; repeat the option for separate runs")
        for name in names:
            if name not in self:
                near = difflib.get_close_matches(name, self, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                raise FaultNameError(
                    f"--nemesis={text}: no fault {name!r}; {hint}known faults: {', '.join(self)}, and {NONE}"
                )
        return FaultCombination(tuple(names))

    def select(self, options: Sequence[str]) -> tuple[FaultCombination, ...]:
        """Returns the runs that a repeated option ``--nemesis`` requests: each run once, in the order of the values."""
        wanted: dict[FaultCombination, None] = {}
        for text in options:
            combinations = (
                [FaultCombination((name,)) for name in self.in_nemesis_all] if text == ALL else [self.parse(text)]
            )
            wanted.update(dict.fromkeys(combinations))
        return tuple(wanted)


def standard_faults() -> Iterator[Fault]:
    """Yields the faults that come with the project, one for each description in a class of ``nemesis.faults``.

    A class with ``description`` is a fault. Each row of a class's ``descriptions`` is one variant of the fault, with a
    name of its own (:mod:`assay.nemesis.faults.varied`).
    """
    for found in pkgutil.iter_modules(faults.__path__, f"{faults.__name__}."):
        for kind in vars(importlib.import_module(found.name)).values():
            if isinstance(kind, type) and kind.__module__ == found.name:
                own = vars(kind)
                yield from [kind()] if isinstance(own.get("description"), str) else []
                yield from (kind(way) for way in own.get("descriptions", ()))


def _require_complete(fault: object) -> None:
    """Raises :class:`FaultError` if an attribute of :class:`Fault` is missing, because a run would fail on it later."""
    if isinstance(fault, type):
        raise FaultError(f"the fault {fault.__name__} is a class: make an object of it, {fault.__name__}()")
    missing = [part for part in vars(Fault) if not part.startswith("_") and not hasattr(fault, part)]
    if isinstance(fault, ServerFault):
        missing += ServerFault.find_missing_methods(type(fault))
    if missing:
        name = getattr(fault, "name", type(fault).__name__)
        raise FaultError(f"the fault {name} lacks {', '.join(missing)} (nemesis/faults/fault.py, class Fault)")


def find_missing_roles(fault: Fault, roles: Iterable[str]) -> list[str]:
    """Returns the roles that a fault needs and the system lacks."""
    present = set(roles)
    return [role for role in fault.roles if role not in present]


def explain_unsuitable(fault: Fault, system: System) -> str | None:
    """Returns why a fault can never be injected into this system in any kind of cluster, or None."""
    missing = find_missing_roles(fault, system.roles)
    if missing:
        return f"needs a node of role {', '.join(missing)}, which {system.name} lacks"
    without = [capability.__name__ for capability in fault.capabilities if not isinstance(system, capability)]
    if without:
        return (
            f"needs a system that satisfies {', '.join(without)} ({_list_modules(fault)}), which {system.name} does not"
        )
    if SupportsMove in fault.capabilities and not system.keys():
        return f"needs a system with keys, which {system.name} lacks: {KEYS_REMEDY}"
    return None


def _list_modules(fault: Fault) -> str:
    modules = sorted({capability.__module__ for capability in fault.capabilities})
    return ", ".join(f"{module.removeprefix('assay.').replace('.', '/')}.py" for module in modules)
