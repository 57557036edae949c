"""``breakpoint()`` in a worker process, whose standard streams carry messages: pdb on a socket.

The worker process prints a line, and waits until a terminal is connected to its socket. The harness reads the line, and
runs this module with the user's terminal, in the container of the worker process. Both stand still until the user
continues, as they would if the client ran in the harness.
"""

import os
import pdb
import selectors
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

MARK: Final = "assay: breakpoint at "
"""Start of the line that the worker process prints when it waits for a terminal. A token and the place follow."""
OPTION: Final = "--terminal="
"""The worker process gets its token in this argument. Any line that a client prints could begin with the mark alone."""
SOCKET: Final = "/tmp/assay-breakpoint-{}"
"""Path of the socket of a worker process. Its token keeps it apart from others on the same machine."""
CONNECT_SECONDS: Final = 30.0
"""Maximum seconds for which the worker process waits for a terminal. Then it goes on."""
PIECE: Final = 1 << 12
COMMAND: Final = ("python3", "-m", "assay.harness.remote.debugger")
"""The program that connects its standard streams to the socket that its argument names."""


class SocketDebugger(pdb.Pdb):
    """pdb for the user whose terminal is connected to its socket. ``token``: see :func:`make_mark`."""

    def __init__(self, token: str) -> None:
        super().__init__(stdout=sys.stderr, nosigint=True, readrc=False)  # giving stdout keeps it from using readline
        self._mark = make_mark(token)
        self._path = Path(SOCKET.format(token))
        self._connection: socket.socket | None = None

    def interaction(self, frame: FrameType | None, *arguments: Any, **named: Any) -> None:
        """Asks the user at a stop. If no terminal is connected, the program goes on."""
        if self._connection is None and not self._connect(frame):
            _print(f"no terminal was connected within {CONNECT_SECONDS:g} s: the breakpoint is skipped")
            return self.set_continue()
        try:
            super().interaction(frame, *arguments, **named)
        except OSError:  # the terminal is gone
            self.set_continue()
        return None

    def set_continue(self) -> None:
        super().set_continue()
        self._disconnect()

    def set_quit(self) -> None:
        super().set_quit()
        self._disconnect()

    def do_EOF(self, arg: str) -> bool | None:
        """Continues: the terminal was disconnected by Ctrl-D or Ctrl-C."""
        return self.do_continue(arg)

    def _connect(self, frame: FrameType | None) -> bool:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._path))
            listener.listen(1)
            listener.settimeout(CONNECT_SECONDS)
            _print(f"{self._mark}{_describe_place(frame)}")
            try:
                self._connection = listener.accept()[0]
            except TimeoutError:
                return False
            finally:
                self._path.unlink(missing_ok=True)
        stream: IO[str] = self._connection.makefile("rw", encoding="utf-8", errors="replace")
        self.stdin = self.stdout = stream
        return True

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                self.stdout.close()
            connection.close()


def make_mark(token: str) -> str:
    """Returns the start of the line by which a worker process asks for a terminal. Only the harness knows its token."""
    return f"{MARK}{token} "


def find_token(argv: Sequence[str]) -> str:
    """Returns the token in the command of a worker process; empty if there is none."""
    return next((word.removeprefix(OPTION) for word in argv if word.startswith(OPTION)), "")


def install(token: str) -> None:
    """Lets ``breakpoint()`` and ``pdb.set_trace()`` open a :class:`SocketDebugger`.

    An empty token means that there is no terminal. Then they print one line and go on.
    """
    debugger = SocketDebugger(token)

    def stop(*_arguments: object, **_named: object) -> None:
        frame = sys._getframe(1)
        if token:
            debugger.set_trace(frame)
        else:
            _print(f"the breakpoint at {_describe_place(frame)} is skipped: pytest has no terminal")

    sys.breakpointhook = stop
    pdb.set_trace = stop


def has_terminal() -> bool:
    """Returns whether a user sits at the terminal of this process. A process of pytest-xdist has none of its own."""
    if "PYTEST_XDIST_WORKER" in os.environ or os.environ.get("PYTHONBREAKPOINT") == "0":
        return False
    try:
        with open_terminal() as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def open_terminal() -> IO[bytes]:
    """Opens the terminal of this process, even if its standard streams lead elsewhere. Raises ``OSError``."""
    return Path("/dev/tty").open("r+b", buffering=0)


def connect_streams(path: str) -> int:
    """Connects standard input and output to the socket, until either ends. Ctrl-C and Ctrl-D end it.

    Returns the exit code: 1 if no worker process waits at the socket.
    """
    with socket.socket(socket.AF_UNIX) as connection, selectors.DefaultSelector() as selector:
        try:
            connection.connect(path)
        except OSError as error:
            _print(f"no client waits at a breakpoint: {path}: {error.strerror}")
            return 1
        selector.register(connection, selectors.EVENT_READ)
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        with suppress(KeyboardInterrupt, OSError):
            while True:
                for key, _ in selector.select():
                    if key.fileobj is connection:
                        if not (data := connection.recv(PIECE)):
                            return 0
                        os.write(sys.stdout.fileno(), data)
                    else:
                        if not (data := os.read(sys.stdin.fileno(), PIECE)):
                            return 0
                        connection.sendall(data)
    return 0


def _describe_place(frame: FrameType | None) -> str:
    return "an unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _print(line: str) -> None:
    os.write(2, f"{line if line.startswith(MARK) else 'assay: ' + line}\n".encode(errors="replace"))


if __name__ == "__main__":
    sys.exit(connect_streams(sys.argv[1]))
