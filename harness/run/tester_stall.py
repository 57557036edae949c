"""How long the tester itself stood still: it wanted to go on, and its machine did not let it.

Deadlines are seconds of the wall's clock. Where a machine is far too busy, is paused or sleeps (a virtual machine, a
closed lid, Ctrl-Z), they pass without anyone having had the time to keep them, and what missed one proves nothing. So
does a slow disk of the tester's, since the history is written between the steps of its clients.
What the tester's process computes meanwhile is no standstill, however long it takes.
"""

from dataclasses import dataclass
from typing import Final

WORTH: Final = 0.25
"""Seconds in one go from which it counts: a busy machine takes turns, and each is a matter of milliseconds."""


@dataclass
class Standstill:
    """Adds up what a task that sleeps again and again was late by."""

    asleep: float
    """Seconds that each of its sleeps is meant to take."""
    total: float = 0.0
    """Seconds."""
    _last: tuple[float, float] | None = None

    def woke(self, now: float, computed: float) -> None:
        """Once at its begin and after each sleep; ``computed``: seconds of the whole process on a processor so far."""
        if self._last is not None:
            before, computed_before = self._last
            lost = now - before - self.asleep - (computed - computed_before)
            if lost >= WORTH:
                self.total += lost
        self._last = now, computed
