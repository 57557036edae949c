"""The descendants of a process and the processes that are left, as Linux lists them."""

from __future__ import annotations

import time
from pathlib import Path


def descendants(parent: int) -> list[int]:
    """Returns the descendants of a process. If it has ended, there are none."""
    try:
        found = [
            int(pid)
            for task in Path(f"/proc/{parent}/task").iterdir()
            for pid in (task / "children").read_text().split()
        ]
    except FileNotFoundError:
        return []
    return [*found, *(pid for child in found for pid in descendants(child))]


def started(parent: int, count: int, seconds: float = 60) -> list[int]:
    """Its descendants, once there are so many."""
    deadline = time.monotonic() + seconds
    while len(found := descendants(parent)) < count:
        assert time.monotonic() < deadline, f"{parent} has started {len(found)} processes, not {count}"
        time.sleep(0.05)
    return found


def left(pids: list[int], seconds: float = 20) -> list[int]:
    """Which of them are still there in the end."""
    deadline = time.monotonic() + seconds
    while (alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive
