"""Python packages that are the code of a system."""

import sys

from assay.cluster.system import SupportsCodePackages, System


def find_packages(system: System) -> tuple[str, ...]:
    """Returns the packages and modules of the system's code: as declared, else the package that defines its class."""
    if isinstance(system, SupportsCodePackages):
        return tuple(system.code_packages)
    module = type(system).__module__
    package = module.rpartition(".")[0]
    return (package if getattr(sys.modules.get(package), "__file__", None) else module,)
