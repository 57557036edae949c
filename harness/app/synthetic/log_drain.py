"""The end of a log history: a sentinel in every key, then everything is read once more, from the beginning.

Written in groups of keys, so that memory does not grow with the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from harness.app.synthetic import rows
from harness.app.synthetic.log_scenes import LogScene
from harness.app.synthetic.log_values import values_at
from harness.app.synthetic.segments import Ints
from harness.app.synthetic.slots import DRAIN_PROCESS, SENTINEL_PROCESS, Schedule
from harness.core.history import HistoryWriter

PER_POLL: Final = 500
"""Records."""

GROUP: Final = 200_000
"""Records written at a time."""


@dataclass(frozen=True)
class Special:
    """The key in which a scene took place, and from which offset on."""

    key: int
    base: int
    scene: LogScene


@dataclass(frozen=True)
class _Reading:
    """How one key is read: polls from ``begins`` to ``ends``, and what they show of the offsets between."""

    key: int
    begins: Ints
    ends: Ints
    assignment: Ints
    offsets: Ints
    values: Ints
    start: int | None


def write(
    writer: HistoryWriter, schedule: Schedule, first_op: int, names: pa.Array, log_ends: Ints, special: Special | None
) -> None:
    """Sentinels, with operation numbers from ``first_op`` on, then the drain; ``log_ends`` are those before them."""
    keys = np.arange(len(log_ends), dtype=np.int64)
    op = first_op + keys
    call, ret = schedule.alone(op)
    same: rows.Columns = {
        "process": SENTINEL_PROCESS, "key": rows.Named(keys, names), "call": call, "ret": ret, "outcome": "ok",
        "phase": "sentinel",
    }  # fmt: skip
    _ops(writer, {"index": op, "f": "send", "argument": "1", **same}, len(keys))
    sent: rows.Columns = {
        "op": op, "sub": 0, "request": op, "kind": "append", "position": log_ends, "value": values_at(log_ends),
    }  # fmt: skip
    writer.batch("effects", rows.batch("effects", {**sent, **same}, len(keys)))
    next_op, group, size = first_op + len(keys), list[_Reading](), 0
    for reading in _readings(log_ends + 1, special):
        group.append(reading)
        size += len(reading.offsets)
        if size >= GROUP:
            next_op = _write(writer, schedule, next_op, names, group)
            group, size = [], 0
    if group:
        _write(writer, schedule, next_op, names, group)


def _readings(settled: Ints, special: Special | None) -> Iterator[_Reading]:
    for key, end in enumerate(settled.tolist()):
        if special is not None and special.key == key:
            yield _special(special, end)
        else:
            begins = np.arange(0, end, PER_POLL, dtype=np.int64)
            offsets = np.arange(end, dtype=np.int64)
            ends = np.minimum(begins + PER_POLL, end)
            yield _Reading(key, begins, ends, np.ones_like(begins), offsets, values_at(offsets), None)


def _special(special: Special, end: int) -> _Reading:
    """As the scene left it: other values, holes, a start that moved, a new assignment in the middle."""
    scene = special.scene
    start = scene.log_start or 0
    begins = np.arange(start, end, PER_POLL, dtype=np.int64)
    if scene.cut is not None:
        begins = np.unique(np.append(begins, scene.cut))
    ends = np.append(begins[1:], end)
    offsets = np.arange(start, end, dtype=np.int64)
    values, kept = values_at(offsets), np.ones(len(offsets), dtype=np.bool_)
    for rank, value in enumerate(scene.records):
        place = special.base + rank - start
        if place >= 0:
            kept[place] = value is not None
            values[place] = values[place] if value is None else value
    assignment = 1 + (begins >= (end if scene.cut is None else scene.cut)).astype(np.int64)
    return _Reading(special.key, begins, ends, assignment, offsets[kept], values[kept], scene.log_start)


def _write(writer: HistoryWriter, schedule: Schedule, next_op: int, names: pa.Array, group: list[_Reading]) -> int:
    """One operation per poll, and a last one per key that says where the drain ended. The next free number."""
    polls = np.array([len(reading.begins) for reading in group], dtype=np.int64)
    first = next_op + np.cumsum(polls + 1) - polls - 1
    number = np.concatenate([begin + np.arange(count) for begin, count in zip(first, polls, strict=True)])
    begins = np.concatenate([reading.begins for reading in group])
    ends = np.concatenate([reading.ends for reading in group])
    assignment = np.concatenate([reading.assignment for reading in group])
    keys = np.array([reading.key for reading in group], dtype=np.int64)
    key = np.repeat(keys, polls)
    poll_of = np.concatenate([
        at + np.searchsorted(reading.begins, reading.offsets, side="right") - 1
        for at, reading in zip(np.cumsum(polls) - polls, group, strict=True)
    ])  # fmt: skip
    offsets = np.concatenate([reading.offsets for reading in group])
    values = np.concatenate([reading.values for reading in group])
    last, settled = first + polls, np.array([reading.ends[-1] for reading in group], dtype=np.int64)
    started = np.array([reading.start is not None for reading in group], dtype=np.bool_)
    starts = np.array([reading.start or 0 for reading in group], dtype=np.int64)
    parts = [
        _part(schedule, names, first[started], keys[started], "start", starts[started], None, 0),
        _part(schedule, names, number, key, "observe-begin", begins, assignment, 1),
        _part(schedule, names, number[poll_of], key[poll_of], "observe", offsets, assignment[poll_of],
              2 + offsets - begins[poll_of], values),
        _part(schedule, names, number, key, "observe-end", ends, assignment, 2 + ends - begins),
        _part(schedule, names, last, keys, "drained", settled, None, 0),
    ]  # fmt: skip
    batch = rows.joined(parts)
    if batch is not None:
        writer.batch("effects", batch)
    index = np.concatenate([number, last])
    f = np.concatenate([np.zeros_like(number), np.ones_like(last)])
    call, ret = schedule.alone(index)
    columns: rows.Columns = {
        "index": index, "process": DRAIN_PROCESS, "f": rows.Named(f, ("poll", "drained")),
        "key": rows.Named(np.concatenate([key, keys]), names), "argument": "null", "call": call, "ret": ret,
        "outcome": "ok", "phase": "drain",
    }  # fmt: skip
    _ops(writer, columns, len(index))
    return int(last[-1]) + 1


def _ops(writer: HistoryWriter, columns: rows.Columns, length: int) -> None:
    writer.batch("ops", rows.batch("ops", {"worker": "0", **columns}, length))


def _part(
    schedule: Schedule,
    names: pa.Array,
    op: Ints,
    key: Ints,
    kind: str,
    position: Ints,
    assignment: Ints | None,
    sub: Ints | int,
    value: Ints | None = None,
) -> tuple[rows.Columns, int]:
    call, ret = schedule.alone(op)
    columns: dict[str, rows.Column] = {
        "op": op, "sub": sub, "process": DRAIN_PROCESS, "key": rows.Named(key, names), "kind": kind,
        "position": position, "call": call, "ret": ret, "outcome": "ok", "phase": "drain",
    }  # fmt: skip
    if assignment is not None:
        columns["assignment"] = assignment
    if value is not None:
        columns["value"] = value
    return columns, len(op)
