"""Counters, max registers, sets and queues by brute force: every order, every pair, every matching."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

Row = dict[str, Any]
FOREVER = float("inf")
Step = Callable[[Any, Row], Any]
"""The state after an operation; ``Impossible`` if it cannot happen in that state."""


class Impossible(Exception):
    """This cannot happen in this state."""


def ret(row: Row) -> float:
    return FOREVER if row["ret"] is None or row["outcome"] == "info" else row["ret"]


def linearizable(rows: Sequence[Row], start: Hashable, step: Step) -> bool:
    """Whether some order respects time (closed intervals) and the object; what ended info may be left out."""
    steps = [
        row
        for row in rows
        if row["outcome"] == "ok" or (row["outcome"] == "info" and not row["kind"].endswith("-read"))
    ]
    certain = sum(1 << number for number, row in enumerate(steps) if row["outcome"] == "ok")
    seen: set[tuple[int, Hashable]] = set()
    stack: list[tuple[int, Hashable]] = [(0, start)]
    while stack:
        done, state = stack.pop()
        if done & certain == certain:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        waiting = [number for number in range(len(steps)) if not done & 1 << number]
        horizon = min(ret(steps[number]) for number in waiting)
        for number in waiting:
            if steps[number]["call"] <= horizon:
                try:
                    stack.append((done | 1 << number, step(state, steps[number])))
                except Impossible:
                    continue
    return False


def count(state: int, row: Row) -> int:
    if row["outcome"] == "ok" and row["value"] != state:
        raise Impossible
    return state + (row["kind"] == "counter-add")


def largest(state: int | None, row: Row) -> int | None:
    if row["kind"] == "max-write":
        return row["value"] if state is None else max(state, row["value"])
    if row["value"] != state:
        raise Impossible
    return state


def element(state: bool, row: Row) -> bool:
    """``read`` rows have the value 1 if they show the element, else 0."""
    if row["kind"] == "set-read" and bool(row["value"]) is not state:
        raise Impossible
    return {"set-add": True, "set-remove": False}.get(row["kind"], state)


def of_element(rows: Iterable[Row], value: int) -> list[Row]:
    """Returns what a set's history tells of one element; each read once."""
    rows = list(rows)
    shows = {row["op"] for row in rows if row["kind"] == "set-read" and row["value"] == value}
    reads = {row["op"]: row | {"value": int(row["op"] in shows)} for row in rows if row["kind"] == "set-read"}
    return [row for row in rows if row["kind"] != "set-read" and row["value"] == value] + list(reads.values())


def wrong_with(rows: list[Row]) -> str | None:
    """The anomaly of an element's absence, by looking at every pair."""
    if any(row["kind"] == "set-remove" and row["outcome"] != "fail" for row in rows):
        return None
    reads = [row for row in rows if row["kind"] == "set-read" and row["outcome"] == "ok"]
    acked = [row for row in rows if row["kind"] == "set-add" and row["outcome"] == "ok"]
    showing, lacking = [row for row in reads if row["value"]], [row for row in reads if not row["value"]]
    if any(one["ret"] < other["call"] for one in showing for other in lacking):
        return "set-vanished"
    if any(one["ret"] < other["call"] for one in acked for other in lacking):
        return "set-stale" if showing else "set-lost"
    return None


def unmatched(these: Sequence[Row], those: Sequence[Row], fits: Callable[[Row, Row], bool]) -> int:
    """How many of these find no partner of their own among those, at best (augmenting paths)."""
    partner: dict[int, int] = {}

    def augment(one: int, tried: set[int]) -> bool:
        for other in range(len(those)):
            if other not in tried and fits(these[one], those[other]):
                tried.add(other)
                if other not in partner or augment(partner[other], tried):
                    partner[other] = one
                    return True
        return False

    return sum(not augment(one, set()) for one in range(len(these)))


def queue_losses(rows: Sequence[Row]) -> int:
    drains = [row["call"] for row in rows if row["kind"] == "queue-drained" and row["outcome"] == "ok"]
    if not drains:
        return 0
    takes = [
        row for row in rows if row["kind"] == "queue-dequeue" and row["outcome"] == "ok" and row["value"] is not None
    ]
    acked = [
        row for row in rows if row["kind"] == "queue-enqueue" and row["outcome"] == "ok" and row["ret"] < max(drains)
    ]
    unknown = sum(row["kind"] == "queue-dequeue" and row["outcome"] == "info" for row in rows)
    short = unmatched(acked, takes, lambda add, take: add["value"] == take["value"] and add["call"] <= take["ret"])
    return max(0, short - unknown)


def _early(take: Row, takes: Sequence[Row], adds: Sequence[Row]) -> bool:
    """Whether more had been taken by the time it returned than anybody had begun to enqueue, of what ever was."""
    taken = sum(other["ret"] <= take["ret"] for other in takes)
    return sum(add["call"] <= take["ret"] for add in adds) < min(taken, len(adds))


