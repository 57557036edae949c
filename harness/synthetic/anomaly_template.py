"""The few operations that make one anomaly, in the middle of ordinary traffic.

A scene has some slots for itself: nothing ordinary takes effect there, though ordinary operations may be open
at the same time. Its ticks are slots; its processes are its own.
"""

from dataclasses import dataclass
from typing import Any, Final

from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.synthetic.plan import Planted
from assay.harness.synthetic.timeline import EVENTS, SCENE_PROCESS, SCENE_SLOTS, Schedule

PROCESSES: Final = 2 * SCENE_SLOTS
"""Numbers of processes that each scene has for itself."""


@dataclass(frozen=True)
class Opening:
    """Where a scene opens, and what its object is like then."""

    number: int
    """Of the key."""
    key: str
    slot: int = 0
    count: int = 0
    """What is counted in this kind of object: a log's end, a generation, a token, elements, adds."""
    epoch: int = 1


@dataclass(frozen=True)
class SceneStep:
    """One operation from tick ``begin`` to tick ``end``; without an end it is info."""

    f: str
    begin: int
    end: int | None
    effects: tuple[Effect, ...] = ()
    process: int | None = None
    """Its number among the scene's processes; None: one of its own."""
    failed: bool = False
    error: str | None = None
    argument: Any = None
    result: Any = None


@dataclass(frozen=True)
class SceneEvent:
    """A line of a node's event log, written at tick ``begin``."""

    event: str
    begin: int
    node: str
    key: str | None = None
    epoch: int | None = None
    controller_epoch: int | None = None
    position: int | None = None
    incarnation: int = 1


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Steps, and what the history will say of them."""

    key: str | None
    """What the finding will name."""
    about: str | None = None
    """The key of the operations, where that is another."""
    steps: tuple[SceneStep, ...]
    events: tuple[SceneEvent, ...] = ()
    """At ticks of their own, so that no two are at one place of a node's log."""
    lasts: int = 0
    """Nanoseconds that its slots must last together; 0: no matter how long."""
    quiet: bool = False
    """Whether nothing ordinary may time out around it."""
    position: int | None = None
    value: int | None = None
    takes: int = 0
    """How much of what is counted the scene uses up."""

    @property
    def clients(self) -> int:
        """How many operations are open at once, at most."""
        last = max(step.begin for step in self.steps)
        return max(
            sum(step.begin <= tick and (tick < step.end if step.end is not None else tick == step.begin)
                for step in self.steps)
            for tick in range(last + 1)
        )  # fmt: skip

    def write(self, anomaly: str, writer: HistoryWriter, schedule: Schedule, slot: int, number: int) -> Planted:
        """Writes the operations with the indexes of the slots from ``slot`` on; ``number``: of the history's scenes."""
        for turn, step in enumerate(self.steps):
            outcome = Outcome.INFO if step.end is None else Outcome.FAIL if step.failed else Outcome.OK
            process = SCENE_PROCESS + number * PROCESSES
            process += turn if step.process is None else SCENE_SLOTS + step.process
            error = "timeout" if step.end is None else step.error
            writer.completed(
                Completed(
                    index=slot + turn,
                    process=process,
                    worker="0",
                    operation=Operation(step.f, self.about or self.key, step.argument),
                    completion=Completion(outcome, step.result, error),
                    call=schedule.opening(slot + step.begin),
                    ret=None if step.end is None else schedule.opening(slot + step.end),
                ),
                step.effects,
            )
        for event in self.events:
            writer.event(
                time=schedule.opening(slot + event.begin),
                node=event.node,
                incarnation=event.incarnation,
                seq=EVENTS * (slot + event.begin),
                event=event.event,
                key=event.key,
                epoch=event.epoch,
                controller_epoch=event.controller_epoch,
                position=event.position,
            )
        last = max(step.begin if step.end is None else step.end for step in self.steps)
        return Planted(
            anomaly=anomaly,
            key=self.key,
            operations=tuple(range(slot, slot + len(self.steps))),
            time=schedule.opening(slot),
            until=schedule.opening(slot + last),
            position=self.position,
            value=self.value,
        )
