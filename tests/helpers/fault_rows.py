"""Rows of ``faults`` as the project's own faults record them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from assay.nemesis.schedule.catalogue import FaultCatalogue

_FAULTS = FaultCatalogue.standard()


def impact(fault: str) -> dict[str, Any]:
    """The columns in which a fault says what it does to its targets."""
    return asdict(_FAULTS[fault].impact)


def fault(number: int, name: str, begin: int, end: int | None) -> list[dict[str, Any]]:
    """The rows of a fault on n1, which is healed at ``end``."""
    shared: dict[str, Any] = {"id": number, "fault": name, "targets": '["n1"]', "detail": "{}", **impact(name)}
    rows = [{**shared, "phase": "injected", "time": begin}]
    return rows if end is None else [*rows, {**shared, "phase": "healed", "time": end, "took_effect": True}]
