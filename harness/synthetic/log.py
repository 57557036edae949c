"""Traffic of correct logs: sends, polls and reads of the log end by many clients, then sentinel and drain.

A send appends one to three values to a random key. Each reader belongs to one client and one key, and reads from the
beginning, up to ten records per poll. The value at an offset is a function of the offset, so the state is only the
log ends and the readers' positions.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from assay.harness.core.history import HistoryWriter
from assay.harness.synthetic import log_rows, rows
from assay.harness.synthetic.anomaly_template import Opening, Scene
from assay.harness.synthetic.log_drain import LogDrain, SceneInLog
from assay.harness.synthetic.log_rows import MOST_POLLED, MOST_SENT, NODES
from assay.harness.synthetic.log_scenes import LogScene, build_log_scene
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.segments import Flags, Ints
from assay.harness.synthetic.state import Cursors, LatestValues, RunningTotal
from assay.harness.synthetic.timeline import EVENTS, OperationArrays, Timeline
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic

SEND, POLL, END = range(3)

NEVER: Final = -1
APPENDED, CONTROLLED, OBEYED = range(3)
WORDS: Final = ("first-append-in-epoch", "became-controller", "request-obeyed")


class LogTraffic(Traffic):
    model = "log"
    verbs = ("send", "poll", "end")
    weights = (0.45, 0.48, 0.07)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._logs = RunningTotal(plan.keys)
        # Reader r belongs to client r % clients and key r % keys, so each client and each key has at least one.
        self._readers = max(plan.keys, plan.clients)
        self._cursors = Cursors(self._readers)
        self._events = NodeEvents(self.schedule, self.names)
        # The slot from which a key is no longer polled.
        self._closed = np.full(plan.keys, plan.operations, dtype=np.int64)
        self._closed[self.scene_keys] = self.schedule.scenes

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        return build_log_scene(anomaly, at)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, clients = block.slots, self.plan.clients
        length = len(block.verb)
        reader = slots.client + clients * self.rng.integers(0, (self._readers - 1 - slots.client) // clients + 1)
        count = self.rng.integers(1, MOST_SENT + 1, length)
        read_key = reader % self.plan.keys
        # A scene's key is no longer polled once the scene has begun, see ``log_scenes``.
        verb = np.where((block.verb == POLL) & (slots.index >= self._closed[read_key]), END, block.verb)
        key = self.drawn_key(block, np.where(verb == POLL, read_key, block.key))
        landed = block.landed & (verb == SEND)
        base = self._logs.follow(key, np.where(landed, count, 0) + block.takes)
        step = np.where(slots.ok, MOST_POLLED, 0).astype(np.int64)
        begin, end = self._cursors.follow(reader, block.keep & (verb == POLL), step, base)
        keep = block.keep
        return ChunkEffects(
            verb=verb,
            key=rows.DictionaryColumn(key, self.names),
            parts=[
                log_rows.build_send_effects(
                    slots, np.flatnonzero(keep & (verb == SEND)), key, self.names, count, landed, base
                ),
                *log_rows.build_poll_effects(
                    slots, np.flatnonzero(keep & (verb == POLL)), key, self.names, begin, end, {"assignment": 1}
                ),
                log_rows.build_end_effects(slots, np.flatnonzero(keep & (verb == END)), key, self.names, base),
            ],
            count=base,
            # The argument of a send is its number of values.
            argument=rows.to_json_numbers(count[keep], (verb == SEND)[keep]),
            events=self._events.of(slots, key, landed, base),
        )

    def finish(self, writer: HistoryWriter) -> None:
        specials = [SceneInLog(at.number, at.count, scene) for at, scene in self.played if isinstance(scene, LogScene)]
        drain = LogDrain(self.names, self._logs.totals, specials)
        drain.write(writer, self.schedule, self.plan.operations)
        drain.write_replicas(writer)


class NodeEvents:
    """Makes the event logs of the nodes, chunk by chunk.

    Leaders and the controller change with the epoch of the slots. The event logs report:

    - the first append that a leader accepted in each partition and epoch
    - a node that became controller
    - each node that obeyed a controller's request
    """

    def __init__(self, schedule: Timeline, names: pa.Array) -> None:
        self._schedule = schedule
        self._names = names
        self._epochs = LatestValues(len(names), NEVER)
        """Epoch of the last append to each log."""
        self._controlled = NEVER

    def of(self, slots: OperationArrays, key: Ints, appended: Flags, base: Ints) -> pa.RecordBatch | None:
        """Returns the events of a chunk. ``appended``: operations that appended to ``key`` from ``base`` on."""
        last, _ = self._epochs.follow(key, appended, slots.epoch)
        first = np.flatnonzero(appended & (last < slots.epoch))
        former = np.concatenate([[self._controlled], slots.epoch[:-1]])
        self._controlled = int(slots.epoch[-1])
        elected = np.flatnonzero(slots.epoch > former)
        obeying, node = np.repeat(elected, len(NODES)), np.tile(np.arange(len(NODES)), len(elected))
        at = np.concatenate([first, elected, obeying])
        kind = np.repeat([APPENDED, CONTROLLED, OBEYED], [len(first), len(elected), len(obeying)])
        if not len(at):
            return None
        leads = log_rows.find_leader(key[first], slots.epoch[first]).codes
        nodes = np.concatenate([leads, slots.epoch[elected] % len(NODES), node])
        order = np.argsort(EVENTS * at + kind, kind="stable")
        at, kind, nodes = at[order], kind[order], nodes[order]
        mine, epoch = kind == APPENDED, slots.epoch[at]
        columns: rows.Columns = {
            "time": self._schedule.opening(slots.index[at]),
            "node": rows.DictionaryColumn(nodes, NODES),
            "incarnation": 1,
            "seq": EVENTS * slots.index[at] + kind,
            "event": rows.DictionaryColumn(kind, WORDS),
            "key": rows.DictionaryColumn(np.where(mine, key[at], -1), self._names),
            "epoch": rows.MaskedColumn(epoch, mine),
            "controller_epoch": rows.MaskedColumn(epoch, ~mine),
            "position": rows.MaskedColumn(base[at], mine),
            "detail": "{}",
        }
        return rows.build_batch("events", columns, len(at))
