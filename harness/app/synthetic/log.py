"""The history of correct logs: sends, polls and looks at the log's end by many clients, then sentinel and drain.

A send appends one to three values to a key drawn at random; each client reads keys of its own from the beginning, up to
ten records a poll. Half of the sends of unknown fate are in the log. What a record at an offset holds is a function of
the offset, so nothing need be remembered but where each log ends and each reader is: memory does not grow with the
history.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from harness.app.synthetic import log_drain, rows, segments
from harness.app.synthetic.log_scenes import LOG_SCENES, LogScene, stage
from harness.app.synthetic.log_values import UNLANDED, values_at
from harness.app.synthetic.plan import Plan, PlanError, Planted
from harness.app.synthetic.segments import Flags, Ints
from harness.app.synthetic.slots import INFO, OK, SCENE_SLOTS, Schedule, Slots
from harness.core.history import HistoryWriter

SEND: Final = 0
POLL: Final = 1
END: Final = 2
VERBS: Final = ("send", "poll", "end")
WEIGHTS: Final = (0.45, 0.48, 0.07)
MOST_SENT: Final = 3
MOST_POLLED: Final = 10
NODES: Final = ("n1", "n2", "n3")


class LogTraffic:
    """Makes and writes the history of a plan, once."""

    def __init__(self, plan: Plan) -> None:
        if plan.plant is not None and plan.plant not in LOG_SCENES:
            raise PlanError(f"a log has no anomaly {plan.plant!r}; plant one of {', '.join(LOG_SCENES)}")
        self._plan = plan
        self._rng = np.random.default_rng([plan.seed, 2])
        self._schedule = Schedule(plan, np.random.default_rng([plan.seed, 1]))
        self._names = pa.array([f"log-{number}" for number in range(plan.keys)], pa.string())
        self._scene_key = int(self._rng.integers(0, plan.keys))
        self._scene: LogScene | None = None
        self._scene_base = 0
        self._ends = np.zeros(plan.keys, dtype=np.int64)
        # Reader r is of client r % clients and key r % keys: each client has some, each key has one or more.
        self._readers = max(plan.keys, plan.clients)
        self._read = np.zeros(self._readers, dtype=np.int64)

    def write(self, writer: HistoryWriter) -> Planted | None:
        """Writes everything; where the anomaly is, if one was planted."""
        planted = None
        for slots in self._schedule.chunks():
            planted = self._chunk(slots, writer) or planted
        log_drain.write(
            writer,
            self._schedule,
            self._plan.operations,
            self._names,
            self._ends,
            log_drain.Special(self._scene_key, self._scene_base, self._scene) if self._scene else None,
        )
        return planted

    def _chunk(self, slots: Slots, writer: HistoryWriter) -> Planted | None:
        length, rng, plan = len(slots.index), self._rng, self._plan
        verb = np.searchsorted(np.cumsum(WEIGHTS)[:-1], rng.random(length), side="right")
        key = rng.integers(0, plan.keys, length)
        reader = slots.client + plan.clients * rng.integers(0, (self._readers - 1 - slots.client) // plan.clients + 1)
        count = rng.integers(1, MOST_SENT + 1, length)
        fate = rng.random(length)
        ours, opening = self._scene_slots(slots)
        # The scene's key is polled no more once the scene is over, see ``log_scenes``.
        after = np.zeros(length, np.bool_) if self._schedule.scene is None else slots.index >= self._schedule.scene
        verb[(verb == POLL) & after & (reader % plan.keys == self._scene_key)] = END
        key = np.where(verb == POLL, reader % plan.keys, key)
        key[opening] = self._scene_key
        landed = (verb == SEND) & ~ours & ((slots.outcome == OK) | ((slots.outcome == INFO) & (fate < 0.5)))
        appended = np.where(landed, count, 0)
        if self._plan.plant is not None:
            appended[opening] = len(stage(self._plan.plant, "", 0, 0).records)
        base = self._append(key, appended)
        moving = (verb == POLL) & ~ours
        begin, end = self._poll(reader, moving, base, slots.ok)
        self._write(slots, ~ours, verb, key, count, landed, base, begin, end, writer)
        return self._plant(slots, opening, base, writer)

    def _scene_slots(self, slots: Slots) -> tuple[Flags, Flags]:
        """The slots that the scene has for itself, and the first of them."""
        begin = self._schedule.scene
        if begin is None:
            nothing = np.zeros(len(slots.index), dtype=np.bool_)
            return nothing, nothing
        return (slots.index >= begin) & (slots.index < begin + SCENE_SLOTS), slots.index == begin

    def _append(self, key: Ints, appended: Ints) -> Ints:
        """Where each operation finds its log's end, and where its own records begin."""
        order, starts = segments.sorted_by(key)
        sent = appended[order]
        after = self._ends[key[order]] + segments.running_sum(sent, starts)
        ends = segments.ends(starts)
        self._ends[key[order][ends]] = after[ends]
        base = np.empty_like(after)
        base[order] = after - sent
        return base

    def _poll(self, reader: Ints, moving: Flags, log_end: Ints, ok: Flags) -> tuple[Ints, Ints]:
        """Where each poll begins and ends: ``position = min(position + MOST_POLLED, log end)``, reader by reader.

        Unrolled, with s the sum of what could have been read so far: position = s + min(start, min(log end - s)).
        """
        index = np.flatnonzero(moving)
        order, starts = segments.sorted_by(reader[index])
        chosen = index[order]
        allowed = segments.running_sum(np.where(ok[chosen], MOST_POLLED, 0).astype(np.int64), starts)
        start = self._read[reader[chosen]]
        position = allowed + np.minimum(start, segments.running_min(log_end[chosen] - allowed, starts))
        before = np.where(starts, start, np.concatenate([[0], position[:-1]]) if len(position) else position)
        ends = segments.ends(starts)
        self._read[reader[chosen][ends]] = position[ends]
        begin, end = np.zeros(len(reader), np.int64), np.zeros(len(reader), np.int64)
        begin[chosen], end[chosen] = before, position
        return begin, end

    def _plant(self, slots: Slots, opening: Flags, base: Ints, writer: HistoryWriter) -> Planted | None:
        if self._plan.plant is None or not opening.any():
            return None
        at = int(np.flatnonzero(opening)[0])
        self._scene_base = int(base[at])
        self._scene = stage(
            self._plan.plant, self._names[self._scene_key].as_py(), self._scene_base, int(slots.epoch[at])
        )
        return self._scene.scene.write(self._plan.plant, writer, self._schedule, int(slots.index[at]))

    def _write(
        self,
        slots: Slots,
        keep: Flags,
        verb: Ints,
        key: Ints,
        count: Ints,
        landed: Flags,
        base: Ints,
        begin: Ints,
        end: Ints,
        writer: HistoryWriter,
    ) -> None:
        self._ops(slots, keep, verb, key, count, writer)
        sends, polls = np.flatnonzero(keep & (verb == SEND)), np.flatnonzero(keep & (verb == POLL))
        good = polls[slots.ok[polls]]
        looks = np.flatnonzero(keep & (verb == END))
        sent, rank = _ranks(sends, count[sends])
        shown, place = _ranks(good, (end - begin)[good])
        offset = base[sent] + rank
        effects = [
            self._effects(slots, key, sent, rank, "append", {
                "request": slots.index[sent],
                "position": rows.Known(offset, slots.ok[sent]),
                "value": np.where(landed[sent], values_at(offset), UNLANDED + slots.index[sent] * 4 + rank),
                "epoch": slots.epoch[sent],
                "node": rows.Named((key[sent] + slots.epoch[sent]) % len(NODES), NODES),
            }),
            self._effects(slots, key, polls, 0, "observe-begin", {"position": begin[polls], "assignment": 1}),
            self._effects(slots, key, shown, 1 + place, "observe", {
                "position": begin[shown] + place, "value": values_at(begin[shown] + place), "assignment": 1,
            }),
            self._effects(slots, key, good, 1 + (end - begin)[good], "observe-end", {
                "position": end[good], "assignment": 1,
            }),
            self._effects(slots, key, looks, 0, "end", {
                "position": rows.Known(base[looks], slots.ok[looks]),
                "epoch": rows.Known(slots.epoch[looks], slots.ok[looks]),
            }),
        ]  # fmt: skip
        batch = rows.joined(effects)
        if batch is not None:
            writer.batch("effects", batch)

    def _ops(self, slots: Slots, keep: Flags, verb: Ints, key: Ints, count: Ints, writer: HistoryWriter) -> None:
        """``argument``: how many values a send has."""
        columns: rows.Columns = {
            "index": slots.index[keep],
            "process": slots.process[keep],
            "worker": rows.workers(slots.client[keep], self._plan.clients),
            "f": rows.Named(verb[keep], VERBS),
            "key": rows.Named(key[keep], self._names),
            "argument": rows.Named(np.where(verb == SEND, count, 0)[keep], ("null", "1", "2", "3")),
            "call": slots.call[keep],
            "ret": rows.returned(slots.ret[keep], slots.outcome[keep]),
            "phase": "main",
            **rows.outcomes(slots.outcome[keep]),
        }
        writer.batch("ops", rows.batch("ops", columns, int(keep.sum())))

    def _effects(
        self, slots: Slots, key: Ints, at: Ints, sub: Ints | int, kind: str, own: rows.Columns
    ) -> tuple[rows.Columns, int]:
        """Effects of one kind; ``at``: the operation of each, by its place in the chunk."""
        return {
            "op": slots.index[at],
            "sub": sub,
            "process": slots.process[at],
            "key": rows.Named(key[at], self._names),
            "kind": kind,
            "call": slots.call[at],
            "ret": rows.returned(slots.ret[at], slots.outcome[at]),
            "phase": "main",
            **rows.outcomes(slots.outcome[at]),
            **own,
        }, len(at)


def _ranks(at: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Each place as often as its count says, and 0, 1, 2, ... for each of them."""
    repeated = np.repeat(at, count)
    first = np.repeat(np.cumsum(count) - count, count)
    return repeated, np.arange(len(repeated), dtype=np.int64) - first
