"""Runs pytest sessions in processes of their own, several at a time, and measures them.

Each session leads its own process group, so a terminal's Ctrl-C reaches only this process. This process then sends
every session SIGINT, as a user would, and waits, because a session must remove its containers. All processes of a
session's group end with the session.
"""

import os
import resource
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.harness.run.interrupt import list_handled_signals
from assay.harness.run.process_group import signal_group, start_group

OUTPUT: Final = "output.txt"
PATIENCE: Final = (80.0, 5.0)
"""Seconds after the first SIGINT, in which a session heals and cleans up, and after the second, which ends it."""
REPORT_INTERVAL: Final = 10.0
"""Seconds between reports on the wait for sessions that must end."""


@dataclass(frozen=True)
class PytestSession:
    """A command and its folder. The folder must not exist; the output is written to its file ``OUTPUT``."""

    argv: Sequence[str]
    folder: Path

    def read_last_lines(self, number: int) -> str:
        """Returns the last non-empty lines of the output."""
        lines = (self.folder / OUTPUT).read_text(errors="replace").splitlines()
        return " | ".join([line.strip() for line in lines if line.strip()][-number:])


@dataclass(frozen=True)
class SessionEnd:
    """End of a session. ``code``: its exit code, negative for a signal; None: it was killed at the time limit.

    ``cpu_seconds`` includes the processes that the session waited for, but not containers.
    """

    code: int | None
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class _RunningSession:
    session: PytestSession
    pid: int
    began: float


def run_sessions(
    sessions: Iterable[PytestSession],
    jobs: int,
    limit: float,
    on_end: Callable[[PytestSession, SessionEnd], None],
    on_stop: Callable[[int], None],
    on_wait: Callable[[int, float], None] = lambda running, seconds: None,
) -> bool:
    """Runs the sessions in order, ``jobs`` at a time, each for at most ``limit`` seconds.

    ``on_end`` is called for each session that ends. Returns False after a signal. Then ``on_stop`` was called with the
    number of running sessions, and these were stopped without calls of ``on_end``. Every ``REPORT_INTERVAL`` seconds,
    ``on_wait`` was called with the number of sessions that had not ended, and the seconds until they would be killed.
    """
    waiting, running = deque(sessions), list[_RunningSession]()
    with _catch_signals() as signals:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    _start(waiting.popleft(), running)
                soonest = min(one.began for one in running) + limit
                if _wait_for_signals(signals, soonest - time.monotonic()) - {signal.SIGCHLD}:
                    on_stop(len(running))
                    return False
                for one, end in _reap_ended(running):
                    on_end(one.session, end)
                for one in [one for one in running if time.monotonic() - one.began >= limit]:
                    on_end(one.session, _kill(one, running))
        finally:
            _stop_all(running, signals, on_wait)
    return True


@contextmanager
def _catch_signals() -> Iterator[int]:
    """Yields a file descriptor that delivers the numbers of signals: those to stop, and the end of a child.

    The signals do not interrupt other code.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    numbers = (signal.SIGCHLD, *list_handled_signals())
    previous = {number: signal.signal(number, lambda *_: None) for number in numbers}
    previous_fd = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(previous_fd)
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)


def _wait_for_signals(signals: int, seconds: float) -> set[int]:
    """Waits for signals for at most ``seconds``. Returns their numbers."""
    ready, _, _ = select.select([signals], [], [], max(0.0, seconds))
    return set(os.read(signals, 4096)) if ready else set()


def _start(session: PytestSession, running: list[_RunningSession]) -> None:
    session.folder.mkdir(parents=True)
    process = start_group(session.argv, session.folder / OUTPUT)
    process.returncode = 0  # wait4 reaps it, to measure its resource usage; Popen must not
    running.append(_RunningSession(session, process.pid, time.monotonic()))


def _reap_ended(running: list[_RunningSession]) -> list[tuple[_RunningSession, SessionEnd]]:
    """Removes the sessions that have ended, and kills what is left of their groups.

    While a member of the group lives, no new process gets the group's number.
    """
    ended = []
    for one in list(running):
        pid, status, used = os.wait4(one.pid, os.WNOHANG)
        if pid:
            running.remove(one)
            signal_group(one.pid, signal.SIGKILL)
            ended.append((one, _make_end(one, os.waitstatus_to_exitcode(status), used)))
    return ended


def _kill(one: _RunningSession, running: list[_RunningSession]) -> SessionEnd:
    running.remove(one)
    signal_group(one.pid, signal.SIGKILL)
    _, _, used = os.wait4(one.pid, 0)
    return _make_end(one, None, used)


def _make_end(one: _RunningSession, code: int | None, used: resource.struct_rusage) -> SessionEnd:
    return SessionEnd(code, time.monotonic() - one.began, used.ru_utime + used.ru_stime)


def _stop_all(running: list[_RunningSession], signals: int, on_wait: Callable[[int, float], None]) -> None:
    """Ends the sessions by SIGINT, and those that do not end in time by SIGKILL."""
    began = reported = time.monotonic()
    for patience in PATIENCE:
        for one in running:
            signal_group(one.pid, signal.SIGINT)
        deadline = time.monotonic() + patience
        while running and (left := deadline - time.monotonic()) > 0:
            _wait_for_signals(signals, min(left, REPORT_INTERVAL))
            _reap_ended(running)
            now = time.monotonic()
            if running and now - reported >= REPORT_INTERVAL:
                reported = now
                on_wait(len(running), max(0.0, began + sum(PATIENCE) - now))
    for one in list(running):
        _kill(one, running)
