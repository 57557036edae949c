"""Ctrl-C, twice: the first asks the run to stop, heal, check and report; the second stops everything at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Set by the first SIGINT. A second one while set raises ``KeyboardInterrupt`` where the program stands.

    The flag is looked at by the run itself, ten times a second of its own time, rather than by the loop's signal
    handling: the simulation's loop never waits for real signals.
    """

    def __init__(self) -> None:
        self.requested = False
        self.reason: str | None = None
        """Why the run is to end before its time, where no one asked for that by Ctrl-C."""
        self.by_user = False
        """Whether it was asked for by Ctrl-C."""

    def request(self) -> None:
        """As Ctrl-C does."""
        self.requested = self.by_user = True

    def end(self, reason: str) -> None:
        """Ends this run as a first Ctrl-C does, and no other one of the session."""
        self.requested = True
        self.reason = reason

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.by_user:
            raise KeyboardInterrupt("interrupted twice: aborted")
        self.request()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes SIGINT over while inside; does nothing off the main thread, where Python allows no handlers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
