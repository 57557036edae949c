"""Which system a command works with when no run names one."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from assay.harness.run.settings import SettingsError

if TYPE_CHECKING:
    from assay.cluster.system import Defect, System

DEFAULT: Final = "assay.system_under_test.deployment:Broker"
"""The system that comes along. Only this line of the harness names it; it is loaded when a command asks for it."""


def system_named(name: str = DEFAULT) -> System:
    """The object ``package.module:NAME``, or an instance of the class of that name.

    Raises ``SettingsError`` when there is none.
    """
    from assay.harness.run import named

    found = named.found("--system", name, "system", lambda kind: not _lacking(kind))
    system: Any = named.made("--system", name, found) if inspect.isclass(found) else found
    lacking = _lacking(system)
    if lacking:
        raise SettingsError(f"--system={name} is no System (assay.System): it lacks {', '.join(lacking)}")
    return cast("System", system)


def _lacking(one: object) -> list[str]:
    """What every system must have, and this has not."""
    return [part for part in ("name", "roles", "port", "argv", "files", "ready") if not hasattr(one, part)]


def described_defects(name: str = DEFAULT) -> Sequence[Defect]:
    """The defects built into a system, with what each does. Raises ``SettingsError`` when it describes none."""
    from assay.cluster.system import DefectsDescribed

    system = system_named(name)
    if not isinstance(system, DefectsDescribed):
        raise SettingsError(f"--system={name} describes no defects: it has no described_defects")
    return system.described_defects
