"""Histories of groups at random, right and wrong ones, and what is wrong with them by looking at every pair."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from helpers.log_histories import Row, effect

INFINITY = 2**63 - 1
MEMBERS = ("a", "b", "c")


def group_history(group: str, rng: random.Random, first_op: int, length: int = 8) -> list[Row]:
    """Members acquire and commit in generations that mostly rise with time."""
    rows: list[Row] = []
    for index in range(length):
        op = first_op + index
        call = 10 * index + rng.randint(0, 25)
        ret: int | None = call + rng.randint(1, 25)
        generation = max(1, 1 + index // 3 + rng.choice((-1, 0, 0, 0)))
        member, outcome = rng.choice(MEMBERS), rng.choice(("ok", "ok", "ok", "info", "fail"))
        kind = rng.choice(("acquire", "commit", "commit", "fetched"))
        given: dict[str, Any] = {"group": group, "outcome": outcome, "process": op}
        if outcome == "info":
            ret = None
        if kind == "acquire":
            for sub, partition in enumerate(rng.sample(range(3), rng.randint(0, 2)) or [None]):
                key = group if partition is None else f"{group}-t-{partition}"
                rows.append(effect(op, sub, kind, key, call, ret, generation=generation, owner=member, **given))
        elif kind == "commit":
            own = None if rng.random() < 0.1 else generation
            given |= {"value": op, "position": op % 5, "generation": own}
            rows.append(effect(op, 0, kind, f"{group}/t-0", call, ret, **given))
        else:
            value = first_op + rng.randint(0, length - 1)
            rows.append(effect(op, 0, kind, f"{group}/t-0", call, ret, value=value, position=value % 5, **given))
    return rows


def zombies(rows: list[Row]) -> set[tuple[str, int]]:
    """(group, generation) of each operation that came about before a commit of an older generation was called."""
    fetched = {}
    for row in rows:
        if row["kind"] == "fetched" and row["outcome"] == "ok":
            key = row["key"], row["value"]
            fetched[key] = min(fetched.get(key, INFINITY), row["ret"])
    steps = []
    for row in rows:
        if row["kind"] not in ("acquire", "commit") or row["generation"] is None:
            continue
        ret = row["ret"]
        if row["kind"] == "commit":
            answered = [ret] if row["outcome"] == "ok" and ret is not None else []
            ret = min([*answered, fetched.get((row["key"], row["value"]), INFINITY)])
            ret = None if ret == INFINITY else ret
        if row["outcome"] != "fail" and ret is not None:
            steps.append((row["group"], row["generation"], row["call"], ret, row["kind"]))
    return {
        (group, generation)
        for group, generation, _, ret, _ in steps
        for other, older, call, _, kind in steps
        if kind == "commit" and other == group and older < generation and call > ret
    }


def owned_twice(rows: list[Row]) -> set[tuple[str, str, int]]:
    """(group, partition, generation) with several owners."""
    owners = {
        (row["group"], row["key"], row["generation"], row["owner"])
        for row in rows
        if row["kind"] == "acquire" and row["outcome"] == "ok" and row["key"] != row["group"]
    }
    return {key for key, count in Counter(owner[:3] for owner in owners).items() if count > 1}
