"""One attempt as a process with a session of its own: nothing that happens to it happens to the night.

It is left to end by itself. After its time it is aborted, so that Python's fault handler writes into the log where it
stood. When the night is interrupted, or its budget is over, it gets SIGINT, as by Ctrl-C: a run then heals, checks
and reports. What is left of its process group is killed in every case.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.harness.nightly.night_record import AttemptOutcome
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.process_group import signal_group, start

POLL: Final = 0.2
GRACE: Final = 60.0
"""Seconds for a run that was interrupted to heal, check and report."""
DUMP: Final = 5.0
"""Seconds for writing where it stood."""
LINE: Final = "500"
"""Columns: pytest cuts the lines of its summary to the width of the terminal."""


@dataclass(frozen=True)
class AttemptEnd:
    """``status``: as ``Popen.returncode``. ``stopped``: by the night, as hung or interrupted, and ``why``."""

    status: int
    stopped: AttemptOutcome | None = None
    why: str = ""


@dataclass(frozen=True)
class Limits:
    """Seconds: after ``hung`` it hangs, after ``left`` the night is over."""

    hung: float
    left: float
    grace: float = GRACE


def perform(
    command: Sequence[str], folder: Path, log: Path, limits: Limits, interrupt: Interrupt, began: Callable[[int], None],
    stopping: Callable[[str], None],
) -> AttemptEnd:  # fmt: skip
    """Runs the command in this folder. Raises ``OSError`` if it cannot start.

    ``began`` is called with its process id; ``stopping`` with the reason, before it gets its time to heal and report.
    What it prints goes into ``log``.
    """
    process = start(command, log, folder, os.environ | {"COLUMNS": LINE, "PYTHONFAULTHANDLER": "1"})
    stopped: AttemptOutcome | None = None
    why = ""
    try:
        began(process.pid)
        stopped, why = _watch(process, limits, interrupt, stopping)
    except KeyboardInterrupt:
        stopped, why = AttemptOutcome.INTERRUPTED, "by a second Ctrl-C"
    finally:
        signal_group(process.pid, signal.SIGKILL)
        process.wait()
    return AttemptEnd(process.returncode, stopped, why)


def _watch(
    process: subprocess.Popen[bytes], limits: Limits, interrupt: Interrupt, stopping: Callable[[str], None]
) -> tuple[AttemptOutcome | None, str]:
    began = time.monotonic()
    while not _over(process, POLL):
        spent = time.monotonic() - began
        if interrupt.requested:
            return _stopped(process, limits, "with the night", stopping)
        if spent >= limits.hung:
            signal_group(process.pid, signal.SIGABRT)
            _over(process, DUMP)
            return AttemptOutcome.HUNG, f"no end after {limits.hung:g} s; its log ends with where it stood"
        if spent >= limits.left:
            return _stopped(process, limits, "the night's budget was over", stopping)
    return None, ""


def _stopped(
    process: subprocess.Popen[bytes], limits: Limits, why: str, stopping: Callable[[str], None]
) -> tuple[AttemptOutcome, str]:
    signal_group(process.pid, signal.SIGINT)
    stopping(why)
    ended = _over(process, limits.grace)
    return AttemptOutcome.INTERRUPTED, why if ended else f"{why}; killed {limits.grace:g} s after SIGINT"


def _over(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
