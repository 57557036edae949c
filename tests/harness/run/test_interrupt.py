"""Ctrl-C asks, then insists."""

from __future__ import annotations

import os
import signal

import pytest

from assay.harness.run.interrupt import Interrupt


def test_the_first_asks_and_the_second_raises() -> None:
    interrupt = Interrupt()
    with interrupt.listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt, match="twice"):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_handler_of_before_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt().listening():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
