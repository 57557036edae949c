"""Partitions of a log: sends, polls and reads of the log end, then a sentinel and a drain from the beginning.

A send appends one to three records. Each client has at least one reader. A reader reads one key, from the log end at
the beginning of the tile. The value of a record is its offset. In each tile the log has another epoch, with leaders and
a controller of its own. Numbers made by ``relative`` are replaced in each copy of the tile (``tiles``); ``PIECE`` is
the number of the copy.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from assay.harness.core.operation import Effect, Outcome
from assay.harness.synthetic.model import Event, Model, Scene, Step, Turn, get_scene_value
from assay.harness.synthetic.tiles import OPERATION, PIECE, relative

MOST_SENT: Final = 3
"""Maximum number of records of a send."""
MOST_POLLED: Final = 10
"""Maximum number of records of a poll in the main phase."""
PER_POLL: Final = 500
"""Maximum number of records of a poll in the drain."""
NODES: Final = ("n1", "n2", "n3")
EPOCH: Final = relative(PIECE)
"""The leader epoch of all logs in a copy of a tile, and its controller epoch."""


class PartitionModel(Model):
    """Base class of the objects whose keys are partitions. The first counter of a key is the end of its log."""

    has_sentinel = has_final_operation = True

    def begin(self, rng: random.Random) -> None:
        super().begin(rng)
        self._leaders: dict[int, str] = {}

    def partition(self, key: int) -> str:
        return f"orders-{self.number(key)}"

    def offset_at(self, key: int, rank: int) -> int:
        """Returns an offset: the log end at the beginning of the tile plus ``rank``. The record's value is the same."""
        return relative(self.layout.object_counter(key), rank)

    def send(self, key: int, turn: Turn) -> Step:
        node = self._leaders.get(key) or self.rng.choice(NODES)
        if turn.takes_effect and key not in self._leaders:
            self._leaders[key] = node
            self.record_election(key, turn, node)
        count, end = self.rng.randint(1, MOST_SENT), self.get_increase_in_tile(key)
        effects = tuple(
            Effect(
                "append",
                self.partition(key),
                position=turn.known(self.offset_at(key, end + rank)),
                value=self.offset_at(key, end + rank) if turn.takes_effect else turn.get_unique_value(rank),
                leader_epoch=EPOCH,
                request=relative(OPERATION, turn.number),
                node=node,
            )
            for rank in range(count)
        )
        self.increase_counter(key, count * turn.takes_effect)
        return Step("send", self.partition(key), effects, argument=count)

    def record_election(self, key: int, turn: Turn, node: str) -> None:
        """Does nothing here. It is called before the first append to a log in each tile."""
        return

    def read_end(self, key: int, rank: int, known: bool = True, begin: int = 0) -> Step:
        effect = Effect("end", self.partition(key))
        if known:
            effect = Effect("end", self.partition(key), position=self.offset_at(key, rank), leader_epoch=EPOCH)
        return Step("end", self.partition(key), (effect,), begin=begin, end=begin + 1)

    def poll(
        self,
        key: int,
        first: int,
        last: int,
        records: Sequence[tuple[int, int]] | None = None,
        assignment: int = EPOCH,
        group: str | None = None,
    ) -> Step:
        """Returns a poll from rank ``first`` (see ``offset_at``) up to ``last``, which is excluded.

        ``records``: the ranks and values that it shows; None: all.
        """
        if records is None:
            records = [(rank, self.offset_at(key, rank)) for rank in range(first, last)]

        def show(kind: str, rank: int, value: int | None = None) -> Effect:
            return Effect(
                kind,
                self.partition(key),
                position=self.offset_at(key, rank),
                value=value,
                assignment=assignment,
                group=group,
            )

        shown = tuple(show("observe", rank, value) for rank, value in records)
        return Step(
            "poll", self.partition(key), (show("observe-begin", first),), seen=(*shown, show("observe-end", last))
        )

    def drain(self) -> Iterator[Step]:
        for key in sorted(self._leaders):
            for first in range(0, self.get_increase_in_tile(key), PER_POLL):
                yield self.poll(key, first, min(first + PER_POLL, self.get_increase_in_tile(key)))

    def write_sentinel(self, key: int) -> Step:
        """Returns a send of the sentinel, which is the last record."""
        end = self.offset_at(key, 0)
        effect = Effect("append", self.partition(key), position=end, value=end, request=relative(OPERATION))
        return Step("send", self.partition(key), (effect,), argument=1)

    def finish_key(self, key: int) -> Step:
        """Returns the last step of a drain: it reads the sentinel and finds nothing behind it."""
        poll = self.poll(key, 0, 1)
        drained = Effect("drained", self.partition(key), position=self.offset_at(key, 1))
        return Step("drained", self.partition(key), (*poll.effects, *poll.seen, drained))


