"""One thing that was looked at on a machine, and what to do about it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """``remedy`` is empty when ``good``. One that is not ``good`` and not ``required`` costs what ``enables`` names."""

    name: str
    good: bool
    detail: str
    remedy: str = ""
    enables: str = ""
    required: bool = False
