"""Traffic of correct groups: members share the partitions of a log, read their partitions and commit positions.

1. Each group has its own partitions and some seats. Each seat belongs to a client. With many groups, a client has
   seats in several and uses them in turn.
2. A process that uses a seat for the first time joins the group, which begins a generation. Some join again.
3. In generation n of a group with m seats, partition p belongs to seat (p + n) % m.
4. Every other member enters a new generation with its next operation, or after a rejected commit.
5. A stopped process keeps its partitions until the next process of its seat joins.

The value of a commit is its operation's index + 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from assay.harness.core.history import HistoryWriter
from assay.harness.synthetic import log_rows, rows, segments
from assay.harness.synthetic.anomaly_template import Opening
from assay.harness.synthetic.group_scenes import GroupScene, GroupSceneBuilder, build_group_scene
from assay.harness.synthetic.log_drain import LogDrain
from assay.harness.synthetic.log_rows import MOST_POLLED, MOST_SENT, NODES
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.register_scenes import LAST
from assay.harness.synthetic.segments import Flags, Ints
from assay.harness.synthetic.state import Cursors, LatestValues, RunningTotal
from assay.harness.synthetic.timeline import EVENTS, FAIL, INFO, OK, OperationArrays
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic
from assay.harness.synthetic.values import compute_offset_of

SEND, POLL, COMMIT, FETCH, END, ENTER = range(6)
PARTITIONS: Final = 8
"""Maximum number of partitions of a group."""
SEATS: Final = 4
"""Seats of a group, if there are as many clients."""
EMPTY: Final = 0
"""No commit yet, in the arrays. No commit has this value."""
NO_ONE: Final = -1
FAILURES: Final = ("illegal-generation",)


@dataclass(frozen=True)
class GroupSteps:
    """Each operation's seat and its step in the group protocol, as arrays. Flags are false without a seat."""

    seat: Ints
    group: Ints
    outcome: np.ndarray
    before: Ints
    """The group's generation before the operation."""
    generation: Ints
    """The group's generation after the operation."""
    known: Ints
    """The generation that the member knew."""
    old: Flags
    """Whether the process has used the seat before."""
    joins: Flags
    """Whether the process joins, which begins a generation if it takes effect."""
    bumps: Flags
    """Whether such a join takes effect."""
    enters: Flags
    """Whether the member enters a generation."""
    stale: Flags
    """Whether a commit uses an old generation and is rejected."""
    acts: Flags
    """Whether the member does anything else than enter."""


