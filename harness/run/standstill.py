"""How long the tester itself stood still: it wanted to go on, and its machine did not let it.

Deadlines are seconds of the wall's clock. Where a machine is far too busy, is paused or sleeps (a virtual machine, a
closed lid, Ctrl-Z), they pass without anyone having had the time to keep them, and what missed one proves nothing.
What the tester's process computes meanwhile is no standstill, however long it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WORTH: Final = 0.25
"""Seconds in one go from which it counts: a busy machine takes turns, and each is a matter of milliseconds."""


@dataclass
class Standstill:
    """Adds up what each sleep took too long."""

    total: float = 0.0
    """Seconds."""

    def slept(self, meant: float, took: float, computed: float) -> None:
        """One sleep, all in seconds; ``computed``: processor time of the whole process in it."""
        lost = took - meant - computed
        if lost >= WORTH:
            self.total += lost
