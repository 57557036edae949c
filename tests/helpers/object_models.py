"""An executable register, queue and group, each with one bug or none, and clients that use it: small histories.

Nothing here knows what the checks look for. A bug is a way in which a server goes wrong. Whether it shows in a history
is a matter of luck, and the oracles decide it: ``register_oracle``, ``object_oracle``, ``group_possible``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from helpers.log_histories import Row, effect

MADE_UP: Final = 900


@dataclass
class Pending:
    """An operation under way. ``outcome`` and ``given`` are what its answer will say."""

    kind: str
    called: int
    given: dict[str, Any] = field(default_factory=dict)
    outcome: str = "ok"
    applied: bool = False


class Model:
    """An object and its clients. Time is a counter; each operation has a call, an effect in between, a return.

    The effect of an operation of unknown outcome may come later, or never; its process ends.
    """

    bugs: ClassVar[tuple[str, ...]]

    def __init__(self, number: int, bug: str | None, rng: random.Random) -> None:
        self.key, self.next_op, self.bug, self.rng = f"m-{number}", number * 1_000, bug, rng
        self.now = self.next_value = 0
        self.rows: list[Row] = []
        self.under_way: dict[int, Pending] = {}
        self.late: list[Pending] = []
        self.processes = [0, 1, 2]

    def has(self, bug: str) -> bool:
        """Whether the bug is there and strikes this time."""
        return self.bug == bug and self.rng.random() < 0.4

    def value(self) -> int:
        self.next_value += 1
        return self.next_value

    def history(self, steps: int) -> list[Row]:
        for _ in range(steps):
            self.step()
        for process in list(self.under_way):
            self.finish(process)
        self.now += 10
        self.close()
        return self.rows

    def step(self) -> None:
        self.now += 1
        self.meanwhile()
        if self.late and self.rng.random() < 0.2:
            self.apply(self.late.pop(0))
        process = self.rng.choice(self.processes)
        pending = self.under_way.get(process)
        if pending is None:
            self.under_way[process] = self.draw(process)
        elif self.rng.random() < 0.12:
            self.lose(process)
        elif not pending.applied:
            self.decide(pending)
        else:
            self.finish(process)

    def decide(self, pending: Pending) -> None:
        """The request arrives: it is refused, or takes effect."""
        pending.applied = True
        if self.rng.random() < (0.3 if self.bug == "failed-but-done" else 0.08):
            pending.outcome = "fail"
            if not self.has("failed-but-done"):
                return
            self.apply(pending)
            pending.outcome = "fail"
        elif self.has("done-late"):
            self.late.append(pending)
        elif not self.has("acknowledged-not-done"):
            self.apply(pending)

    def lose(self, process: int) -> None:
        """The answer does not arrive."""
        pending = self.under_way.pop(process)
        if pending.outcome == "ok":
            if not pending.applied and self.rng.random() < 0.6:
                self.late.append(pending)
            self.record(process, pending, "info")
        self.processes[self.processes.index(process)] = max(self.processes) + 1

    def finish(self, process: int) -> None:
        pending = self.under_way[process]
        if not pending.applied:
            self.decide(pending)
        self.now += 1
        del self.under_way[process]
        self.record(process, pending, pending.outcome)

    def record(self, process: int, pending: Pending, outcome: str) -> None:
        ret = None if outcome == "info" else self.now
        for sub, row in enumerate(self.effects(pending, outcome)):
            given = {"key": self.key, **row}
            key, kind = given.pop("key"), given.pop("kind")
            given |= {"process": process, "outcome": outcome}
            self.rows.append(effect(self.next_op, sub, kind, key, pending.called, ret, **given))
        self.next_op += 1

    def effects(self, pending: Pending, outcome: str) -> list[dict[str, Any]]:
        """Returns what the client records of it."""
        return [{"kind": pending.kind, **pending.given}]

    def draw(self, process: int) -> Pending:
        """The next operation of an idle client."""
        raise NotImplementedError

    def apply(self, pending: Pending) -> None:
        """Its effect, at this instant."""
        raise NotImplementedError

    def meanwhile(self) -> None:
        """Does what goes wrong by itself."""

    def close(self) -> None:
        """Does what a run does at its end."""


class RegisterModel(Model):
    """Reads, writes and compare-and-set of one value."""

    bugs = (
        "acknowledged-not-done", "failed-but-done", "done-late", "forgotten", "stale-replica", "done-twice",
        "compares-with-a-replica", "seen-then-dropped", "made-up",
    )  # fmt: skip

    def __init__(self, number: int, bug: str | None, rng: random.Random) -> None:
        super().__init__(number, bug, rng)
        self.past: list[int | None] = [None]

    def draw(self, process: int) -> Pending:
        kind = self.rng.choice(("register-read", "register-read", "register-write", "register-cas"))
        if kind == "register-read":
            return Pending(kind, self.now)
        given = {"value": self.value()}
        if kind == "register-cas":
            given["expected"] = self.rng.choice(self.past[-2:])
        return Pending(kind, self.now, given)

    def apply(self, pending: Pending) -> None:
        if pending.kind == "register-read":
            pending.given["value"] = self.past[-1]
            if self.has("stale-replica"):
                pending.given["value"] = self.rng.choice(self.past)
            elif self.has("made-up"):
                pending.given["value"] = MADE_UP
            elif self.has("seen-then-dropped") and len(self.past) > 1:
                self.past.pop()
            return
        if pending.kind == "register-cas":
            current = self.rng.choice(self.past) if self.has("compares-with-a-replica") else self.past[-1]
            if pending.given["expected"] != current:
                pending.outcome = "fail"
                return
        self.past.append(pending.given["value"])
        if self.has("done-twice"):
            self.late.append(Pending("register-write", self.now, {"value": pending.given["value"]}))

    def meanwhile(self) -> None:
        if len(self.past) > 1 and self.has("forgotten"):
            self.past.pop()


class QueueModel(Model):
    """Elements are enqueued and dequeued, in any order; a drain at the end takes all."""

    bugs = (
        "acknowledged-not-done", "failed-but-done", "done-late", "lost-inside", "delivered-twice", "stored-twice",
        "taken-and-not-given", "says-empty", "made-up",
    )  # fmt: skip

    def __init__(self, number: int, bug: str | None, rng: random.Random) -> None:
        super().__init__(number, bug, rng)
        self.inside: list[int] = []

    def draw(self, process: int) -> Pending:
        if self.rng.random() < 0.5:
            return Pending("queue-enqueue", self.now, {"value": self.value()})
        return Pending("queue-dequeue", self.now)

    def apply(self, pending: Pending) -> None:
        if pending.kind == "queue-enqueue":
            self.inside += [pending.given["value"]] * (2 if self.has("stored-twice") else 1)
            return
        pending.given["value"] = None
        if not self.inside or self.has("says-empty"):
            return
        spot = self.rng.randrange(len(self.inside))
        pending.given["value"] = self.inside[spot] if self.has("delivered-twice") else self.inside.pop(spot)
        if self.has("taken-and-not-given"):
            pending.given["value"] = None
        elif self.has("made-up"):
            pending.given["value"] = MADE_UP

    def effects(self, pending: Pending, outcome: str) -> list[dict[str, Any]]:
        shown = pending.given if outcome == "ok" or pending.kind == "queue-enqueue" else {"value": None}
        return [{"kind": pending.kind, **shown}]

    def meanwhile(self) -> None:
        if self.inside and self.has("lost-inside"):
            del self.inside[self.rng.randrange(len(self.inside))]

    def close(self) -> None:
        for pending in self.late:
            self.apply(pending)
        for element in self.inside:
            self.now += 2
            self.record(90, Pending("queue-dequeue", self.now - 1, {"value": element}), "ok")
        self.now += 2
        self.record(90, Pending("queue-drained", self.now - 1), "ok")


class GroupModel(Model):
    """Members join generations, in which each of two partitions has one owner, and commit and fetch offsets."""

    bugs = (
        "acknowledged-not-done", "failed-but-done", "done-late", "forgotten", "stale-replica", "wrong-position",
        "zombie", "two-owners",
    )  # fmt: skip

    def __init__(self, number: int, bug: str | None, rng: random.Random) -> None:
        super().__init__(number, bug, rng)
        self.generation, self.owners = 1, [0, 1]
        self.known: dict[int, int] = {}
        self.past: list[list[tuple[int | None, int | None]]] = [[(None, None)], [(None, None)]]

    def draw(self, process: int) -> Pending:
        kind = self.rng.choice(("acquire", "commit", "commit", "fetched", "fetched", "fetched"))
        if kind == "acquire" or process not in self.known:
            return Pending("acquire", self.now, {"owner": f"member-{process}", "process": process})
        partition = self.rng.randrange(2)
        given: dict[str, Any] = {"key": f"{self.key}/t-{partition}"}
        if kind == "commit":
            number = self.value()
            given |= {"value": number, "position": 10 * number + partition, "generation": self.known[process]}
        return Pending(kind, self.now, given)

    def apply(self, pending: Pending) -> None:
        given = pending.given
        if pending.kind == "acquire":
            self.join(pending)
            return
        past = self.past[int(given["key"][-1])]
        if pending.kind == "fetched":
            given["value"], given["position"] = self.rng.choice(past) if self.has("stale-replica") else past[-1]
            if given["position"] is not None and self.has("wrong-position"):
                given["position"] += 1
        elif given["generation"] == self.generation or self.has("zombie"):
            past.append((given["value"], given["position"]))
        else:
            pending.outcome = "fail"

    def join(self, pending: Pending) -> None:
        process, parts = pending.given["process"], range(len(self.owners))
        if self.rng.random() < 0.4:
            self.generation += 1
            self.owners = [self.rng.choice(self.processes) for _ in parts]
        own = [part for part in parts if self.owners[part] == process or self.has("two-owners")]
        pending.given |= {"own": own, "generation": self.generation}
        self.known[process] = self.generation

    def effects(self, pending: Pending, outcome: str) -> list[dict[str, Any]]:
        if pending.kind != "acquire":
            shown = pending.given
            if pending.kind == "fetched" and outcome != "ok":
                shown = {"key": shown["key"]}
            return [{"kind": pending.kind, "group": self.key, **shown}]
        if outcome != "ok" or "own" not in pending.given:
            return []
        row = {"kind": "acquire", "group": self.key} | {name: pending.given[name] for name in ("owner", "generation")}
        return [row | {"key": f"{self.key}-t-{part}"} for part in pending.given["own"]] or [row]

    def meanwhile(self) -> None:
        past = self.rng.choice(self.past)
        if len(past) > 1 and self.has("forgotten"):
            past.pop()


MODELS: Final[tuple[type[Model], ...]] = (RegisterModel, QueueModel, GroupModel)