class GroupTraffic(Traffic):
    model = "group"
    verbs = ("send", "poll", "commit", "fetch", "end", "enter")
    weights = (0.33, 0.38, 0.2, 0.06, 0.02, 0.01)

    def __init__(self, plan: Plan) -> None:
        # Each scene gets a separate group.
        self.apart = self._size = max(1, min(PARTITIONS, plan.keys // max(1, len(plan.plant))))
        super().__init__(plan)
        groups = -(-plan.keys // self._size)
        self._seats = min(SEATS, plan.clients)
        self._taken = groups * self._seats
        self._rounds = -(-self._taken // plan.clients)
        """Maximum number of seats of a client."""
        number = np.arange(plan.keys)
        self._partitions = pa.array([f"orders-{key}" for key in number], pa.string())
        self._groups = pa.array([f"group-{group}" for group in range(groups)], pa.string())
        self._committed = pa.array([f"group-{key // self._size}/orders-{key}" for key in number], pa.string())
        self._objects = pa.concat_arrays([self._partitions, self._groups])
        self._members = [f"member-{client}" for client in range(plan.clients)]
        self._generations = RunningTotal(groups)
        self._processes = LatestValues(self._taken, NO_ONE)
        self._known = LatestValues(self._taken)
        self._logs = RunningTotal(plan.keys)
        self._cursors = Cursors(plan.keys)
        self._commits = LatestValues(plan.keys, EMPTY)
        self._offsets = LatestValues(plan.keys)

    def build_anomaly(self, anomaly: str, at: Opening) -> GroupScene:
        group = f"group-{at.number // self._size}"
        return build_group_scene(anomaly, GroupSceneBuilder(group, f"orders-{at.number}", at.count + 1))

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        turns = self._turns(block)
        slots = block.slots
        slots = OperationArrays(
            slots.index, slots.client, slots.process, turns.outcome, slots.epoch, slots.call, slots.ret
        )
        share = self._shares(turns.group, turns.seat, turns.known)
        member, has = turns.acts, share.count > 0
        idle = member & ~has & ((block.verb == POLL) | (block.verb == COMMIT))
        inner = (block.verb == POLL) | (block.verb == COMMIT) | (block.verb == ENTER)
        verb = np.where(turns.enters, ENTER, np.where(inner & ~member, FETCH, block.verb))
        picked = share.first + self._seats * (self.rng.integers(0, 1 << 30, len(verb)) % np.maximum(share.count, 1))
        works = member & has & ((verb == POLL) | (verb == COMMIT))
        partition = np.where(works, turns.group * self._size + picked, block.key)
        sends, polls, commits = block.keep & (verb == SEND), works & (verb == POLL), works & (verb == COMMIT)
        count = self.rng.integers(1, MOST_SENT + 1, len(verb))
        sent = block.landed & sends
        ends = self._logs.follow(partition, np.where(sent, count, 0))
        step = np.where(polls & slots.ok, MOST_POLLED, 0)
        begin, end = self._cursors.follow(partition, works, step, ends)
        value = np.where(block.opening, LAST, slots.index + 1)
        done = (commits & block.landed & ~turns.stale) | block.opening
        current, _ = self._commits.follow(partition, done, value)
        offset, _ = self._offsets.follow(partition, done, np.where(block.opening, compute_offset_of(LAST), begin))
        at, fetches = np.flatnonzero(commits), np.flatnonzero(block.keep & (verb == FETCH) & slots.ok)
        known = current[fetches] != EMPTY
        groups = rows.DictionaryColumn(
            np.where(works | turns.enters, turns.group, partition // self._size), self._groups
        )
        reading: dict[str, rows.Column] = {"assignment": turns.known, "group": groups}
        parts = [
            log_rows.build_send_effects(slots, np.flatnonzero(sends), partition, self._partitions, count, sent, ends),
            log_rows.build_end_effects(slots, np.flatnonzero(block.keep & (verb == END)), partition,
            self._partitions, ends),
            *log_rows.build_poll_effects(slots, np.flatnonzero(polls), partition, self._partitions, begin, end,
            reading),
            rows.Part("commit", at, rows.DictionaryColumn(partition[at], self._committed), {
                "group": groups.at(at),
                "value": value[at],
                "position": begin[at],
                "generation": turns.known[at],
            }),
            rows.Part("fetched", fetches, rows.DictionaryColumn(partition[fetches], self._committed), {
                "group": groups.at(fetches),
                "value": rows.MaskedColumn(current[fetches], known),
                "position": np.where(known, offset[fetches], -1),
            }),
            *self._ownership(slots, turns),
            self._idle(turns, np.flatnonzero(idle & slots.ok)),
        ]  # fmt: skip
        keep, whole = block.keep, block.opening | turns.enters | idle
        return ChunkEffects(
            verb=verb,
            key=rows.DictionaryColumn(
                np.where(whole, self.plan.keys + np.where(block.opening, block.key // self._size, turns.group),
                         partition), self._objects
            ),
            parts=parts,
            count=turns.before,
            outcome=slots.outcome,
            failures=rows.Failures(np.where(commits & turns.stale, 0, -1), FAILURES),
            argument=rows.to_json_numbers(count[keep], (verb == SEND)[keep]),
            events=self._stored(slots, turns),
        )  # fmt: skip

    def finish(self, writer: HistoryWriter) -> None:
        scenes = [scene for _, scene in self.played if isinstance(scene, GroupScene)]
        own = pa.array([name for scene in scenes for name in scene.partitions], pa.string())
        ends = np.concatenate([self._logs.totals, np.zeros(len(own), np.int64)])
        names = pa.concat_arrays([self._partitions, own])
        LogDrain(names, ends, ()).write(writer, self.schedule, self.plan.operations)

    def _turns(self, block: DrawnChunk) -> GroupSteps:
        slots, verb, clients = block.slots, block.verb, self.plan.clients
        turn = slots.index // clients
        seat = slots.client + clients * (turn % self._rounds)
        seated = block.keep & (seat < self._taken)
        seat = np.where(seated, seat, 0)
        group = np.where(seated, seat // self._seats, block.key // self._size)
        open_ended = slots.outcome == INFO
        holder, _ = self._processes.follow(seat, seated, slots.process)
        old = seated & (holder == slots.process)
        joins = seated & (~old | (verb == ENTER))
        bumps = joins & (~open_ended | block.landed)
        before = self._generations.follow(group, bumps + block.takes)
        generation = before + bumps
        # In every second turn a member commits without asking first whether its generation is current.
        rash = (verb == COMMIT) & ~joins & (turn // self._rounds % 2 == 0)
        known, _ = self._known.follow(seat, seated & ~open_ended & ~rash, generation)
        stale = seated & ~joins & (known < before)
        share = self._shares(group, seat, known)
        rejected = stale & (verb == COMMIT) & (rash | open_ended)
        enters = joins | (stale & ~rejected)
        outcome = np.where(enters & (slots.outcome == FAIL), OK, slots.outcome)
        outcome = np.where(rejected & (share.count > 0) & (outcome == OK), FAIL, outcome).astype(np.int8)
        return GroupSteps(
            seat=seat, group=group, outcome=outcome, before=before, generation=generation, known=known, old=old,
            joins=joins, bumps=bumps, enters=enters, stale=rejected, acts=seated & ~enters,
        )  # fmt: skip

    def _shares(self, group: Ints, seat: Ints, generation: Ints) -> PartitionShare:
        """Returns the partitions that a seat has in a generation."""
        most = np.minimum(self._size, self.plan.keys - group * self._size)
        first = (seat - generation) % self._seats
        return PartitionShare(first, np.maximum(0, -(-(most - first) // self._seats)))

    def _ownership(self, slots: OperationArrays, turns: GroupSteps) -> list[rows.Part]:
        """Returns the partitions that entering members lose and acquire, or the group if there are none."""
        entered = turns.enters & slots.ok
        former = self._shares(turns.group, turns.seat, turns.known)
        nothing, had = np.zeros_like(turns.seat), np.where(entered & turns.old, np.maximum(former.count, 1), 0)
        parts = [
            self._holds(kind, slots, turns, np.flatnonzero((had > 0) & which), former, turns.known, nothing)
            for kind, which in (("lost", ~turns.joins), ("release", turns.joins))
        ]
        present = self._shares(turns.group, turns.seat, turns.generation)
        at = np.flatnonzero(entered)
        return [*parts, self._holds("acquire", slots, turns, at, present, turns.generation, had)]

    def _holds(
        self,
        kind: str,
        slots: OperationArrays,
        turns: GroupSteps,
        at: Ints,
        share: PartitionShare,
        generation: Ints,
        sub: Ints,
    ) -> rows.Part:
        op, rank = segments.expand_ranks(at, np.maximum(share.count, 1)[at])
        partition = turns.group[op] * self._size + share.first[op] + self._seats * rank
        key = np.where(share.count[op] > 0, partition, self.plan.keys + turns.group[op])
        return rows.Part(kind, op, rows.DictionaryColumn(key, self._objects), {
            "group": rows.DictionaryColumn(turns.group[op], self._groups),
            "generation": generation[op],
            "assignment": generation[op],
            "owner": rows.DictionaryColumn(slots.client[op], self._members),
        }, sub=sub[op] + rank)  # fmt: skip

    def _idle(self, turns: GroupSteps, at: Ints) -> rows.Part:
        group = rows.DictionaryColumn(turns.group[at], self._groups)
        return rows.Part("idle", at, group, {"group": group})

    def _stored(self, slots: OperationArrays, turns: GroupSteps) -> pa.RecordBatch | None:
        """Returns an event for each generation that a coordinator stores."""
        at = np.flatnonzero(turns.bumps)
        if not len(at):
            return None
        columns: rows.Columns = {
            "time": self.schedule.opening(slots.index[at]),
            "node": rows.DictionaryColumn(turns.group[at] % len(NODES), NODES),
            "incarnation": 1,
            "seq": EVENTS * slots.index[at],
            "event": "group-generation",
            "key": rows.DictionaryColumn(turns.group[at], self._groups),
            "epoch": turns.generation[at],
            "detail": "{}",
        }
        return rows.build_batch("events", columns, len(at))


@dataclass(frozen=True)
class PartitionShare:
    """``count`` partitions of a group: ``first``, and then every m-th in a group with m seats."""

    first: Ints
    count: Ints
