"""Builds a history from tiles of ordinary operations, and from scenes (the operations of planted anomalies).

1. The main phase is cut into pieces: bursts, in which most operations time out as when a fault cuts the network, and
   the time between them. A piece has at most ``TILE`` operations. Pieces of equal length are copies of one tile.
2. Time is divided into slots. Operation i of a tile takes effect at slot i, so the order of the slots is a legal order
   of the operations.
3. Operation i belongs to client i % clients. After an info the client continues as a new process.
4. The call precedes the slot and the return follows it, by random times that the client's other operations allow. So
   operations at the end of a piece overlap with those of the next piece.
5. Within a slot, all calls and returns have different distances from its begin. So no two times are equal.
6. A scene is also a tile. It lies between two pieces in the middle half of the run, and its ticks are slots. No
   ordinary operation takes effect in these slots, but ordinary operations may be in progress.
7. The drain passes through the pieces once more, and reads the records that each piece has appended.
"""

import bisect
import copy
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from assay.harness.core.history import HistoryWriter
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.core.history.rows import to_op_row
from assay.harness.core.operation import Completed, Completion, Operation, Outcome, Phase
from assay.harness.synthetic.model import SCENE_SLOTS, Event, Model, Scene, Step, Turn
from assay.harness.synthetic.plan import OPERATIONS_PER_BURST, Plan, Planted
from assay.harness.synthetic.tiles import (
    EVENT,
    NUMBERS_PER_SLOT,
    OPERATION,
    TIME,
    Bases,
    Ints,
    Layout,
    Tile,
    TileBatch,
    relative,
    resolve,
    resolve_text,
)

TILE: Final = 10_000
"""Maximum number of operations of a tile, unless there are many clients. Memory grows with it."""
BURST_INFO_SHARE: Final = 0.8
"""Share of the operations of a burst that time out, unless the share of the whole history is higher."""
FAILS_PER_INFO: Final = 0.2
"""Number of definite failures for each timeout."""

SCENE_PROCESS: Final = 2_000_000_000
"""First process id of scenes."""
DRAIN_PROCESS: Final = 2_100_000_000
"""Process id of the drain."""

MOST_LOGS: Final = 1000
"""Maximum number of logs whose replicas are recorded."""
REPLICA_TAIL: Final = 5
"""Number of last records of each replica that are recorded."""
REPLICAS: Final = ("n1", "n2", "n3")


@dataclass(frozen=True)
class Piece:
    """Part of the main phase: ordinary operations, or a scene."""

    operations: int
    share: float
    """Share of the operations that time out."""
    scene: int | None = None
    """Number of the scene; None for ordinary operations."""
    last: bool = False
    """Whether it is the last piece, whose objects need not return to their initial state."""


