"""The rows of the history's ``faults`` table, as the conductor reports them."""

from __future__ import annotations

import enum
from typing import Any

import msgspec


class FaultPhase(enum.StrEnum):
    """What became of a fault, in this order; ``failed`` may come at any time and tells its ``stage`` in the detail."""

    INTENDED = "intended"
    INJECTED = "injected"
    HEALED = "healed"
    RECOVERED = "recovered"
    FAILED = "failed"


class Stage(enum.StrEnum):
    """Where a fault failed: waiting for its trigger, finding its targets, doing it, looking at it, proving its effect,
    undoing it, or afterwards.
    """

    TRIGGER = "trigger"
    TARGET = "target"
    INJECT = "inject"
    OBSERVE = "observe"
    EFFECT = "effect"
    HEAL = "heal"
    RECOVER = "recover"


class FaultRow(msgspec.Struct, frozen=True):
    """One change of one fault. ``id`` rises from 1 in the schedule's order; ``time`` is the run's stamp in nanoseconds.

    ``took_effect``: on ``healed`` rows whether the fault was proved to have taken effect, else None. ``detail`` is
    plain data; on ``failed`` rows it has ``stage`` and ``reason``.
    """

    id: int
    fault: str
    targets: tuple[str, ...]
    phase: FaultPhase
    time: int
    detail: dict[str, Any]
    took_effect: bool | None = None
