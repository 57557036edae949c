"""Histories of consumers that acquire, read, give up, lose and vanish, at random; and what is wrong with them, instant
by instant. Times are milliseconds from the history's own beginning."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from helpers.fault_rows import impact
from helpers.log_histories import Row, effect

MS = 1_000_000
FOREVER = float("inf")
KEYS = ("t-0", "t-1", "t-2", "u-0")
DEADLINE = 60
"""Milliseconds."""
Span = tuple[float, float]


@dataclass
class _Consumer:
    """A worker; ``process`` changes when an operation ends info."""

    worker: str
    process: int
    free: int = 0
    held: dict[str, int] = field(default_factory=dict)


class Consumers:
    """Rows of one group, and faults of its time, from ``base`` (ms) on.

    Every worker's first and last operations are answered, so that no doubt reaches into other histories.
    """

    def __init__(self, group: str, rng: random.Random, first_op: int, base: int) -> None:
        self.group, self.rng, self.base = group, rng, base
        self.next_op, self.first_op, self.next_assignment = first_op, first_op, 0
        self.rows: list[Row] = []
        self.faults: list[Row] = []
        self.generation = rng.choice((None, None, 1))
        self.careless = rng.random() < 0.5
        """Whether some process may be made to own what another holds."""
        self.perils = rng.choice((0.0, 0.03))
        """How often a fault begins."""
        self.keys = rng.sample(KEYS, rng.randint(2, 4))

    def run(self, steps: int) -> Consumers:
        rng = self.rng
        consumers = [_Consumer(f"{self.group}/{n}", self.first_op + n * 100) for n in range(rng.randint(1, 3))]
        for consumer in consumers:
            self.operation(consumer, int(consumer.worker[-1]), 5, [("start", self.keys[0], None, "ok", False)])
        now = 6
        for _ in range(steps):
            now += rng.choice((1, 2, 3, 3, 5, 20 if rng.random() < 0.2 else 4))
            self.step(rng.choice(consumers), now, consumers)
            if rng.random() < self.perils:
                self.fault(now)
        for consumer in consumers:  # so that it is known when the one before was closed
            begun = max(now + 40, consumer.free) + int(consumer.worker[-1])
            self.operation(consumer, begun, begun + 10, [("start", self.keys[0], None, "ok", False)])
        return self

    def fault(self, now: int) -> None:
        rng, number = self.rng, self.first_op + now
        targets, name = rng.choice(('["n1"]', '["client1"]')), rng.choice(("kill", "stop", "partition"))
        for phase, when in zip(
            ("intended", "injected", "healed", "recovered"), (0, 1, 9, rng.randint(10, 30)), strict=True
        ):
            row = {"id": number, "fault": name, "targets": targets, "phase": phase, "detail": "{}", "took_effect": True}
            row |= {"time": self.stamp(now + when) - 7, "on_clients": "client" in targets}
            self.faults.append(row | impact(name))

    def stamp(self, time: int) -> int:
        return (self.base + time) * MS

    def step(self, consumer: _Consumer, now: int, everyone: list[_Consumer]) -> None:
        rng = self.rng
        call = max(now, consumer.free)
        info, fail = rng.random() < 0.03, rng.random() < 0.05
        recorded: list[tuple[str, str, int | None, str, bool]] = []
        outcome = "info" if info else "fail" if fail else "ok"
        for key, assignment in list(consumer.held.items()):
            if rng.random() < 0.9:
                recorded.append(("observe-begin", key, assignment, outcome, True))
            if rng.random() < 0.05:
                recorded.append(("release", key, assignment, rng.choice(("ok", "ok", "info", "fail")), True))
                del consumer.held[key]
            elif rng.random() < 0.04:
                recorded.append(("lost", key, assignment, outcome, True))
                del consumer.held[key]
        for key in self.keys:
            taken = any(key in other.held for other in everyone)
            if rng.random() < (0.1 if not taken else 0.04 if self.careless and key not in consumer.held else 0.0):
                self.next_assignment += 1
                given = None if rng.random() < 0.01 else self.next_assignment
                recorded.append(("acquire", key, given, rng.choice(("ok",) * 5 + ("info", outcome)), True))
                if given is not None:
                    consumer.held[key] = given
        if self.generation is not None and rng.random() < 0.1:
            self.generation += 1
        self.operation(consumer, call, None if info else call + rng.choice((1, 2, 2, 5, 8)), recorded)
        if info:
            consumer.process, consumer.held = consumer.process + 1, {}
            consumer.free = call + rng.choice((2, 10, 30))

    def operation(
        self,
        consumer: _Consumer,
        call: int,
        ret: int | None,
        recorded: Iterable[tuple[str, str, int | None, str, bool]],
    ) -> None:
        op, self.next_op = self.next_op, self.next_op + 1
        consumer.free = (call if ret is None else ret) + 1
        # Stamps differ: each operation has two nanoseconds of its own.
        begun, ended = self.stamp(call) + 2 * (op - self.first_op), None
        if ret is not None:
            ended = self.stamp(ret) + 2 * (op - self.first_op) + 1
        given: dict[str, Any] = {"process": consumer.process, "worker": consumer.worker}
        given["op_outcome"] = "info" if ret is None else "ok"
        for sub, (kind, key, assignment, outcome, ours) in enumerate(
            recorded or [("start", KEYS[0], None, "ok", False)]
        ):
            more = {"group": self.group, "assignment": assignment} if ours else {}
            if kind in ("acquire", "release", "lost"):
                more |= {"owner": f"{consumer.worker}-{consumer.process}", "generation": self.generation}
            if ret is None and kind != "acquire":
                outcome = "info"
            self.rows.append(effect(op, sub, kind, key, begun, ended, outcome=outcome, **given, **more))


@dataclass(frozen=True)
class Hold:
    """The rows of one hold."""

    rows: tuple[Row, ...]

    def of(self, *kinds: str) -> list[Row]:
        return [row for row in self.rows if row["kind"] in kinds]

    @property
    def acquires(self) -> list[Row]:
        return [row for row in self.of("acquire") if row["outcome"] != "fail"]

    def certain(self, faults: list[Row]) -> Span | None:
        """From when to when its owner certainly had it."""
        given = [row for row in self.acquires if row["outcome"] == "ok" and row["ret"] is not None]
        answered = [
            row["call"] for row in self.rows if row["ret"] is not None and row["kind"] not in ("release", "lost")
        ]
        if (
            not given
            or self.rows[0]["assignment"] is None
            or len(given) < len([a for a in self.acquires if a["outcome"] == "ok"])
        ):
            return None
        begun = given[0]["ret"]
        ends = [row["call"] for row in self.of("release", "lost")]
        if not ends:
            end = max(answered)
        else:
            end = min(ends)
            alive = max((call for call in answered if call <= end), default=0)
            if any(call > end for call in answered):
                alive = end
            kills = [
                [row["time"] for row in faults if row["id"] == number and row["phase"] in ("intended", "healed")]
                for number in {row["id"] for row in faults if "client" in row["targets"] and row["fault"] == "kill"}
            ]
            moments = [max(begun, since) for since, healed in kills if begun < healed]
            killed = min((moment for moment in moments if moment < end), default=None)
            if killed is not None:
                end = max(killed, alive)
        return (begun, end) if begun < end else None


def holds(rows: list[Row]) -> Iterator[Hold]:
    names = {(row["process"], row["key"], row["assignment"]) for row in rows if row["group"] is not None}
    for name in sorted(names, key=str):
        mine = [
            row for row in rows if row["group"] is not None and (row["process"], row["key"], row["assignment"]) == name
        ]
        hold = Hold(tuple(mine))
        if hold.acquires:
            yield hold


def overlapping(rows: list[Row], faults: list[Row]) -> set[tuple[str, str, float]]:
    """(group, key, since) of each moment at which some process became an owner beside another; no generations."""
    found = set()
    spans: dict[tuple[str, str], dict[str, list[Span]]] = {}
    for hold in holds(rows):
        first = hold.acquires[0]
        span = hold.certain(faults)
        if span is not None and first["generation"] is None:
            spans.setdefault((first["group"], first["key"]), {}).setdefault(first["owner"], []).append(span)
    for (group, key), owners in spans.items():
        for owner, mine in owners.items():
            for begun, _ in mine:
                if any(low < begun <= high for low, high in mine):
                    continue  # it was the owner already
                others = [span for other in owners if other != owner for span in owners[other]]
                if any(low <= begun < high for low, high in others):
                    found.add((group, key, begun))
    return found


def owned_twice(rows: list[Row]) -> set[tuple[str, str, int]]:
    """(group, key, generation) with several owners."""
    given = [
        row for row in rows if row["kind"] == "acquire" and row["outcome"] == "ok" and row["generation"] is not None
    ]
    return {
        (one["group"], one["key"], one["generation"])
        for one in given
        for other in given
        if (one["group"], one["key"], one["generation"]) == (other["group"], other["key"], other["generation"])
        and one["owner"] != other["owner"]
    }


class Orphans:
    """When no one owned a partition of a living group, instant by instant."""

    def __init__(self, rows: list[Row], faults: list[Row], deadline: int = DEADLINE) -> None:
        self.rows, self.faults, self.deadline = rows, faults, deadline * MS
        self.ops = sorted({row["op"]: row for row in rows}.values(), key=lambda row: row["call"])
        self.held = list(holds(rows))
        self.group = next(row["group"] for row in rows if row["group"] is not None)

    def beside(self, row: Row, step: int) -> float | None:
        """The call of the operation before or after this one on its worker."""
        mine = [one["call"] for one in self.ops if one["worker"] == row["worker"]]
        at = mine.index(row["call"]) + step
        return mine[at] if 0 <= at < len(mine) else None

    def born(self, process: int) -> float:
        first = next(one for one in self.ops if one["process"] == process)
        return self.beside(first, -1) or 0

    def died(self, process: int) -> float:
        for one in self.ops:
            if one["process"] == process and one["ret"] is None:
                return self.beside(one, 1) or FOREVER
        return FOREVER

    def telling(self, process: int) -> list[float]:
        return sorted({row["call"] for row in self.rows if row["process"] == process and row["group"] is not None})

    def owned(self, key: str) -> list[Span]:
        spans = []
        for hold in self.held:
            first = min(hold.acquires, key=lambda row: row["op"])
            if first["key"] != key:
                continue
            before = [call for call in self.telling(first["process"]) if call < first["call"]]
            gone = [
                row["ret"]
                for row in hold.of("release", "lost")
                if row["ret"] is not None and (row["kind"] == "lost" or row["outcome"] == "ok")
            ]
            end = max(gone) if gone and first["assignment"] is not None else FOREVER
            spans.append((max(before, default=self.born(first["process"])), min(end, self.died(first["process"]))))
        return spans

    def doubts(self) -> list[Span]:
        spans = []
        for number in {row["id"] for row in self.faults}:
            mine = [row for row in self.faults if row["id"] == number]
            recovered = [row["time"] for row in mine if row["phase"] == "recovered"]
            spans.append((min(row["time"] for row in mine), max(recovered, default=FOREVER)))
        for one in self.ops:
            sent = any(row["op"] == one["op"] and row["kind"] == "append" for row in self.rows)
            if one["ret"] is None and not sent:
                spans.append((self.beside(one, -1) or 0, self.beside(one, 1) or FOREVER))
        for process in {row["process"] for row in self.rows if row["group"] is not None}:
            spans.append((self.telling(process)[-1], self.died(process)))
        return spans

    def lives(self, topic: str) -> list[Span]:
        spans = []
        for hold in self.held:
            given = [row["ret"] for row in hold.acquires if row["outcome"] == "ok" and row["ret"] is not None]
            if not given or hold.rows[0]["assignment"] is None or hold.rows[0]["key"][:-2] != topic:
                continue
            end = min((row["call"] for row in hold.of("release", "lost")), default=FOREVER)
            calls = sorted({row["call"] for row in hold.rows if row["ret"] is not None and row["call"] <= end})
            for former, call in pairwise(calls):
                since = max(former, given[0])
                if since < call and (call - since) * 4 <= self.deadline:
                    spans.append((since, call))
        return spans

    def found(self) -> set[tuple[str, str, float, float]]:
        """(group, key, since, until)."""
        return {(self.group, key, *span) for key in KEYS for span in self.of(key)}

    def of(self, key: str) -> Iterator[Span]:
        owned, doubts, lives = self.owned(key), self.doubts(), self.lives(key[:-2])
        if not owned:
            return
        first = min(since for since, _ in owned)
        moments = sorted({at for span in (*owned, *doubts, *lives) for at in span if first <= at < FOREVER})
        begun: float | None = None
        for low, high in zip(moments, [*moments[1:], FOREVER], strict=True):

            def within(spans: list[Span], low: float = low, high: float = high) -> bool:
                return any(since <= low and high <= until for since, until in spans)

            if within(lives) and not within(owned) and not within(doubts):
                begun = low if begun is None else begun
                continue
            if begun is not None and low - begun > self.deadline:
                yield begun, low
            begun = None
