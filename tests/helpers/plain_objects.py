"""Finds anomalies of counters, sets and queues by comparing every pair, in histories of a few hundred operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Found = list[tuple[str, str, int]]
"""Anomaly, key and value of each instance."""

FOREVER = 2**63 - 1


def counters(rows: Sequence[Row]) -> Found:
    """Adds return 0, 1, 2, ...; those that an acknowledged add did not return were given to adds of unknown outcome."""
    return [instance for key, mine in _by_key(rows) for instance in _counter(key, mine)]


def _counter(key: str, rows: Sequence[Row]) -> Found:
    adds = [row for row in rows if row["kind"] == "counter-add" and row["outcome"] == "ok"]
    recorded = adds + [row for row in rows if row["kind"] == "counter-read" and row["outcome"] == "ok"]
    times = Counter(row["value"] for row in adds)
    found: Found = [("counter-duplicate", key, value) for value, many in times.items() if many > 1]
    found += [
        ("counter-order", key, row["value"])
        for row in recorded
        if any(_place(other) < _place(row) and other["call"] > row["ret"] for other in recorded)
    ]
    spare = sorted(row["call"] for row in rows if row["kind"] == "counter-add" and row["outcome"] == "info")
    missing = [value for value in range(max((_reach(row) for row in recorded), default=0)) if value not in times]
    for number, value in enumerate(missing):
        bound = min(row["ret"] for row in recorded if _reach(row) > value)
        if number >= len(spare) or spare[number] > bound:
            found.append(("counter-phantom", key, value + 1))
    return found


def _place(row: Row) -> int:
    return 2 * int(row["value"]) - (row["kind"] == "counter-read")


def _reach(row: Row) -> int:
    """How many adds must have been there with it."""
    return int(row["value"]) + (row["kind"] == "counter-add")


def sets(rows: Sequence[Row]) -> Found:
    """An element is in every read after it was added or seen, and in none that returned before its add was called."""
    return [instance for key, mine in _by_key(rows) for instance in _set(key, mine)]


def _set(key: str, rows: Sequence[Row]) -> Found:
    reads: dict[int, tuple[int, int, set[int | None]]] = {}
    for row in rows:
        if row["kind"] == "set-read" and row["outcome"] == "ok":
            reads.setdefault(row["op"], (row["call"], row["ret"], set()))[2].add(row["value"])
    found: Found = []
    adds = [row for row in rows if row["kind"] == "set-add" and row["outcome"] != "fail"]
    elements = {row["value"] for row in adds} | {value for _, _, shown in reads.values() for value in shown} - {None}
    for value in elements:
        assert value is not None
        mine = [row for row in adds if row["value"] == value]
        seen = min((ret for _, ret, shown in reads.values() if value in shown), default=None)
        acked = min((row["ret"] for row in mine if row["outcome"] == "ok"), default=FOREVER)
        lacking = [call for call, _, shown in reads.values() if value not in shown]
        if seen is not None and not any(row["call"] < seen for row in mine):
            found.append(("set-phantom", key, value))
        if seen is not None and any(call > seen for call in lacking):
            found.append(("set-vanished", key, value))
        elif any(call > acked for call in lacking):
            found.append(("set-lost" if seen is None else "set-stale", key, value))
    return found


def queues(rows: Sequence[Row]) -> Found:
    """Checks that each element is dequeued once, if not by a dequeue of unknown outcome."""
    return [instance for key, mine in _by_key(rows) for instance in _queue(key, mine)]


def _queue(key: str, rows: Sequence[Row]) -> Found:
    put = {row["value"]: row for row in rows if row["kind"] == "queue-enqueue" and row["outcome"] != "fail"}
    taken = [row for row in rows if row["kind"] == "queue-dequeue" and row["outcome"] == "ok"]
    drained = max(row["call"] for row in rows if row["kind"] == "queue-drained")
    assert all(row["call"] < drained for row in rows if row["kind"] != "queue-drained")
    excuses = sum(row["kind"] == "queue-dequeue" and row["outcome"] == "info" for row in rows)
    times = Counter(row["value"] for row in taken)
    found: Found = [("queue-duplicate", key, value) for value, many in times.items() if many > 1]
    found += [
        ("queue-phantom", key, row["value"])
        for row in taken
        if row["value"] not in put or put[row["value"]]["call"] > row["ret"]
    ]
    lost = [value for value, row in put.items() if row["outcome"] == "ok" and value not in times]
    return found + [("queue-lost", key, value) for value in lost[excuses:]]


def _by_key(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    keys: dict[str, list[Row]] = {}
    for row in rows:
        keys.setdefault(row["key"], []).append(row)
    return list(keys.items())


PLAIN: Mapping[str, Callable[[Sequence[Row]], Found]] = {"counter": counters, "set": sets, "queue": queues}
"""By the model's name."""
