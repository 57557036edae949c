"""Groups whose members stay, or come and go, while their generation rises, and which of them are restless."""

from __future__ import annotations

import random
from typing import Any, Final

from helpers.log_histories import Row, effect

S: Final = 1_000_000_000
DEADLINE: Final = 10
"""Seconds: a group has to be at rest from half of it on."""
NEVER: Final = 1 << 62


class Rest:
    """The end of a run, by hand: members of one group that poll. Times are seconds; an operation takes a tenth."""

    def __init__(self, group: str = "g", first_op: int = 0, first_process: int = 1) -> None:
        self.group, self.next_op, self.first = group, first_op, first_process
        self.rows: list[Row] = []
        self.ops: list[Row] = []

    def does(self, at: float, process: int, *kinds: str, outcome: str = "ok", **given: Any) -> None:
        """Adds an operation of a member, with these rows. ``generation`` is that of an ``acquire``."""
        op, call = self.next_op, int(at * S) + self.next_op % 1_000
        self.next_op += 1
        ret = None if outcome == "info" else call + S // 10
        number = self.first + process
        of_group = {"group": self.group, "process": number, "phase": "drain", "key": self.group, **given}
        key = of_group.pop("key")
        self.rows += [effect(op, sub, kind, key, call, ret, **of_group) for sub, kind in enumerate(kinds)]
        self.ops.append(
            {
                "index": op, "process": number, "worker": f"w{number}", "f": "poll", "key": None, "argument": "null",
                "call": call, "ret": ret, "outcome": outcome, "phase": of_group["phase"],
            }
        )  # fmt: skip

    def polls(self, first: int, last: int, process: int = 0, every: int = 1) -> None:
        for at in range(first, last + 1, every):
            self.does(at, process, "idle")

    def enters(self, at: float, generation: int, process: int = 0) -> None:
        self.does(at + 0.3, process, "lost", "acquire", generation=generation, owner=f"m{process}", assignment=1)


class Random(Rest):
    """Two members, and now and then a third; ``restless``: what is right to say."""

    def __init__(self, number: int, rng: random.Random) -> None:
        super().__init__(f"g{number}", 1_000 * number, 10 * number)
        generation, known = 1, -1
        last = rng.choice((8, 14, 20))
        every = rng.choice((1, 1, 1, 3))
        self.polls(0, last, 0, every)
        self.polls(0, last, 1)
        changed = 0.1
        for at in range(last):
            if rng.random() < 0.04:
                kinds = rng.choice((("release",), ("lost",), ()))
                self.does(at + 0.6, 1, *kinds)
                changed = at + 0.7
            elif rng.random() < 0.03:
                self.does(at + 0.6, 2 + at % 3, "idle")
        firsts: dict[int, float] = {}
        for row in self.rows:
            firsts.setdefault(row["process"], row["ret"])
            firsts[row["process"]] = min(firsts[row["process"]], row["ret"])
        changed = max(changed, *(ret / S for ret in firsts.values()))
        seen: list[tuple[float, int]] = []
        pace = rng.choice((0.0, 0.1, 0.3))
        for at in range(last):
            if rng.random() < pace:
                generation += rng.choice((0, 1, 1))
                self.enters(at, generation, rng.randrange(2))
                seen.append((at + 0.3, generation))
        until = max([float(last), *(at for at, _ in seen), *(row["call"] / S for row in self.rows)])
        known = max([number for at, number in seen if at - changed < DEADLINE / 2], default=-1)
        late = {number for _, number in seen if number > known}
        judged = until - changed > DEADLINE / 2
        self.restless = judged and len(late) >= 2
