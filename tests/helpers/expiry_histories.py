"""Histories of one offset that is kept for a time, right ones and broken ones."""

from __future__ import annotations

import random

from helpers.log_histories import Row, effect

S = 1_000_000_000
When = tuple[float, float | None]
KEY = "g/t-0"


def row(op: int, kind: str, value: int | None, when: When, **given: object) -> Row:
    """Times are seconds; each operation is of a process of its own."""
    call, ret = int(when[0] * S), None if when[1] is None else int(when[1] * S)
    given = {"key": KEY, "group": "g", "process": op, **given}
    return effect(op, 0, kind, str(given.pop("key")), call, ret, value=value, **given)


def keep(op: int, value: int, seconds: float, when: When, **given: object) -> Row:
    """A commit that is to stay for so long."""
    given = {"position": value, **given}
    return row(op, "keep", value, when, retention_ms=int(seconds * 1000), **given)


def look(op: int, value: int | None, when: When, **given: object) -> Row:
    return row(op, "kept", value, when, **given)


def part(op: int, when: When, **given: object) -> Row:
    """A client has left the group."""
    return row(op, "part", None, when, **{"key": "g", **given})


def kept_history(key: str, rng: random.Random, first: int, length: int = 14, *, broken: bool) -> list[Row]:
    """Returns what a correct coordinator may answer, each operation at some moment of its call; now and then not."""
    rows: list[Row] = []
    held: tuple[int, float] | None = None
    seen: list[int | None] = [None]
    time = 0.0
    for op in range(first, first + length):
        call = time + rng.random()
        time = call + rng.random()  # the moment at which it happens
        ret = time + rng.random()
        if rng.random() < 0.4:
            seconds, outcome = rng.choice((0.5, 1.5, 4.0)), rng.choice(("ok", "ok", "ok", "info", "fail"))
            rows.append(keep(op, op, seconds, (call, None if outcome == "info" else ret), key=key, outcome=outcome))
            if outcome == "ok" or (outcome == "info" and rng.random() < 0.5):
                held = op, time + seconds
            if outcome == "ok" and rng.random() < 0.3:  # and renewed in the same operation
                again = rng.choice(("ok", "ok", "info"))
                rows.append(keep(op, op + 50, 4.0, (call, ret), key=key, outcome=again) | {"sub": 1})
                if again == "ok" or rng.random() < 0.5:
                    held = op + 50, time + 4.0
            continue
        if held is not None and held[1] <= time and rng.random() < 0.7:
            held = None  # the coordinator looks for what may go now and then
        value = None if held is None else held[0]
        if broken and rng.random() < 0.15:
            value = rng.choice(seen)
        seen.append(value)
        rows.append(look(op, value, (call, ret), key=key))
    return rows


def wrong(rows: list[Row], *, slack: int = 2_000_000) -> set[tuple[str, str, int]]:
    """(anomaly, key, look) by looking at every pair and triple."""
    found = set()
    keeps = [one for one in rows if one["kind"] == "keep" and one["outcome"] != "fail"]
    looks = [one for one in rows if one["kind"] == "kept"]
    for it in looks:
        here = [one for one in keeps if one["key"] == it["key"]]
        if it["value"] is None:
            for base in here:
                if base["outcome"] != "ok" or base["ret"] >= it["call"]:
                    continue
                rivals = [
                    one for one in here
                    if one["call"] < it["ret"] and (one["outcome"] != "ok" or one["ret"] >= base["call"])
                    and not (_renewed(one, here) and one["ret"] <= it["call"])
                ]  # fmt: skip
                if all(one["call"] + one["retention_ms"] * 1_000_000 > it["ret"] + slack for one in rivals):
                    found.add(("early-expiry", it["key"], it["op"]))
            continue
        known = {one["value"]: _known(one, looks) for one in here}
        if it["value"] not in known:
            continue
        ends = [(one["call"], one["ret"]) for one in looks if one["key"] == it["key"] and one["value"] is None]
        ends += [(one["call"], known[one["value"]]) for one in here]
        if any(known[it["value"]] < call and ret < it["call"] for call, ret in ends):
            found.add(("revived-offset", it["key"], it["op"]))
    return found


def _renewed(commit: Row, here: list[Row]) -> bool:
    """Was it acknowledged, and another after it in the same operation?"""
    later = [one for one in here if one["op"] == commit["op"] and one["sub"] > commit["sub"]]
    return commit["outcome"] == "ok" and any(one["outcome"] == "ok" for one in later)


def _known(commit: Row, looks: list[Row]) -> float:
    """By when it was in place."""
    shown = [one["ret"] for one in looks if one["key"] == commit["key"] and one["value"] == commit["value"]]
    return min([float("inf") if commit["outcome"] != "ok" else commit["ret"], *shown])
