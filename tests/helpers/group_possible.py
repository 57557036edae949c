"""Could a coordinator that keeps every promise have given this history? By search, from what a coordinator is.

It has one generation at a time, which only rises, and gives each partition to one member in each. A member that says
what it was given was in that generation at some instant before it said so. A commit is accepted at an instant at which
its generation is the group's, and stored then or later, but before its answer. A commit without an answer may be stored
at any time after, or never. A fetch sees what was stored last, number and offset. No definition of an anomaly stands
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
NEVER = float("inf")


@dataclass(frozen=True)
class Step:
    """Something that happened at one instant from ``call`` to ``ret``; ``after``: the number of the one before it."""

    row: Row
    kind: str
    call: float
    ret: float
    after: int | None = None


def possible(rows: Sequence[Row]) -> bool:
    """Whether the rows of one group can come from a coordinator as above."""
    owners: dict[tuple[int, str], str] = {}
    steps: list[Step] = []
    for row in rows:
        if row["outcome"] == "fail" or (row["outcome"] == "info" and row["kind"] != "commit"):
            continue
        ret = row["ret"] if row["outcome"] == "ok" else NEVER
        if row["kind"] == "fetched":
            steps.append(Step(row, "fetch", row["call"], ret))
        elif row["kind"] == "commit":
            steps.append(Step(row, "in generation", row["call"], ret))
            steps.append(Step(row, "store", row["call"], ret, len(steps) - 1))
        else:
            given = row["generation"], row["key"]
            if row["key"] != row["group"] and owners.setdefault(given, row["owner"]) != row["owner"]:
                return False
            steps.append(Step(row, "in generation", -1, ret))
    return _search(steps)


def _search(steps: Sequence[Step]) -> bool:
    certain = sum(1 << number for number, step in enumerate(steps) if step.ret < NEVER)
    stored: tuple[tuple[str, int], ...] = ()
    stack = [(0, 0, stored)]
    seen = set(stack)
    while stack:
        done, generation, stored = stack.pop()
        if done & certain == certain:
            return True
        waiting = [number for number in range(len(steps)) if not done & 1 << number]
        urgent = min(steps[number].ret for number in waiting)
        for number in waiting:
            step = steps[number]
            if step.call > urgent or (step.after is not None and not done & 1 << step.after):
                continue
            row, state = step.row, (done | 1 << number, generation, stored)
            if step.kind == "in generation":
                if row["generation"] < generation:
                    continue
                state = state[0], row["generation"], stored
            elif step.kind == "store":
                state = state[0], generation, tuple(sorted({**dict(stored), row["key"]: number}.items()))
            elif _latest(steps, dict(stored).get(row["key"])) != (row["value"], row["position"]):
                continue
            if state not in seen:
                seen.add(state)
                stack.append(state)
    return False


def _latest(steps: Sequence[Step], number: int | None) -> tuple[int | None, int | None]:
    return (None, None) if number is None else (steps[number].row["value"], steps[number].row["position"])