class LogModel(PartitionModel):
    model = "log"
    has_replicas = True

    def begin(self, rng: random.Random) -> None:
        super().begin(rng)
        self._cursors: dict[int, int] = {}
        """By reader, the rank of the next record to read."""
        self.events = [Event("became-controller", 0, rng.choice(NODES), order=1, controller_epoch=EPOCH)]
        self.events += [Event("request-obeyed", 0, node, order=2, controller_epoch=EPOCH) for node in NODES]

    def partition(self, key: int) -> str:
        return self.name(key)

    def step(self, turn: Turn) -> Step:
        f = self.rng.choices(("send", "poll", "end"), (45, 48, 7))[0]
        if f == "send":
            return self.send(self.draw_key(), turn)
        if f == "end":
            key = self.draw_key()
            return self.read_end(key, self.get_increase_in_tile(key), turn.ok)
        # Reader r belongs to client r % clients and key r % keys, so each client and each key has at least one.
        clients, keys = self.plan.clients, self.plan.keys
        reader = turn.client + clients * self.rng.randrange((max(keys, clients) - 1 - turn.client) // clients + 1)
        begin, end = self._cursors.get(reader, 0), self.get_increase_in_tile(reader % keys)
        step = self.poll(reader % keys, begin, min(begin + MOST_POLLED, end))
        if turn.ok:
            self._cursors[reader] = min(begin + MOST_POLLED, end)
        return step

    def record_election(self, key: int, turn: Turn, node: str) -> None:
        position = self.offset_at(key, 0)
        self.events.append(
            Event("first-append-in-epoch", turn.number, node, key=self.name(key), epoch=EPOCH, position=position)
        )

    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns a scene that appends a few records. Afterwards the log may differ from the acknowledged records."""
        name, other, own_epoch = self.name(key), get_scene_value(), relative(OPERATION, 1 << 30)
        zero, one, two = (self.offset_at(key, rank) for rank in range(3))

        def send(begin: int, end: int | None, *records: tuple[int | None, int], failed: bool = False) -> Step:
            """Returns a send of one message set. ``records``: pairs of offset and value."""
            effects = tuple(
                Effect(
                    "append", name, position=position, value=value, request=get_scene_value(begin), leader_epoch=EPOCH
                )
                for position, value in records
            )
            return Step("send", name, effects, begin=begin, end=end, outcome=Outcome.FAIL if failed else None)

        def poll(begin: int, end: int | None, first: int, last: int, *records: tuple[int, int]) -> Step:
            """Returns a poll by the scene's consumer. ``records``: pairs of rank and value."""
            step = self.poll(key, first, last, records)
            if end is None:
                step = replace(step, effects=(*step.effects, *step.seen[:-1]), seen=())
            return replace(step, begin=begin, end=end, process=0)

        def controller(event: str, begin: int, epoch: int, node: str, incarnation: int = 1) -> Event:
            return Event(event, begin, node, controller_epoch=epoch, incarnation=incarnation)

        first = send(0, 1, (zero, zero))
        three = send(0, 1, (zero, zero), (one, one), (two, two))
        see_zero, see_two = poll(2, 3, 0, 1, (0, zero)), poll(4, 5, 2, 3, (2, two))
        # An operation with two message sets, whose offsets are in reverse order.
        backwards = replace(first, end=3, effects=(*send(0, 3, (one, one)).effects, *send(1, 3, (zero, zero)).effects))
        # Anomaly -> steps, records of the log afterwards (None for a hole), and the value of the finding.
        scenes: dict[str, tuple[tuple[Step, ...], tuple[int | None, ...], int | None]] = {
            # A poll that timed out saw another value. The log start lies above this offset, so neither
            # value counts as vanished.
            "inconsistent-offset": (
                (send(0, 2, (zero, zero)), send(1, None, (None, other)), poll(3, None, 0, 1, (0, other))),
                (None,), other,
            ),
            "duplicate": ((first, poll(2, 3, 0, 2, (0, zero), (1, zero))), (zero, zero), zero),
            "aborted-read": ((send(0, 1, (None, zero), failed=True), see_zero), (zero,), zero),
            "phantom": ((poll(0, 1, 0, 1, (0, other)),), (other,), other),
            "lost-write": ((three, poll(2, 3, 0, 3, (0, zero), (2, two))), (zero, None, two), one),
            "vanished": ((first, see_zero), (None,), zero),
            "unseen": ((send(0, 1, (None, other)),), (), other),
            "real-time-order": ((send(0, 1, (one, one)), send(2, 3, (zero, zero))), (zero, one), one),
            "nonmonotonic-send": ((backwards,), (zero, one), zero),
            "send-skip": ((send(0, 2, (zero, zero), (two, two)), send(1, 3, (one, one))), (zero, one, two), two),
            "nonmonotonic-poll": ((first, see_zero, replace(see_zero, begin=4, end=5)), (zero,), zero),
            "poll-skip": ((three, see_zero, see_two), (zero, one, two), two),
            "high-watermark-regression": ((first, self.read_end(key, 1, begin=2), self.read_end(key, 0, begin=4)),
                                          (zero,), None),
            "two-leaders": ((first, send(2, 3, (one, one))), (zero, one), None),
            "two-controllers": ((first,), (zero,), own_epoch),
            "stale-epoch-obeyed": ((first,), (zero,), EPOCH),
            "replica-divergence": ((first,), (zero,), None),
        }  # fmt: skip
        # No other controller has the epoch ``own_epoch``, and no other scene the node's incarnation.
        events = {
            "two-leaders": tuple(
                Event(
                    "first-append-in-epoch",
                    2 * rank,
                    NODES[rank],
                    key=name,
                    epoch=EPOCH,
                    position=self.offset_at(key, rank),
                )
                for rank in (0, 1)
            ),
            "two-controllers": tuple(controller("became-controller", tick, own_epoch, NODES[tick]) for tick in (0, 1)),
            "stale-epoch-obeyed": tuple(
                controller("request-obeyed", tick, EPOCH + 1 - tick, NODES[0], relative(OPERATION, 2))
                for tick in (0, 1)
            ),
        }
        ranks = {"lost-write": 1, "real-time-order": 1, "send-skip": 2, "poll-skip": 2, "two-leaders": 1}
        steps, records, value = scenes[anomaly]
        has_no_offset = anomaly in ("unseen", "two-controllers", "stale-epoch-obeyed")
        log_start = 1 if anomaly == "inconsistent-offset" else 0  # rank of the first offset that is left in the log
        drain = self.poll(
            key, log_start, len(records), [(rank, record) for rank, record in enumerate(records) if record is not None]
        )
        if log_start:
            drain = replace(drain, effects=(Effect("start", name, position=one), *drain.effects))
        return Scene(
            key=None if has_no_offset and anomaly != "unseen" else name,
            steps=steps,
            position=None if has_no_offset else self.offset_at(key, ranks.get(anomaly, 0)),
            value=value,
            events=events.get(anomaly, ()),
            increments={self.layout.object_counter(key): len(records)},
            drain=(drain,) if records else (),
            diverges=anomaly == "replica-divergence",
        )
