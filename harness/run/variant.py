"""A system as the options ask for it: with a defect switched on, with other settings of its own."""

from __future__ import annotations

from collections.abc import Sequence

from assay.cluster.system import Configurable, Switchable, System
from assay.harness.run.settings import SettingsError


def with_defect(system: System, name: str | None) -> System:
    """The system with one of its defects switched on. Raises ``TypeError`` for one that cannot switch them."""
    if name is None:
        return system
    if not isinstance(system, Switchable):
        raise TypeError(f"{system.name} lists defects, but has no with_defect(name) that switches one on")
    return system.with_defect(name)


def configured(system: System, configuration: Sequence[str]) -> System:
    """The system with other settings of its own, each ``name=value``.

    Raises ``SettingsError`` for a setting that it does not have, or a value of another type.
    """
    for text in configuration:
        name, _, value = text.partition("=")
        if not isinstance(system, Configurable):
            raise SettingsError(f"--set={text}: {system.name} has no settings to be set here")
        try:
            system = system.with_setting(name, value)
        except ValueError as error:
            raise SettingsError(f"--set={text}: {error}") from None
    return system
