"""Text logs of simulated processes: one log per node, with virtual times.

All simulated processes share this process's ``logging`` and standard error. Their output belongs in the run's folder,
not in the harness's own output.
"""

import io
import logging
import sys
from collections import deque
from pathlib import Path
from typing import Final, TextIO

from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.process import PROCESS

NAME: Final = "assay"
"""Parent of the system's loggers."""
KEPT: Final = 20_000
"""Lines kept per node, the newest."""
HARNESS: Final = "harness"
FILE: Final = "process.log"


class SimLogs(logging.Handler):
    """Collects log records below ``assay`` from :meth:`begin` to :meth:`end`."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(logging.INFO)
        self._loop = loop
        self._lines: dict[str, deque[str]] = {}
        self._before: tuple[int, bool] | None = None
        self._stderr: TextIO | None = None
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    def begin(self) -> None:
        logger = logging.getLogger(NAME)
        self._before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        self._stderr = sys.stderr
        sys.stderr = _SeparatedStderr(sys.stderr, self)

    def end(self) -> None:
        """Restores the logger and standard error. Idempotent."""
        if self._before is not None:
            logger = logging.getLogger(NAME)
            logger.removeHandler(self)
            logger.level, logger.propagate = self._before
            self._before = None
            if self._stderr is not None:
                sys.stderr, self._stderr = self._stderr, None

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        self.add(HARNESS if process is None else process.name, self.format(record))

    def add(self, node: str, line: str) -> None:
        """Adds a line to a node's log."""
        self._lines.setdefault(node, deque(maxlen=KEPT)).append(f"{self._loop.time():11.6f} {line}")

    def save(self, folder: Path) -> None:
        """Writes ``folder/NODE/process.log`` for every node with output, and ``second.log`` for a second copy of a
        process.
        """
        for name, lines in self._lines.items():
            node, _, process = name.partition("/")
            path = folder / node / (f"{process}.log" if process else FILE)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="backslashreplace")


class _SeparatedStderr(io.TextIOBase):
    """Standard error that separates the output of simulated processes from that of the harness."""

    def __init__(self, real: TextIO, logs: SimLogs) -> None:
        self._real = real
        self._logs = logs

    def write(self, text: str) -> int:
        process = PROCESS.get()
        if process is None:
            return self._real.write(text)
        for line in text.splitlines():
            if line:
                self._logs.add(process.name, line)
        return len(text)

    def flush(self) -> None:
        self._real.flush()

    def isatty(self) -> bool:
        return self._real.isatty()
