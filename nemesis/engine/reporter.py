"""Reports the outcome of every fault of a run: rows of the history's ``faults`` table, and the schedule's record.

Times in a row's detail are seconds of the run. The row's own time is the history's stamp.
"""

import asyncio
import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from assay.cluster.node import Node
from assay.nemesis.engine.step_list import StepList
from assay.nemesis.faults.fault import Fault, Impact, Injection, Proof
from assay.nemesis.faults.link_set import SHAPE_NAME
from assay.nemesis.schedule.schedule import FaultStep, ResolvedStep, ScheduleRecord
from assay.nemesis.schedule.target import ChosenTarget
from assay.nemesis.schedule.trigger import FiredTrigger, OnEvent


class FaultPhase(enum.StrEnum):
    """Progress of a fault, in this order. ``failed`` may come at any time; its row has a ``stage``."""

    INTENDED = "intended"
    INJECTED = "injected"
    HEALED = "healed"
    RECOVERED = "recovered"
    FAILED = "failed"


class FailureStage(enum.StrEnum):
    """The stage at which a fault failed.

    - ``trigger``: waiting for its trigger
    - ``target``: finding its targets
    - ``inject``: injecting it
    - ``hindered``: injecting it while other faults were active, in a step with ``FaultStep.yields``
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
    - ``impact``: the impact that the fault declares.
    - ``on_clients``: whether a target is a client node.
    - ``took_effect``: on ``healed`` rows, whether the fault was proved to have taken effect.
    - ``stage``: on ``failed`` rows, where it failed.
    - ``not_before``: on ``intended`` rows, the earliest begin in nanoseconds: ``time`` plus whole seconds.
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
        """Returns the text for progress: ``kill n1``, ``kill n1@agent``.

        In ``partition-links n1+n2 (as partition-bridge)``, the brackets have the fault that cuts exactly these links.
        """
        name, process = self.detail.get("evidence", {}).get(SHAPE_NAME), self.detail.get("process")
        suffix = f"@{process}" if process else ""
        return f"{self.fault} {'+'.join(self.targets)}{suffix}{f' (as {name})' if name else ''}"

    def columns(self) -> dict[str, Any]:
        """Returns the columns for the history's writer."""
        columns = msgspec.structs.asdict(self)
        return columns | asdict(columns.pop("impact"))


