"""Scenes of the log anomalies, with the records that each leaves in the log.

A scene appends a few records to one key. The content of the log may differ afterwards from the acknowledged records.
After the scene only the drain polls that key, so that a scene is one anomaly and not two.
"""

from dataclasses import dataclass, replace
from typing import Final

from assay.harness.core.operation import Effect
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneEvent, SceneStep
from assay.harness.synthetic.log_rows import NODES
from assay.harness.synthetic.timeline import SCENE_SLOTS
from assay.harness.synthetic.values import SCENE_VALUES, compute_values_at

OWN_REQUESTS: Final = 1 << 50
OWN_EPOCHS: Final = 1 << 40


@dataclass(frozen=True, kw_only=True)
class LogScene(Scene):
    """A scene of a log. ``records``: content of the log from the base offset on, None for a hole."""

    records: tuple[int | None, ...]
    log_start: int | None = None
    """Offset at which the drain begins, reported as the log start offset."""
    cut: int | None = None
    """Offset at which the drain stops and continues under a new assignment."""
    diverges: bool = False
    """Whether one replica holds another record at the base offset."""


class _LogSceneBuilder:
    """Makes the steps of a scene in one key, with offsets relative to a base offset (ranks)."""

    def __init__(self, at: Opening) -> None:
        self.key, self.base, self.epoch, self.slot = at.key, at.count, at.epoch, at.slot
        self._number = at.number
        self._request = OWN_REQUESTS + at.slot * SCENE_SLOTS

    def node(self, after: int) -> str:
        """Returns the node ``after`` places after the leader."""
        return NODES[(self._number + self.epoch + after) % len(NODES)]

    def value(self, rank: int) -> int:
        return compute_values_at(self.base + rank)

    def at(self, rank: int) -> tuple[int, int]:
        """Returns a rank and the ordinary value there."""
        return rank, self.value(rank)

    def send(self, begin: int, end: int | None, *records: tuple[int | None, int], failed: bool = False) -> SceneStep:
        """Sends one message set of (rank, value). The rank is None if the offset was not returned."""
        effects = tuple(
            Effect(
                "append", self.key, position=None if rank is None else self.base + rank, value=value,
                request=self._request + begin, leader_epoch=self.epoch,
            )
            for rank, value in records
        )  # fmt: skip
        return SceneStep("send", begin, end, effects, failed=failed)

    def poll(self, begin: int, end: int | None, first: int, last: int, *records: tuple[int, int]) -> SceneStep:
        """Polls from rank ``first`` to ``last``, which is excluded, by the scene's consumer."""
        shown = [Effect("observe", self.key, position=self.base + rank, value=value, assignment=1)
                 for rank, value in records]  # fmt: skip
        before = Effect("observe-begin", self.key, position=self.base + first, assignment=1)
        after = Effect("observe-end", self.key, position=self.base + last, assignment=1)
        ending = [] if end is None else [after]
        return SceneStep("poll", begin, end, (before, *shown, *ending), process=0)

    def end(self, begin: int, end: int, rank: int) -> SceneStep:
        effect = Effect("end", self.key, position=self.base + rank, leader_epoch=self.epoch)
        return SceneStep("end", begin, end, (effect,))

    def aside(self, epoch: int, *events: SceneEvent) -> LogScene:
        """Returns a scene whose anomaly concerns a controller epoch, not the log."""
        scene = self.scene((self.send(0, 1, self.at(0)),), (self.value(0),), rank=None, value=epoch)
        return replace(scene, key=None, about=self.key, events=events)

    def scene(
        self,
        steps: tuple[SceneStep, ...],
        records: tuple[int | None, ...],
        *,
        rank: int | None = 0,
        value: int | None = None,
        log_start: int | None = None,
        cut: int | None = None,
    ) -> LogScene:
        return LogScene(
            key=self.key,
            steps=steps,
            position=None if rank is None else self.base + rank,
            value=value,
            takes=len(records),
            records=records,
            log_start=log_start,
            cut=cut,
        )