def queue_wrong(rows: Sequence[Row]) -> set[tuple[str, int]]:
    """Values dequeued by no one's enqueue, or too often: (anomaly, value)."""
    found = set()
    for value in {row["value"] for row in rows if row["value"] is not None}:
        mine = [row for row in rows if row["value"] == value and row["outcome"] != "fail"]
        adds = [row for row in mine if row["kind"] == "queue-enqueue"]
        takes = [row for row in mine if row["kind"] == "queue-dequeue" and row["outcome"] == "ok"]
        more = len(takes) - len(adds)
        if takes and not adds:
            found.add(("queue-phantom", value))
            continue
        if more > 0:
            found.add(("queue-duplicate", value))
        if any(_early(take, takes, adds) for take in takes):
            found.add(("queue-phantom", value))
    return found


def queue_unexplained(rows: Sequence[Row]) -> int:
    """Dequeues that no matching with enqueues explains."""
    mine = [row for row in rows if row["value"] is not None and row["outcome"] != "fail"]
    adds = [row for row in mine if row["kind"] == "queue-enqueue"]
    takes = [row for row in mine if row["kind"] == "queue-dequeue" and row["outcome"] == "ok"]
    return unmatched(takes, adds, lambda take, add: add["value"] == take["value"] and add["call"] <= take["ret"])


def false_empties(rows: Sequence[Row]) -> list[Row]:
    """Answers that the queue is empty, at no instant of which it may have been."""
    rows = [row for row in rows if row["outcome"] != "fail"]
    takes = [row for row in rows if row["kind"] == "queue-dequeue"]
    adds = [row for row in rows if row["kind"] == "queue-enqueue" and row["outcome"] == "ok"]
    edges = {row["call"] for row in rows} | {row["ret"] for row in rows if row["ret"] is not None}
    instants = sorted({*edges, *(edge + 0.5 for edge in edges), *(edge - 0.5 for edge in edges)})

    def may_be_empty(instant: float) -> bool:
        inside = 0
        for value in {row["value"] for row in adds}:
            spare = sum(row["kind"] == "queue-enqueue" and row["value"] == value for row in rows) - sum(
                take["outcome"] == "ok" and take["value"] == value for take in takes
            )
            added = sum(add["value"] == value and add["ret"] < instant for add in adds)
            taken = sum(
                take["outcome"] == "ok" and take["value"] == value and take["call"] <= instant for take in takes
            )
            inside += max(0, added - taken)
            if added - taken > max(0, spare):
                return False
        return inside <= sum(take["outcome"] == "info" and take["call"] <= instant for take in takes)

    return [
        take
        for take in takes
        if take["outcome"] == "ok"
        and take["value"] is None
        and not any(may_be_empty(instant) for instant in instants if take["call"] <= instant <= take["ret"])
    ]


def bag_linearizable(rows: Sequence[Row]) -> bool:
    """Whether some order of enqueues and dequeues respects time; one of unknown outcome may have taken any element.

    Operations of unknown outcome that can help no other operation are left out. These are enqueues of an element that
    no one was given, and dequeues if no one found the queue empty.
    """
    given = {row["value"] for row in rows if row["outcome"] == "ok" and row["kind"] == "queue-dequeue"}

    def helps(row: Row) -> bool:
        return (row["value"] if row["kind"] == "queue-enqueue" else None) in given

    steps = [row for row in rows if row["outcome"] == "ok" or (row["outcome"] == "info" and helps(row))]
    certain = sum(1 << number for number, row in enumerate(steps) if row["outcome"] == "ok")
    seen: set[tuple[int, tuple[int, ...]]] = set()
    stack: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while stack:
        done, inside = stack.pop()
        if done & certain == certain:
            return True
        if (done, inside) in seen:
            continue
        seen.add((done, inside))
        waiting = [number for number in range(len(steps)) if not done & 1 << number]
        horizon = min(ret(steps[number]) for number in waiting)
        for number in waiting:
            if steps[number]["call"] <= horizon:
                stack += [(done | 1 << number, after) for after in _after(inside, steps[number])]
    return False


def _after(inside: tuple[int, ...], row: Row) -> list[tuple[int, ...]]:
    """Returns what may be in a queue after an operation."""
    if row["kind"] == "queue-enqueue":
        return [tuple(sorted((*inside, row["value"])))]
    without = {value: inside[: inside.index(value)] + inside[inside.index(value) + 1 :] for value in set(inside)}
    if row["outcome"] == "info":
        return list(without.values())  # one that took nothing is as one that never was
    if row["value"] is None:
        return [] if inside else [inside]
    return [without[row["value"]]] if row["value"] in without else []
