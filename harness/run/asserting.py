"""Asserts a system's invariants while a simulation runs: at each event of a node's log, before its process goes on.

The first that is broken ends the run. It goes into the history as a row ``broken`` of ``looks``, with look 0; how often
each was looked at, as rows ``asserted``. What they mean is said in ``assay.checkers.invariants``.
"""

from collections.abc import Callable
from typing import Any

from assay.cluster.node import Cluster
from assay.cluster.system import Asserting, Invariants, System
from assay.harness.core.history import History
from assay.harness.core.stamps import Stamps


class Assertions:
    """Of one run, from :meth:`begin` to :meth:`end`. ``broken``: has an invariant not held?"""

    def __init__(self) -> None:
        self.broken = False
        self._invariants: Invariants | None = None

    def begin(
        self, system: System, cluster: Cluster, history: History, stamps: Stamps, on_broken: Callable[[], None]
    ) -> None:
        """Does nothing where the system has no invariants, or cannot be looked at. ``on_broken`` is called once."""
        self._invariants = system.invariants(cluster) if isinstance(system, Asserting) else None
        if self._invariants is None:
            return
        self._history, self._stamps, self._on_broken = history, stamps, on_broken
        simulated: Any = cluster
        simulated.watch(self._line)

    def end(self) -> None:
        """Records how much was looked at; what comes later is not looked at. Idempotent."""
        invariants, self._invariants = self._invariants, None
        if invariants is not None:
            for name, count in sorted(invariants.asserted().items()):
                self._look(what="asserted", invariant=name, assertions=count)

    def _line(self, node: str, line: str) -> None:
        if self.broken or self._invariants is None:
            return
        for row in self._invariants.event(node, line):
            self._look(what="broken", **row)
            self.broken = True
        if self.broken:
            self._on_broken()

    def _look(self, **row: Any) -> None:
        now = self._stamps.now()
        self._history.look(look=0, time=now, ended=now, **row)
