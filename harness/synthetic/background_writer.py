"""Writes a history in a separate thread, so that a chunk is made while the previous one is written."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from assay.harness.core.history import HistoryWriter

AHEAD: Final = 4
"""Calls that may wait, so that memory holds the rows of at most two chunks."""


class BackgroundWriter(HistoryWriter):
    """History writer that queues its calls for a thread. Use it as a context manager, from one thread.

    An error in a call is raised by a later call or at the end. Hashing and compressing release the GIL, so on two
    processors the time is that of the slower thread.
    """

    def __init__(self, folder: Path, *, part_rows: int) -> None:
        super().__init__(folder, part_rows=part_rows)
        self._thread = ThreadPoolExecutor(1, "history")
        self._waiting: deque[Future[None]] = deque()

    def batch(self, name: str, rows: pa.RecordBatch) -> None:
        self._later(super().batch, name, rows)

    def completed(self, *arguments: Any, **named: Any) -> None:
        self._later(super().completed, *arguments, **named)

    def event(self, *arguments: Any, **named: Any) -> None:
        self._later(super().event, *arguments, **named)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._settle(0)
        except BaseException as late:
            kind, error, trace = type(late), late, late.__traceback__
            raise
        finally:
            self._thread.shutdown(cancel_futures=True)
            super().__exit__(kind, error, trace)

    def _later(self, call: Callable[..., None], *arguments: Any, **named: Any) -> None:
        self._settle(AHEAD)
        self._waiting.append(self._thread.submit(call, *arguments, **named))

    def _settle(self, most: int) -> None:
        """Blocks until at most ``most`` calls wait."""
        while len(self._waiting) > most:
            self._waiting.popleft().result()
