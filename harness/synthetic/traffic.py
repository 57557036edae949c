"""Base class of all synthetic objects: random operations of clients, chunk by chunk, with scenes among them.

A subclass names its operations, computes the effects of each (``generate_effects``) and stages its anomalies
(``build_anomaly``). This module does the rest. Memory does not grow with the history: each chunk is made, written and
dropped, and an object keeps a few numbers only (``state``).
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from assay.harness.core.history import HistoryWriter
from assay.harness.synthetic import rows
from assay.harness.synthetic.anomaly_template import Opening, Scene
from assay.harness.synthetic.catalogue import CATALOGUE
from assay.harness.synthetic.plan import Plan, PlanError, Planted
from assay.harness.synthetic.segments import Flags, Ints
from assay.harness.synthetic.timeline import INFO, OK, SCENE_SLOTS, OperationArrays, Timeline


@dataclass(frozen=True)
class DrawnChunk:
    """The operations of a chunk, as drawn at random. Each array has one entry per operation."""

    slots: OperationArrays
    verb: Ints
    key: Ints
    """At an ``opening``, the scene's key."""
    keep: Flags
    """Whether the slot is outside all scenes."""
    opening: Flags
    """Whether a scene opens in the slot."""
    takes: Ints
    """At an ``opening``, ``Scene.takes``; elsewhere 0."""
    special: Flags
    """Whether a scene takes place in the key."""
    landed: Flags
    """Whether an operation that writes took effect: true for ok, and for half of the infos."""


@dataclass(frozen=True)
class ChunkEffects:
    """The operations of a chunk with their effects and outcomes."""

    verb: Ints
    key: rows.DictionaryColumn
    parts: Sequence[rows.Part]
    count: Ints | None = None
    """``Opening.count`` of a scene that opens here."""
    outcome: NDArray[np.int8] | None = None
    failures: rows.Failures | None = None
    argument: rows.Column = "null"
    """JSON, as in ``ops``. This column and ``result`` have entries for the operations of ``keep`` only."""
    result: rows.Column | None = None
    events: pa.RecordBatch | None = None
    """Event log lines of the nodes during the chunk."""