class FaultReporter:
    """Writes the rows of all faults of a run, and keeps the record of its schedule.

    ``record`` takes each row as it happens. ``stamp`` returns strictly increasing nanoseconds. A fault's number is that
    of its step.
    """

    def __init__(
        self,
        step_list: StepList,
        catalogue: Mapping[str, Fault],
        clients: Sequence[Node],
        record: Callable[[FaultRow], None],
        stamp: Callable[[], int],
    ) -> None:
        self._step_list = step_list
        self._catalogue = catalogue
        self._clients = {node.name for node in clients}
        self._record = record
        self._stamp = stamp
        self._started = 0.0
        self._last_moment = -math.inf
        self._resolved: dict[int, ResolvedStep] = {}

    @property
    def outcome(self) -> ScheduleRecord:
        """The plan and its outcome so far."""
        return ScheduleRecord(
            self._step_list.schedule, tuple(self._resolved[number] for number in sorted(self._resolved))
        )

    @property
    def started(self) -> float:
        """The loop's time at which the run began."""
        return self._started

    def elapsed(self) -> float:
        """Returns the seconds of the run."""
        return asyncio.get_running_loop().time() - self._started

    def next_moment(self) -> float:
        """Returns the seconds of the run, strictly increasing, so that simultaneous actions keep their order."""
        self._last_moment = max(self.elapsed(), math.nextafter(self._last_moment, math.inf))
        return self._last_moment

    def start_clock(self) -> None:
        """Starts the clock of the run."""
        self._started = asyncio.get_running_loop().time()

    def report_intended(self, steps: Iterable[tuple[int, FaultStep]], now: float = 0.0) -> None:
        """Writes a row for each step that will certainly be tried. ``now``: seconds of the run."""
        for number, step in steps:
            if not is_optional(step):
                self._write_intended(number, step, max(int(step.at - now), 0))

    def _write_intended(self, number: int, step: FaultStep, starts_in: int) -> None:
        detail = {"what": str(step), "at": step.at, "duration": step.duration, "parameters": dict(step.parameters)}
        self._write_row(number, (), FaultPhase.INTENDED, detail, starts_in=starts_in)

    def report_missed(self, number: int, at: float, stage: FailureStage, reason: str) -> None:
        """Reports a step that failed before it had a target."""
        step = self._step_list[number]
        self._resolved[number] = ResolvedStep(step, (), at, None, {"reason": reason})
        if not (is_optional(step) and stage is FailureStage.TRIGGER):
            self.report_failed(number, (), stage, reason)

    def report_targeted(self, injection: Injection, at: float, detail: Mapping[str, Any]) -> None:
        """Reports a step that has targets and is about to be injected."""
        if is_optional(injection.step):
            self._write_intended(injection.id, injection.step, 0)
        # A replay without the steps that hit no node would draw another seed, so the seed is recorded.
        step = msgspec.structs.replace(injection.step, seed=injection.seed)
        self._resolved[injection.id] = ResolvedStep(step, injection.names, at, None, dict(detail))

    def report_injected(self, injection: Injection) -> None:
        resolved = self._retarget(injection)
        extra = {"at": resolved.at, "parameters": injection.step.parameters, "evidence": injection.evidence}
        self._write_row(injection.id, injection.names, FaultPhase.INJECTED, {**resolved.detail, **extra})

    def report_not_injected(self, injection: Injection, stage: FailureStage, reason: str) -> None:
        """Reports a failed injection. A part of it may have been done."""
        self._retarget(injection)
        self.report_failed(injection.id, injection.names, stage, reason)

    def _retarget(self, injection: Injection) -> ResolvedStep:
        """Records the injection's current targets, because it may have replaced its first ones."""
        resolved = msgspec.structs.replace(self._resolved[injection.id], targets=injection.names)
        self._resolved[injection.id] = resolved
        return resolved

    def report_healed(self, injection: Injection, proof: Proof, at: float) -> None:
        """Reports a heal, and whether the fault took effect."""
        detail = {"at": at, "evidence": dict(proof.evidence)}
        if proof.reason is not None:
            detail["reason"] = proof.reason
        self._write_row(injection.id, injection.names, FaultPhase.HEALED, detail, took_effect=proof.took_effect)
        resolved = self._resolved[injection.id]
        self._resolved[injection.id] = msgspec.structs.replace(
            resolved, healed_at=at, detail={**resolved.detail, "took_effect": proof.took_effect, **detail}
        )
        if not proof.took_effect:
            self.report_failed(
                injection.id, injection.names, FailureStage.EFFECT, proof.reason or "the fault did nothing"
            )

    def report_recovered(self, injection: Injection, seconds: float) -> None:
        """Reports that all targets serve again, ``seconds`` after the heal."""
        self._write_row(injection.id, injection.names, FaultPhase.RECOVERED, {"seconds": seconds})

    def report_failed(self, number: int, targets: tuple[str, ...], stage: FailureStage, reason: str) -> None:
        detail = {"what": str(self._step_list[number]), "stage": str(stage), "reason": reason}
        self._write_row(number, targets, FaultPhase.FAILED, detail, stage=stage)

    def _write_row(
        self,
        number: int,
        targets: tuple[str, ...],
        phase: FaultPhase,
        detail: Mapping[str, Any],
        *,
        took_effect: bool | None = None,
        stage: FailureStage | None = None,
        starts_in: int | None = None,
    ) -> None:
        """Writes a row. ``starts_in``: whole seconds from now until the fault may begin."""
        step, time = self._step_list[number], self._stamp()
        impact = self._catalogue[step.fault].impact
        self._record(
            FaultRow(
                number,
                step.fault,
                targets,
                phase,
                time,
                # A copy of the present state, because evidence still grows after the row is written.
                msgspec.json.decode(msgspec.json.encode(dict(detail))),
                impact if step.target.of_main else impact.on_sidecar,
                on_clients=not self._clients.isdisjoint(targets),
                took_effect=took_effect,
                stage=stage,
                not_before=None if starts_in is None else time + starts_in * 1_000_000_000,
            )
        )


def is_optional(step: FaultStep) -> bool:
    """Returns whether the step's trigger may fail to fire without a failure of the step."""
    return isinstance(step.trigger, OnEvent) and step.trigger.optional


def describe_injection(
    step: FaultStep, chosen: ChosenTarget, fired: FiredTrigger | None, held: bool, at: float
) -> dict[str, Any]:
    """Returns the detail of an injection's row that is known when the injection begins."""
    choice = {"key": chosen.key, "note": chosen.note, "fell_back": chosen.fell_back, "process": step.target.process}
    detail: dict[str, Any] = {"what": str(step), **{name: value for name, value in choice.items() if value}}
    if fired is not None:
        trigger = {"at": fired.at, "delay": at - fired.at, "origin": fired.origin, "line": fired.line}
        trigger["held"] = held or None  # the process was seen stopped, with this line as its last event
        detail["trigger"] = {name: value for name, value in trigger.items() if value is not None}
    return detail
