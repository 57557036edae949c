"""Progress and remaining time of long work on standard error: one line on a terminal, elsewhere a line now and then.

Steps of a command that examines something have a line elsewhere, too.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from assay.harness.cli.command import note
from assay.harness.stored.request import READING

if TYPE_CHECKING:
    from assay.harness.run.progress import TerminalProgress

MIN_ELAPSED: Final = 1.0
"""Seconds before the remaining time is estimated, because work that has just begun has no speed yet."""
INTERVAL: Final = 0.2
"""Minimum seconds between two lines."""
QUIET_INTERVAL: Final = 30.0
"""Seconds between two lines if standard error is no terminal. The work may be one long call that reports no step."""


class TimeEstimate:
    """Turns the progress of stages into lines for ``show``, at most five per second."""

    def __init__(self, show: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._began = clock()
        self._stage = ""
        self._next = 0.0

    def step(self, stage: str, done: float, total: float) -> None:
        """Reports that ``done`` of ``total`` units of a stage are done. ``done`` starts at 0 in each stage."""
        now = self._clock()
        if done == 0:
            self._began = now
        if stage == self._stage and now < self._next:
            return
        self._stage, self._next = stage, now + INTERVAL
        self._show(describe_progress(stage, done, total, now - self._began))


def describe_progress(stage: str, done: float, total: float, elapsed: float) -> str:
    """Returns text such as ``reading history.edn: 45 %, about 12 s left``."""
    if total <= 0:
        return stage
    share = min(done / total, 1.0)
    text = f"{stage}: {share:.0%}"
    if elapsed < MIN_ELAPSED or done <= 0:
        return text
    remaining = elapsed / share - elapsed
    return f"{text}, about {round_seconds(remaining)} left"


def round_seconds(seconds: float) -> str:
    """Returns text such as ``12 s``, ``3 min`` or ``2.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def show_estimate() -> Iterator[TimeEstimate]:
    """Shows the progress on standard error: on a terminal at once, elsewhere every ``QUIET_INTERVAL``."""
    if not sys.stderr.isatty():
        lines = _RareLines()
        try:
            yield TimeEstimate(lines.show)
        finally:
            lines.close()
        return
    from rich.console import Console

    from assay.harness.run.progress import TerminalProgress

    live = TerminalProgress(Console(stderr=True))
    try:
        yield TimeEstimate(live.note)
    finally:
        live.close()


class _RareLines:
    """Prints the newest text every ``QUIET_INTERVAL``, and how long the work has taken, until ``close``."""

    def __init__(self) -> None:
        self._text = "working"
        self._began = time.monotonic()
        self._ended = threading.Event()
        threading.Thread(target=self._print, name="progress lines", daemon=True).start()

    def show(self, text: str) -> None:
        self._text = text

    def close(self) -> None:
        self._ended.set()

    def _print(self) -> None:
        while not self._ended.wait(QUIET_INTERVAL):
            note(f"{self._text} ({round_seconds(time.monotonic() - self._began)} so far) ...")


class StepLine:
    """Shows on standard error which step is running: on a terminal until the step has ended, elsewhere in a line."""

    def __init__(self) -> None:
        self._live: TerminalProgress | None = None

    def show(self, text: str) -> None:
        """Shows a step that begins now."""
        self.clear()
        if not sys.stderr.isatty():
            note(f"{text} ...")
            return
        from rich.console import Console

        from assay.harness.run.progress import TerminalProgress

        self._live = TerminalProgress(Console(stderr=True))
        self._live.note(f"{text} ...")

    def clear(self) -> None:
        """Removes the line from a terminal, so that results can be printed. Idempotent."""
        live, self._live = self._live, None
        if live is not None:
            live.close()


class LongReading:
    """Prints a line once if reading a file takes longer than ``--time-limit``, which does not count it.

    ``seconds``: the limit that the user gave; None: no line is printed. ``clock``: returns seconds.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._begun = clock()

    def step(self, stage: str, done: int, total: int) -> None:
        """Receives the progress of a stage, as :meth:`TimeEstimate.step` does."""
        if self._seconds is None or not stage.startswith(READING):
            return
        elapsed = self._clock() - self._begun
        if elapsed > self._seconds:
            self._seconds = None
            note(f"{describe_progress(stage, done, total, elapsed)}; --time-limit counts from the end of the reading")
