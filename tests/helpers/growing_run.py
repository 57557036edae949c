"""A run that goes on as long as a test wants: its folder as an attempt makes it, and a history that grows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from assay.checkers.judging.contract import Contract
from assay.cluster.owner import current_owner
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.run import store
from assay.harness.run.store import RunInfo

MILLISECOND: Final = 1_000_000
CONTRACT: Final = Contract(forbidden=("set-lost", "set-stale", "set-vanished", "set-phantom"))


class GrowingRun:
    """Adds to a set and reads of it, one operation each 10 ms."""

    def __init__(self, root: Path, owner: str | None = None) -> None:
        self.folder = store.create_run_folder(root, "tests/test_sets.py::test_sets", datetime.now(UTC))
        self.info = RunInfo(
            test="tests/test_sets.py::test_sets",
            status=store.RUNNING,
            started=datetime.now(UTC).isoformat(),
            owner=owner or str(current_owner()),
            seed=1,
            cluster="docker",
            nemesis="none",
            command="pytest tests/test_sets.py",
        )
        self.folder.write_run(self.info)
        self.folder.write_json("settings.json", {"contract": CONTRACT})
        self._under_way: list[tuple[Completed, Sequence[Effect]]] = []
        self.history = HistoryWriter(self.folder.history)
        self.history.show_unfinished(lambda: self._under_way)
        self._index = 0

    @property
    def path(self) -> Path:
        return self.folder.path

    def add(self, element: int) -> None:
        self._done("add", element, Outcome.OK, [Effect("set-add", "s", value=element)])

    def adding(self, element: int) -> None:
        """It has not ended."""
        operation = self._operation("add", element, Outcome.INFO)
        self._under_way.append((operation, [Effect("set-add", "s", value=element)]))

    def read(self, *elements: int) -> None:
        read = [Effect("set-read", "s", value=element) for element in elements]
        self._done("read", None, Outcome.OK, read or [Effect("set-read", "s")])

    def end(self, status: str = store.FINISHED) -> None:
        digest = self.history.digest()
        self.history.close()
        self.folder.write_run(_with(self.info, status, digest))

    def _done(self, f: str, argument: object, outcome: Outcome, effects: Sequence[Effect]) -> None:
        self.history.completed(self._operation(f, argument, outcome), effects)

    def _operation(self, f: str, argument: object, outcome: Outcome) -> Completed:
        index, call = self._index, self._index * 10 * MILLISECOND
        self._index += 1
        ret = None if outcome is Outcome.INFO else call + MILLISECOND
        return Completed(index, index, f"w{index}", Operation(f, "s", argument), Completion(outcome), call, ret, None)


def _with(info: RunInfo, status: str, digest: str) -> RunInfo:
    return msgspec.structs.replace(info, status=status, ended=datetime.now(UTC).isoformat(), digest=digest)
