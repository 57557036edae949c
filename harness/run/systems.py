"""Finds systems by name, and makes variants of a system: with a defect, with given settings, or with random ones."""

from __future__ import annotations

import inspect
import math
import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from assay.cluster.system import (
    SupportsDefectDescriptions,
    SupportsDefects,
    SupportsFailover,
    SupportsRetention,
    SupportsSettings,
    SupportsStrongerPromises,
    System,
)
from assay.harness.run.settings import SettingsError, derive_seed

if TYPE_CHECKING:
    from assay.checkers.judging.contract import Contract
    from assay.cluster.system import Defect

SYSTEM_ATTRIBUTES: Final = ("name", "roles", "port", "argv", "files", "ready")
"""Attributes that a system must define."""
DEFAULT: Final = "assay.system_under_test.deployment:Broker"
"""The built-in system. The harness names it only here, and imports it only when a command needs it."""


def find_system(name: str = DEFAULT) -> System:
    """Returns the object ``package.module:NAME``, or an instance of the class of this name.

    Raises ``SettingsError`` if there is none.
    """
    from assay.harness.run import import_by_name

    imported = import_by_name.import_named("--system", name, "system", lambda kind: not _find_missing_attributes(kind))
    system: Any = import_by_name.instantiate("--system", name, imported) if inspect.isclass(imported) else imported
    if missing := _find_missing_attributes(system):
        raise SettingsError(f"--system={name} is not a System (assay.System): it lacks {', '.join(missing)}")
    return cast("System", system)


def _find_missing_attributes(one: object) -> list[str]:
    return [name for name in SYSTEM_ATTRIBUTES if not hasattr(one, name)]


def list_defects(name: str = DEFAULT) -> Sequence[Defect]:
    """Returns the built-in defects of a system with their descriptions. Raises ``SettingsError`` if it has none."""
    system = find_system(name)
    if not isinstance(system, SupportsDefectDescriptions):
        raise SettingsError(
            f"--system={name} describes no defects: it has no described_defects, which this command needs "
            "(pytest --defect=NAME needs only with_defect)"
        )
    return system.described_defects


def with_defect(system: System, name: str | None) -> System:
    """Returns the system with one of its defects switched on. Raises ``TypeError`` if it cannot switch them."""
    if name is None:
        return system
    if not isinstance(system, SupportsDefects):
        raise TypeError(f"{system.name} lists defects, but has no with_defect(name) that switches one on")
    return system.with_defect(name)


def complete_contract(contract: Contract, system: System) -> Contract:
    """Returns the contract with values of the system: log retention, failover time, and anomalies that its settings
    exclude.

    A retention or a failover time in the contract takes precedence.
    """
    if isinstance(system, SupportsRetention) and contract.retention_ms is None:
        retention = {"retention_ms": system.retention_ms, "retention_bytes": system.retention_bytes}
        contract = msgspec.structs.replace(contract, **retention)
    if isinstance(system, SupportsFailover) and contract.failover is None:
        contract = msgspec.structs.replace(contract, failover=system.failover)
    if isinstance(system, SupportsStrongerPromises):
        contract = contract.tolerate_no_more(*system.rules_out)
    return contract


def apply_settings(system: System, configuration: Sequence[str]) -> System:
    """Returns the system with these settings, each ``name=value``.

    Raises ``SettingsError`` for an unknown setting, or a value of the wrong type.
    """
    for text in configuration:
        name, _, value = text.partition("=")
        if not isinstance(system, SupportsSettings):
            raise SettingsError(f"--set={text}: {system.name} has no settings: leave out --set")
        try:
            system = system.with_setting(name, value)
        except ValueError as error:
            raise SettingsError(f"--set={text}: {error}") from None
    return system


UNCHANGED: Final = 0.3
"""Probability that a run with ``--nemesis=mix`` leaves a setting unchanged."""


def draw_configuration(system: System, fixed: Sequence[str], seed: int) -> tuple[str, ...]:
    """Adds random settings, drawn from ``system.variants``, to the fixed ones.

    Each value depends only on the seed and the setting's name.
    """
    configuration = {text.partition("=")[0]: text for text in fixed}
    for name, values in (system.variants if isinstance(system, SupportsSettings) else {}).items():
        rng = random.Random(derive_seed(seed, "variant", name))
        if rng.random() >= UNCHANGED and name not in configuration:
            configuration[name] = f"{name}={_draw_value(rng.choice(list(values)), rng)}"
    return tuple(configuration.values())


def coarsen_choices(values: Sequence[str]) -> tuple[str, ...]:
    """Replaces each range of numbers by its ends and their geometric mean, so that few choices remain."""
    found: dict[str, None] = {}
    for value in values:
        ends = _parse_range(value)
        found |= dict.fromkeys(
            [value] if ends is None else [str(ends[0]), str(round(math.sqrt(ends[0] * ends[1]))), str(ends[1])]
        )
    return tuple(found)


def _draw_value(value: str, rng: random.Random) -> str:
    """Draws from a range on a logarithmic scale, so that small numbers are as frequent as large ones."""
    ends = _parse_range(value)
    if ends is None:
        return value
    return str(round(math.exp(rng.uniform(math.log(ends[0]), math.log(ends[1])))))


def _parse_range(value: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"([1-9]\d*)\.\.([1-9]\d*)", value)
    return None if match is None else (int(match[1]), int(match[2]))
