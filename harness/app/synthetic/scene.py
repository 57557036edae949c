"""The few operations that make one anomaly, in the middle of ordinary traffic.

A scene has some slots for itself: nothing ordinary takes effect there, though ordinary operations may be open
meanwhile. Its ticks are slots; its processes are its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.app.synthetic.plan import Planted
from harness.app.synthetic.slots import SCENE_PROCESS, Schedule
from harness.core.history import HistoryWriter
from harness.core.operation import Completed, Completion, Effect, Operation, Outcome


@dataclass(frozen=True)
class Step:
    """One operation from tick ``begin`` to tick ``end``; without an end it is info."""

    f: str
    begin: int
    end: int | None
    effects: tuple[Effect, ...]
    process: int | None = None
    """Its number among the scene's processes; None: one of its own."""
    failed: bool = False


@dataclass(frozen=True)
class Scene:
    """Steps, and what the history will say of them."""

    key: str
    steps: tuple[Step, ...]
    position: int | None = None
    value: int | None = None

    def write(self, anomaly: str, writer: HistoryWriter, schedule: Schedule, slot: int) -> Planted:
        """Writes the operations with the indexes of the slots from ``slot`` on."""
        for number, step in enumerate(self.steps):
            outcome = Outcome.INFO if step.end is None else Outcome.FAIL if step.failed else Outcome.OK
            process = SCENE_PROCESS + (number if step.process is None else 100 + step.process)
            writer.completed(
                Completed(
                    index=slot + number,
                    process=process,
                    worker="0",
                    operation=Operation(step.f, self.key),
                    completion=Completion(outcome, error="timeout" if step.end is None else None),
                    call=schedule.opening(slot + step.begin),
                    ret=None if step.end is None else schedule.opening(slot + step.end),
                ),
                step.effects,
            )
        return Planted(
            anomaly=anomaly,
            key=self.key,
            operations=tuple(range(slot, slot + len(self.steps))),
            time=schedule.opening(slot),
            position=self.position,
            value=self.value,
        )
