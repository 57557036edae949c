"""Historic defects of brokers of this kind, each behind a switch, off by default.

A tester is worth what it catches. A defect is one place in the code, chosen when the object that has it is built, so
that the correct build never asks for a flag while it works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Defect:
    """What goes wrong, what shows it, and where it was described."""

    name: str
    summary: str
    fault: str
    anomalies: tuple[str, ...]
    reference: str


_ALL = (
    Defect(
        "ack-before-replication",
        "acks=all is acknowledged by the leader alone, and the records are replicated in the background",
        "kill the leader under load",
        ("lost-write",),
        "the acks=-1 contract of KAFKA-391; the default of many home-made logs",
    ),
)

DEFECTS: Mapping[str, Defect] = MappingProxyType({defect.name: defect for defect in _ALL})
"""By name."""
