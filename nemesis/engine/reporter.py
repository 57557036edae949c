"""Reports what becomes of every fault of a run: rows for the history, and the schedule's record.

Times that a row's detail gives are seconds of the run; the row's own time is the history's stamp.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from assay.cluster.node import Node
from assay.nemesis.engine.fault_row import FaultPhase, FaultRow, Stage
from assay.nemesis.engine.step_list import Score
from assay.nemesis.faults.fault import Fault, Injection, Proof
from assay.nemesis.schedule.schedule import Record, Resolved, Step
from assay.nemesis.schedule.target import Chosen
from assay.nemesis.schedule.trigger import Fired, OnEvent


class Reporter:
    """``record`` takes each row as it comes to pass; ``stamp`` gives strictly increasing nanoseconds.

    A fault's number is its place in the schedule, from 1.
    """

    def __init__(
        self,
        score: Score,
        catalogue: Mapping[str, Fault],
        clients: Sequence[Node],
        record: Callable[[FaultRow], None],
        stamp: Callable[[], int],
    ) -> None:
        self._score = score
        self._catalogue = catalogue
        self._clients = {node.name for node in clients}
        self._record = record
        self._stamp = stamp
        self._started = 0.0
        self._noted = -math.inf
        self._resolved: dict[int, Resolved] = {}

    @property
    def outcome(self) -> Record:
        """What was meant and what it has come to so far."""
        return Record(self._score.schedule, tuple(self._resolved[number] for number in sorted(self._resolved)))

    @property
    def started(self) -> float:
        """The loop's time at which the run began."""
        return self._started

    def elapsed(self) -> float:
        """Seconds of the run."""
        return asyncio.get_running_loop().time() - self._started

    def moment(self) -> float:
        """The same, later than what it was the last time: two acts at one moment of the clock keep their order."""
        self._noted = max(self.elapsed(), math.nextafter(self._noted, math.inf))
        return self._noted

    def begins(self) -> None:
        """The run begins, and time is counted from now on."""
        self._started = asyncio.get_running_loop().time()

    def intended(self, steps: Iterable[tuple[int, Step]], now: float = 0.0) -> None:
        """One row for each of these that will surely be tried. ``now``: seconds of the run."""
        for number, step in steps:
            if not optional(step):
                self._intended(number, step, max(int(step.at - now), 0))

    def _intended(self, number: int, step: Step, starts: int) -> None:
        detail = {"what": str(step), "at": step.at, "duration": step.duration, "parameters": dict(step.parameters)}
        self._row(number, (), FaultPhase.INTENDED, detail, starts=starts)

    def missed(self, number: int, at: float, stage: Stage, reason: str) -> None:
        """It failed before it had a target."""
        step = self._score[number]
        self._resolved[number] = Resolved(step, (), at, None, {"reason": reason})
        if not (optional(step) and stage is Stage.TRIGGER):
            self.failed(number, (), stage, reason)

    def aimed(self, injection: Injection, at: float, detail: Mapping[str, Any]) -> None:
        """It has targets, and is about to be injected."""
        if optional(injection.step):
            self._intended(injection.id, injection.step, 0)
        # Played again without those that hit no one, it would draw another seed.
        step = msgspec.structs.replace(injection.step, seed=injection.seed)
        self._resolved[injection.id] = Resolved(step, injection.names, at, None, dict(detail))

    def injected(self, injection: Injection) -> None:
        resolved = self._retarget(injection)
        extra = {"at": resolved.at, "parameters": injection.step.parameters, "evidence": injection.evidence}
        self._row(injection.id, injection.names, FaultPhase.INJECTED, {**resolved.detail, **extra})

    def not_injected(self, injection: Injection, stage: Stage, reason: str) -> None:
        """The injection failed, perhaps after a part of it was done."""
        self._retarget(injection)
        self.failed(injection.id, injection.names, stage, reason)

    def _retarget(self, injection: Injection) -> Resolved:
        """Records the present targets, because an injection may turn to other nodes than those it began with."""
        resolved = msgspec.structs.replace(self._resolved[injection.id], targets=injection.names)
        self._resolved[injection.id] = resolved
        return resolved

    def healed(self, injection: Injection, proof: Proof, at: float) -> None:
        """It is undone; whether it took effect is known."""
        detail = {"at": at, "evidence": dict(proof.evidence)}
        if proof.reason is not None:
            detail["reason"] = proof.reason
        self._row(injection.id, injection.names, FaultPhase.HEALED, detail, took_effect=proof.took_effect)
        resolved = self._resolved[injection.id]
        self._resolved[injection.id] = msgspec.structs.replace(
            resolved, healed_at=at, detail={**resolved.detail, "took_effect": proof.took_effect, **detail}
        )
        if not proof.took_effect:
            self.failed(injection.id, injection.names, Stage.EFFECT, proof.reason or "the fault did nothing")

    def recovered(self, injection: Injection, seconds: float) -> None:
        """All targets serve again, so many seconds after the heal."""
        self._row(injection.id, injection.names, FaultPhase.RECOVERED, {"seconds": seconds})

    def failed(self, number: int, targets: tuple[str, ...], stage: Stage, reason: str) -> None:
        """Something went wrong with it."""
        detail = {"what": str(self._score[number]), "stage": str(stage), "reason": reason}
        self._row(number, targets, FaultPhase.FAILED, detail, stage=stage)

    def _row(
        self,
        number: int,
        targets: tuple[str, ...],
        phase: FaultPhase,
        detail: Mapping[str, Any],
        *,
        took_effect: bool | None = None,
        stage: Stage | None = None,
        starts: int | None = None,
    ) -> None:
        """``starts``: whole seconds from now on until it may begin."""
        step, time = self._score[number], self._stamp()
        impact = self._catalogue[step.fault].impact
        self._record(
            FaultRow(
                number,
                step.fault,
                targets,
                phase,
                time,
                # A copy as it is now: evidence goes on growing after the row has been written.
                msgspec.json.decode(msgspec.json.encode(dict(detail))),
                impact if step.target.of_main else impact.beside_main,
                on_clients=not self._clients.isdisjoint(targets),
                took_effect=took_effect,
                stage=stage,
                not_before=None if starts is None else time + starts * 1_000_000_000,
            )
        )


def optional(step: Step) -> bool:
    """May it wait in vain?"""
    return isinstance(step.trigger, OnEvent) and step.trigger.optional


def described(step: Step, chosen: Chosen, fired: Fired | None, held: bool, at: float) -> dict[str, Any]:
    """What is known of an injection when it begins, as its row has it."""
    departure = {"key": chosen.key, "note": chosen.note, "fell_back": chosen.fell_back, "process": step.target.process}
    detail: dict[str, Any] = {"what": str(step), **{name: word for name, word in departure.items() if word}}
    if fired is not None:
        trigger = {"at": fired.at, "delay": at - fired.at, "origin": fired.origin, "line": fired.line}
        trigger["held"] = held or None  # its process was seen stopped, with this line its last
        detail["trigger"] = {name: value for name, value in trigger.items() if value is not None}
    return detail
