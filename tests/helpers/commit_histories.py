"""Histories of a group's members that read and commit at random, and what is wrong with them by looking at pairs."""

from __future__ import annotations

import random
from typing import Any

from helpers.log_histories import Row, effect

S = 1_000_000_000
When = tuple[int, int | None]


def row(op: int, kind: str, position: int | None, when: When, **given: Any) -> Row:
    """Times are seconds; of process 1 under its assignment 1 unless given otherwise."""
    given = {"key": "t-0", "group": "g", "process": 1, "assignment": 1, "sub": 0, **given}
    call, ret = when[0] * S, None if when[1] is None else when[1] * S
    return effect(op, given.pop("sub"), kind, given.pop("key"), call, ret, position=position, **given)


def poll(op: int, begin: int, end: int, when: When, **given: Any) -> list[Row]:
    return [
        row(op, "observe-begin", begin, when, **given),
        row(op, "observe-end", end, when, **given) | {"sub": 1},
    ]


def commit(op: int, value: int | None, position: int | None, when: When, **given: Any) -> Row:
    """By a client that is no member, unless it has an ``assignment``."""
    given = {"kind": "commit", "key": "g/t-0", "process": op, "assignment": None, **given}
    return row(op, given.pop("kind"), position, when, value=value, **given)


def fetched(op: int, value: int | None, position: int, when: When, **given: Any) -> Row:
    return row(op, "fetched", position, when, value=value, **{"key": "g/t-0", "process": op, **given})


def end(op: int, position: int, when: When, **given: Any) -> Row:
    return row(op, "end", position, when, **{"process": op, "assignment": None, "group": None, **given})


class Members:
    """Some processes of a group, of no other one, that read one partition; every offset is a guess."""

    def __init__(self, group: str, rng: random.Random, first_op: int) -> None:
        self.group, self.rng, self.op, self.processes = group, rng, first_op, first_op
        self.rows: list[Row] = []

    def run(self, steps: int) -> list[Row]:
        for step in range(steps):
            self.op += 1
            call = 3 * step + self.rng.randint(0, 4)
            outcome = self.rng.choice(("ok",) * 8 + ("info", "fail"))
            when = call, None if outcome == "info" else call + self.rng.randint(1, 6)
            given = {"group": self.group, "outcome": outcome, "process": self.processes + self.rng.randint(0, 2)}
            given["assignment"] = 10 * given["process"] + step // 12
            self.rows += self._some(when, given, step // 4 + self.rng.randint(0, 3))
        return self.rows

    def _some(self, when: When, given: dict[str, Any], position: int) -> list[Row]:
        draw, log, register = self.rng.random(), f"{self.group}-0", f"{self.group}/{self.group}-0"
        if draw < 0.4:
            return poll(self.op, max(0, position - 2), position, when, key=log, **given)
        if draw < 0.7:
            known = None if self.rng.random() < 0.1 else position
            if self.rng.random() < 0.1:
                given["assignment"] = None
            return [commit(self.op, self.op % 4, known, when, key=register, **given)]
        if draw < 0.8:
            return [end(self.op, position + 1, when, key=log, outcome=given["outcome"])]
        if draw < 0.95:
            return [fetched(self.op, self.op % 4, position, when, key=register, **given)]
        kind = self.rng.choice(("seek", "reset"))
        return [row(self.op, kind, position, when, key=log, **given)]


def mismatched(rows: list[Row]) -> set[tuple[Any, ...]]:
    """(key, number, position) of each fetch that no commit explains."""
    found = set()
    for seen in rows:
        if seen["kind"] == "fetched" and seen["outcome"] == "ok":
            positions = [one["position"] for one in rows if one["kind"] == "commit" and one["value"] == seen["value"]]
            if positions and None not in positions and seen["position"] not in positions:
                found.add((seen["key"], seen["value"], seen["position"]))
    return found


def beyond(rows: list[Row]) -> set[tuple[Any, ...]]:
    """(key, why, operation) of each commit above what its process had read, and of each end below a commit."""
    found = set()
    for made in rows:
        if made["kind"] != "commit" or made["outcome"] == "fail" or made["position"] is None:
            continue
        if made["assignment"] is None:
            continue
        earlier = [
            one
            for one in rows
            if one["process"] == made["process"]
            and one["call"] <= made["call"]
            and one["op"] != made["op"]
            and (one["call"], one["op"]) < (made["call"], made["op"])
        ]
        reads = [
            one
            for one in earlier
            if one["assignment"] == made["assignment"] and one["kind"] not in ("commit", "fetched", "end")
        ]
        last = max((one["call"] for one in reads), default=0)
        sure = all(one["outcome"] == "ok" for one in reads) and not any(
            one["process"] == made["process"]
            and one["outcome"] != "ok"
            and one["kind"] not in ("commit", "fetched", "end")
            and last < one["call"] <= made["call"]
            for one in rows
        )
        reset = any(one["kind"] == "reset" and one["process"] == made["process"] and one["call"] <= made["call"]
                    for one in rows)  # fmt: skip
        if reads and sure and not reset and made["position"] > max(one["position"] for one in reads):
            found.add((made["key"], "reads", made["op"]))
        for one in rows:
            below = one["kind"] == "end" and one["outcome"] == "ok" and one["position"] < made["position"]
            if below and made["outcome"] == "ok" and made["ret"] < one["call"]:
                found.add((made["key"], "end", one["op"]))
    return found
