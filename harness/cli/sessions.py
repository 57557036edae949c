"""Sessions of pytest in processes of their own, several at a time: what each came to, and what it cost.

Each leads a process group of its own. A terminal's Ctrl-C so reaches this process alone, which then asks every session
to end, as a user would, and waits: a session has containers to take away. What a session started ends with it.
"""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.harness.run.interrupt import handled_signals
from assay.harness.run.process_group import signal_group, start

OUTPUT: Final = "output.txt"
PATIENCE: Final = (80.0, 5.0)
"""Seconds that a session has after the first Ctrl-C, to heal and to clear up, and after the second, which ends it."""
SILENT: Final = 10.0
"""Seconds of waiting for sessions that are to end, after which a line says so."""


@dataclass(frozen=True)
class Session:
    """A command; what it prints goes into ``OUTPUT`` in its folder, which is made."""

    argv: Sequence[str]
    folder: Path

    def last_lines(self, number: int) -> str:
        """The end of what it printed."""
        lines = (self.folder / OUTPUT).read_text(errors="replace").splitlines()
        return " | ".join([line.strip() for line in lines if line.strip()][-number:])


@dataclass(frozen=True)
class SessionEnd:
    """``code``: of its exit, negative for a signal; None: it was killed, as it took too long.

    ``cpu_seconds`` has those of the processes that it waited for; containers are in no one's.
    """

    code: int | None
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class _Running:
    session: Session
    pid: int
    began: float


def perform(
    sessions: Iterable[Session],
    jobs: int,
    limit: float,
    ended: Callable[[Session, SessionEnd], None],
    stopping: Callable[[int], None],
    waiting_for: Callable[[int, float], None] = lambda under_way, seconds: None,
) -> bool:
    """Runs them in their order, ``jobs`` at a time, each for ``limit`` seconds at most.

    False: a signal came first. ``stopping`` was called then with the number of those under way, and these have been
    stopped; ``ended`` was not called for them. Every ``SILENT`` seconds until they had ended, ``waiting_for`` was
    called with their number, and the seconds that they had left at most.
    """
    waiting, running = deque(sessions), dict[int, _Running]()
    with _signals() as woken:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    _start(waiting.popleft(), running)
                soonest = min(one.began for one in running.values()) + limit
                ready, _, _ = select.select([woken, *running], [], [], max(0.0, soonest - time.monotonic()))
                if woken in ready:
                    stopping(len(running))
                    return False
                for descriptor in ready:
                    session = running[descriptor].session
                    ended(session, _reaped(descriptor, running))
                for descriptor in [one for one, it in running.items() if time.monotonic() - it.began >= limit]:
                    session = running[descriptor].session
                    ended(session, _reaped(descriptor, running, killed=True))
        finally:
            _stop(running, waiting_for)
    return True


@contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that can be read once a signal to end has come: nothing is interrupted where it stands."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = {number: signal.signal(number, lambda *_: None) for number in handled_signals()}
    former = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(former)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)


def _start(session: Session, running: dict[int, _Running]) -> None:
    session.folder.mkdir(parents=True)
    process = start(session.argv, session.folder / OUTPUT)
    process.returncode = 0  # it is waited for here, for what it used: not by Popen as well
    running[os.pidfd_open(process.pid)] = _Running(session, process.pid, time.monotonic())


def _reaped(descriptor: int, running: dict[int, _Running], *, killed: bool = False) -> SessionEnd:
    """Of one that has ended, or is to end now; its group goes while its number is still taken."""
    one = running.pop(descriptor)
    signal_group(one.pid, signal.SIGKILL)
    _, status, used = os.wait4(one.pid, 0)
    os.close(descriptor)
    code = None if killed else os.waitstatus_to_exitcode(status)
    return SessionEnd(code, time.monotonic() - one.began, used.ru_utime + used.ru_stime)


def _stop(running: dict[int, _Running], waiting_for: Callable[[int, float], None]) -> None:
    begun = said = time.monotonic()
    for patience in PATIENCE:
        for one in running.values():
            signal_group(one.pid, signal.SIGINT)
        deadline = time.monotonic() + patience
        while running and (left := deadline - time.monotonic()) > 0:
            for descriptor in select.select(list(running), [], [], min(left, SILENT))[0]:
                _reaped(descriptor, running)
            now = time.monotonic()
            if running and now - said >= SILENT:
                said = now
                waiting_for(len(running), max(0.0, begun + sum(PATIENCE) - now))
    for descriptor in list(running):
        _reaped(descriptor, running, killed=True)
