"""Histories of leases at random, right and wrong ones, and what is wrong with them by looking at every pair."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from helpers.log_histories import Row, effect

FOREVER = 2**63 - 1


def lease_history(key: str, rng: random.Random, first_op: int, length: int = 9) -> list[Row]:
    """Owners acquire, renew and do things under tokens that mostly rise with time."""
    rows: list[Row] = []
    for index in range(length):
        op = first_op + index
        call = first_op * 1000 + 10 * index * 100 + rng.randint(0, 25) * 100 + 2 * index
        ret: int | None = call + rng.randint(1, 25) * 100 + 1
        token = max(0, 1 + index // 3 + rng.choice((-1, 0, 0, 0)))
        kind = rng.choice(("acquire", "guarded", "guarded", "guarded", "renew", "release", "lost"))
        outcome = rng.choice(("ok", "ok", "ok", "info", "fail"))
        error = rng.choice(("stale-epoch", "stale-epoch: 3 is newer", "stale-epochs", "no", None))
        given: dict[str, Any] = {"outcome": outcome, "process": op, "owner": rng.choice(("a", "b"))}
        if outcome == "info":
            ret = None
        if outcome == "fail":
            given["error"] = error
        if rng.random() < 0.1:
            given["outcome"] = "ok"  # it is known of this part of an operation, not of the rest
        rows.append(effect(op, 0, kind, key, call, ret, token=token if rng.random() < 0.95 else None, **given))
    return rows


def refused(row: Row) -> bool:
    error = row["error"] or ""
    return row["outcome"] == "fail" and row["kind"] != "acquire" and error.partition(":")[0] == "stale-epoch"


def placed(rows: list[Row], by_requests: bool) -> Iterator[tuple[int, int | None, int]]:
    """(place, call, ret) of each operation that takes part; a refusal has no call."""
    first: dict[Any, Row] = {}
    for row in rows:
        if row["kind"] == "acquire" and row["outcome"] == "ok" and row["token"] is not None:
            known = first.setdefault((row["key"], row["token"], row["owner"]), row)
            if row["call"] < known["call"]:
                first[row["key"], row["token"], row["owner"]] = row
    for row in rows:
        if row["token"] is None or row["kind"] not in ("acquire", "renew", "guarded"):
            continue
        if by_requests and row["kind"] != "guarded":
            continue
        ret = FOREVER if row["ret"] is None else row["ret"]
        if refused(row):
            yield 2 * row["token"] + 2, None, ret
        elif row["outcome"] == "ok":
            given = row["kind"] == "acquire" and first[row["key"], row["token"], row["owner"]] is row
            yield 2 * row["token"] + (0 if given else 1), row["call"], ret


def violations(rows: list[Row], by_requests: bool) -> set[tuple[str, int]]:
    """(lease, place) of each operation after whose return something at a lower place was called."""
    if not any(row["kind"] == "guarded" and row["token"] is not None for row in rows):
        return set()
    steps = list(placed(rows, by_requests))
    return {
        (rows[0]["key"], place)
        for place, _, ret in steps
        for other, call, _ in steps
        if other < place and call is not None and call > ret
    }
