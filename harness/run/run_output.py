"""The output of a run: in a folder of the store (``store.RunFolder``), or in memory."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from assay.harness.core.history import History
from assay.harness.core.history.in_memory import HistoryInMemory


class RunOutput(Protocol):
    """Receives the output of one run."""

    @property
    def logs(self) -> Path | None:
        """The folder for the nodes' text logs; None if they are not kept."""

    def open_history(self, loop: asyncio.AbstractEventLoop | None) -> History:
        """Opens the run's empty history. ``loop``: the clock by which rows are sealed during the run."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file, replacing an earlier one of this name."""


@dataclass
class InMemoryOutput:
    """Keeps everything in memory; ``files`` is indexed by name."""

    history: HistoryInMemory = field(default_factory=HistoryInMemory)
    files: dict[str, bytes] = field(default_factory=dict)
    logs: Path | None = None

    def open_history(self, loop: asyncio.AbstractEventLoop | None) -> History:
        return self.history

    def write(self, name: str, data: bytes) -> None:
        self.files[name] = data
