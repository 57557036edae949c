"""Chooses the counter for this interpreter, and the modules to count for a system."""

import sys
from collections.abc import Callable, Sequence

from assay.cluster.system import System
from assay.harness.run.import_by_name import find_packages
from assay.harness.search.code_coverage.counter import CoverageCounter
from assay.harness.search.code_coverage.source import SourceModule, find_modules


def make_counter(of: Sequence[SourceModule]) -> CoverageCounter:
    """Returns a counter by ``sys.monitoring`` if the interpreter has it, else by probes in the code."""
    if sys.version_info >= (3, 12):
        from assay.harness.search.code_coverage.monitoring_counter import MonitoringCounter

        return MonitoringCounter(of)
    from assay.harness.search.code_coverage.probe_counter import ProbeCounter

    return ProbeCounter(of)


def find_countable_modules(system: System, wanted: str, note: Callable[[str], None]) -> tuple[SourceModule, ...]:
    """Returns the system's modules, or none if ``--code-coverage`` is off, or ``auto`` and there is no source.

    Raises ``ValueError`` if it is ``on`` and there is no source.
    """
    if wanted == "off":
        return ()
    try:
        return find_modules(find_packages(system))
    except ValueError as error:
        remedy = "name it in the system's code_packages (SupportsCodePackages), or give --code-coverage=off"
        if wanted == "on":
            raise ValueError(f"{error}: {remedy}") from error
        note(f"lines and branches are not counted: {error}: {remedy}")
        return ()
