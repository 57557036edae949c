"""A first signal asks, the second one insists."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest

from assay.checkers.linearizability.compiled import catching_step_errors
from assay.checkers.linearizability.model import Model
from assay.harness.run.interrupt import SIGNALS, Interrupt, StopSignals, handle_stop_signals


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_asks_and_the_second_raises(number: signal.Signals) -> None:
    clock = Clock()
    interrupt = Interrupt(StopSignals(clock=clock))
    with interrupt.recording_requests():
        os.kill(os.getpid(), number)
        assert interrupt.requested
        clock.now += 1.0
        with pytest.raises(KeyboardInterrupt, match="twice"):
            os.kill(os.getpid(), number)


def test_one_request_may_come_as_several_signals() -> None:
    """`timeout` signals its command and then the group of it; at Ctrl-C a session passes on what its workers got."""
    clock = Clock()
    interrupt = Interrupt(StopSignals(clock=clock))
    with interrupt.recording_requests():
        for number in SIGNALS:
            os.kill(os.getpid(), number)
        clock.now += 0.9
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.requested


def test_a_second_signal_in_another_part_of_the_run_is_the_second() -> None:
    clock = Clock()
    interrupt = Interrupt(StopSignals(clock=clock))
    with interrupt.recording_requests():
        os.kill(os.getpid(), signal.SIGTERM)
    clock.now += 1.0
    with interrupt.raising_requests(), pytest.raises(KeyboardInterrupt, match="twice"):
        os.kill(os.getpid(), signal.SIGINT)


def test_while_a_history_is_checked_it_breaks_off_and_asks() -> None:
    interrupt = Interrupt()
    with interrupt.raising_requests(), pytest.raises(KeyboardInterrupt, match="SIGHUP"):
        os.kill(os.getpid(), signal.SIGHUP)
    assert interrupt.by_user


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        interrupt = Interrupt()
        with handle_stop_signals(), interrupt.recording_requests():
            os.kill(os.getpid(), number)
        assert not interrupt.requested
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


FORKED = """
import os, signal
from assay.harness.run.interrupt import Interrupt, handle_stop_signals
interrupt = Interrupt()
with {block}:
    child = os.fork()
    if child == 0:
        signal.raise_signal(signal.SIGTERM)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), interrupt.requested)
"""


@pytest.mark.parametrize("block", ["handle_stop_signals()", "interrupt.recording_requests()"])
def test_a_forked_child_dies_by_sigterm_as_it_would_without_handlers(block: str) -> None:
    command = [sys.executable, "-c", FORKED.format(block=block)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "-15 False\n"


def test_commands_are_interrupted_by_each_signal() -> None:
    with handle_stop_signals():
        for number in SIGNALS:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)


class _Dropped:
    """An object whose finalizer runs while the signal arrives."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)
        sum(range(100))  # the handler has run by now


def _signal_in_callback(number: signal.Signals) -> None:
    def send() -> None:
        os.kill(os.getpid(), number)
        sum(range(100))

    ctypes.CFUNCTYPE(None)(send)()


def _signal_and_wait(send: Callable[[signal.Signals], object], number: signal.Signals) -> None:
    send(number)
    for _ in range(600):
        time.sleep(0.01)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("send", [_Dropped, _signal_in_callback])
@pytest.mark.parametrize("searching", [False, True])
def test_an_interrupt_in_a_finalizer_or_a_callback_is_raised_again_without_a_traceback(
    number: signal.Signals,
    send: Callable[[signal.Signals], object],
    searching: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Python prints it and goes on. While numba compiles, most signals arrive in a finalizer or in a callback."""
    during_search = catching_step_errors(Model()) if searching else nullcontext()
    with pytest.raises(KeyboardInterrupt), handle_stop_signals(), during_search:
        _signal_and_wait(send, number)
    assert capsys.readouterr().err == ""


def test_other_errors_of_finalizers_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)

    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    with handle_stop_signals():
        Broken()
    assert [str(one.exc_value) for one in printed] == ["broken"]
