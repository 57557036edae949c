"""Pytest plugin that gives every test a time limit, so that a hang is a failure with a name and stacks.

The limit holds for each phase of a test by itself: its setup with all fixtures, its call, its teardown.

1. A timer of the process sends SIGALRM. The handler notes the stacks of all threads and the tasks of the running event
   loop, and raises an exception in the main thread. The test fails, and the next test begins.
2. The test's code may swallow that exception. The signal is sent again every few seconds until the phase ends, and the
   phase fails even if it ends well.
3. A call in C may never return to the interpreter. faulthandler, which needs no interpreter, then prints the stacks and
   ends the process. A worker of pytest-xdist is replaced, and its test is reported by name.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from types import FrameType, TracebackType
from typing import Any, Final

import pytest
from hypothesis import settings

DEFAULT: Final = 120.0
"""Seconds for a test that has none of the marks below. Machines can be slow, and tests run side by side."""
LIMITS: Final = {
    "slow": 300.0,
    "alone": 300.0,
    "browser": 300.0,
    "spark": 600.0,
    "docker": 900.0,
    "clients": 900.0,
    "long": 1800.0,
}
"""Seconds by mark. The first test in containers may have to build the node image. The largest one counts."""
EXAMPLE: Final = 5.0
"""Seconds that a property test gets for each example of the Hypothesis profile, if that is more."""
SET_HANDLER: Final = signal.signal
"""The function itself, because a test may replace ``signal.signal`` until the end of its teardown."""
AGAIN: Final = 10.0
"""Seconds between two signals to a test that goes on after its limit."""
PATIENCE: Final = 60.0
"""Seconds from the limit until faulthandler ends the process."""
OWN_FRAMES: Final = (f"{os.sep}_pytest{os.sep}", f"{os.sep}pluggy{os.sep}")
"""Parts of the paths whose frames are left out of the main thread's stack, because they are the same for every test."""
STDERR: Final = pytest.StashKey[int]()
"""A copy of the standard error file descriptor, because pytest captures the original during tests."""


class TimeLimitExceeded(KeyboardInterrupt):
    """Raised in the call of a test. Event loops and Hypothesis let a KeyboardInterrupt through, and nothing else."""


def limit_of(item: pytest.Item) -> float:
    """Returns the seconds that each phase of this test may take."""
    limits = [DEFAULT, *(seconds for mark, seconds in LIMITS.items() if item.get_closest_marker(mark) is not None)]
    if item.get_closest_marker("hypothesis") is not None:
        limits.append(EXAMPLE * settings.default.max_examples)
    return max(limits)


class TimeLimit:
    """Context manager that fails the test if the block lasts longer than ``seconds``. For the main thread.

    ``raised`` is the exception that interrupts the block. ``stderr`` is the file descriptor for faulthandler.
    """

    def __init__(self, name: str, seconds: float, raised: type[BaseException], stderr: int) -> None:
        self._name = name
        self._seconds = seconds
        self._raised = raised
        self._stderr = stderr
        self._stacks: str | None = None
        self._previous: Any = None

    def __enter__(self) -> None:
        self._previous = SET_HANDLER(signal.SIGALRM, self._interrupt)
        faulthandler.dump_traceback_later(self._seconds + PATIENCE, exit=True, file=self._stderr)
        signal.setitimer(signal.ITIMER_REAL, self._seconds, AGAIN)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # the signal may come at this very moment
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()
            SET_HANDLER(signal.SIGALRM, self._previous)
        if self._stacks is not None:
            pytest.fail(f"{self._name}: no end within {self._seconds:g} s\n\n{self._stacks}", pytrace=False)

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        if self._stacks is None:
            self._stacks = describe_stacks(frame)
        raise self._raised(f"no end within {self._seconds:g} s")


def describe_stacks(frame: FrameType | None) -> str:
    """Returns the stacks of all threads and of the running loop's tasks. This thread's stack ends at ``frame``."""
    frames = sys._current_frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    here = threading.get_ident()
    main = [one for one in traceback.extract_stack(frame) if not any(part in one.filename for part in OWN_FRAMES)]
    parts = [f"Thread {names.get(here)}:\n{''.join(traceback.format_list(main))}"]
    for ident, other in frames.items():
        if ident != here:
            parts.append(f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(other))}")
    loop = asyncio._get_running_loop()
    if loop is not None:
        for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
            parts.append(f"Task {task.get_name()}:\n{''.join(traceback.format_list(list(awaits(task))))}")
    return "\n".join(parts)


def awaits(task: asyncio.Task[Any]) -> Iterator[traceback.FrameSummary]:
    """Yields where the task's coroutine waits, where the coroutine waits that it awaits, and so on."""
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = next((getattr(waiting, name, None) for name in ("cr_frame", "gi_frame", "ag_frame")), None)
        if frame is not None:
            yield traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        names = ("cr_await", "gi_yieldfrom", "ag_await")
        waiting = next((found for name in names if (found := getattr(waiting, name, None)) is not None), None)


def limited(item: pytest.Item, phase: str, raised: type[BaseException]) -> Generator[None, Any, Any]:
    """Wraps one phase of a test. There is no limit while a debugger is asked for."""
    config = item.config
    if (
        config.getoption("usepdb")
        or config.getoption("trace")
        or threading.current_thread() is not threading.main_thread()
    ):
        return (yield)
    with TimeLimit(f"{phase} of {item.nodeid}", limit_of(item), raised, config.stash[STDERR]):
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[STDERR])


# pytest goes on after a failure in a setup or a teardown, and remembers it for a fixture that several tests share.
# Neither is the case after a KeyboardInterrupt.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from limited(item, "setup", pytest.fail.Exception))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from limited(item, "call", TimeLimitExceeded))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from limited(item, "teardown", pytest.fail.Exception))