def build_log_scene(anomaly: str, at: Opening) -> LogScene:
    """Returns the scene of an anomaly in a key whose log ends at ``at.count``."""
    on = _LogSceneBuilder(at)
    zero, one, two = on.value(0), on.value(1), on.value(2)
    first = on.send(0, 1, on.at(0))
    three = on.send(0, 1, on.at(0), on.at(1), on.at(2))
    backwards = (*on.send(0, 3, on.at(1)).effects, *on.send(1, 3, on.at(0)).effects)
    own = OWN_EPOCHS + on.slot
    scenes = {
        # A poll that timed out saw the other value. The log start is beyond both, so neither counts as vanished.
        "inconsistent-offset": on.scene(
            (
                on.send(0, 2, on.at(0)),
                on.send(1, None, (None, SCENE_VALUES)),
                on.poll(3, None, 0, 1, (0, SCENE_VALUES)),
            ),
            (zero,), value=SCENE_VALUES, log_start=on.base + 1,
        ),
        "duplicate": on.scene((first, on.poll(2, 3, 0, 2, (0, zero), (1, zero))), (zero, zero), value=zero),
        "aborted-read": on.scene(
            (on.send(0, 1, (None, zero), failed=True), on.poll(2, 3, 0, 1, on.at(0))), (zero,), value=zero
        ),
        "phantom": on.scene((on.poll(0, 1, 0, 1, (0, SCENE_VALUES)),), (SCENE_VALUES,), value=SCENE_VALUES),
        "lost-write": on.scene((three, on.poll(2, 3, 0, 3, on.at(0), on.at(2))), (zero, None, two), rank=1, value=one),
        "vanished": on.scene((first, on.poll(2, 3, 0, 1, on.at(0))), (None,), value=zero, cut=on.base + 1),
        "unseen": on.scene((on.send(0, 1, (None, SCENE_VALUES)),), (), rank=None, value=SCENE_VALUES),
        "real-time-order": on.scene(
            (on.send(0, 1, on.at(1)), on.send(2, 3, on.at(0))), (zero, one), rank=1, value=one
        ),
        # An operation has two message sets.
        "nonmonotonic-send": on.scene((SceneStep("send", 0, 3, backwards),), (zero, one), value=zero),
        "send-skip": on.scene(
            (on.send(0, 2, on.at(0), on.at(2)), on.send(1, 3, on.at(1))), (zero, one, two), rank=2, value=two
        ),
        "nonmonotonic-poll": on.scene(
            (first, on.poll(2, 3, 0, 1, on.at(0)), on.poll(4, 5, 0, 1, on.at(0))), (zero,), value=zero
        ),
        "poll-skip": on.scene(
            (three, on.poll(2, 3, 0, 1, on.at(0)), on.poll(4, 5, 2, 3, on.at(2))), (zero, one, two), rank=2, value=two
        ),
        "high-watermark-regression": on.scene((first, on.end(2, 3, 1), on.end(4, 5, 0)), (zero,)),
        # Two nodes append in the same epoch.
        "two-leaders": replace(
            on.scene((first, on.send(2, 3, on.at(1))), (zero, one), rank=1),
            events=tuple(
                SceneEvent(
                    "first-append-in-epoch", 2 * rank, on.node(rank), key=on.key, epoch=on.epoch,
                    position=on.base + rank,
                )
                for rank in (0, 1)
            ),
        ),
        # No other controller has this epoch.
        "two-controllers": on.aside(
            own, *(SceneEvent("became-controller", tick, on.node(tick), controller_epoch=own) for tick in (0, 1))
        ),
        # The incarnation of the node occurs in this scene only.
        "stale-epoch-obeyed": on.aside(
            on.epoch,
            *(
                SceneEvent(
                    "request-obeyed", tick, on.node(0), controller_epoch=on.epoch + 1 - tick, incarnation=on.slot + 2
                )
                for tick in (0, 1)
            ),
        ),
        "replica-divergence": replace(on.scene((first,), (zero,)), diverges=True),
    }  # fmt: skip
    return scenes[anomaly]
