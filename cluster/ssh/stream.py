"""The lines of a node's event log, as they are written, from a thread to the event loop."""

import asyncio
import shlex
import threading

import paramiko

from assay.cluster.node import NodeError
from assay.cluster.ssh.connection import SshConnection


class Stream:
    """A thread of its own per event log: it waits in ``recv`` for as long as the run lasts.

    A connection that breaks is resumed after the lines that were delivered already.
    """

    def __init__(self, connection: SshConnection, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self.queue: asyncio.Queue[str | None] = asyncio.Queue()
        self.error: NodeError | None = None
        self._connection = connection
        self._path = path
        self._loop = loop
        self._closing = threading.Event()
        self._channel: paramiko.Channel | None = None
        self._delivered = 0
        self._thread = threading.Thread(target=self._follow, name=f"tail {path}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._channel is not None:
            self._channel.close()
        self._thread.join(timeout=15)

    def _opened(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        if self._closing.is_set():
            channel.close()

    def _follow(self) -> None:
        failures = 0
        while not self._closing.is_set():
            try:
                for line in self._connection.lines(self._command(), self._opened):
                    self._delivered += 1
                    failures = 0
                    self._hand_over(line)
            except NodeError as error:
                failures += 1
                if failures > 3 and not self._closing.is_set():
                    self.error = error
                    break
            self._closing.wait(0.2)
        self._hand_over(None)

    def _command(self) -> str:
        folder, path = shlex.quote(self._path.rpartition("/")[0]), shlex.quote(self._path)
        return f"mkdir -p {folder}; exec tail -n +{self._delivered + 1} -F {path} 2>/dev/null"

    def _hand_over(self, line: str | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.queue.put_nowait, line)
