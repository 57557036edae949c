"""Looks into the servers each time a send is acknowledged, where a system can be seen into at an instant.

What it finds are rows of ``looks`` with look 0; what they mean is said where they are judged, in
``assay.checkers.servers.acknowledged_state``.
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
class Inspecting:
    """Satisfies ``Recorder``: what it is given goes into the history, and then the inspector looks."""

    history: History
    inspector: Inspector | None
    stamps: Stamps
    on_acknowledged: Callable[[str, int, Sequence[SeenAtRest]], None]
    """Called with a partition, the last offset of it that was acknowledged just now, and what the inspector found."""

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
        """Records how much was looked at."""
        if self.inspector is not None:
            self._record(self.inspector.looked_at())

    def _record(self, seen: Iterable[SeenAtRest]) -> None:
        for one in seen:
            now = self.stamps.now()
            self.history.look(look=0, time=now, ended=now, **one)
