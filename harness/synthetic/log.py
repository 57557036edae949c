"""The history of correct logs: sends, polls and looks at the log's end by many clients, then sentinel and drain.

A send appends one to three values to a key drawn at random; each client reads keys of its own from the beginning, up to
ten records a poll. What a record at an offset holds is a function of the offset, so nothing need be remembered but
where each log ends and each reader is.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from assay.harness.core.history import HistoryWriter
from assay.harness.synthetic import log_replicas, log_rows, rows
from assay.harness.synthetic.log_drain import LogDrain, Special
from assay.harness.synthetic.log_events import NodeEvents
from assay.harness.synthetic.log_rows import MOST_POLLED, MOST_SENT
from assay.harness.synthetic.log_scenes import LogScene, stage
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.scene import Opening, Scene
from assay.harness.synthetic.state import Cursors, Tally
from assay.harness.synthetic.traffic import Acts, Block, Traffic

SEND: Final = 0
POLL: Final = 1
END: Final = 2


class LogTraffic(Traffic):
    model = "log"
    verbs = ("send", "poll", "end")
    weights = (0.45, 0.48, 0.07)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._logs = Tally(plan.keys)
        # Reader r is of client r % clients and key r % keys: each client has some, each key has one or more.
        self._readers = max(plan.keys, plan.clients)
        self._cursors = Cursors(self._readers)
        self._events = NodeEvents(self.schedule, self.names)
        # The slot from which on no one polls a key.
        self._closed = np.full(plan.keys, plan.operations, dtype=np.int64)
        self._closed[self.scene_keys] = self.schedule.scenes

    def stage(self, anomaly: str, at: Opening) -> Scene:
        return stage(anomaly, at)

    def act(self, block: Block) -> Acts:
        slots, clients = block.slots, self.plan.clients
        length = len(block.verb)
        reader = slots.client + clients * self.rng.integers(0, (self._readers - 1 - slots.client) // clients + 1)
        count = self.rng.integers(1, MOST_SENT + 1, length)
        read_key = reader % self.plan.keys
        # The scene's key is polled no more once the scene has begun, see ``log_scenes``.
        verb = np.where((block.verb == POLL) & (slots.index >= self._closed[read_key]), END, block.verb)
        key = self.drawn_key(block, np.where(verb == POLL, read_key, block.key))
        landed = block.landed & (verb == SEND)
        base = self._logs.follow(key, np.where(landed, count, 0) + block.takes)
        step = np.where(slots.ok, MOST_POLLED, 0).astype(np.int64)
        begin, end = self._cursors.follow(reader, block.keep & (verb == POLL), step, base)
        keep = block.keep
        return Acts(
            verb=verb,
            key=rows.Named(key, self.names),
            parts=[
                log_rows.sends(slots, np.flatnonzero(keep & (verb == SEND)), key, self.names, count, landed, base),
                *log_rows.polls(
                    slots, np.flatnonzero(keep & (verb == POLL)), key, self.names, begin, end, {"assignment": 1}
                ),
                log_rows.looks(slots, np.flatnonzero(keep & (verb == END)), key, self.names, base),
            ],
            count=base,
            # How many values a send has.
            argument=rows.numbers(count[keep], (verb == SEND)[keep]),
            events=self._events.of(slots, key, landed, base),
        )

    def finish(self, writer: HistoryWriter) -> None:
        specials = [Special(at.number, at.count, scene) for at, scene in self.played if isinstance(scene, LogScene)]
        drain = LogDrain(self.names, self._logs.totals, specials)
        drain.write(writer, self.schedule, self.plan.operations)
        log_replicas.write(writer, self.names, drain, self._logs.totals, specials)
