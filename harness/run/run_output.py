"""What a run leaves: in a folder of the store (``store.RunFolder``), or in memory."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from assay.harness.core.history import History
from assay.harness.core.history.in_memory import HistoryInMemory


class Keeping(Protocol):
    """Takes what one run leaves."""

    @property
    def logs(self) -> Path | None:
        """The folder for the nodes' text logs; None: they are not kept."""

    def open_history(self, loop: asyncio.AbstractEventLoop | None) -> History:
        """The run's history, empty. ``loop``: by whose clock rows are made safe while the run goes on."""

    def write(self, name: str, data: bytes) -> None:
        """A small file of this name, in place of the one before it."""


@dataclass
class InMemory:
    """Nothing goes to a disk. ``files`` by name."""

    history: HistoryInMemory = field(default_factory=HistoryInMemory)
    files: dict[str, bytes] = field(default_factory=dict)
    logs: Path | None = None

    def open_history(self, loop: asyncio.AbstractEventLoop | None) -> History:
        return self.history

    def write(self, name: str, data: bytes) -> None:
        self.files[name] = data
