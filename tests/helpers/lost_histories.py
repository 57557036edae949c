"""Histories of an administrator's changes and of looks at them, and which were lost, by looking at every pair."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from helpers.log_histories import Row, effect

S = 1_000_000_000
NEVER = 1 << 62
When = tuple[int, int | None]
DEADLINE = 10
"""Seconds in which metadata follow."""


def row(op: int, kind: str, when: When, value: int | None = None, **given: Any) -> Row:
    """Returns a row of the topic ``orders`` unless given otherwise. Times are seconds."""
    given = {"key": "orders", "process": op, **given}
    outcome = "info" if when[1] is None else "ok"
    times = when[0] * S, None if when[1] is None else when[1] * S
    return effect(op, 0, kind, given.pop("key"), *times, value=value, **{"outcome": outcome, **given})


def shown(op: int, when: When, complete: bool = True, key: str = "orders", **settings: int | None) -> list[Row]:
    """A look of the drain at settings."""
    rows = [row(op, "setting-seen", when, key=key, phase="drain")] if complete else []
    given = {"key": key, "phase": "drain"}
    rows += [row(op, "setting-seen", when, value, name=name, **given) for name, value in settings.items()]
    return [one | {"sub": rank} for rank, one in enumerate(rows)]


def seen(op: int, when: When, partitions: int | None, key: str = "orders") -> Row:
    """A look of the drain at metadata."""
    return row(op, "topic-seen", when, partitions, key=key, phase="drain")


def at_rest(first: int, *looks: int, topic: str = "orders", every: int = 1) -> list[Row]:
    """Rows of ``looks``: so many partitions in each; begun at ``first`` seconds."""
    rows: list[Row] = []
    for number, partitions in enumerate(looks):
        begun = (first + number * every) * S
        times = {"look": number + 1, "time": begun, "ended": begun + S // 10}
        rows += [{"what": "partition", "key": f"{topic}-{place}", **times} for place in range(partitions)]
        rows.append({"what": "look", "wall_ms": 0, "unsettled": 0, **times})
    return rows


class Changes:
    """Changes to one topic, its looks in the drain, and those at rest after second 60. ``rows``, ``looks``."""

    def __init__(self, topic: str, rng: random.Random, first_op: int) -> None:
        self.topic, self.rng, self.rows = topic, rng, []
        deletes = rng.random() < 0.3
        state = {"a": None, "b": None}
        have, life = 0, 1
        for step in range(9):
            op, call = first_op + step, 3 * step + 1
            when = (call, rng.choice((call + 1, call + 1, call + 1, call + 7, None)))
            key = topic if life == 1 else f"{topic}#{life}"
            outcome = {} if when[1] is None or rng.random() < 0.85 else {"outcome": "fail"}
            draw, done = rng.random(), rng.random() < 0.8 and not outcome
            if draw < 0.6:
                name, value = rng.choice(("a", "b")), rng.choice((None, 1, 2))
                self.rows.append(row(op, "setting", when, value, key=key, name=name, **outcome))
                state |= {name: value} if done else {}
            elif draw < 0.9 or not deletes:
                kind = rng.choice(("topic-create", "partitions-add"))
                value = max(have, 1) + rng.randrange(2)
                self.rows.append(row(op, kind, when, value, key=key, **outcome))
                have = value if done else have
            else:
                self.rows.append(row(op, "topic-delete", when, key=key, **outcome))
                life += 1
                have = 0 if done else have
        for step in range(6):
            op, call = first_op + 10 + step, 28 + 4 * step
            when = call, call + rng.randint(1, 5)
            if rng.random() < 0.7:
                settings = {name: value for name, value in state.items() if value is not None and rng.random() < 0.9}
                settings |= {"a": rng.choice((None, 1, 2))} if rng.random() < 0.1 else {}
                self.rows += shown(op, when, complete=rng.random() < 0.8, key=topic, **settings)
            else:
                self.rows.append(seen(op, when, rng.choice((have, have, max(0, have - 1))) or None, key=topic))
        self.left = rng.choice((have, have, max(0, have - 1)))
        self.looks = at_rest(60, self.left, self.left, topic=topic)


def _end(one: Row) -> int:
    return NEVER if one["outcome"] != "ok" else int(one["ret"])


def _kept(rows: Sequence[Row], change: Row) -> bool:
    """Was it asked for after all deletions had ended?"""
    return all(
        one["kind"] != "topic-delete" or one["outcome"] == "fail" or _end(one) < change["call"] for one in rows
    )  # fmt: skip


def _denied(rows: Sequence[Row], look: Row, name: str, state: object) -> Row | None:
    """The last acknowledged change before this look that does not allow it."""
    changes = [one for one in rows if one["kind"] == "setting" and one["outcome"] != "fail" and one["name"] == name]
    before = [one for one in changes if _end(one) < look["call"]]
    if not before or state == "text":
        return None
    last = max(before, key=lambda one: one["call"])
    to_this = [one for one in changes if one["value"] == state and one["call"] <= look["ret"]]
    allowed = any(_end(one) >= last["call"] for one in to_this)
    return None if allowed or not _kept(rows, last) else last


def lost(rows: Sequence[Row], left: int) -> set[tuple[Any, ...]]:
    """(name of the setting, how it was seen) of each that is lost; ``left``: partitions at rest."""
    found: set[tuple[Any, ...]] = set()
    names = {one["name"] for one in rows if one["kind"] == "setting" and one["outcome"] != "fail"}
    looks: dict[int, list[Row]] = {}
    for one in rows:
        if one["kind"] == "setting-seen":
            looks.setdefault(one["op"], []).append(one)
    for name in names:
        denied = []
        for _, shows in sorted(looks.items()):
            by_name = {one["name"]: one["value"] for one in shows}
            if name in by_name:
                denied.append(_denied(rows, shows[0], name, "text" if by_name[name] is None else by_name[name]))
            elif None in by_name:
                denied.append(_denied(rows, shows[0], name, None))
        if any(one and other for one, other in pairwise(denied)):
            found.add((name, "looks"))
    made = [one for one in rows if one["kind"] in ("topic-create", "partitions-add") and one["outcome"] == "ok"]
    made = [one for one in made if _kept(rows, one)]
    less = [
        any(one["value"] > (look["value"] or 0) and look["call"] - DEADLINE * S >= one["ret"] for one in made)
        for look in rows if look["kind"] == "topic-seen"
    ]  # fmt: skip
    if any(one and other for one, other in pairwise(less)):
        found.add(("", "looks"))
    if any(one["value"] > left for one in made):
        found.add(("", "at rest"))
    return found
