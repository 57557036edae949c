"""Writes a history in a thread of its own, so that the next chunk is made while the last one is written."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from assay.harness.core.history import HistoryWriter

AHEAD: Final = 4
"""Calls that may wait, so that of two chunks at most the rows are held."""


class WriterBehind(HistoryWriter):
    """All calls from one thread, as a context manager. What goes wrong in one is raised by a later one, or at the end.

    Hashing and compressing let other threads run, so on two processors it takes as long as the longer half.
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
        """Waits until no more than so many wait."""
        while len(self._waiting) > most:
            self._waiting.popleft().result()