class TileBuilder:
    """Makes the tiles of a plan. ``width``: nanoseconds per slot."""

    def __init__(self, plan: Plan, model: Model, width: int) -> None:
        self._plan, self._model, self._width = plan, model, width
        self._layout = Layout(plan.clients, plan.keys)

    def build_traffic(self, piece: Piece) -> Tile:
        """Returns a tile of random operations."""
        model, clients = self._model, self._plan.clients
        rng = random.Random(f"{self._plan.seed} {piece}")
        model.begin(rng)
        timeouts = [0] * clients
        rows = []
        for number in range(piece.operations):
            client, draw = number % clients, rng.random()
            process = relative(self._layout.process_counter(client), clients * timeouts[client])
            failed = draw > 1 - min(FAILS_PER_INFO * piece.share, 1 - piece.share)
            outcome = Outcome.INFO if draw < piece.share else Outcome.FAIL if failed else Outcome.OK
            takes_effect = outcome is Outcome.OK or (outcome is Outcome.INFO and rng.random() < 0.5)
            turn = Turn(number, piece.operations - number, client, process, outcome, takes_effect)
            restoring = None if piece.last else model.step_to_initial_state(turn)
            step = restoring or model.step(turn)
            outcome = Outcome.OK if restoring else outcome
            timeouts[client] += outcome is Outcome.INFO
            early = rng.randint(0, (clients - 1) // 2)
            late = rng.randint(0, clients - 1 - (clients - 1) // 2)
            call = relative(TIME, (number + clients - early) * self._width + early)
            ret = relative(TIME, (number + clients + late) * self._width + clients + late)
            worker = str(relative(self._layout.client_counter(client)))
            rows.append(_complete(step, number, process, worker, outcome, call, ret))
        model.end()
        return Tile(
            slots=piece.operations,
            operations=piece.operations,
            batches=self._to_batches(rows, model.events),
            increments=dict(model.counts),
            counters_afterwards=dict(model.counters_afterwards),
            timeouts=timeouts,
            **self._build_drain(model.drain()),
        )

    def build_scene(self, scene: Scene, number: int) -> Tile:
        """Returns the tile of a scene. ``number``: its number among the scenes."""
        rows = []
        for turn, step in enumerate(scene.steps):
            within_scene = turn if step.process is None else SCENE_SLOTS + step.process
            process = SCENE_PROCESS + 2 * SCENE_SLOTS * number + within_scene
            call, ret = self.to_stamp(step.begin, scene), self.to_stamp(step.end or 0, scene)
            outcome = step.outcome or (Outcome.INFO if step.end is None else Outcome.OK)
            rows.append(_complete(step, turn, process, "0", outcome, call, ret))
        return Tile(
            slots=SCENE_SLOTS,
            operations=len(rows),
            batches=self._to_batches(rows, scene.events, scene),
            extra=SCENE_SLOTS * (self._find_width(scene) - self._width),
            increments=scene.increments,
            counters_afterwards=scene.counters_afterwards,
            **self._build_drain(scene.drain),
        )

    def build_consecutive(self, steps: Iterable[Step], phase: Phase) -> Tile:
        """Returns a tile of consecutive operations of one process, outside the main phase."""
        rows = []
        for number, step in enumerate(steps):
            begin = number * self._width
            ret = relative(TIME, begin + self._width // 2)
            rows.append(_complete(step, number, DRAIN_PROCESS, "0", Outcome.OK, relative(TIME, begin), ret, phase))
        return Tile(slots=len(rows), operations=len(rows), batches=self._to_batches(rows))

    def to_stamp(self, tick: int, scene: Scene | None = None) -> int:
        """Returns a stamp in the middle of a slot. No ordinary operation has such a stamp."""
        width = self._width if scene is None else self._find_width(scene)
        return relative(TIME, self._plan.clients * self._width + tick * width + self._width // 2)

    def _find_width(self, scene: Scene) -> int:
        """Returns the nanoseconds per slot of a scene."""
        return max(self._width, -(-scene.min_duration // SCENE_SLOTS))

    def _build_drain(self, steps: Iterable[Step]) -> dict[str, Any]:
        drain = self.build_consecutive(steps, Phase.DRAIN)
        return {"drain": drain.batches, "drain_operations": drain.operations}

    def _to_batches(
        self, rows: Sequence[tuple[Completed, Step]], events: Sequence[Event] = (), scene: Scene | None = None
    ) -> list[TileBatch]:
        effects = []
        for completed, step in rows:
            seen = step.seen if completed.completion.outcome is Outcome.OK else ()
            effects += [(completed, sub, effect) for sub, effect in enumerate((*step.effects, *seen))]
        lines = [
            {
                "time": self.to_stamp(event.begin, scene),
                "seq": relative(EVENT, NUMBERS_PER_SLOT * event.begin + event.order),
                "detail": "{}",
                **{name: getattr(event, name) for name in DATA_SETS["events"].names if hasattr(event, name)},
            }
            for event in sorted(events, key=lambda event: (event.begin, event.order))
        ]
        data: dict[str, list[Any]] = {
            "ops": [to_op_row(completed) for completed, _ in rows],
            "effects": effects,
            "events": [tuple(map(line.get, DATA_SETS["events"].names)) for line in lines],
        }
        return [TileBatch(name, table) for name, table in data.items() if table]


def _complete(
    step: Step, number: int, process: int, worker: str, outcome: Outcome, call: int, ret: int,
    phase: Phase = Phase.MAIN,
) -> tuple[Completed, Step]:  # fmt: skip
    """Returns the operation of a step, and the step. An outcome or error of the step overrides ``outcome``."""
    outcome = step.outcome or outcome
    if step.error is not None and outcome is Outcome.OK:
        outcome = Outcome.FAIL
    result = step.result if outcome is Outcome.OK or step.error is not None else None
    error = "timeout" if outcome is Outcome.INFO else step.error
    completed = Completed(
        index=relative(OPERATION, number),
        process=process,
        worker=worker,
        operation=Operation(step.f, step.key, step.argument, phase),
        completion=Completion(outcome, result, error),
        call=call,
        ret=None if outcome is Outcome.INFO else ret,
    )
    return completed, step


class HistoryMaker:
    """Writes the history of a plan. It can be used once.

    ``keys``: the key of each scene. ``rotated_keys``: see ``Bases``.
    """

    def __init__(
        self, plan: Plan, model: Model, scenes: Sequence[Scene], keys: Sequence[int], rotated_keys: int
    ) -> None:
        self._plan, self._model, self._scenes, self._keys = plan, model, scenes, keys
        self._width = max(20_000, 4 * plan.clients + 1000)
        """Nanoseconds per slot."""
        self._builder = TileBuilder(plan, model, self._width)
        self._tiles: dict[Piece, Tile] = {}
        self._pieces = cut_into_pieces(plan, scenes)
        self._bases = Bases(plan, self._width, model.initial_counts, rotated_keys, model.key_spacing)
        self._planted: dict[int, Planted] = {}
        self._ends: dict[int, int] = {}
        """The end of the log after the scene, by the scene's key."""

    def write(self, writer: HistoryWriter, progress: Callable[[int], None] = lambda done: None) -> tuple[Planted, ...]:
        """Writes the history, and returns the planted anomalies.

        ``progress`` is called with the number of operations of the main phase done so far.
        """
        model, bases, done = self._model, self._bases, 0
        if model.has_opening:
            self._write_keys(writer, bases, model.open_key, Phase.MAIN)
            bases.skip(2 * self._plan.clients)
        replay = copy.deepcopy(bases)  # for the drain, which passes through the pieces once more
        for piece, tile, counters in self._iterate_copies(bases):
            _write(writer, tile.batches, counters)
            if piece.scene is not None:
                self._planted[piece.scene] = self._locate(piece.scene, tile, counters)
            bases.skip(tile.slots, tile.operations, tile.extra)
            done += tile.operations
            progress(done)
        bases.skip(2 * self._plan.clients)
        if model.has_sentinel:
            self._write_keys(writer, bases, model.write_sentinel, Phase.SENTINEL)
        if model.has_final_operation:
            for _, tile, counters in self._iterate_copies(replay):
                counters[[OPERATION, TIME]] = bases.get_values()[[OPERATION, TIME]]
                _write(writer, tile.drain, counters)
                bases.skip(tile.drain_operations, tile.drain_operations)
                replay.skip(tile.slots, tile.operations, tile.extra)
            self._write_keys(writer, bases, model.finish_key, Phase.DRAIN)
        if model.has_replicas:
            self._write_replicas(writer, bases.counts[0])
        return tuple(self._planted[number] for number in range(len(self._scenes)))

    def _iterate_copies(self, bases: Bases) -> Iterator[tuple[Piece, Tile, Ints]]:
        """Yields each piece with its tile and the counter values of its copy. Moves the counters of the objects."""
        for piece in self._pieces:
            if piece not in self._tiles:
                self._tiles[piece] = self._build(piece)
            tile, counters = self._tiles[piece], bases.get_values()
            bases.move(tile, counters)
            yield piece, tile, counters

    def _build(self, piece: Piece) -> Tile:
        if piece.scene is None:
            return self._builder.build_traffic(piece)
        return self._builder.build_scene(self._scenes[piece.scene], piece.scene)

    def _write_keys(self, writer: HistoryWriter, bases: Bases, make: Callable[[int], Step], phase: Phase) -> None:
        """Writes an operation for each key."""
        self._model.begin(random.Random(0))
        size = min(TILE, self._plan.keys)
        for first in range(0, self._plan.keys, size):
            length = min(size, self._plan.keys - first)
            if first == 0 or length < size:
                tile = self._builder.build_consecutive(map(make, range(length)), phase)
            _write(writer, tile.batches, bases.get_values(first))
            bases.skip(tile.slots, tile.operations)

    def _locate(self, number: int, tile: Tile, counters: Ints) -> Planted:
        """Returns where a scene is in the history."""
        scene = self._scenes[number]
        begin = int(counters[OPERATION])
        end = Layout(self._plan.clients, self._plan.keys).object_counter(self._keys[number])
        self._ends[self._keys[number]] = resolve(relative(end, scene.increments.get(end, 0)), counters)
        last = max(step.begin if step.end is None else step.end for step in scene.steps)
        return Planted(
            anomaly=self._plan.plant[number],
            key=None if scene.key is None else resolve_text(scene.key, counters),
            operations=tuple(range(begin, begin + tile.operations)),
            time=resolve(self._builder.to_stamp(0, scene), counters),
            until=resolve(self._builder.to_stamp(last, scene), counters),
            position=None if scene.position is None else resolve(scene.position, counters),
            value=None if scene.value is None else resolve(scene.value, counters),
        )

    def _write_replicas(self, writer: HistoryWriter, ends: Ints) -> None:
        """Writes three replicas on disk: the last records of the first ``MOST_LOGS`` logs, and each divergence.

        Records before the end of a key's scene are left out, because the scene may have left holes.
        """
        diverging = [self._planted[number] for number, scene in enumerate(self._scenes) if scene.diverges]
        records = [(str(planted.key), int(planted.position or 0), True) for planted in diverging]
        diverging_keys = {key for key, _, _ in records}
        for key, end in enumerate(ends[:MOST_LOGS].tolist()):
            name = f"{self._model.model}-{key}"
            begin = max(self._ends.get(key, 0), end - REPLICA_TAIL + 1)
            records += [(name, position, False) for position in range(begin, end + 1) if name not in diverging_keys]
        for name, position, diverges in records:
            for node in REPLICAS:
                value = position + (diverges and node == REPLICAS[1])
                writer.replica(
                    node=node, key=name, position=position, value=value, crc=value, below_hw=True, in_isr=True
                )


def cut_into_pieces(plan: Plan, scenes: Sequence[Scene]) -> list[Piece]:
    """Returns the pieces of the main phase, with the scenes spread over its middle half."""
    operations = plan.operations - sum(len(scene.steps) for scene in scenes)
    size = max(TILE, 4 * plan.clients)
    if scenes:  # short pieces, so that each scene lies between other ones
        size = min(size, max(1, operations // (4 * len(scenes))))

    def cut(length: int, share: float) -> list[Piece]:
        full = [Piece(size, share)] * (length // size)
        return [*full, Piece(length % size, share)] if length % size else full

    bursts = max(1, operations // OPERATIONS_PER_BURST) if plan.bursts is None else min(plan.bursts, operations)
    if not bursts or not plan.info_share:
        pieces = cut(operations, plan.info_share)
    else:
        share, part = max(BURST_INFO_SHARE, plan.info_share), operations // bursts
        length = min(part, max(1, round(operations * plan.info_share / share / bursts)))
        pieces = [*cut(part - length, 0), *cut(length, share)] * bursts + cut(operations - part * bursts, 0)
    pieces[-1] = replace(pieces[-1], last=True)
    ends = list(itertools.accumulate((piece.operations for piece in pieces), initial=0))
    places = [
        bisect.bisect_left(ends, operations / 4 + operations / 2 * number / len(scenes))
        for number in range(len(scenes))
    ]
    for number, place in reversed([*enumerate(places)]):
        if scenes[number].min_duration:
            _remove_timeouts(pieces, place, 3 * plan.clients)
        pieces.insert(place, Piece(0, 0, scene=number))
    return pieces


def _remove_timeouts(pieces: list[Piece], place: int, operations: int) -> None:
    """Removes the timeouts of the pieces before and after index ``place``, on each side for at least ``operations``."""
    for side in (range(place - 1, -1, -1), range(place, len(pieces))):
        remaining = operations
        for number in side:
            if remaining > 0:
                pieces[number] = replace(pieces[number], share=0)
                remaining -= pieces[number].operations


def _write(writer: HistoryWriter, batches: Iterable[TileBatch], counters: Ints) -> None:
    for batch in batches:
        writer.batch(batch.name, batch.copy(counters))
