"""Requests to stop: Ctrl-C (SIGINT), SIGTERM and SIGHUP, which all have one meaning.

At the first request a run stops, heals, checks and reports; code outside a run gets ``KeyboardInterrupt``. Each program
decides what the second request does: pytest ends at once and names what is left (``harness/plugin``).

The command `timeout` and terminals signal a process and its whole group. So one request may arrive as several signals
(``SAME_REQUEST``).
"""

from __future__ import annotations

import _thread
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAY_BE_IGNORED: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals that stay ignored if they are ignored at the start, as SIGHUP is under nohup.

SIGINT is handled even then, because shells ignore it in every background command of a script, and a night ends its
runs by SIGINT.
"""
SAME_REQUEST: Final = 1.0
"""Seconds after the first signal in which further signals belong to the same request."""

AGAIN: Final = 0.05
"""Seconds after which a lost interrupt is raised again."""


def raise_interrupt(number: signal.Signals) -> None:
    """Raises ``KeyboardInterrupt``. Python itself does this only at SIGINT."""
    raise KeyboardInterrupt(number.name)


def _apply_default_action(number: signal.Signals) -> None:
    """Gives a signal its default effect in a forked child, which may run code of another program."""
    if number == signal.SIGINT:
        raise_interrupt(number)
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def raise_second_interrupt(number: signal.Signals) -> None:
    raise KeyboardInterrupt(f"interrupted twice: aborted by {number.name}")


@contextmanager
def print_stack_at_end(stderr: int) -> Iterator[None]:
    """Lets faulthandler print the stacks of all threads before SIGPROF ends this process inside the block.

    - ``stderr``: a file descriptor, which must stay open
    """
    if not hasattr(signal, "SIGPROF"):
        yield
        return
    faulthandler.register(signal.SIGPROF, file=stderr, all_threads=True, chain=True)
    try:
        yield
    finally:
        faulthandler.unregister(signal.SIGPROF)


def list_handled_signals() -> list[signal.Signals]:
    """Returns the signals that ask this process to stop."""
    return [
        number for number in SIGNALS if number not in MAY_BE_IGNORED or signal.getsignal(number) is not signal.SIG_IGN
    ]


class StopSignals:
    """The signals that ask one process to stop, and their handlers.

    ``on_first`` handles the first request unless a block of :meth:`handling_first` is active. ``on_later`` handles each
    later request. The handlers only call these functions. The simulation's loop never waits for real signals, so a run
    must poll its :class:`Interrupt`.
    """

    def __init__(
        self,
        on_first: Callable[[signal.Signals], None] = raise_interrupt,
        on_later: Callable[[signal.Signals], None] = raise_second_interrupt,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_first = on_first
        self._on_later = on_later
        self._clock = clock
        self._first_at = 0.0
        self._process = os.getpid()
        self._actions: list[Callable[[signal.Signals], None]] = []
        self.current_interrupt: Interrupt | None = None
        """The interrupt of the current run; None between runs."""
        self.received: signal.Signals | None = None
        """The signal of the first request."""
        self.before_abort: Callable[[signal.Signals], None] | None = None
        """Called before a second request ends the process at once, so that the current run can be marked."""
        self.acknowledge: Callable[[signal.Signals], None] = lambda number: None
        """Called at a first request that does not end the code at once, so that its user knows that it arrived."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handles the signals inside the block. Does nothing off the main thread, where Python allows no handlers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in list_handled_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def handling_first(self, action: Callable[[signal.Signals], None]) -> Iterator[None]:
        """Calls ``action`` at a first request inside the block."""
        self._actions.append(action)
        try:
            yield
        finally:
            self._actions.remove(action)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name, now = signal.Signals(number), self._clock()
        if os.getpid() != self._process:
            _apply_default_action(name)
            return
        if self.received is None:
            self.received, self._first_at = name, now
            (self._actions[-1] if self._actions else self._on_first)(name)
        elif now >= self._first_at + SAME_REQUEST:
            self._on_later(name)


class Interrupt:
    """Asks one run to end early. ``signals``: the stop signals of the session; by default the run has its own.

    The run polls ``requested`` ten times a second of its own time.
    """

    def __init__(self, signals: StopSignals | None = None) -> None:
        self._signals = signals or StopSignals()
        self.requested = False
        self.reason: str | None = None
        """Why the run must end early, if the reason is not Ctrl-C."""
        self.by_user = False
        """Whether the user asked for it, for example by Ctrl-C."""

    def request(self) -> None:
        """Requests the end of the run, as Ctrl-C does."""
        self.requested = self.by_user = True

    def end(self, reason: str) -> None:
        """Ends this run as a first Ctrl-C does, but no other run of the session."""
        self.requested = True
        self.reason = reason

    @contextmanager
    def recording_requests(self, before_abort: Callable[[signal.Signals], None] | None = None) -> Iterator[None]:
        """Takes a first signal as a request, without interrupting the code inside the block.

        A signal that was recorded before the block counts as a request, too. ``before_abort``: called before a second
        signal ends the process at once.
        """
        if self._signals.received is not None:
            self.request()
        before = self._signals.before_abort, self._signals.current_interrupt
        self._signals.before_abort, self._signals.current_interrupt = before_abort, self
        try:
            with self._signals.installed(), self._signals.handling_first(self._record_request):
                yield
        finally:
            self._signals.before_abort, self._signals.current_interrupt = before

    def _record_request(self, number: signal.Signals) -> None:
        self.request()
        self._signals.acknowledge(number)

    @contextmanager
    def raising_requests(self) -> Iterator[None]:
        """Takes a first signal as a request, and raises ``KeyboardInterrupt`` in the running code."""

        def request_and_raise(number: signal.Signals) -> None:
            self._record_request(number)
            raise_interrupt(number)

        with self._signals.installed(), self._signals.handling_first(request_and_raise):
            yield


@contextmanager
def handle_stop_signals() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP raise ``KeyboardInterrupt`` each time, as SIGINT does. No interrupt is lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number)
        (raise_interrupt if os.getpid() == process else _apply_default_action)(name)

    handled = [number for number in MAY_BE_IGNORED if signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, handle)
    try:
        with _repeating_lost_interrupts():
            yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _repeating_lost_interrupts() -> Iterator[None]:
    """Raises an interrupt again if Python ignored it, and prints nothing.

    Python cannot raise an exception out of a finalizer, or out of a callback from C. It prints a traceback and goes on.
    A signal may arrive there, above all while numba compiles, which has many of both.
    """
    former = sys.unraisablehook
    waiting: list[threading.Timer] = []

    def repeat(error: Any) -> None:
        if not isinstance(error.exc_value, KeyboardInterrupt):
            former(error)
            return
        number = next((one for one in SIGNALS if one.name in error.exc_value.args), signal.SIGINT)
        timer = threading.Timer(AGAIN, _thread.interrupt_main, [number])
        timer.daemon = True
        waiting.append(timer)
        timer.start()

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = former
        for timer in waiting:
            timer.cancel()


def ignore_terminal_signals() -> None:
    """Makes a child process ignore SIGINT and SIGHUP, which a terminal sends to all processes of its group.

    The parent ends the child instead. SIGTERM gets its default effect.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
