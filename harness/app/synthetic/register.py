"""The history of correct registers: reads, writes and CAS operations by many clients, keys drawn at random.

A write's value is its operation's index + 1. A CAS expects the current value, or, to fail, the one before it; one that
fails tells the current value as a read of its own. Half of the writes of unknown fate took effect.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.app.synthetic import rows, segments
from harness.app.synthetic.plan import Plan, PlanError, Planted
from harness.app.synthetic.register_scenes import LAST, SCENES
from harness.app.synthetic.segments import Flags, Ints
from harness.app.synthetic.slots import FAIL, INFO, OK, SCENE_SLOTS, Schedule, Slots
from harness.core.history import HistoryWriter

READ: Final = 0
WRITE: Final = 1
CAS: Final = 2
VERBS: Final = ("read", "write", "cas")
WEIGHTS: Final = (0.5, 0.25, 0.25)
CAS_FAILS: Final = 0.3

EMPTY: Final = 0
"""The initial value, in the arrays; no write has it."""


class RegisterTraffic:
    """Makes and writes the history of a plan, once."""

    def __init__(self, plan: Plan) -> None:
        if plan.plant is not None and plan.plant not in SCENES:
            raise PlanError(f"a register has no anomaly {plan.plant!r}; plant one of {', '.join(SCENES)}")
        self._plan = plan
        self._rng = np.random.default_rng([plan.seed, 2])
        self._schedule = Schedule(plan, np.random.default_rng([plan.seed, 1]))
        self._names = pa.array([f"register-{number}" for number in range(plan.keys)], pa.string())
        self._scene_key = int(self._rng.integers(0, plan.keys))
        self._values = np.full(plan.keys, EMPTY, dtype=np.int64)
        self._former = np.full(plan.keys, EMPTY, dtype=np.int64)

    def write(self, writer: HistoryWriter) -> Planted | None:
        """Writes everything; where the anomaly is, if one was planted."""
        planted = None
        for slots in self._schedule.chunks():
            scene = self._schedule.scene
            if scene is not None and self._plan.plant is not None and slots.index[0] <= scene <= slots.index[-1]:
                key = self._names[self._scene_key].as_py()
                planted = SCENES[self._plan.plant](key).write(self._plan.plant, writer, self._schedule, scene)
            self._chunk(slots, writer)
        return planted

    def _chunk(self, slots: Slots, writer: HistoryWriter) -> None:
        length, rng = len(slots.index), self._rng
        key = rng.integers(0, self._plan.keys, length)
        verb = np.searchsorted(np.cumsum(WEIGHTS)[:-1], rng.random(length), side="right")
        luck, fate = rng.random(length), rng.random(length)
        ours, opening = self._scene(slots)
        key[opening] = self._scene_key
        # An info that took effect did so in its own slot: any moment from its call on will do.
        fits = (verb != CAS) | (luck >= CAS_FAILS)
        done = (verb != READ) & fits & ((slots.outcome == OK) | ((slots.outcome == INFO) & (fate < 0.5)))
        done = (done & ~ours) | opening
        value = np.where(opening, LAST, slots.index + 1)
        current, before = self._follow(key, done, value)
        outcome = np.where((slots.outcome == OK) & ~fits, FAIL, slots.outcome).astype(np.int8)
        # To expect a value that is not there: the former one, or the own one, which cannot be there yet.
        other = np.where(before == current, value + (1 << 41), before)
        expected = np.where(fits, current, other)
        keep = ~ours
        self._ops(slots, keep, key, verb, outcome, value, writer)
        batch = rows.joined(
            [
                self._effects(slots, keep & (verb == WRITE), "write", key, outcome, value, None, 0),
                self._effects(slots, keep & (verb == CAS), "cas", key, outcome, value, expected, 0),
                self._effects(slots, keep & (verb == READ), "read", key, outcome, current, None, 0),
                self._effects(
                    slots, keep & (verb == CAS) & ~fits & (slots.outcome == OK), "read", key,
                    np.zeros(length, np.int8), current, None, 1,
                ),
            ]
        )  # fmt: skip
        if batch is not None:
            writer.batch("effects", batch)

    def _scene(self, slots: Slots) -> tuple[Flags, Flags]:
        """The slots that the scene has for itself, and the first of them."""
        begin = self._schedule.scene
        if begin is None:
            nothing = np.zeros(len(slots.index), dtype=np.bool_)
            return nothing, nothing
        return (slots.index >= begin) & (slots.index < begin + SCENE_SLOTS), slots.index == begin

    def _follow(self, key: Ints, done: Flags, value: Ints) -> tuple[Ints, Ints]:
        """Per operation, the register's value when its slot comes, and the value before that one."""
        order, starts = segments.sorted_by(key)
        keys, writes, values = key[order], done[order], value[order]
        last = segments.last_before(writes, starts)
        at_start = self._values[keys]
        now = np.where(last >= 0, values[last], at_start)
        former = np.where(last >= 0, now[last], self._former[keys])
        ends = segments.ends(starts)
        finally_done = writes[ends]
        self._former[keys[ends]] = np.where(finally_done, now[ends], former[ends])
        self._values[keys[ends]] = np.where(finally_done, values[ends], now[ends])
        current, before = np.empty_like(now), np.empty_like(former)
        current[order], before[order] = now, former
        return current, before

    def _ops(
        self,
        slots: Slots,
        keep: Flags,
        key: Ints,
        verb: Ints,
        outcome: NDArray[np.int8],
        value: Ints,
        writer: HistoryWriter,
    ) -> None:
        number = pa.array(value[keep]).cast(pa.string()).to_numpy(zero_copy_only=False)
        argument = np.where(verb[keep] == READ, "null", number)
        columns: rows.Columns = {
            "index": slots.index[keep],
            "process": slots.process[keep],
            "worker": rows.workers(slots.client[keep], self._plan.clients),
            "f": rows.Named(verb[keep], VERBS),
            "key": rows.Named(key[keep], self._names),
            "argument": argument,
            "call": slots.call[keep],
            "ret": rows.returned(slots.ret[keep], outcome[keep]),
            "phase": "main",
            **rows.outcomes(outcome[keep]),
        }
        writer.batch("ops", rows.batch("ops", columns, int(keep.sum())))

    def _effects(
        self,
        slots: Slots,
        mine: Flags,
        kind: str,
        key: Ints,
        outcome: NDArray[np.int8],
        value: Ints,
        expected: Ints | None,
        sub: int,
    ) -> tuple[rows.Columns, int]:
        shown = value[mine]
        known = shown != EMPTY
        if kind == "read":
            known &= outcome[mine] == OK
        columns: dict[str, rows.Column] = {
            "op": slots.index[mine],
            "sub": sub,
            "process": slots.process[mine],
            "key": rows.Named(key[mine], self._names),
            "kind": kind,
            "value": rows.Known(shown, known),
            "call": slots.call[mine],
            "ret": rows.returned(slots.ret[mine], outcome[mine]),
            "phase": "main",
            **rows.outcomes(outcome[mine]),
        }
        if expected is not None:
            columns["expected"] = rows.Known(expected[mine], expected[mine] != EMPTY)
        return columns, int(mine.sum())
