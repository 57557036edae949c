"""Looks at a cluster at rest, by hand: a healthy one, and what a test changes in it, from look to look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Change = Callable[[list[Row]], list[Row] | None]
SECOND = 1_000_000_000
WALL_MS = 1_700_000_000_000
TOPIC, KEY, CREATED = "orders", "orders-0", 50


def healthy() -> list[Row]:
    """Three brokers; one partition on all of them, led by the first."""
    rows: list[Row] = [
        {"what": "topic", "key": TOPIC, "zxid": CREATED, "retention_ms": -1, "retention_bytes": -1,
         "retention_check_ms": 500, "settings": 77},
        partition(),
    ]  # fmt: skip
    for broker in (1, 2, 3):
        node = f"n{broker}"
        rows += [
            {"what": "broker", "node": node, "broker": broker, "zxid": 10 + broker},
            {"what": "answer", "node": node},
            {"what": "known", "node": node, "key": TOPIC},
            {"what": "role", "node": node, "key": KEY, "epoch": 4, "high_watermark": 100, "settings": 77},
            {"what": "folder", "node": node, "key": KEY, "zxid": CREATED},
        ]
    return rows


def partition(**given: Any) -> Row:
    state = {"epoch": 4, "leader": 1, "replicas": "1,2,3", "members": "1,2,3"}
    return {"what": "partition", "key": KEY, "zxid": CREATED, **state, **given}


def looked(*changes: tuple[range, Change], seconds: int = 40, every: int = 1, **given: Any) -> list[Row]:
    """Rows of ``looks``: one look each ``every`` seconds, of a healthy cluster with these changes in these looks.

    Looks are counted from 0 here, and take a tenth of a second.
    """
    rows = []
    for number in range(seconds // every + 1):
        seen = healthy()
        for when, change in changes:
            if number in when:
                seen = change(seen) or seen
        begun = number * every * SECOND
        times = {"look": number + 1, "time": begun, "ended": begun + SECOND // 10}
        end = {"what": "look", "wall_ms": WALL_MS + begun // 1_000_000, "unsettled": 1}
        rows += [{**row, **times, **given} for row in [*seen, end]]
    return rows


ALWAYS = range(10_000)


def adding(*rows: Row) -> Change:
    return lambda seen: [*seen, *rows]


def changing(what: str, changed: Row, **where: Any) -> Change:
    """Rows of this kind that have these columns get others."""

    def change(seen: list[Row]) -> list[Row]:
        return [{**row, **changed} if is_it(row, what, where) else row for row in seen]

    return change


def without(what: str, **where: Any) -> Change:
    return lambda seen: [row for row in seen if not is_it(row, what, where)]


def dead(node: str) -> Change:
    """Neither registered nor there to answer; its disk is."""
    return all_of(without("broker", node=node), without("answer", node=node))


def is_it(row: Row, what: str, where: Row) -> bool:
    return bool(row["what"] == what and all(row.get(name) == value for name, value in where.items()))


def all_of(*changes: Change) -> Change:
    def change(seen: list[Row]) -> list[Row]:
        for one in changes:
            seen = one(seen) or seen
        return seen

    return change


def packed(changes: Sequence[Change]) -> Change:
    """As many clusters in one, each with one of these changes; see :func:`renamed`."""

    rows = [row for number, one in enumerate(changes) for row in renamed(one(healthy()) or [], number)]
    return lambda _: rows  # all looks have these; no change alters a row


def renamed(rows: list[Row], number: int) -> list[Row]:
    """Topics, nodes and brokers of cluster ``number``: no two clusters have one in common."""

    def name(row: Row) -> Row:
        changed = dict(row)
        if "key" in row:
            changed["key"] = f"c{number}-{row['key']}"
        if "node" in row:
            changed["node"] = f"c{number}-{row['node']}"
        for broker in ("broker", "leader"):
            if row.get(broker, -1) >= 0:
                changed[broker] = 10 * number + row[broker]
        for brokers in ("replicas", "members", "removing"):
            if row.get(brokers):
                changed[brokers] = ",".join(str(10 * number + int(one)) for one in row[brokers].split(","))
        return changed

    return [name(row) for row in rows]


def cluster_of(key: str) -> int:
    return int(key.partition("-")[0].removeprefix("c"))


def fault(phases: Sequence[tuple[str, int]], name: str = "kill", id: int = 1, **impact: bool) -> list[Row]:
    """Rows of ``faults``; times in seconds. ``impact``: further columns."""
    return [
        {"id": id, "fault": name, "targets": "[]", "phase": phase, "time": at * SECOND, "detail": "{}", **impact}
        for phase, at in phases
    ]
