"""The broker as a process of a real machine: its :class:`~assay.system_under_test.runtime.Runtime`, log and signals."""

import asyncio
import contextlib
import errno
import logging
import os
import random
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from assay.system_under_test.runtime import Storage, ZooKeeper
from assay.system_under_test.storage.local import LocalStorage
from assay.system_under_test.zookeeper.adapter import KazooZooKeeper

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ProcessRuntime:
    """Runtime of a real process: the machine's clock, files and random numbers. Satisfies ``runtime.Runtime``."""

    def __init__(self, event_log: str | None) -> None:
        self.random: random.Random = random.SystemRandom()
        self.storage: Storage = LocalStorage("/")
        self.host_name = socket.gethostname()
        self._event_log_path = event_log
        self._event_log: int | None = None

    def open_event_log(self) -> None:
        """Opens the event log, if there is one, and makes its folder. Lines written before this call are dropped.

        Must be called only after the data directory was locked: otherwise the event log may belong to another process.
        Raises ``OSError``, also for a pipe, because a slow reader would block the broker.
        """
        if self._event_log_path is None:
            return
        Path(self._event_log_path).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISFIFO(os.stat(self._event_log_path).st_mode):
                raise OSError(errno.EINVAL, "this is a pipe, whose slow reader would stop the broker; give a file")
        self._event_log = os.open(self._event_log_path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        size = os.fstat(self._event_log).st_size
        if size and os.pread(self._event_log, 1, size - 1) != b"\n":  # the last line is incomplete: the disk was full
            os.write(self._event_log, b"\n")

    def wall_clock(self) -> float:
        return time.time()

    def zookeeper(self, servers: str, session_timeout: float) -> ZooKeeper:
        return KazooZooKeeper(servers, session_timeout)

    def event_log(self, line: str) -> None:
        if self._event_log is not None:
            data = line.encode() + b"\n"
            while data:  # one write, unless the disk is full: a killed process leaves complete lines
                data = data[os.write(self._event_log, data) :]

    def hold(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def read_file(self, path: str) -> bytes:
        """Reads a regular file. Raises ``OSError``, also for a FIFO or a device, because a read might never end."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "this is no regular file, and it may never end; give a regular one", path)
        with open(descriptor, "rb") as file:
            return file.read()


def open_missing_streams() -> None:
    """Opens /dev/null in the place of each standard stream that was closed before the start (``2>&-``).

    Otherwise a file of the data directory would get the stream's number, and a crash report would be written into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is the stream's own
            setattr(sys, name, os.fdopen(descriptor, mode))


def run_process(entry: Coroutine[Any, Any, int]) -> int:
    """Runs the process to its end and returns its exit code; SIGTERM or SIGINT cancels it, once. Logs to stderr."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    _raise_open_file_limit()
    return asyncio.run(_until_signalled(entry))


async def _until_signalled(entry: Coroutine[Any, Any, int]) -> int:
    """Cancels the entry at the first signal. Later signals are ignored until the process has ended.

    A later signal must not cancel the shutdown, because the logs would not be flushed. The event loop's own signal
    handlers are not used: they end with the loop, and a signal after that would kill the process.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(entry)
    is_stopping = False

    def stop(*_: object) -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            loop.call_soon_threadsafe(task.cancel)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    try:
        return await task
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _raise_open_file_limit() -> None:
    """Raises the limit of open files to its maximum.

    The usual limit of 1,024 is fewer than connections alone may need, and a broker that cannot open a file stops.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
