"""Groups: members share the partitions of a log, read their partitions and commit offsets.

1. Each group has its own partitions and some seats for members. Each seat belongs to a client. With many groups, a
   client has seats in several.
2. A process that uses a seat for the first time joins the group, which begins a generation. It may join again later.
3. In generation n of a group with m seats, partition p belongs to seat (p + n) % m.
4. The other members enter a new generation with their next operation, or after a rejected commit.
5. A stopped process keeps its partitions until the next process of its seat joins.
6. At the end of a tile, all members leave.

A group is named after its first partition.
"""

import random
from dataclasses import replace
from typing import Final

from assay.harness.core.operation import Effect, Outcome
from assay.harness.synthetic.lease import build_lease_step
from assay.harness.synthetic.log import MOST_POLLED, NODES, PartitionModel
from assay.harness.synthetic.model import SCENE_SLOTS, Event, Scene, Step, Turn
from assay.harness.synthetic.plan import Plan

PARTITIONS: Final = 8
"""Maximum number of partitions of a group."""
SEATS: Final = 4
"""Seats of a group, if there are as many clients."""
GENERATION, COMMITS, POSITION = 1, 2, 3
"""Counters of a partition besides the end of its log: the generation of its group, the number of its commits, and the
offset of the last commit. Only the first partition of a group counts the generations.
"""
ORPHAN_DURATION: Final = 48_000_000_000
"""Nanoseconds that the scene of an orphaned partition lasts: much longer than the default deadline for rebalances."""


