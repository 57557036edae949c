"""Background tasks of one owner, none of which can fail unnoticed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

BACK_OFF: Final = 0.2
"""Seconds before a background task retries a failed step."""


class BackgroundTasks:
    """Starts tasks, reports the first unexpected exception of each, and cancels the remaining ones at ``close``."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._tasks: dict[asyncio.Task[None], None] = {}  # a dict for its order: closing must be deterministic
        self._closed = False

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    def fail(self, error: BaseException) -> None:
        """Reports an error as if a task had ended by it."""
        if not self._closed:
            self._on_error(error)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None and not self._closed:
            self._on_error(error)

    async def close(self) -> None:
        """Cancels all tasks and waits for their end."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            await asyncio.wait([task])
