"""Could a log that keeps every promise have given this history? By search, from what a log is.

A log is a sequence to which a send adds its values, next to each other and at its end, between its call and its return.
Nothing else is added meanwhile, but its values may come one by one. A send without an answer adds them then or later,
or the first of them (a set is no transaction), or none. The log never changes otherwise. A look at its end sees its
length at one instant, which may lie inside a set. A poll sees a part of the log without gaps, from where the reader's
last poll ended. Its records have been sent, with the create times that they have. No definition of an anomaly stands
here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
NEVER = float("inf")


@dataclass(frozen=True)
class Send:
    values: tuple[int, ...]
    offset: int | None
    call: int
    by: tuple[float, ...]
    """For each value the instant by which it surely was there, if it ever was."""
    needed: int
    """How many of its values are surely there: all of them, once it is acknowledged."""


@dataclass(frozen=True)
class Look:
    length: int
    call: int
    ret: float


@dataclass(frozen=True)
class Poll:
    begin: int
    shown: tuple[tuple[int, int], ...]
    end: int
    call: int
    ret: int
    reader: tuple[int, int]


def possible(rows: Sequence[Row]) -> bool:
    """Whether the rows of one key can come from a log as above."""
    polls = _polls(rows)
    first_seen: dict[int, int] = {}
    for poll in polls:
        for _, value in poll.shown:
            first_seen[value] = min(poll.ret, first_seen.get(value, poll.ret))
    if not _readers_go_on(polls):
        return False
    known: dict[int, int] = {}
    for poll in polls:
        if [offset for offset, _ in poll.shown] != list(range(poll.begin, poll.end)):
            return False
        for offset, value in poll.shown:
            if known.setdefault(offset, value) != value:
                return False
    created = {row["value"]: row["timestamp"] for row in rows if row["kind"] == "append"}
    if any(row["timestamp"] != created.get(row["value"]) for row in rows if row["kind"] == "observe"):
        return False
    sends = _sends(rows, first_seen)
    sent = {value: one for one in sends for value in one.values}
    for value, time in first_seen.items():
        if value not in sent or sent[value].call > time:
            return False
    looks = [Look(row["position"], row["call"], row["ret"]) for row in rows if row["kind"] == "end"]
    return _search(sends, looks, known)


def _search(sends: list[Send], looks: list[Look], known: dict[int, int]) -> bool:
    """An order in which all that is needed took effect, each within its time."""
    last = max(known, default=-1)
    tried: set[tuple[frozenset[int], frozenset[int], int, tuple[int, int] | None]] = set()

    def place(length: int, sent: frozenset[int], looked: frozenset[int], adding: tuple[int, int] | None) -> bool:
        """``adding``: the send whose values are being added, and how many of them are there."""
        needed = [one.by[0] for number, one in enumerate(sends) if one.needed and number not in sent]
        if adding is not None and adding[1] < sends[adding[0]].needed:
            needed.append(sends[adding[0]].by[adding[1]])
        ahead = [number for number in range(len(looks)) if number not in looked]
        if not needed and not ahead:
            return length > last
        state = (sent, looked, length, adding)
        if state in tried:
            return False
        tried.add(state)
        urgent = min([*needed, *(looks[number].ret for number in ahead)])
        for number in ahead:
            if (
                looks[number].length == length
                and looks[number].call <= urgent
                and place(length, sent, looked | {number}, adding)
            ):
                return True
        steps = [(number, 0) for number, one in enumerate(sends) if number not in sent and one.offset in (None, length)]
        if adding is not None:
            steps = [adding]
            if adding[1] >= sends[adding[0]].needed and place(length, sent, looked, None):
                return True
        for number, count in steps:
            one = sends[number]
            if one.call <= urgent and known.get(length, one.values[count]) == one.values[count]:
                more = (number, count + 1) if count + 1 < len(one.values) else None
                if place(length + 1, sent | {number}, looked, more):
                    return True
        return False

    return place(0, frozenset(), frozenset(), None)


def _sends(rows: Sequence[Row], first_seen: dict[int, int]) -> list[Send]:
    grouped: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "append" and row["outcome"] != "fail":
            grouped[row["op"]].append(row)
    found = []
    for parts in grouped.values():
        values = tuple(row["value"] for row in sorted(parts, key=lambda row: row["sub"]))
        okay = parts[0]["outcome"] == "ok"
        seen = [rank for rank, value in enumerate(values, start=1) if value in first_seen]
        needed = len(values) if okay else max(seen, default=0)
        by = [NEVER if not okay else float(parts[0]["ret"])] * (len(values) + 1)
        for rank in range(len(values), 0, -1):
            by[rank - 1] = min(by[rank], first_seen.get(values[rank - 1], NEVER))
        found.append(Send(values, parts[0]["position"], parts[0]["call"], tuple(by[:-1]), needed))
    return found


def _polls(rows: Sequence[Row]) -> list[Poll]:
    grouped: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"].startswith("observe"):
            grouped[row["op"]].append(row)
    found = []
    for parts in grouped.values():
        parts.sort(key=lambda row: row["sub"])
        shown = tuple((row["position"], row["value"]) for row in parts if row["kind"] == "observe")
        begin, end = parts[0], parts[-1]
        reader = (begin["process"], begin["assignment"])
        found.append(Poll(begin["position"], shown, end["position"], begin["call"], begin["ret"], reader))
    return found


def _readers_go_on(polls: Sequence[Poll]) -> bool:
    at: dict[tuple[int, int], int] = {}
    for poll in sorted(polls, key=lambda poll: poll.call):
        if at.get(poll.reader, poll.begin) != poll.begin:
            return False
        at[poll.reader] = poll.end
    return True
