"""A command whose standard input and output carry an SSH connection, for machines that have no address to dial.

The command runs on this machine: ``docker exec -i CONTAINER sshd -i`` starts an sshd in a container and connects it
with its own input and output. It ends when this process dies. It also ends when the socket is closed: a command that
does not end by itself is killed.
"""

import contextlib
import math
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

END_SECONDS = 2.0
"""Seconds that a command has to end by itself after its output has ended or its socket is closed. Then it is killed."""
KEPT_LINES = 3
"""Number of its last lines of errors that a message shows."""
LINE_LENGTH = 300
CHUNK_BYTES = 1 << 16
"""Bytes of a file that are in memory at a time while it is copied."""


class BytesTarget(Protocol):
    """An open file, or anything else that takes the content of a copied file."""

    def write(self, data: bytes, /) -> object: ...


@dataclass(frozen=True)
class SharedSocket:
    """A Unix socket at which this process listens, and which a command elsewhere can connect to.

    ``path``: where the command finds the socket. A container shares the file with this machine, but has another name
    for it.
    """

    listener: socket.socket
    path: str


def listen_at(file: Path) -> socket.socket:
    """Returns a Unix socket that listens. Only this user and root can connect. Raises ``OSError``."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(file))
        file.chmod(0o600)
        listener.listen(1)
    except BaseException:
        listener.close()
        raise
    return listener


class BytesSource(Protocol):
    """An open file, or anything else from which a file can be copied."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class StreamCommand:
    """The command and what belongs to it.

    - ``environment``: its environment variables; None means those of this process
    - ``remedy``: advice for a command that fails
    - ``print_file``: a command that prints the file whose path is appended. It reads large files. If it is empty, they
      are read through the connection
    - ``terminal``: a command that runs the appended program at a terminal, on the same machine
    - ``shared_socket``: a faster way for bytes than the command's input and output, if the command can connect to it
    """

    argv: tuple[str, ...]
    environment: dict[str, str] | None = field(default=None, compare=False)
    remedy: str = ""
    print_file: tuple[str, ...] = ()
    terminal: tuple[str, ...] = ()
    shared_socket: SharedSocket | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return " ".join(self.argv)


def copy_printed_file(
    command: StreamCommand, path: str, target: BytesTarget, timeout: float, most: int | None = None
) -> None:
    """Copies a file's content, printed by the command's ``print_file``. Raises ``OSError`` with its last line.

    ``most``: maximum number of bytes, because a file may grow while it is copied.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*command.print_file, path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            env=command.environment, start_new_session=True,
        )  # fmt: skip
        limit = threading.Timer(timeout, process.kill)
        limit.daemon = True
        began = time.monotonic()
        limit.start()
        try:
            assert process.stdout is not None
            with process.stdout as printed:
                if not copy_at_most(printed, target, most):
                    return
            status = process.wait()
        finally:
            limit.cancel()
            process.kill()
            process.wait()
        if status != 0 and time.monotonic() - began >= timeout:
            raise TimeoutError(f"{path} was not read within {timeout:g} s")
        if status != 0:
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            raise OSError(lines[-1][:LINE_LENGTH] if lines else f"`{command.print_file[0]}` exited {status}")


def copy_at_most(source: BytesSource, target: BytesTarget, most: int | None) -> bool:
    """Copies a file in pieces, at most ``most`` bytes. Returns whether its end was reached."""
    left = math.inf if most is None else most
    while left > 0:
        data = source.read(int(min(left, CHUNK_BYTES)))
        if not data:
            return True
        target.write(data)
        left -= len(data)
    return False


class _StreamSocket(socket.socket):
    """A socket that calls a function after it has been closed."""

    def __init__(self, open_socket: socket.socket, on_close: Callable[[], None]) -> None:
        super().__init__(open_socket.family, open_socket.type, open_socket.proto, open_socket.detach())
        self._on_close = on_close

    def close(self) -> None:
        super().close()
        self._on_close()


class CommandStream:
    """A running command. ``socket`` reads its output and writes its input."""

    def __init__(self, command: StreamCommand) -> None:
        """Raises ``OSError`` if the command cannot be started."""
        self.command = command
        self._errors: deque[str] = deque(maxlen=KEPT_LINES)
        near_end, far_end = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                command.argv, stdin=far_end.fileno(), stdout=far_end.fileno(), stderr=subprocess.PIPE,
                env=command.environment,
                start_new_session=True,  # Ctrl-C must not end it before the faults are healed
            )  # fmt: skip
        except OSError:
            near_end.close()
            raise
        finally:
            far_end.close()
        self.socket: socket.socket = _StreamSocket(near_end, self._require_end)
        self._reaper = threading.Thread(target=self._reap, daemon=True, name=f"errors of {command.argv[0]}")
        self._reaper.start()

    def read_errors(self, timeout: float) -> str:
        """Returns the last lines of the command's errors. Waits up to ``timeout`` seconds for the end of a command."""
        self._reaper.join(timeout)
        return " | ".join(self._errors)

    def _require_end(self) -> None:
        """Kills the command if it does not end soon.

        A command may not see that its input has ended. If unread output is lost with the socket, then reading the
        input fails with ``ECONNRESET`` instead.
        """
        timer = threading.Timer(END_SECONDS, self._kill)
        timer.daemon = True
        timer.start()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _reap(self) -> None:
        """Reads the errors, so that the command never waits for a reader, and then collects its exit status."""
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            while line := errors.readline(LINE_LENGTH):
                if text := line.decode("utf-8", "replace").strip():
                    self._errors.append(text)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
