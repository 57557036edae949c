"""Histories of members that claim by what they have read of their group, and which of those claims are too late."""

from __future__ import annotations

import random
from collections.abc import Mapping

from helpers.log_histories import Row, effect

S = 1_000_000_000
MEMBERS = "abcd"
KEYS = ("t-0", "t-1", "t-2")


def claim(
    op: int, owner: str, *, seen: int, made: int, shares: Mapping[str, str], group: str = "g", outcome: str = "ok"
) -> list[Row]:
    """All rows of one claim of ``owner``, reported by the operation and process ``op``."""
    return [
        effect(
            op, sub, "claim" if member == owner else "share", key, op * S, (op + 1) * S, process=op, owner=member,
            version=seen, value=made, group=group, assignment=None, outcome=outcome,
        )
        for sub, (key, member) in enumerate(shares.items())
    ]  # fmt: skip


def random_claims(group: str, rng: random.Random, first_op: int) -> list[Row]:
    """Returns claims by views that are a few changes old at most. All members see the same shares in a view."""
    views = {version: {key: rng.choice(MEMBERS) for key in KEYS} for version in range(10, 60, 10)}
    rows = []
    for number in range(8):
        latest = 20 + 10 * (number // 2)
        seen, outcome = latest - rng.choice((0, 0, 0, 10)), rng.choice(("ok",) * 9 + ("info",))
        shares, made = views[seen], latest + 1 + number % 2
        one = rng.choice(MEMBERS)
        rows += claim(first_op + number, one, seen=seen, made=made, shares=shares, group=group, outcome=outcome)
    return rows


def split(rows: list[Row]) -> set[tuple[str, str, int]]:
    """(group, key, zxid) of each claim after which, by the latest view of any claim before, the key is another's."""
    found = set()
    known = [row for row in rows if row["outcome"] == "ok"]
    for made in known:
        before = [
            row
            for row in known
            if (row["group"], row["key"]) == (made["group"], made["key"]) and row["value"] < made["value"]
        ]
        newest = max((row["version"] for row in before), default=0)
        others = [row for row in before if row["version"] == newest and row["owner"] != made["owner"]]
        if made["kind"] == "claim" and newest > made["version"] and others:
            found.add((made["group"], made["key"], made["value"]))
    return found
