"""Standstill of the tester: how long it wanted to run, but its machine did not let it.

Deadlines are seconds of the wall clock. A machine may be overloaded, paused or asleep (a virtual machine, a closed
lid, Ctrl-Z). Deadlines then pass although no process could run, so a missed deadline proves nothing. A slow disk of the
tester has the same effect, because the history is written between the steps of its clients. Computation by the tester's
own process is no standstill, however long it takes.
"""

from dataclasses import dataclass
from typing import Final

WORTH: Final = 0.25
"""Minimum seconds of one standstill that counts. A busy machine takes turns of milliseconds."""


@dataclass
class StallMeter:
    """Adds up the delays of a task that sleeps repeatedly."""

    asleep: float
    """Intended seconds of each sleep."""
    total: float = 0.0
    """Seconds."""
    _last: tuple[float, float] | None = None

    def woke(self, now: float, computed: float) -> None:
        """Records the start and the end of each sleep. ``computed``: processor seconds of the whole process so far."""
        if self._last is not None:
            before, computed_before = self._last
            lost = now - before - self.asleep - (computed - computed_before)
            if lost >= WORTH:
                self.total += lost
        self._last = now, computed
