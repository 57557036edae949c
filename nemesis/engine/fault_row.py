"""The rows of the history's ``faults`` table, as the conductor reports them."""

import enum
from dataclasses import asdict
from typing import Any

import msgspec

from assay.nemesis.faults.impact import Impact
from assay.nemesis.faults.link_set import LIKENESS


class FaultPhase(enum.StrEnum):
    """What became of a fault, in this order; ``failed`` may come at any time, and has a ``stage``."""

    INTENDED = "intended"
    INJECTED = "injected"
    HEALED = "healed"
    RECOVERED = "recovered"
    FAILED = "failed"


class Stage(enum.StrEnum):
    """Where a fault failed: waiting for its trigger, finding its targets, doing it, looking at it, proving its effect,
    undoing it, or afterwards. ``hindered``: it could not be done while others were in force, and its step yields.
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
    """One change of one fault. ``id`` rises from 1 in the schedule's order; ``time`` is the run's stamp in nanoseconds.

    ``impact``: as the fault declares it, for main processes. ``on_clients``: is a node among the targets that clients
    live on? ``took_effect``: on ``healed`` rows whether the fault was proved to have taken effect. ``stage``: on
    ``failed`` rows where it failed. ``not_before``: on ``intended`` rows when it may begin at the earliest, in
    nanoseconds, by whole seconds. ``detail`` is plain data, for people to read.
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
    stage: Stage | None = None
    not_before: int | None = None

    def __str__(self) -> str:
        """As progress has it: ``kill n1``, ``kill n1@agent``, ``partition-links n1+n2 (as partition-bridge)``."""
        name, process = self.detail.get("evidence", {}).get(LIKENESS), self.detail.get("process")
        one = f"@{process}" if process else ""
        return f"{self.fault} {'+'.join(self.targets)}{one}{f' (as {name})' if name else ''}"

    def columns(self) -> dict[str, Any]:
        """As the history's writer takes it."""
        columns = msgspec.structs.asdict(self)
        return columns | asdict(columns.pop("impact"))
