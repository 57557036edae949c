"""Which counter there is for this interpreter, and for this system."""

import sys
from collections.abc import Callable, Sequence

from assay.cluster.system import System
from assay.harness.run.packages import packages_of
from assay.harness.search.code_coverage.counter import Counter
from assay.harness.search.code_coverage.source import Module, modules


def counter(of: Sequence[Module]) -> Counter:
    """``sys.monitoring`` where the interpreter has it, else counters of our own."""
    if sys.version_info >= (3, 12):
        from assay.harness.search.code_coverage.monitoring_counter import Monitored

        return Monitored(of)
    from assay.harness.search.code_coverage.probe_counter import Probes

    return Probes(of)


def countable(system: System, wanted: str, note: Callable[[str], None]) -> tuple[Module, ...]:
    """The system's modules, by ``--code-coverage``; none when it is off, or ``auto`` and there is no source of it.

    Raises ``ValueError`` for ``on`` where there is none.
    """
    if wanted == "off":
        return ()
    try:
        return modules(packages_of(system))
    except ValueError as error:
        remedy = "name it in code_packages of the system (CodeNamed in cluster/system.py), or give --code-coverage=off"
        if wanted == "on":
            raise ValueError(f"{error}: {remedy}") from error
        note(f"lines and branches are not counted: {error}: {remedy}")
        return ()
