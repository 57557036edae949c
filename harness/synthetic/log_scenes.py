"""One scene for each log anomaly, and what it leaves in the log.

A scene appends a few records to one key; what the log really holds there afterwards may differ from what was
acknowledged. Only the final reading polls that key after the scene, so that a scene is one anomaly and not two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from assay.harness.core.operation import Effect
from assay.harness.synthetic.log_rows import NODES
from assay.harness.synthetic.scene import Opening, Scene, SceneEvent, SceneStep
from assay.harness.synthetic.slots import SCENE_SLOTS
from assay.harness.synthetic.values import SCENE_VALUES, value_at

OWN_REQUESTS: Final = 1 << 50
OWN_EPOCHS: Final = 1 << 40


@dataclass(frozen=True, kw_only=True)
class LogScene(Scene):
    """``records``: what the log holds from the scene's base offset on, None for a hole."""

    records: tuple[int | None, ...]
    log_start: int | None = None
    """Where the final reading begins, reported as the log's start."""
    cut: int | None = None
    """Where the final reading breaks off and goes on under a new assignment."""
    diverges: bool = False
    """Whether one replica holds another record at the base offset."""


class _Stage:
    """One key at a base offset."""

    def __init__(self, at: Opening) -> None:
        self.key, self.base, self.epoch, self.slot = at.key, at.count, at.epoch, at.slot
        self._number = at.number
        self._request = OWN_REQUESTS + at.slot * SCENE_SLOTS

    def node(self, after: int) -> str:
        """The node so many places after the one that leads the log."""
        return NODES[(self._number + self.epoch + after) % len(NODES)]

    def value(self, rank: int) -> int:
        return value_at(self.base + rank)

    def at(self, rank: int) -> tuple[int, int]:
        """Rank and the ordinary value there."""
        return rank, self.value(rank)

    def send(self, begin: int, end: int | None, *records: tuple[int | None, int], failed: bool = False) -> SceneStep:
        """(rank or None for an offset that was not returned, value) of one message set."""
        effects = tuple(
            Effect(
                "append", self.key, position=None if rank is None else self.base + rank, value=value,
                request=self._request + begin, epoch=self.epoch,
            )
            for rank, value in records
        )  # fmt: skip
        return SceneStep("send", begin, end, effects, failed=failed)

    def poll(self, begin: int, end: int | None, first: int, last: int, *records: tuple[int, int]) -> SceneStep:
        """From rank ``first`` up to, not including, ``last``, by the scene's consumer."""
        shown = [Effect("observe", self.key, position=self.base + rank, value=value, assignment=1)
                 for rank, value in records]  # fmt: skip
        before = Effect("observe-begin", self.key, position=self.base + first, assignment=1)
        after = Effect("observe-end", self.key, position=self.base + last, assignment=1)
        ending = [] if end is None else [after]
        return SceneStep("poll", begin, end, (before, *shown, *ending), process=0)

    def end(self, begin: int, end: int, rank: int) -> SceneStep:
        return SceneStep("end", begin, end, (Effect("end", self.key, position=self.base + rank, epoch=self.epoch),))

    def aside(self, epoch: int) -> LogScene:
        """What is wrong concerns not the log, but a controller's epoch."""
        scene = self.scene((self.send(0, 1, self.at(0)),), (self.value(0),), rank=None, value=epoch)
        return replace(scene, key=None, about=self.key)

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


def _inconsistent_offset(on: _Stage) -> LogScene:
    """The other value was shown by a poll that timed out; the log's start passes it, so neither counts as gone."""
    steps = (
        on.send(0, 2, on.at(0)),
        on.send(1, None, (None, SCENE_VALUES)),
        on.poll(3, None, 0, 1, (0, SCENE_VALUES)),
    )
    return on.scene(steps, (on.value(0),), value=SCENE_VALUES, log_start=on.base + 1)


def _duplicate(on: _Stage) -> LogScene:
    both = on.value(0)
    steps = (on.send(0, 1, on.at(0)), on.poll(2, 3, 0, 2, (0, both), (1, both)))
    return on.scene(steps, (both, both), value=both)


def _aborted_read(on: _Stage) -> LogScene:
    value = on.value(0)
    steps = (on.send(0, 1, (None, value), failed=True), on.poll(2, 3, 0, 1, (0, value)))
    return on.scene(steps, (value,), value=value)


def _phantom(on: _Stage) -> LogScene:
    return on.scene((on.poll(0, 1, 0, 1, (0, SCENE_VALUES)),), (SCENE_VALUES,), value=SCENE_VALUES)


def _lost_write(on: _Stage) -> LogScene:
    steps = (on.send(0, 1, on.at(0), on.at(1), on.at(2)), on.poll(2, 3, 0, 3, on.at(0), on.at(2)))
    return on.scene(steps, (on.value(0), None, on.value(2)), rank=1, value=on.value(1))


