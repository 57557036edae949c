"""Which Python packages are the code of a system."""

import sys

from assay.cluster.system import SupportsCodePackages, System


def packages_of(system: System) -> tuple[str, ...]:
    """The packages and modules that are the system's code: as it says, else the package that its class lies in."""
    if isinstance(system, SupportsCodePackages):
        return tuple(system.code_packages)
    module = type(system).__module__
    package = module.rpartition(".")[0]
    return (package if getattr(sys.modules.get(package), "__file__", None) else module,)
