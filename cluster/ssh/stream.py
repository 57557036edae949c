"""Streams the lines of a long-running command on a node, from a thread to the event loop.

Three commands are streamed. They follow the event log, report the sizes of the text logs, and report the memory and the
disk space that the node uses (``usage``).
"""

import asyncio
import shlex
import threading
from collections.abc import Callable, Sequence
from typing import Final

import paramiko

from assay.cluster.node import NodeError
from assay.cluster.ssh.connection import LongLineError, SshConnection

POLL_SECONDS: Final = 0.5
"""Seconds between two reads of the sizes. Each read costs a node two processes of a millisecond."""

MOST_WAITING: Final = 50_000
"""Maximum number of lines that wait. If there are as many, no further line is read from the node."""

Command = Callable[[int], str]
"""Returns the shell command that continues after the given number of delivered lines."""


def follow_command(path: str) -> Command:
    """Returns the command that prints a file from its first line on, even if the file does not exist yet."""
    folder, file = shlex.quote(path.rpartition("/")[0]), shlex.quote(path)
    return lambda delivered: f"mkdir -p {folder}; exec tail -n +{delivered + 1} -F {file} 2>/dev/null"


def size_watch_command(words: Sequence[str], every: float = POLL_SECONDS) -> Command:
    """Returns the command that prints size and path of the files that these shell words name, if a size has changed.

    Each read ends with an empty line. Once the output is closed, the write of this line ends the command (SIGPIPE).
    """
    sizes = f"stat -c '%s %n' {' '.join(words)} 2>/dev/null"
    once = f"""now=$({sizes}); [ "$now" = "$before" ] || printf '%s\\n' "$now"; before=$now; echo"""
    return lambda delivered: f"before=; while :; do {once}; sleep {every:g}; done"


class LineStream:
    """The lines of one command, read by a separate thread.

    After a broken connection the command is run again, and continues after the lines that were already delivered.
    """

    def __init__(self, connection: SshConnection, command: Command, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(MOST_WAITING)
        self.error: NodeError | None = None
        self.rest = ""
        """The text after the last line feed, once the stream is closed."""
        self._connection = connection
        self._command = command
        self._loop = loop
        self._closing = threading.Event()
        self._channel: paramiko.Channel | None = None
        self._delivered = 0
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
        self._thread.start()

    async def next_line(self) -> str | None:
        """Returns the next line; None at the end. ``error`` then has the error that ended the lines, if any."""
        line = await self._queue.get()
        self._room.release()
        return line

    def close(self) -> None:
        self._closing.set()
        if self._channel is not None:
            self._channel.close()
        self._thread.join(timeout=15)

    def _opened(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        if self._closing.is_set():
            channel.close()

    def _keep_rest(self, rest: str) -> None:
        self.rest = rest

    def _follow(self) -> None:
        failures = 0
        while not self._closing.is_set():
            self.rest = ""
            try:
                for line in self._connection.lines(self._command(self._delivered), self._opened, self._keep_rest):
                    self._delivered += 1
                    failures = 0
                    while not self._room.acquire(timeout=0.05) and not self._closing.is_set():
                        pass  # the node waits, too, because nothing more is read from it
                    self._hand_over(line)
            except LongLineError as error:
                self.error = error
                break
            except NodeError as error:
                failures += 1
                if failures > 3 and not self._closing.is_set():
                    self.error = error
                    break
            self._closing.wait(0.2)
        self._hand_over(None)

    def _hand_over(self, line: str | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
