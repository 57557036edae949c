"""Text logs of a run's nodes: collects those of simulated processes, with virtual times, and reads the last lines.

All simulated processes share this process's ``logging``, standard output and standard error. Their output belongs in
the run's folder, not in the harness's own output. If a start fails, the error shows the last lines.
"""

import logging
import re
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TextIO

from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.process import PROCESS

NAME: Final = "assay"
"""Name of the logger above all loggers of the system and the harness."""
HEAD_LINES: Final = 2_000
"""Maximum number of first lines that are kept per simulated process."""
HEAD_BYTES: Final = 1 << 20
"""Maximum number of their bytes."""
TAIL_LINES: Final = 18_000
"""Maximum number of last lines that are kept per simulated process."""
TAIL_BYTES: Final = 7 << 20
"""Maximum number of their bytes."""
LINE_BYTES: Final = 64 << 10
"""Bytes of a longer line that are kept: half at its beginning, half at its end."""
HARNESS: Final = "harness"
FILE: Final = "process.log"


class LogBuffer:
    """The first and the last lines of a log in memory. A line between them says what was left out."""

    def __init__(self) -> None:
        self._head: list[bytes] = []
        self._head_bytes = 0
        self._tail: deque[tuple[float, bytes]] = deque()
        self._tail_bytes = 0
        self._left_out = 0
        self._left_out_bytes = 0
        self._left_out_at = 0.0
        """The time of the last line that was left out."""

    def add(self, time: float, text: str) -> None:
        """Adds a line. ``time``: virtual seconds."""
        line = _shorten(f"{time:11.6f} {text}".encode(errors="backslashreplace"))
        if not self._tail and len(self._head) < HEAD_LINES and self._head_bytes + len(line) <= HEAD_BYTES:
            self._head.append(line)
            self._head_bytes += len(line)
            return
        self._tail.append((time, line))
        self._tail_bytes += len(line)
        while len(self._tail) > TAIL_LINES or self._tail_bytes > TAIL_BYTES:
            self._left_out_at, dropped = self._tail.popleft()
            self._tail_bytes -= len(dropped)
            self._left_out += 1
            self._left_out_bytes += len(dropped)

    def read(self) -> bytes:
        """Returns the lines."""
        lines = list(self._head)
        if self._left_out:
            text = f"assay: {self._left_out} lines of {self._left_out_bytes} bytes were left out here"
            lines.append(f"{self._left_out_at:11.6f} {text}".encode())
        return b"\n".join([*lines, *(line for _, line in self._tail), b""])


def _shorten(line: bytes) -> bytes:
    if len(line) <= LINE_BYTES:
        return line
    half = LINE_BYTES // 2
    begin, end = (part.decode(errors="ignore").encode() for part in (line[:half], line[-half:]))  # whole characters
    return b"%b ... assay: %d bytes were left out here ... %b" % (begin, len(line) - len(begin) - len(end), end)


class SimLogs(logging.Handler):
    """Collects log records from :meth:`begin` to :meth:`end`: all of ``assay``, and all of simulated processes.

    Other handlers do not see these records. The handlers of pytest keep every record of a test, with the exceptions in
    it and their frames, so a long run would take more and more memory.
    """

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(logging.INFO)
        self._loop = loop
        self._buffers: dict[str, LogBuffer] = {}
        self._logger_state: tuple[int, bool] | None = None
        self._others: list[logging.Handler] = []
        """The other handlers of the system's loggers."""
        self._filtered: list[logging.Handler] = []
        """The other handlers of the root logger."""
        self._streams: list[_SeparatedStream] = []
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    def begin(self) -> None:
        logger = logging.getLogger(NAME)
        self._logger_state = logger.level, logger.propagate
        root = logging.getLogger()
        self._others, self._filtered = list(logger.handlers), list(root.handlers)
        for other in self._others:
            logger.removeHandler(other)
        for other in self._filtered:
            other.addFilter(_is_of_harness)
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        root.addHandler(self)
        self._streams = [_SeparatedStream(one, self) for one in (sys.stdout, sys.stderr)]

    def end(self) -> None:
        """Restores the loggers, standard output and standard error. Idempotent."""
        if self._logger_state is not None:
            logger = logging.getLogger(NAME)
            logger.removeHandler(self)
            logging.getLogger().removeHandler(self)
            for other in self._others:
                logger.addHandler(other)
            for other in self._filtered:
                other.removeFilter(_is_of_harness)
            logger.level, logger.propagate = self._logger_state
            self._logger_state = None
            while self._streams:
                self._streams.pop().restore()

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()  # the simulated process whose code runs; None: the harness
        if process is not None:
            for line in self.format(record).splitlines():
                self.add(process.name, line)
        elif record.name.partition(".")[0] == NAME:
            self.add(HARNESS, self.format(record))

    def add(self, node: str, line: str) -> None:
        """Adds a line to a node's log."""
        buffer = self._buffers.get(node)
        if buffer is None:
            buffer = self._buffers[node] = LogBuffer()
        buffer.add(self._loop.time(), line)

    def save(self, folder: Path) -> None:
        """Writes ``NODE/process.log`` for every node with output, and a file for each further process of a node."""
        for name, buffer in self._buffers.items():
            node, _, process = name.partition("/")
            path = folder / node / (f"{process}.log" if process else FILE)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(buffer.read())


def _is_of_harness(record: logging.LogRecord) -> bool:
    """Returns whether a record comes from no simulated process."""
    return PROCESS.get() is None


class _SeparatedStream:
    """Separates the output of simulated processes from that of the harness, in standard output or error.

    Only the stream's ``write`` is replaced, not the stream in ``sys``. The reason is that pytest's capturing sets
    ``sys.stdout`` again at each phase of a test and around each line of progress. It also closes its stream when the
    session is interrupted.
    """

    def __init__(self, stream: TextIO, logs: SimLogs) -> None:
        self._stream = stream
        self._logs = logs
        self._write = stream.write
        self._replaced = vars(stream).get("write")
        vars(stream)["write"] = self.write

    def write(self, text: str) -> int:
        process = PROCESS.get()
        if process is None:
            return self._write(text)
        for line in text.splitlines():
            if line:
                self._logs.add(process.name, line)
        return len(text)

    def restore(self) -> None:
        if self._replaced is None:
            del vars(self._stream)["write"]
        else:
            vars(self._stream)["write"] = self._replaced


LAST_LINES: Final = 8
"""Number of last lines that an error shows of each log."""
SHOWN_NODES: Final = 3
"""Maximum number of nodes whose logs an error shows."""
END_BYTES: Final = 65536
"""Bytes at the end of a log in which its last lines are looked for."""


def read_last_lines(logs: Path, error: str) -> list[str]:
    """Returns the last log lines of the nodes that ``error`` names, or else of the first nodes.

    ``logs``: has a folder per node.
    """
    folders = sorted(folder for folder in logs.glob("*") if folder.is_dir())
    named = [folder for folder in folders if re.search(rf"\b{re.escape(folder.name)}\b", error)]
    lines: list[str] = []
    for folder in (named or folders)[:SHOWN_NODES]:
        ends = [(path.name, _read_end(path)) for path in sorted(folder.glob("*"))]
        for name, end in ends:
            if end:
                lines += [f"the last lines of {folder.name}'s {name}:", *(f"  {line}" for line in end)]
        if not any(end for _, end in ends):
            lines.append(f"{folder.name} printed nothing")
    return lines


def _read_end(path: Path) -> Iterable[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - END_BYTES))
        return file.read().decode(errors="replace").rstrip().splitlines()[-LAST_LINES:]