class GroupModel(PartitionModel):
    model = "group"
    initial_counts = (0, 0, 0, -1)

    def __init__(self, plan: Plan) -> None:
        # Each scene gets a separate group.
        self.key_spacing = max(1, min(PARTITIONS, plan.keys // max(1, len(plan.plant))))
        self._seats = min(SEATS, plan.clients)
        self._all_seats = -(-plan.keys // self.key_spacing) * self._seats
        super().__init__(plan)

    def begin(self, rng: random.Random) -> None:
        super().begin(rng)
        self._members: dict[int, tuple[int, int]] = {}
        """By seat, its process and the generation that this process knows."""
        self._cursors: dict[int, int] = {}
        """The rank of the next record to read, for each partition."""
        self._committed: dict[int, tuple[int, int]] = {}
        """By partition, the value and the offset of the last commit."""

    def step(self, turn: Turn) -> Step:
        clients = self.plan.clients
        if turn.remaining <= clients and (step := self._leave(turn)):
            return step
        verbs = ("send", "poll", "commit", "fetch", "end", "enter")
        f = self.rng.choices(verbs, (33, 38, 20, 6, 2, 1))[0]
        seat = turn.client + clients * self.rng.randrange(-(-self._all_seats // clients))
        if seat < self._all_seats and turn.remaining > clients:
            process, known = self._members.get(seat, (None, 0))
            group = self._find_first_partition(seat)
            if process != turn.process or f == "enter":
                return self._enter(turn, seat, joins=True)
            owned = self._assign(seat, known)
            if known < self.encode_count(group, which=GENERATION):
                if f != "commit" or not owned or self.rng.random() < 0.5 or not turn.ok:
                    return self._enter(turn, seat, joins=False)
                return replace(self._commit(self.rng.choice(owned), turn, known, False), error="illegal-generation")
            if f in ("poll", "commit"):
                if not owned:
                    name = self._group(group)
                    return Step("poll", name, seen=(Effect("idle", name, group=name),))
                key = self.rng.choice(owned)
                if f == "commit":
                    return self._commit(key, turn, known, turn.takes_effect)
                return self._poll(key, turn, known)
        key = self.draw_key()
        if f == "send":
            return self.send(key, turn)
        return self.read_end(key, self.get_increase_in_tile(key), turn.ok) if f == "end" else self._fetch(key)

    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns a scene that begins two generations and ends with a commit.

        Only members of the scene are in the first generation. Members that join later find the second generation.
        """
        group, generation = self._group(key), self.encode_count(key, 1, GENERATION)
        lease, committed = f"{self.partition(key)}-lock", self.encode_count(key, 1, COMMITS)
        drain: tuple[Step, ...] = ()
        events: tuple[Event, ...] = ()
        value: int | None = generation
        steps: tuple[Step, ...]

        def enter(owner: str, begin: int) -> Step:
            effect = Effect("acquire", self.partition(key), generation=generation, owner=owner, group=group)
            return Step("enter", group, (effect,), begin=begin, end=begin + 1)

        def commit(generation: int, begin: int) -> Step:
            effect = self._build_commit("commit", key, committed, self.offset_at(key, 0), generation)
            return Step("commit", group, (effect,), begin=begin, end=begin + 1)

        if anomaly == "zombie-commit":
            finding_key, steps = group, (enter("scene-a", 0), commit(generation - 1, 2))
        elif anomaly == "double-ownership":
            finding_key = self.partition(key)
            steps = (enter("scene-a", 0), enter("scene-b", 2), commit(generation, 4))
        elif anomaly == "fencing-violation":
            turns = (("acquire", 41, "b"), ("guarded", 41, "b"), ("acquire", 42, "c"), ("guarded", 41, "b"))
            guarded = (
                replace(build_lease_step(f, lease, token, f"scene-{owner}"), begin=2 * turn, end=2 * turn + 1)
                for turn, (f, token, owner) in enumerate(turns, 1)
            )
            finding_key, value, steps = lease, 42, (enter("scene-a", 0), *guarded, commit(generation, 10))
        elif anomaly == "generation-reuse":
            # Two coordinators store the same generation, each for different members.
            events = tuple(
                Event("group-generation", begin, node, key=group, epoch=generation)
                for begin, node in ((0, "n1"), (3, "n2"))
            )
            finding_key, steps = group, (enter("scene-a", 1), commit(generation, 4))
        else:
            finding_key, value = f"{self.partition(key)}-audit-0", None
            drain, steps = self._build_orphan(key, commit(generation, SCENE_SLOTS - 2))
        return Scene(
            key=finding_key,
            steps=steps,
            value=value,
            events=events,
            drain=drain,
            increments={self.layout.object_counter(key, GENERATION): 2, self.layout.object_counter(key, COMMITS): 1},
            counters_afterwards={self.layout.object_counter(key, POSITION): self.offset_at(key, 0)},
            min_duration=ORPHAN_DURATION if drain else 0,
        )

    def _build_orphan(self, key: int, commit: Step) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Returns the drain and the steps of a scene with a separate group of two members and two partitions.

        Both partitions are empty. The first is released and never reassigned.
        """
        group, topic = f"{self._group(key)}-audit", f"{self.partition(key)}-audit"
        orphan, other = f"{topic}-0", f"{topic}-1"
        last = SCENE_SLOTS - 4

        def step(f: str, begin: int, member: int, *effects: Effect) -> Step:
            return Step(f, group, effects, begin=begin, end=begin + 1, process=member)

        def hold(kind: str, key: str, member: int) -> Effect:
            return Effect(kind, key, generation=1, owner=f"scene-{'ab'[member]}", group=group, assignment=1)

        empty = [
            Effect(kind, other, position=0, group=group, assignment=1) for kind in ("observe-begin", "observe-end")
        ]
        steps = (
            step("enter", 0, 0, hold("acquire", orphan, 0)),
            step("enter", 2, 1, hold("acquire", other, 1)),
            step("poll", 4, 0, hold("release", orphan, 0)),
            *(step("poll", begin, 1, *empty) for begin in range(6, last, 4)),
            step("poll", last, 0, Effect("idle", group, group=group)),
            commit,
        )
        drain = tuple(Step("drained", name, (Effect("drained", name, position=0),)) for name in (orphan, other))
        return drain, steps

    def _find_first_partition(self, seat: int) -> int:
        """Returns the first partition of the seat's group."""
        return seat // self._seats * self.key_spacing

    def _group(self, key: int) -> str:
        """Returns the name of a partition's group."""
        return f"group-{self.number(key // self.key_spacing * self.key_spacing)}"

    def _assign(self, seat: int, generation: int) -> list[int]:
        """Returns the partitions that are assigned to a seat in a generation."""
        first = self._find_first_partition(seat)
        size = min(self.key_spacing, self.plan.keys - first)
        return [first + index for index in range((seat - generation) % self._seats, size, self._seats)]

    def _build_holds(self, kind: str, turn: Turn, seat: int, generation: int) -> list[Effect]:
        """Returns an effect for each partition of a seat, or one effect for the group if the seat has none."""
        group = self._group(self._find_first_partition(seat))
        names = [self.partition(key) for key in self._assign(seat, generation)] or [group]
        owner = f"member-{self.client(turn)}"
        return [
            Effect(kind, name, generation=generation, owner=owner, group=group, assignment=generation)
            for name in names
        ]  # fmt: skip

    def _enter(self, turn: Turn, seat: int, *, joins: bool) -> Step:
        """Returns a step by which a member enters the current generation. ``joins``: it begins a new generation."""
        first, open_ended = self._find_first_partition(seat), turn.outcome is Outcome.INFO
        if joins and (turn.takes_effect or not open_ended):
            self.increase_counter(first, which=GENERATION)
            epoch = self.encode_count(first, which=GENERATION)
            node = self.rng.choice(NODES)
            self.events.append(Event("group-generation", turn.number, node, key=self._group(first), epoch=epoch))
        if open_ended:
            return Step("enter", self._group(first))
        process, known = self._members.get(seat, (None, 0))
        ended = self._build_holds("release" if joins else "lost", turn, seat, known) if process == turn.process else []
        generation = self.encode_count(first, which=GENERATION)
        self._members[seat] = turn.process, generation
        effects = (*ended, *self._build_holds("acquire", turn, seat, generation))
        return Step("enter", self._group(first), effects, outcome=Outcome.OK)

    def _leave(self, turn: Turn) -> Step | None:
        """Returns a step by which the client's process leaves all its groups; None if it is in none."""
        seats = [seat for seat in range(turn.client, self._all_seats, self.plan.clients) if seat in self._members]
        left = {seat: known for seat in seats for process, known in (self._members[seat],) if process == turn.process}
        effects = [effect for seat, known in left.items() for effect in self._build_holds("release", turn, seat, known)]
        if not effects:
            return None
        for seat in left:
            del self._members[seat]
        return Step("leave", effects[0].group, tuple(effects), outcome=Outcome.OK)

    def _poll(self, key: int, turn: Turn, generation: int) -> Step:
        begin = self._cursors.get(key, 0)
        end = min(begin + MOST_POLLED, self.get_increase_in_tile(key))
        if turn.ok:
            self._cursors[key] = end
        return self.poll(key, begin, end, assignment=generation, group=self._group(key))

    def _commit(self, key: int, turn: Turn, generation: int, takes_effect: bool) -> Step:
        offset = self.offset_at(key, self._cursors.get(key, 0))
        value = self.encode_count(key, 1, COMMITS) if takes_effect else turn.get_unique_value()
        if takes_effect:
            self.increase_counter(key, which=COMMITS)
            self._committed[key] = value, offset
            self.counters_afterwards[self.layout.object_counter(key, POSITION)] = offset
        return Step("commit", self.partition(key), (self._build_commit("commit", key, value, offset, generation),))

    def _fetch(self, key: int) -> Step:
        value, offset = self._committed.get(
            key, (self.encode_current(key, COMMITS), self.encode_count(key, which=POSITION))
        )
        return Step("fetch", self.partition(key), seen=(self._build_commit("fetched", key, value, offset),))

    def _build_commit(self, kind: str, key: int, value: int, offset: int, generation: int | None = None) -> Effect:
        name = f"{self._group(key)}/{self.partition(key)}"
        return Effect(kind, name, position=offset, value=value, group=self._group(key), generation=generation)
