"""Watchdog of the simulation in real time: names code that never awaits, and ends the run.

All simulated processes and clients share one thread, so a step that never ends stops the virtual clock and with it
every time limit of the run.

1. A thread looks every second whether virtual time has passed or something was scheduled.
2. If not, it signals the main thread. The signal's handler runs between two instructions of the step, also if the step
   waits in a system call, so it knows the line.
3. After :data:`NOTICE_INTERVAL` a note names the line. After :data:`PATIENCE` the handler raises an interrupt, which
   every event loop lets through, and :class:`LoopWatchdog` turns it into a :class:`StandstillError`.
4. A loop inside of C code, such as ``1 in itertools.count(2)``, lets neither thread nor handler run. The kernel's timer
   of processor time then ends the process by SIGPROF, after :data:`PATIENCE_IN_C`. A process that is stopped uses no
   processor time. In a session of pytest, faulthandler prints the stack before
   (:func:`assay.harness.run.interrupt.print_stack_at_end`).

A search plays its runs in other processes, and kills a process after the same :data:`PATIENCE`.
"""

import signal
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

from assay.cluster.sim.process import PROCESS
from assay.harness.core.interpreter_status import find_frame_location

PATIENCE: Final = 120.0
"""Real seconds after which a step of a run, or in a search a whole run, is considered endless."""
PATIENCE_IN_C: Final = 50.0
"""Seconds of processor time after which C code that lets no other Python code run is considered endless."""
NOTICE_INTERVAL: Final = 10.0
"""Real seconds of a standstill before the first note, and between two notes."""
LATER_PATIENCE: Final = 5.0
"""As ``PATIENCE``, but after the first standstill of a run. The cluster is only removed then."""
TICK: Final = 1.0
"""Seconds between two looks. A tick that took longer counts no more than twice this: the machine was paused."""
SIGNAL: Final = signal.SIGVTALRM
"""Signal from the watching thread to the main thread. pytest-timeout uses SIGALRM."""
DEBUGGERS: Final = frozenset({"bdb", "pdb", "ipdb", "pudb", "debugpy", "_pydevd_bundle", "pydevd"})
"""Modules that are on the stack while a debugger waits for its user. A standstill is intended then."""
REMEDY: Final = (
    "no other simulated process, client or time limit can run meanwhile. Let the code await, such as "
    "`await asyncio.sleep(0)` in its loop, or end by itself"
)

T = TypeVar("T")


class StandstillError(Exception):
    """A step of the simulation did not end. The message names the line, and the remedy."""


class _StandstillInterrupt(KeyboardInterrupt):
    """Unwinds a step that does not end."""


class LoopWatchdog:
    """Runs coroutines on a loop, under a watchdog if the loop is simulated. ``note`` shows a line to the user.

    ``patience`` as :data:`PATIENCE`.
    """

    def __init__(self, loop: Any, note: Callable[[str], None], patience: float = PATIENCE) -> None:
        self._loop = loop
        self._note = note
        self._patience = patience
        self._stood_still = 0.0
        """Seconds since the last progress."""
        self._noted = 0.0
        """The value of ``_stood_still`` at the last note."""
        self._extend_limit: Callable[[], None] = lambda: None
        """Called while Python's threads run."""
        self._text = ""
        """The message of the last standstill that was ended."""
        self.stack = ""
        """The stack of the first standstill that was ended; empty if there was none."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine to its end and returns its result. Raises :class:`StandstillError`, and its exceptions."""
        with self.watching():
            result: T = self._loop.run_until_complete(coroutine)
        return result

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches the loop during the block. Does nothing off the main thread, where Python allows no handlers."""
        if not getattr(self._loop, "simulated", False) or threading.current_thread() is not threading.main_thread():
            yield
            return
        ended = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(ended, threading.get_ident()), name="loop watchdog", daemon=True
        )
        before = signal.signal(SIGNAL, self._handle)
        with _limiting_processor_time(min(self._patience, PATIENCE_IN_C)) as self._extend_limit:
            try:
                watcher.start()
                yield
            except _StandstillInterrupt:
                raise StandstillError(self._text) from None
            finally:
                ended.set()
                watcher.join()  # so that no signal arrives after the former handler is back
                signal.signal(SIGNAL, before)

    def _watch(self, ended: threading.Event, main_thread: int) -> None:
        reached, looked_at = self._read_progress(), time.monotonic()
        self._stood_still = self._noted = 0.0
        while not ended.wait(TICK):
            self._extend_limit()
            now = time.monotonic()
            passed, looked_at = min(now - looked_at, 2 * TICK), now
            former, reached = reached, self._read_progress()
            if reached != former:
                self._stood_still = self._noted = 0.0
                continue
            self._stood_still += passed
            if self._stood_still >= min(self._patience, self._noted + NOTICE_INTERVAL):
                signal.pthread_kill(main_thread, SIGNAL)

    def _read_progress(self) -> tuple[float, int]:
        return self._loop.time(), self._loop.scheduled

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if frame is None or _is_in_debugger(frame):
            self._stood_still = self._noted = 0.0
            return
        self._noted = self._stood_still
        process = PROCESS.get()
        who = "the test's own code" if process is None else f"the code of {process.name}"
        text = f"{who} has not awaited for {self._stood_still:.0f} s{find_frame_location(frame)}"
        if self._stood_still < self._patience:
            self._note(f"{text}; the run is ended after {self._patience:g} s")
            return
        self.stack = self.stack or "".join(traceback.format_stack(frame))
        self._text = f"{text}; {REMEDY}"
        self._patience = min(self._patience, LATER_PATIENCE)
        raise _StandstillInterrupt(self._text)


@contextmanager
def _limiting_processor_time(seconds: float) -> Iterator[Callable[[], None]]:
    """Lets the kernel end this process by SIGPROF after ``seconds`` of processor time.

    Yields the function that restarts the time. Does nothing if something else uses this timer, such as a profiler.
    """
    if not hasattr(signal, "SIGPROF") or signal.getsignal(signal.SIGPROF) is not signal.SIG_DFL:
        yield lambda: None
        return
    if any(signal.getitimer(signal.ITIMER_PROF)):
        yield lambda: None
        return

    def extend() -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)

    extend()
    try:
        yield extend
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _is_in_debugger(frame: FrameType) -> bool:
    """Returns whether the user has stopped this code in a debugger."""
    at: FrameType | None = frame
    while at is not None:
        if at.f_globals.get("__name__", "").partition(".")[0] in DEBUGGERS:
            return True
        at = at.f_back
    return False
