"""The text logs of simulated processes, each kept apart with virtual times, as if every node had a file of its own.

All simulated processes log through this process's ``logging``; what they say belongs into the run's folder, not into
the output of whoever runs the harness.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import Final

from cluster.sim.loop import SimLoop
from cluster.sim.process import PROCESS

NAME: Final = "assay"
"""The system's loggers are below this one."""
KEPT: Final = 20_000
"""Lines per node, the newest."""
HARNESS: Final = "harness"
FILE: Final = "process.log"


class SimLogs(logging.Handler):
    """Takes what is logged below ``assay`` from :meth:`begin` to :meth:`end`."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(logging.INFO)
        self._loop = loop
        self._lines: dict[str, deque[str]] = {}
        self._before: tuple[int, bool] | None = None
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    def begin(self) -> None:
        logger = logging.getLogger(NAME)
        self._before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def end(self) -> None:
        """Puts the logger back as it was. Idempotent."""
        if self._before is not None:
            logger = logging.getLogger(NAME)
            logger.removeHandler(self)
            logger.level, logger.propagate = self._before
            self._before = None

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        node = HARNESS if process is None else process.name
        lines = self._lines.setdefault(node, deque(maxlen=KEPT))
        lines.append(f"{self._loop.time():11.6f} {self.format(record)}")

    def save(self, folder: Path) -> None:
        """``folder/NODE/process.log`` for every node that said anything."""
        for node, lines in self._lines.items():
            path = folder / node / FILE
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n")
