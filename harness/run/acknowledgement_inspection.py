"""Inspects the servers each time a send is acknowledged, if the system can be inspected at an instant.

The findings are rows of ``looks`` with look 0. ``assay.checkers.servers.acknowledged_state`` judges them and explains
their meaning.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from assay.cluster.inspection import Inspector, SeenAtRest
from assay.harness.core.history import History
from assay.harness.core.operation import Completed, Effect, Outcome
from assay.harness.core.timestamps import Stamps

APPEND: Final = "append"


@dataclass
class InspectingRecorder:
    """A ``Recorder`` that records each operation in the history and then calls the inspector."""

    history: History
    inspector: Inspector | None
    stamps: Stamps
    on_acknowledged: Callable[[str, int, Sequence[SeenAtRest]], None]
    """Called with a partition, its last offset that was acknowledged just now, and the findings of the inspector."""

    def completed(self, completed: Completed, effects: Sequence[Effect]) -> None:
        self.history.completed(completed, effects)
        last: dict[str, int] = {}
        for effect in effects:
            outcome = completed.completion.outcome if effect.outcome is None else effect.outcome
            if effect.kind == APPEND and outcome is Outcome.OK and effect.position is not None:
                last[effect.key] = max(effect.position, last.get(effect.key, -1))
        for key, position in last.items():
            found = () if self.inspector is None else self.inspector.acknowledged(key, position)
            self._record(found)
            self.on_acknowledged(key, position, found)

    def close(self) -> None:
        """Records how much was inspected."""
        if self.inspector is not None:
            self._record(self.inspector.looked_at())

    def _record(self, seen: Iterable[SeenAtRest]) -> None:
        for one in seen:
            now = self.stamps.now()
            self.history.look(look=0, time=now, ended=now, **one)
