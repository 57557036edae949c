"""Tasks of clients that ignore their cancellation: no one waits for them, and the end of the run reports them."""

import asyncio
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

_LEFT: WeakSet[asyncio.Task[Any]] = WeakSet()


def abandon_task(task: asyncio.Task[Any]) -> None:
    """Marks a task as abandoned, and keeps asyncio from complaining about it when its loop is closed."""
    _LEFT.add(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def exclude_abandoned(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Returns the tasks that have not been abandoned."""
    return [task for task in tasks if task not in _LEFT]
