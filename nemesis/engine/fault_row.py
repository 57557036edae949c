"""Rows of the history's ``faults`` table, as the conductor reports them."""

import enum
from dataclasses import asdict
from typing import Any

import msgspec

from assay.nemesis.faults.impact import Impact
from assay.nemesis.faults.link_set import LIKENESS


class FaultPhase(enum.StrEnum):
    """Progress of a fault, in this order. ``failed`` may come at any time, and has a ``stage``."""

    INTENDED = "intended"
    INJECTED = "injected"
    HEALED = "healed"
    RECOVERED = "recovered"
    FAILED = "failed"


class FailureStage(enum.StrEnum):
    """The stage at which a fault failed.

    - ``trigger``: waiting for its trigger
    - ``target``: finding its targets
    - ``inject``: injecting it; ``hindered``: the same, while other faults were active, in a step that yields
    - ``observe``: observing it
    - ``effect``: proving its effect
    - ``heal``: undoing it
    - ``recover``: waiting for its targets to serve again
    """

    TRIGGER = "trigger"
    TARGET = "target"
    INJECT = "inject"
    HINDERED = "hindered"
    OBSERVE = "observe"
    EFFECT = "effect"
    HEAL = "heal"
    RECOVER = "recover"


class FaultRow(msgspec.Struct, frozen=True):
    """A change of one fault.

    - ``id`` counts from 1 in the schedule's order; ``time`` is the run's stamp in nanoseconds.
    - ``impact``: as the fault declares it, for main processes.
    - ``on_clients``: whether a target is a client node.
    - ``took_effect``: on ``healed`` rows, whether the fault was proved to have taken effect.
    - ``stage``: on ``failed`` rows, where it failed.
    - ``not_before``: on ``intended`` rows, the earliest begin in nanoseconds, in steps of whole seconds.
    - ``detail``: plain data for readers.
    """

    id: int
    fault: str
    targets: tuple[str, ...]
    phase: FaultPhase
    time: int
    detail: dict[str, Any]
    impact: Impact
    on_clients: bool = False
    took_effect: bool | None = None
    stage: FailureStage | None = None
    not_before: int | None = None

    def __str__(self) -> str:
        """Returns the text for progress: ``kill n1``, ``kill n1@agent``, ``partition-links n1+n2 (as
        partition-bridge)``.
        """
        name, process = self.detail.get("evidence", {}).get(LIKENESS), self.detail.get("process")
        one = f"@{process}" if process else ""
        return f"{self.fault} {'+'.join(self.targets)}{one}{f' (as {name})' if name else ''}"

    def columns(self) -> dict[str, Any]:
        """Returns the columns for the history's writer."""
        columns = msgspec.structs.asdict(self)
        return columns | asdict(columns.pop("impact"))
