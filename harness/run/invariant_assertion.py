"""Asserts a system's invariants while a simulation runs: at each event of a node's log, before its process goes on, and
at each acknowledgement.

The first that is broken ends the run. It goes into the history as a row ``broken`` of ``looks``, with look 0; how often
each was looked at, as rows ``asserted``. What they mean is said in ``assay.checkers.servers.invariants``.
"""

from collections.abc import Callable, Sequence
from typing import Any

from assay.cluster.inspection import Invariants, SeenAtRest, SupportsInvariants
from assay.cluster.node import Cluster
from assay.cluster.system import System
from assay.harness.core.history import History
from assay.harness.core.timestamps import Stamps


class Assertions:
    """Of one run, from :meth:`begin` to :meth:`end`. ``broken``: has an invariant not held?"""

    def __init__(self) -> None:
        self.broken = False
        self._invariants: Invariants | None = None
        self._error: Exception | None = None

    def begin(
        self, system: System, cluster: Cluster, history: History, stamps: Stamps, on_broken: Callable[[], None]
    ) -> None:
        """Does nothing where the system has no invariants, or cannot be looked at. ``on_broken`` is called once."""
        self._invariants = system.invariants(cluster) if isinstance(system, SupportsInvariants) else None
        if self._invariants is None:
            return
        self._history, self._stamps, self._on_broken = history, stamps, on_broken
        simulated: Any = cluster
        simulated.watch(self._line)

    def end(self) -> None:
        """Records how much was looked at; what comes later is not looked at. Idempotent. Raises what an invariant has
        raised: it is no finding about the system.
        """
        invariants, self._invariants = self._invariants, None
        if invariants is not None:
            for name, count in sorted(invariants.asserted().items()):
                self._look(what="asserted", invariant=name, assertions=count)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def acknowledged(self, key: str, position: int, found: Sequence[SeenAtRest]) -> None:
        """A client has learned that its send to a partition was acknowledged, up to this offset; ``found``: what the
        system's inspector says to that.
        """
        if not self.broken and self._invariants is not None:
            self._take(self._invariants.acknowledged, key, position, found)

    def _line(self, node: str, line: str) -> None:
        if not self.broken and self._invariants is not None:
            self._take(self._invariants.event, node, line)

    def _take(self, ask: Callable[..., Sequence[SeenAtRest]], *given: Any) -> None:
        try:
            for row in ask(*given):
                self._look(what="broken", **row)
                self.broken = True
        except Exception as error:  # noqa: BLE001 - it must not end the process that has written the line
            self.broken, self._error = True, error
        if self.broken:
            self._on_broken()

    def _look(self, **row: Any) -> None:
        now = self._stamps.now()
        self._history.look(look=0, time=now, ended=now, **row)
