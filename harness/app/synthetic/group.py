"""The history of correct groups: members enter new generations, commit in the present one, and fetch.

Each group has one partition, its own. A commit bears its operation's index + 1. Half of the enters and commits of
unknown fate took effect.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from harness.app.synthetic import rows, segments
from harness.app.synthetic.group_scenes import GROUP_SCENES, Place
from harness.app.synthetic.plan import Plan, PlanError, Planted
from harness.app.synthetic.register_scenes import LAST
from harness.app.synthetic.segments import Flags, Ints
from harness.app.synthetic.slots import INFO, OK, SCENE_SLOTS, Schedule, Slots
from harness.core.history import HistoryWriter

ENTER: Final = 0
COMMIT: Final = 1
FETCH: Final = 2
VERBS: Final = ("enter", "commit", "fetch")
WEIGHTS: Final = (0.02, 0.48, 0.5)
OFFSETS: Final = 1000
EMPTY: Final = 0
"""Nothing committed, in the arrays; no commit bears it."""


class GroupTraffic:
    """Makes and writes the history of a plan, once."""

    def __init__(self, plan: Plan) -> None:
        if plan.plant is not None and plan.plant not in GROUP_SCENES:
            raise PlanError(f"a group has no anomaly {plan.plant!r}; plant one of {', '.join(GROUP_SCENES)}")
        self._plan = plan
        self._rng = np.random.default_rng([plan.seed, 2])
        self._schedule = Schedule(plan, np.random.default_rng([plan.seed, 1]))
        self._groups = pa.array([f"group-{number}" for number in range(plan.keys)], pa.string())
        self._partitions = pa.array([f"orders-{number}" for number in range(plan.keys)], pa.string())
        self._keys = pa.array([f"group-{number}/orders-{number}" for number in range(plan.keys)], pa.string())
        self._members = [f"member-{number}" for number in range(plan.clients)]
        self._scene_key = int(self._rng.integers(0, plan.keys))
        self._values = np.full(plan.keys, EMPTY, dtype=np.int64)
        # In the first generation from the beginning, so that every commit is in one.
        self._generations = np.ones(plan.keys, dtype=np.int64)

    def write(self, writer: HistoryWriter) -> Planted | None:
        """Writes everything; where the anomaly is, if one was planted."""
        planted = None
        for slots in self._schedule.chunks():
            planted = self._chunk(slots, writer) or planted
        return planted

    def _chunk(self, slots: Slots, writer: HistoryWriter) -> Planted | None:
        length, rng = len(slots.index), self._rng
        key = rng.integers(0, self._plan.keys, length)
        verb = np.searchsorted(np.cumsum(WEIGHTS)[:-1], rng.random(length), side="right")
        fate = rng.random(length)
        ours, opening = self._scene(slots)
        key[opening] = self._scene_key
        done = ((slots.outcome == OK) | ((slots.outcome == INFO) & (fate < 0.5))) & ~ours
        value = np.where(opening, LAST, slots.index + 1)
        generation, current = self._follow(
            key, (done & (verb == ENTER)) | opening, done & (verb == COMMIT), opening, value
        )
        self._write(slots, ~ours, verb, key, generation, value, current, writer)
        if self._plan.plant is None or not opening.any():
            return None
        at = int(np.flatnonzero(opening)[0])
        group, partition = self._groups[self._scene_key].as_py(), self._partitions[self._scene_key].as_py()
        scene = GROUP_SCENES[self._plan.plant](Place(group, partition, int(generation[at])))
        return scene.write(self._plan.plant, writer, self._schedule, int(slots.index[at]))

    def _scene(self, slots: Slots) -> tuple[Flags, Flags]:
        """The slots that the scene has for itself, and the first of them."""
        begin = self._schedule.scene
        if begin is None:
            nothing = np.zeros(len(slots.index), dtype=np.bool_)
            return nothing, nothing
        return (slots.index >= begin) & (slots.index < begin + SCENE_SLOTS), slots.index == begin

    def _follow(self, key: Ints, entered: Flags, committed: Flags, opening: Flags, value: Ints) -> tuple[Ints, Ints]:
        """Per operation, the group's generation with it, and what is committed when its slot comes."""
        order, starts = segments.sorted_by(key)
        keys, ends = key[order], segments.ends(starts)
        reached = self._generations[keys] + segments.running_sum(entered[order].astype(np.int64), starts)
        self._generations[keys[ends]] = reached[ends]
        writes, values = (committed | opening)[order], value[order]
        last = segments.last_before(writes, starts)
        now = np.where(last >= 0, values[last], self._values[keys])
        self._values[keys[ends]] = np.where(writes[ends], values[ends], now[ends])
        generation, current = np.empty_like(reached), np.empty_like(now)
        generation[order], current[order] = reached, now
        return generation, current

    def _write(
        self,
        slots: Slots,
        keep: Flags,
        verb: Ints,
        key: Ints,
        generation: Ints,
        value: Ints,
        current: Ints,
        writer: HistoryWriter,
    ) -> None:
        columns: rows.Columns = {
            "index": slots.index[keep],
            "process": slots.process[keep],
            "worker": rows.workers(slots.client[keep], self._plan.clients),
            "f": rows.Named(verb[keep], VERBS),
            "key": rows.Named(key[keep], self._keys),
            "argument": "null",
            "call": slots.call[keep],
            "ret": rows.returned(slots.ret[keep], slots.outcome[keep]),
            "phase": "main",
            **rows.outcomes(slots.outcome[keep]),
        }
        writer.batch("ops", rows.batch("ops", columns, int(keep.sum())))
        enters = np.flatnonzero(keep & (verb == ENTER) & slots.ok)
        commits, fetches = np.flatnonzero(keep & (verb == COMMIT)), np.flatnonzero(keep & (verb == FETCH) & slots.ok)
        known = current[fetches] != EMPTY
        batch = rows.joined([
            self._effects(slots, key, enters, "acquire", self._partitions, {
                "epoch": generation[enters],
                "owner": rows.Named(slots.client[enters], self._members),
            }),
            self._effects(slots, key, commits, "commit", self._keys, {
                "value": value[commits], "position": value[commits] % OFFSETS, "epoch": generation[commits],
            }),
            self._effects(slots, key, fetches, "fetched", self._keys, {
                "value": rows.Known(current[fetches], known),
                "position": np.where(known, current[fetches] % OFFSETS, -1),
            }),
        ])  # fmt: skip
        if batch is not None:
            writer.batch("effects", batch)

    def _effects(
        self, slots: Slots, key: Ints, at: Ints, kind: str, names: pa.Array, own: rows.Columns
    ) -> tuple[rows.Columns, int]:
        """Effects of one kind; ``at``: the operation of each, by its place in the chunk."""
        return {
            "op": slots.index[at],
            "sub": 0,
            "process": slots.process[at],
            "key": rows.Named(key[at], names),
            "kind": kind,
            "group": rows.Named(key[at], self._groups),
            "call": slots.call[at],
            "ret": rows.returned(slots.ret[at], slots.outcome[at]),
            "phase": "main",
            **rows.outcomes(slots.outcome[at]),
            **own,
        }, len(at)
