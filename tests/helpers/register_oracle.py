"""Is a register's history linearizable? By search over every order, for a few operations of one key.

Written from the meaning of a register and independently of the SQL: no clusters, chains or zones. An operation may be
next if none that is still waiting returned before it was called; one that ended info may also be left out for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
FOREVER = float("inf")

State = tuple[int | None, int, bool]
"""The value; its version, or, if the last is False, a bound that its version is greater than."""


def linearizable(rows: Sequence[Row], *, versions: bool = False) -> bool:
    """``versions``: each change makes the version rise, and operations that tell a version tell the right one."""
    steps = [row for row in rows if _counts(row)]
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[int, State]] = [(0, (None, 0, True))]
    certain = sum(1 << number for number, row in enumerate(steps) if row["outcome"] == "ok")
    while stack:
        done, state = stack.pop()
        if done & certain == certain:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        waiting = [number for number in range(len(steps)) if not done & 1 << number]
        horizon = min(_ret(steps[number]) for number in waiting)
        for number in waiting:
            if steps[number]["call"] <= horizon:
                after = _after(state, steps[number], versions)
                if after is not None:
                    stack.append((done | 1 << number, after))
    return False


def _counts(row: Row) -> bool:
    return row["outcome"] == "ok" or (row["outcome"] == "info" and row["kind"] != "register-read")


def _ret(row: Row) -> float:
    return FOREVER if row["ret"] is None or row["outcome"] == "info" else row["ret"]


def _after(state: State, row: Row, versions: bool) -> State | None:
    """None: this cannot happen in this state."""
    value, version, exact = state
    recorded = row["version"] if versions else None
    if row["kind"] == "register-read":
        if row["value"] != value:
            return None
        if recorded is None or value is None:
            return state
        return (value, recorded, True) if (recorded == version if exact else recorded > version) else None
    if row["kind"] == "register-cas" and row["expected"] != value:
        return None
    lowest = version if exact else version + 1
    if recorded is None:
        return (row["value"], lowest, False) if versions else (row["value"], 0, True)
    return (row["value"], recorded, True) if recorded > lowest else None
