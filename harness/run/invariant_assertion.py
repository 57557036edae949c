"""Asserts a system's invariants during a simulation: at each event of a node's log, and at each acknowledgement.

An event is checked before its process goes on. The first broken invariant ends the run and is recorded as a row
``broken`` of ``looks``, with look 0. Rows ``asserted`` count how often each was checked.
``assay.checkers.servers.invariants`` judges both.
"""

from collections.abc import Callable, Sequence
from typing import Any

from assay.cluster.inspection import Invariants, SeenAtRest, SupportsInvariants
from assay.cluster.node import Cluster
from assay.cluster.system import System
from assay.harness.core.history import History
from assay.harness.core.timestamps import Stamps


class InvariantAsserter:
    """The assertions of one run, from :meth:`begin` to :meth:`end`. ``broken``: whether an invariant did not hold."""

    def __init__(self) -> None:
        self.broken = False
        self._invariants: Invariants | None = None
        self._error: Exception | None = None

    def begin(
        self, system: System, cluster: Cluster, history: History, stamps: Stamps, on_broken: Callable[[], None]
    ) -> None:
        """Starts the assertions, if the system has invariants and can be inspected. ``on_broken`` is called once."""
        self._invariants = system.invariants(cluster) if isinstance(system, SupportsInvariants) else None
        if self._invariants is None:
            return
        self._history, self._stamps, self._on_broken = history, stamps, on_broken
        simulated: Any = cluster
        simulated.watch(self._line)

    def end(self) -> None:
        """Records how often each invariant was checked, and checks nothing more. Idempotent.

        Raises the exception of an invariant, if there was one, because it is no finding about the system.
        """
        invariants, self._invariants = self._invariants, None
        if invariants is not None:
            for name, count in sorted(invariants.asserted().items()):
                self._look(what="asserted", invariant=name, assertions=count)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def acknowledged(self, key: str, position: int, found: Sequence[SeenAtRest]) -> None:
        """Checks an acknowledgement of a send to a partition, up to this offset. ``found``: rows of the system's
        inspector.
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
