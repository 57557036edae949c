"""Result of one check of ``assay doctor``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DoctorFinding:
    """An examined property of a machine, and how to fix it.

    ``remedy`` is empty if ``good``. A bad finding that is not ``required`` only disables what ``enables`` names.
    """

    name: str
    good: bool
    detail: str
    remedy: str = ""
    enables: str = ""
    required: bool = False
