"""Chooses the counter for this interpreter, and the modules to count for a system."""

import sys
from collections.abc import Callable, Sequence

from assay.cluster.system import System
from assay.harness.run.packages import packages_of
from assay.harness.search.code_coverage.counter import Counter
from assay.harness.search.code_coverage.source import Module, modules


def counter(of: Sequence[Module]) -> Counter:
    """Returns a counter by ``sys.monitoring`` if the interpreter has it, else by probes in the code."""
    if sys.version_info >= (3, 12):
        from assay.harness.search.code_coverage.monitoring_counter import Monitored

        return Monitored(of)
    from assay.harness.search.code_coverage.probe_counter import Probes

    return Probes(of)


def countable(system: System, wanted: str, note: Callable[[str], None]) -> tuple[Module, ...]:
    """Returns the system's modules, or none if ``--code-coverage`` is off, or ``auto`` and there is no source.

    Raises ``ValueError`` if it is ``on`` and there is no source.
    """
    if wanted == "off":
        return ()
    try:
        return modules(packages_of(system))
    except ValueError as error:
        remedy = "name it in the system's code_packages (SupportsCodePackages), or give --code-coverage=off"
        if wanted == "on":
            raise ValueError(f"{error}: {remedy}") from error
        note(f"lines and branches are not counted: {error}: {remedy}")
        return ()
