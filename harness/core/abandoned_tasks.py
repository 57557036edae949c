"""Tasks of clients that swallow their cancellation: no one waits for them, and a run's end names them in words."""

import asyncio
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

_LEFT: WeakSet[asyncio.Task[Any]] = WeakSet()


def leave_behind(task: asyncio.Task[Any]) -> None:
    """From now on no one waits for it, and asyncio does not complain when its loop is closed."""
    _LEFT.add(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def awaited(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Those that have not been left behind."""
    return [task for task in tasks if task not in _LEFT]
