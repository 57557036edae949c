"""End of a log history: a sentinel in every key, a drain from the beginning, and the replicas on disk.

The drain is written some hundred polls at a time, so memory grows neither with the history nor with its longest log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from assay.harness.core.history import HistoryWriter
from assay.harness.synthetic import rows
from assay.harness.synthetic.log_rows import NODES
from assay.harness.synthetic.log_scenes import LogScene
from assay.harness.synthetic.segments import Ints, expand_ranks
from assay.harness.synthetic.timeline import (
    DRAIN_PROCESS,
    SENTINEL_PROCESS,
    KeyOperations,
    OperationArrays,
    Timeline,
    iterate_operations_by_key,
)
from assay.harness.synthetic.values import compute_values_at

PER_POLL: Final = 500
"""Records per poll."""

POLLS: Final = 500
"""Polls written at a time."""

LOGS: Final = 1000
"""Maximum number of logs whose replicas are recorded."""
TAIL: Final = 5
"""Records of each replica, counted from its end."""
DIFFERENT: Final = 1
"""Index of the node whose replica diverges."""


@dataclass(frozen=True)
class SceneInLog:
    """A scene with its key and base offset."""

    key: int
    base: int
    scene: LogScene


class LogDrain:
    """Writes sentinels at ``log_ends`` and reads the logs, with the records that the scenes left."""

    def __init__(self, names: pa.Array, log_ends: Ints, specials: Sequence[SceneInLog]) -> None:
        self._names = names
        self._ends = log_ends + 1
        self._specials = specials
        self._starts = np.zeros_like(log_ends)
        # The offset at which the drain changes its assignment. By default it is the end, so it never does.
        self._cuts = self._ends.copy()
        self._drawn = np.zeros(len(log_ends), dtype=np.bool_)
        for special in specials:
            if special.scene.log_start is not None:
                self._starts[special.key], self._drawn[special.key] = special.scene.log_start, True
            if special.scene.cut is not None:
                self._cuts[special.key] = special.scene.cut
        self._before_cut = -(-(self._cuts - self._starts) // PER_POLL)
        self._polls = self._before_cut + -(-(self._ends - self._cuts) // PER_POLL)

    def write(self, writer: HistoryWriter, schedule: Timeline, first_op: int) -> None:
        """Writes the sentinels, the polls, and after the polls of a key an operation that says where they ended.

        Operation numbers begin at ``first_op``.
        """
        keys = np.arange(len(self._ends), dtype=np.int64)
        for turn in iterate_operations_by_key(np.ones_like(keys)):
            self._sentinels(writer, schedule.alone(first_op + turn.number, SENTINEL_PROCESS), turn.key)
        for turn in iterate_operations_by_key(self._polls + 1, POLLS):
            self._read(writer, schedule.alone(first_op + len(keys) + turn.number, DRAIN_PROCESS), turn)

    def write_replicas(self, writer: HistoryWriter) -> None:
        """Writes three replicas on disk: the end of each of the first ``LOGS`` logs, and each divergence."""
        diverging = [special for special in self._specials if special.scene.diverges]
        key = np.repeat(np.arange(min(LOGS, len(self._ends))), TAIL)
        position = self._ends[key] - 1 - np.tile(np.arange(TAIL), len(key) // TAIL)
        apart = np.isin(key, [special.key for special in diverging])
        key, position = key[(position >= 0) & ~apart], position[(position >= 0) & ~apart]
        for special in diverging:
            key, position = np.append(key, special.key), np.append(position, special.base)
        order = np.argsort(key, kind="stable")
        key, position = key[order], position[order]
        value, there = self.records(key, position)
        key, position, value = (np.repeat(array[there], len(NODES)) for array in (key, position, value))
        node = np.tile(np.arange(len(NODES)), len(key) // len(NODES))
        for special in diverging:
            value = np.where((key == special.key) & (node == DIFFERENT), value + 1, value)
        columns: rows.Columns = {
            "node": rows.DictionaryColumn(node, NODES),
            "key": rows.DictionaryColumn(key, self._names),
            "position": position,
            "value": value,
            "crc": value % 2**31,
            "below_hw": np.ones(len(key), np.bool_),
            "in_isr": np.ones(len(key), np.bool_),
        }
        writer.batch("replicas", rows.build_batch("replicas", columns, len(key)))

    def _sentinels(self, writer: HistoryWriter, ops: OperationArrays, keys: Ints) -> None:
        at, key = np.arange(len(keys)), rows.DictionaryColumn(keys, self._names)
        offset = self._ends[keys] - 1
        self._ops(writer, ops, key, rows.DictionaryColumn(np.zeros_like(keys), ("send",)), "1", "sentinel")
        part = rows.Part(
            "append", at, key, {"request": ops.index, "position": offset, "value": compute_values_at(offset)}
        )
        rows.write_effects(writer, ops, [part], "sentinel")

    def _read(self, writer: HistoryWriter, ops: OperationArrays, turn: KeyOperations) -> None:
        over = turn.rank == self._polls[turn.key]
        key = rows.DictionaryColumn(turn.key, self._names)
        self._ops(writer, ops, key, rows.DictionaryColumn(over.astype(np.int64), ("poll", "drained")), "null", "drain")
        begin, end, assignment = self._bounds(turn)
        polls, last = np.flatnonzero(~over), np.flatnonzero(over)
        first = np.flatnonzero((turn.rank == 0) & self._drawn[turn.key])
        shown, place = expand_ranks(polls, (end - begin)[polls])
        offset = begin[shown] + place
        value, there = self.records(turn.key[shown], offset)
        shown, place, offset, value = shown[there], place[there], offset[there], value[there]
        rows.write_effects(writer, ops, [
            rows.Part("start", first, key.at(first), {"position": self._starts[turn.key[first]]}),
            rows.Part("observe-begin", polls, key.at(polls), {
                "position": begin[polls], "assignment": assignment[polls],
            }, sub=1),
            rows.Part("observe", shown, key.at(shown), {
                "position": offset, "value": value, "assignment": assignment[shown],
            }, sub=2 + place),
            rows.Part("observe-end", polls, key.at(polls), {
                "position": end[polls], "assignment": assignment[polls],
            }, sub=2 + (end - begin)[polls]),
            rows.Part("drained", last, key.at(last), {"position": self._ends[turn.key[last]]}),
        ], "drain")  # fmt: skip

    def _bounds(self, turn: KeyOperations) -> tuple[Ints, Ints, Ints]:
        """Returns begin, end and assignment of each poll."""
        key, cut = turn.key, self._cuts[turn.key]
        after = turn.rank - self._before_cut[key]
        begin = np.where(after < 0, self._starts[key] + turn.rank * PER_POLL, cut + after * PER_POLL)
        end = np.minimum(begin + PER_POLL, np.where(after < 0, cut, self._ends[key]))
        return begin, end, 1 + (after >= 0).astype(np.int64)

    def records(self, key: Ints, offset: Ints) -> tuple[Ints, np.ndarray]:
        """Returns the values at these offsets, and whether a record exists. ``key`` must be ascending."""
        value, there = compute_values_at(offset), np.ones(len(offset), dtype=np.bool_)
        for special in self._specials:
            if not len(key) or not key[0] <= special.key <= key[-1]:
                continue
            for rank, record in enumerate(special.scene.records):
                here = (key == special.key) & (offset == special.base + rank)
                if record is None:
                    there &= ~here
                else:
                    value = np.where(here, record, value)
        return value, there

    def _ops(
        self,
        writer: HistoryWriter,
        ops: OperationArrays,
        key: rows.DictionaryColumn,
        f: rows.DictionaryColumn,
        argument: str,
        phase: str,
    ) -> None:
        every = np.ones(len(ops.index), dtype=np.bool_)
        columns: rows.Columns = {"worker": "0", "f": f, "key": key, "argument": argument}
        writer.batch("ops", rows.build_operations(ops, every, columns, phase=phase))
