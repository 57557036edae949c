"""Histories of owners that begin somewhere, at random, and which of them had no right to, by looking at each row."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from helpers.log_histories import Row, effect

S = 1_000_000_000
When = tuple[int, int | None]


def begun(op: int, rows: Sequence[tuple[str, int | None]], when: When = (2, 3), **given: Any) -> list[Row]:
    """Returns an operation's rows in assignment 1 of group g: kinds with positions, in order. Times are seconds."""
    given = {"group": "g", "log": "t-0", "process": op, "assignment": 1, **given}
    log, times = given.pop("log"), (when[0] * S, None if when[1] is None else when[1] * S)
    of_group = ("fetched", "resume", "advance")
    return [
        effect(
            op, sub, kind, f"{given['group']}/{log}" if kind in of_group else log, *times,
            position=position, **given,
        )
        for sub, (kind, position) in enumerate(rows)
    ]  # fmt: skip


def silent(op: int, process: int, when: When, outcome: str = "info") -> Row:
    """An operation that no row says anything of."""
    return {
        "index": op, "process": process, "worker": "0", "f": "poll", "key": None, "argument": "null",
        "call": when[0] * S, "ret": None if when[1] is None else when[1] * S, "outcome": outcome, "phase": "main",
    }  # fmt: skip


def operations(rows: Sequence[Row], more: Sequence[Row] = ()) -> list[Row]:
    """As the data set ``ops`` has them."""
    known = {
        row["op"]: silent(row["op"], row["process"], (0, 0), row["outcome"]) | {"call": row["call"], "ret": row["ret"]}
        for row in rows
    }
    return [*known.values(), *more]


class Owners:
    """Some processes of two groups' members on one log. ``rows`` and ``ops``."""

    def __init__(self, number: int, rng: random.Random, first_op: int) -> None:
        self.rng, self.rows, silences = rng, [], []
        group, log = f"s{number}", f"s{number}-0"
        loud = rng.random() < 0.7
        for step in range(12):
            op, process, draw = first_op + step, rng.randrange(3), rng.random()
            when = 3 * step + 1, 3 * step + 1 + rng.randint(1, 8)
            given = {"group": group, "log": log, "process": process, "assignment": 10 * step + rng.randrange(2)}
            place = rng.randrange(4)
            if draw < 0.35:
                kinds: list[tuple[str, int | None]] = [("acquire", None), ("fetched", rng.choice((-1, place, place)))]
                if rng.random() < 0.2:
                    kinds.insert(rng.randrange(3), (rng.choice(("start", "out-of-range", "lost")), place))
                kinds += [("seek", rng.choice((place, place, place + 1)))] * rng.choice((1, 1, 2))
                made = begun(op, kinds, when, **given)
                if rng.random() < 0.1:
                    made[0]["assignment"] = 7
                self.rows += made
            elif draw < 0.6:
                self.rows += begun(op, [("acquire", None), ("resume", place)], when, **given)
            elif draw < 0.9:
                outcome = rng.choice(("ok", "ok", "info", "fail"))
                when = (when[0], None) if outcome == "info" else when
                known = None if rng.random() < 0.05 else place
                self.rows += begun(op, [("advance", known)], when, outcome=outcome, **given)
            elif loud:
                self.rows += begun(op, [("seek", place)], when, **given)
            else:
                silences.append(silent(op, process, (when[0], None)))
        self.ops = operations(self.rows, silences)


def misplaced(rows: Sequence[Row], ops: Sequence[Row]) -> set[tuple[Any, ...]]:
    """(key, why, operation, rank) of each start that nothing explains; of one log of one group."""
    found: set[tuple[Any, ...]] = set()
    reported = {row["op"] for row in rows}
    for row in rows:
        mine = sorted((one for one in rows if one["op"] == row["op"]), key=lambda one: one["sub"])
        place = mine.index(row)
        if row["kind"] == "seek" and place >= 2:
            given, known = mine[place - 2], mine[place - 1]
            if (
                (given["kind"], known["kind"]) == ("acquire", "fetched")
                and given["assignment"] == row["assignment"]
                and known["position"] >= 0
                and known["position"] != row["position"]
            ):
                found.add((known["key"], "fetched", row["op"], row["sub"]))
        if row["kind"] == "resume" and row["position"] > 0:
            committed = {one["position"] for one in rows if one["kind"] == "advance" and one["outcome"] != "fail"}
            owners = {one["process"] for one in rows if one["kind"] == "acquire"}
            doubt = any(
                one["outcome"] == "info" and one["index"] not in reported and one["process"] in owners
                and one["call"] < row["ret"] for one in ops
            )  # fmt: skip
            started = any(one["kind"] == "start" and one["position"] > 0 for one in rows)
            if not committed & {None, row["position"]} and not doubt and not started:
                found.add((row["key"], "resume", row["op"], row["sub"]))
    return found
