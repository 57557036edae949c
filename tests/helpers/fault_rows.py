"""What rows of ``faults`` say of the project's own faults."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from assay.nemesis.schedule.catalogue import FaultCatalogue

_FAULTS = FaultCatalogue.standard()


def impact(fault: str) -> dict[str, Any]:
    """The columns in which a fault says what it does to its targets."""
    return asdict(_FAULTS[fault].impact)
