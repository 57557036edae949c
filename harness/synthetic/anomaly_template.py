"""Scenes: the few operations that make one anomaly, in the middle of ordinary traffic.

A scene has some slots to itself: no ordinary operation takes effect there, though ordinary operations may be open at
the same time. The ticks of a scene are slots, and its processes take no other operations.
"""

from dataclasses import dataclass
from typing import Any, Final

from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.synthetic.plan import Planted
from assay.harness.synthetic.timeline import EVENTS, SCENE_PROCESS, SCENE_SLOTS, Timeline

PROCESSES: Final = 2 * SCENE_SLOTS
"""Process numbers reserved for each scene."""


@dataclass(frozen=True)
class Opening:
    """The place at which a scene opens, and the state of its object then."""

    number: int
    """The key's number."""
    key: str
    slot: int = 0
    count: int = 0
    """The quantity that this kind of object counts: a log's end, a generation, a token, elements, adds."""
    epoch: int = 1


@dataclass(frozen=True)
class SceneStep:
    """An operation from tick ``begin`` to tick ``end``. Without an end, its outcome is info."""

    f: str
    begin: int
    end: int | None
    effects: tuple[Effect, ...] = ()
    process: int | None = None
    """The process's number within the scene. None: a process that has no other step."""
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
    """The steps of an anomaly, and what its violation names."""

    key: str | None
    """The key that the finding names."""
    about: str | None = None
    """The key of the operations, if it differs from ``key``."""
    steps: tuple[SceneStep, ...]
    events: tuple[SceneEvent, ...] = ()
    """Each has its own tick, so that no two events share a place in a node's log."""
    lasts: int = 0
    """Nanoseconds that the scene's slots must last in total; 0: any time."""
    quiet: bool = False
    """Whether no ordinary operation may time out around the scene."""
    position: int | None = None
    value: int | None = None
    takes: int = 0
    """Units of ``Opening.count`` that the scene uses up."""

    @property
    def clients(self) -> int:
        """The largest number of operations that are open at once."""
        last = max(step.begin for step in self.steps)
        return max(
            sum(step.begin <= tick and (tick < step.end if step.end is not None else tick == step.begin)
                for step in self.steps)
            for tick in range(last + 1)
        )  # fmt: skip

    def write(self, anomaly: str, writer: HistoryWriter, schedule: Timeline, slot: int, number: int) -> Planted:
        """Writes the operations, with the slots from ``slot`` on as indexes. ``number``: the scene's number."""
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
