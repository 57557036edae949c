"""Progress of a run for a user: one live line on a terminal, a plain line every 5 s elsewhere.

The line shows a :class:`RunTally`, which the interpreter and the conductor keep up to date. Only the display reads the
real clock, so no recorded value depends on it. The simulation passes thirty virtual seconds in one or two real ones.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from assay.harness.core.operation import Completed, Outcome

PLAIN_INTERVAL: Final = 5.0
LIVE_INTERVAL: Final = 0.2


@dataclass
class RunTally:
    """The progress of a run. ``elapsed`` is the run's own time in seconds, virtual in the simulation."""

    stage: str = "starting"
    elapsed: float = 0.0
    ok: int = 0
    info: int = 0
    fail: int = 0
    active_faults: dict[int, str] = field(default_factory=dict)
    injected: int = 0
    """Number of faults so far, active or healed."""
    judged_until: float | None = None
    """Seconds of the run that have been judged while it goes on; None without ``--watch``."""

    def completed(self, completed: Completed) -> None:
        match completed.completion.outcome:
            case Outcome.OK:
                self.ok += 1
            case Outcome.FAIL:
                self.fail += 1
            case Outcome.INFO:
                self.info += 1

    @property
    def operations(self) -> int:
        return self.ok + self.info + self.fail

    def format_line(self) -> str:
        rate = self.operations / self.elapsed if self.elapsed > 0 else 0.0
        faults = ", ".join(self.active_faults[number] for number in sorted(self.active_faults)) or "none"
        if (healed := self.injected - len(self.active_faults)) > 0:
            faults += f" ({healed} healed)"
        judged = "" if self.judged_until is None else f"  judged to {self.judged_until:.1f} s"
        return (
            f"{self.stage} {self.elapsed:6.1f} s  ok {self.ok} info {self.info} fail {self.fail}"
            f"  {rate:,.0f} ops/s{judged}  faults: {faults}"
        )


class Progress(Protocol):
    """Receives progress. ``update`` may be called often."""

    def note(self, text: str) -> None:
        """Shows a step in a line of its own: ``building the node image``."""

    def alarm(self, text: str) -> None:
        """Shows an important message, which stays visible."""

    def update(self, tally: RunTally) -> None: ...

    def close(self) -> None: ...


class SilentProgress:
    def note(self, text: str) -> None: ...

    def alarm(self, text: str) -> None: ...

    def update(self, tally: RunTally) -> None: ...

    def close(self) -> None: ...


class PlainProgress(SilentProgress):
    """Passes lines to ``write``, one every 5 s of real time at most."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._next = clock() + PLAIN_INTERVAL

    def note(self, text: str) -> None:
        self._write(text)

    alarm = note

    def update(self, tally: RunTally) -> None:
        if self._clock() >= self._next:
            self._next = self._clock() + PLAIN_INTERVAL
            self._write(tally.format_line())


class TerminalProgress:
    """A live line on a terminal. It is redrawn at most five times a second, and :meth:`close` removes it.

    ``suspend_capture`` is entered around each drawing, because pytest captures output.
    """

    def __init__(
        self,
        console: Console,
        suspend_capture: Callable[[], AbstractContextManager[object]] = nullcontext,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._next = 0.0
        self._suspend_capture = suspend_capture
        # No refresh thread, because it would write while pytest captures.
        self._live = Live(
            Text(""), console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        with suspend_capture():
            self._live.start()

    def note(self, text: str) -> None:
        self._show(text)

    def alarm(self, text: str) -> None:
        """Prints above the live line."""
        with self._suspend_capture():
            self._live.console.print(Text(text, style="bold red"))

    def update(self, tally: RunTally) -> None:
        if self._clock() >= self._next:
            self._next = self._clock() + LIVE_INTERVAL
            self._show(tally.format_line())

    def _show(self, line: str) -> None:
        with self._suspend_capture():
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self) -> None:
        with self._suspend_capture():
            self._live.stop()