class Traffic(abc.ABC):
    """Makes and writes the history of a plan, once. Raises ``PlanError`` if an anomaly cannot be planted."""

    model: ClassVar[str]
    """Name in the catalogue."""
    verbs: ClassVar[tuple[str, ...]]
    apart: int = 1
    """Scenes use only keys whose numbers are multiples of this."""
    bulk: ClassVar[int] = 1
    """Effects per operation, relative to other kinds of objects. Chunks are smaller by this factor."""
    weights: ClassVar[tuple[float, ...]]
    """Probability of each verb; the sum is 1."""

    def __init__(self, plan: Plan) -> None:
        known = CATALOGUE[self.model]
        for anomaly in plan.plant:
            if anomaly not in known.anomalies:
                raise PlanError(
                    f"{known.title} history has no anomaly {anomaly!r}; plant one of {', '.join(known.anomalies)}"
                )
        self.plan = plan
        self.rng = np.random.default_rng([plan.seed, 2])
        self.names = pa.array([f"{self.model}-{number}" for number in range(plan.keys)], pa.string())
        rehearsed = [self.build_anomaly(anomaly, Opening(0, "")) for anomaly in plan.plant]
        for anomaly, scene in zip(plan.plant, rehearsed, strict=True):
            if scene.clients > plan.clients:
                raise PlanError(f"{anomaly} takes {scene.clients} clients at once, and there are {plan.clients}")
        self._takes = [scene.takes for scene in rehearsed]
        self.schedule = Timeline(
            plan,
            np.random.default_rng([plan.seed, 1]),
            lasts=max((scene.lasts for scene in rehearsed), default=0),
            quiet=[scene.quiet for scene in rehearsed],
        )
        places = self.rng.choice(-(-plan.keys // self.apart), len(plan.plant), replace=False)
        self.scene_keys: list[int] = (self.apart * places).tolist()
        self._special = np.zeros(plan.keys, dtype=np.bool_)
        self._special[self.scene_keys] = True
        self.played: list[tuple[Opening, Scene]] = []

    @abc.abstractmethod
    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        """Returns the operations of a chunk with their effects."""

    @abc.abstractmethod
    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        """Returns the scene of an anomaly. Its number of steps and ``takes`` must not depend on ``at``."""

    def begin(self, writer: HistoryWriter) -> None:
        """Writes the operations before the main phase."""
        return

    def finish(self, writer: HistoryWriter) -> None:
        """Writes the operations after the main phase."""
        return

    def write(self, writer: HistoryWriter) -> tuple[Planted, ...]:
        """Writes the whole history, and returns the planted anomalies."""
        planted: list[Planted] = []
        self.begin(writer)
        for slots in self.schedule.chunks(self.bulk):
            planted += self._chunk(slots, writer)
        self.finish(writer)
        return tuple(planted)

    def drawn_key(self, block: DrawnChunk, key: Ints) -> Ints:
        """Returns ``key``, with the scene's key at each opening."""
        return np.where(block.opening, block.key, key)

    def _chunk(self, slots: OperationArrays, writer: HistoryWriter) -> list[Planted]:
        block = self._draw(slots)
        acts = self.generate_effects(block)
        outcome = slots.outcome if acts.outcome is None else acts.outcome
        ops = OperationArrays(slots.index, slots.client, slots.process, outcome, slots.epoch, slots.call, slots.ret)
        keep = block.keep
        columns: rows.Columns = {
            "worker": rows.to_worker_column(slots.client[keep], self.plan.clients),
            "f": rows.DictionaryColumn(acts.verb[keep], self.verbs),
            "key": acts.key.at(keep),
            "argument": acts.argument,
        }
        if acts.result is not None:
            columns = {**columns, "result": acts.result}
        writer.batch("ops", rows.build_operations(ops, keep, columns, failures=acts.failures))
        rows.write_effects(writer, ops, acts.parts, failures=acts.failures)
        if acts.events is not None:
            writer.batch("events", acts.events)
        return [self._play(number, at, slots, acts, writer) for number, at in self._openings(slots)]

    def _draw(self, slots: OperationArrays) -> DrawnChunk:
        length, rng = len(slots.index), self.rng
        key = rng.integers(0, self.plan.keys, length)
        verb = np.searchsorted(np.cumsum(self.weights)[:-1], rng.random(length), side="right")
        landed = (slots.outcome == OK) | ((slots.outcome == INFO) & (rng.random(length) < 0.5))
        keep, opening = np.ones(length, dtype=np.bool_), np.zeros(length, dtype=np.bool_)
        takes = np.zeros(length, dtype=np.int64)
        first = int(slots.index[0])
        for begin in self.schedule.scenes:
            keep[max(0, begin - first) : max(0, begin + SCENE_SLOTS - first)] = False
        for number, at in self._openings(slots):
            opening[at], key[at], takes[at] = True, self.scene_keys[number], self._takes[number]
        return DrawnChunk(slots, verb, key, keep, opening, takes, self._special[key], landed & keep)

    def _openings(self, slots: OperationArrays) -> list[tuple[int, int]]:
        """Returns the scenes that open in a chunk: number, and place in the chunk."""
        first, last = int(slots.index[0]), int(slots.index[-1])
        return [(number, slot - first) for number, slot in enumerate(self.schedule.scenes) if first <= slot <= last]

    def _play(self, number: int, at: int, slots: OperationArrays, acts: ChunkEffects, writer: HistoryWriter) -> Planted:
        opening = Opening(
            number=self.scene_keys[number],
            key=acts.key.text(at),
            slot=int(slots.index[at]),
            count=0 if acts.count is None else int(acts.count[at]),
            epoch=int(slots.epoch[at]),
        )
        anomaly = self.plan.plant[number]
        scene = self.build_anomaly(anomaly, opening)
        self.played.append((opening, scene))
        return scene.write(anomaly, writer, self.schedule, opening.slot, number)