def _vanished(on: _Stage) -> LogScene:
    steps = (on.send(0, 1, on.at(0)), on.poll(2, 3, 0, 1, on.at(0)))
    return on.scene(steps, (None,), value=on.value(0), cut=on.base + 1)


def _unseen(on: _Stage) -> LogScene:
    return on.scene((on.send(0, 1, (None, SCENE_VALUES)),), (), rank=None, value=SCENE_VALUES)


def _real_time_order(on: _Stage) -> LogScene:
    steps = (on.send(0, 1, on.at(1)), on.send(2, 3, on.at(0)))
    return on.scene(steps, (on.value(0), on.value(1)), rank=1, value=on.value(1))


def _nonmonotonic_send(on: _Stage) -> LogScene:
    """Two message sets of one operation."""
    first, second = on.send(0, 3, on.at(1)), on.send(1, 3, on.at(0))
    both = SceneStep("send", 0, 3, (*first.effects, *second.effects))
    return on.scene((both,), (on.value(0), on.value(1)), value=on.value(0))


def _send_skip(on: _Stage) -> LogScene:
    steps = (on.send(0, 2, on.at(0), on.at(2)), on.send(1, 3, on.at(1)))
    return on.scene(steps, (on.value(0), on.value(1), on.value(2)), rank=2, value=on.value(2))


def _nonmonotonic_poll(on: _Stage) -> LogScene:
    steps = (on.send(0, 1, on.at(0)), on.poll(2, 3, 0, 1, on.at(0)), on.poll(4, 5, 0, 1, on.at(0)))
    return on.scene(steps, (on.value(0),), value=on.value(0))


def _poll_skip(on: _Stage) -> LogScene:
    steps = (
        on.send(0, 1, on.at(0), on.at(1), on.at(2)),
        on.poll(2, 3, 0, 1, on.at(0)),
        on.poll(4, 5, 2, 3, on.at(2)),
    )
    return on.scene(steps, (on.value(0), on.value(1), on.value(2)), rank=2, value=on.value(2))


def _high_watermark_regression(on: _Stage) -> LogScene:
    steps = (on.send(0, 1, on.at(0)), on.end(2, 3, 1), on.end(4, 5, 0))
    return on.scene(steps, (on.value(0),))


def _two_leaders(on: _Stage) -> LogScene:
    """Two nodes that both append in one epoch."""
    steps = (on.send(0, 1, on.at(0)), on.send(2, 3, on.at(1)))
    events = tuple(
        SceneEvent(
            "first-append-in-epoch", 2 * rank, on.node(rank), key=on.key, epoch=on.epoch, position=on.base + rank
        )
        for rank in (0, 1)
    )
    return replace(on.scene(steps, (on.value(0), on.value(1)), rank=1), events=events)


def _two_controllers(on: _Stage) -> LogScene:
    """Of an epoch of its own."""
    epoch = OWN_EPOCHS + on.slot
    events = tuple(SceneEvent("became-controller", tick, on.node(tick), controller_epoch=epoch) for tick in (0, 1))
    return replace(on.aside(epoch), events=events)


def _stale_epoch_obeyed(on: _Stage) -> LogScene:
    """In a life of the node that begins and ends with the scene."""
    events = tuple(
        SceneEvent("request-obeyed", tick, on.node(0), controller_epoch=on.epoch + 1 - tick, incarnation=on.slot + 2)
        for tick in (0, 1)
    )
    return replace(on.aside(on.epoch), events=events)


def _replica_divergence(on: _Stage) -> LogScene:
    return replace(on.scene((on.send(0, 1, on.at(0)),), (on.value(0),)), diverges=True)


_SCENES: Final[Mapping[str, Callable[[_Stage], LogScene]]] = {
    "inconsistent-offset": _inconsistent_offset,
    "duplicate": _duplicate,
    "aborted-read": _aborted_read,
    "phantom": _phantom,
    "lost-write": _lost_write,
    "vanished": _vanished,
    "unseen": _unseen,
    "real-time-order": _real_time_order,
    "nonmonotonic-send": _nonmonotonic_send,
    "send-skip": _send_skip,
    "nonmonotonic-poll": _nonmonotonic_poll,
    "poll-skip": _poll_skip,
    "high-watermark-regression": _high_watermark_regression,
    "two-leaders": _two_leaders,
    "two-controllers": _two_controllers,
    "stale-epoch-obeyed": _stale_epoch_obeyed,
    "replica-divergence": _replica_divergence,
}


def stage(anomaly: str, at: Opening) -> LogScene:
    """The scene of an anomaly on a key whose log ends at ``at.count``."""
    return _SCENES[anomaly](_Stage(at))
