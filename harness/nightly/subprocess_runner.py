"""Runs one attempt as a process in a session of its own, so that its end never affects the night.

1. The process normally ends by itself.
2. If it exceeds its time limit, it is aborted, so that Python's fault handler writes its stack into the log.
3. When the night is interrupted, or its budget is over, the process gets SIGINT, as by Ctrl-C. A run then heals, checks
   and reports.
4. In every case, all other processes of its group are killed.
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
from assay.harness.run.process_group import signal_group, start_group

POLL: Final = 0.2
"""Seconds between two checks whether the process must be stopped."""
GRACE: Final = 60.0
"""Seconds for an interrupted run to heal, check and report."""
BUDGET_OVER: Final = "the night's budget was over"
DUMP_SECONDS: Final = 5.0
"""Seconds for writing the stack into the log."""
COLUMNS: Final = "500"
"""Columns of the terminal. pytest truncates the lines of its summary to this width."""


@dataclass(frozen=True)
class AttemptEnd:
    """End of a process.

    ``status``: as ``Popen.returncode``. ``outcome_if_stopped``: None unless the night stopped the process; ``why`` then
    has the reason.
    """

    status: int
    outcome_if_stopped: AttemptOutcome | None = None
    why: str = ""


@dataclass(frozen=True)
class AttemptLimits:
    """Limits in seconds: after ``hung`` the process counts as hung, after ``night_left`` it is stopped.

    ``why``: the reason why it is stopped then. ``grace``: how long it may take to end after that.
    """

    hung: float
    night_left: float
    grace: float = GRACE
    why: str = BUDGET_OVER


def run_attempt(
    command: Sequence[str], folder: Path, log: Path, limits: AttemptLimits, interrupt: Interrupt,
    began: Callable[[int], None],
    stopping: Callable[[str], None],
) -> AttemptEnd:  # fmt: skip
    """Runs the command in this folder, with its output in ``log``. Raises ``OSError`` if it cannot start.

    ``began`` is called with its process id. ``stopping`` is called with the reason when the process gets SIGINT.
    """
    process = start_group(command, log, folder, os.environ | {"COLUMNS": COLUMNS, "PYTHONFAULTHANDLER": "1"})
    stopped: AttemptOutcome | None = None
    why = ""
    try:
        began(process.pid)
        stopped, why = _wait_or_stop(process, limits, interrupt, stopping)
    except KeyboardInterrupt:
        stopped, why = AttemptOutcome.INTERRUPTED, "by a second Ctrl-C"
    finally:
        signal_group(process.pid, signal.SIGKILL)
        process.wait()
    return AttemptEnd(process.returncode, stopped, why)


def _wait_or_stop(
    process: subprocess.Popen[bytes], limits: AttemptLimits, interrupt: Interrupt, stopping: Callable[[str], None]
) -> tuple[AttemptOutcome | None, str]:
    """Waits for the end of the process. Returns the outcome and the reason if it was stopped, else None and no text."""
    began = time.monotonic()
    while not _has_ended(process, POLL):
        spent = time.monotonic() - began
        if interrupt.requested:
            return _stop(process, limits, "together with the night", stopping)
        if spent >= limits.hung:
            signal_group(process.pid, signal.SIGABRT)
            _has_ended(process, DUMP_SECONDS)
            return AttemptOutcome.HUNG, f"no end after {limits.hung:g} s; its log ends with its stack"
        if spent >= limits.night_left:
            return _stop(process, limits, limits.why, stopping)
    return None, ""


def _stop(
    process: subprocess.Popen[bytes], limits: AttemptLimits, why: str, stopping: Callable[[str], None]
) -> tuple[AttemptOutcome, str]:
    """Stops the process as Ctrl-C does. Returns the outcome and the reason. ``stopping`` is called with ``why``."""
    signal_group(process.pid, signal.SIGINT)
    stopping(why)
    ended = _has_ended(process, limits.grace)
    return AttemptOutcome.INTERRUPTED, why if ended else f"{why}; killed {limits.grace:g} s after SIGINT"


def _has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
