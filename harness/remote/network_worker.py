"""The harness's side of a worker process on the network of the nodes, for engines whose networks it cannot reach.

All its connections are carried by the standard input and output of one command, such as ``docker exec -i``. If the
container and this machine share a Unix socket, it carries them instead. Then no other program passes the bytes on.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any, Final, cast

from assay.cluster.node import Cluster, NodeError
from assay.cluster.ssh.command_stream import StreamCommand
from assay.harness.core.printable import to_printable
from assay.harness.remote import debugger
from assay.harness.remote.messages import (
    ANSWERS,
    CarryRequest,
    FailedCallAnswer,
    GreetRequest,
    OpenedAnswer,
    RelayRequest,
    encode_message,
    receive_message,
)
from assay.harness.remote.multiplexer import ByteWriter, Multiplexer
from assay.harness.remote.system_calls import KNOWN_ERRORS, SystemCall, call_system

START_SECONDS: Final = 30.0
"""Maximum seconds until the process answers."""
CONNECT_SECONDS: Final = 5.0
"""Maximum seconds until a relayed connection is open."""
ANSWER_SECONDS: Final = 5.0
"""Further seconds that the process has to report the result."""
END_SECONDS: Final = 3.0
"""Seconds that the process has to end by itself. Then it is killed."""
LAST_LINES_SECONDS: Final = 1.0
"""Maximum seconds for which the last lines of a process that does not answer are awaited."""
LINE_LENGTH: Final = 1 << 14
"""Maximum bytes of a printed line. Longer ones are cut into several."""


class NetworkWorker:
    """A worker process that ``command`` starts.

    - ``show``: called with each line that its clients print
    - ``open_terminal``: opens the terminal that is connected at a ``breakpoint()`` of a client
    """

    def __init__(
        self,
        command: StreamCommand,
        show: Callable[[str], None] | None = None,
        open_terminal: Callable[[], IO[bytes]] = debugger.open_terminal,
    ) -> None:
        self._command = command
        self._token = debugger.find_token(command.argv)
        self._open_terminal = open_terminal
        self._show = show or (lambda line: print(line, file=sys.stderr))
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: Multiplexer | None = None
        self._socket: Multiplexer | None = None
        """Carries connections in place of ``_streams`` while the shared socket is connected."""
        self._errors: asyncio.BaseTransport | None = None
        self._showing: asyncio.Task[None] | None = None
        self._last_lines: list[str] = []

    @property
    def process_id(self) -> int | None:
        """The ID of the command's process on this machine; None if it does not run."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Starts the process and waits until it answers. Raises :class:`NodeError`."""
        process = self._process = self._start_process()
        loop, errors = asyncio.get_running_loop(), asyncio.StreamReader()
        self._streams = streams = Multiplexer()
        await loop.connect_read_pipe(lambda: streams, process.stdout)
        self._errors, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(errors), process.stderr)
        await loop.connect_write_pipe(lambda: streams, process.stdin)
        self._showing = loop.create_task(self._show_lines(errors), name="what clients print")
        if not await self._greet():
            await asyncio.wait([self._showing], timeout=LAST_LINES_SECONDS)
            said = " | ".join(self._last_lines) or "it printed nothing"
            raise NodeError(f"the clients' process on the network of the nodes does not answer: {said}")
        await self._connect_socket()

    async def _greet(self) -> bool:
        """Waits until the process answers. Returns False if it has ended, or takes too long."""
        try:
            reader, writer = self.open_connection()
            writer.write(encode_message(GreetRequest()))
            async with asyncio.timeout(START_SECONDS):
                answer = await receive_message(reader, ANSWERS)
            writer.close()
        except OSError:  # that includes a timeout
            return False
        return answer is not None

    def open_connection(self) -> tuple[asyncio.StreamReader, ByteWriter]:
        """Opens a connection to the worker process. Raises ``ConnectionError`` if the process has ended."""
        assert self._streams is not None, "start comes first"
        if self._socket is not None and not self._socket.has_ended:
            return self._socket.open_connection()
        return self._streams.open_connection()

    async def relay(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Opens a connection to an address on the network of the nodes. Raises ``OSError``."""
        reader, writer = self.open_connection()
        try:
            writer.write(encode_message(RelayRequest(host, port, CONNECT_SECONDS)))
            async with asyncio.timeout(CONNECT_SECONDS + ANSWER_SECONDS):
                answer = await receive_message(reader, ANSWERS)
        except BaseException:
            writer.close()
            raise
        if isinstance(answer, OpenedAnswer):
            return reader, cast("asyncio.StreamWriter", writer)
        writer.close()
        if isinstance(answer, FailedCallAnswer):
            kind = KNOWN_ERRORS.get(answer.kind, OSError)
            raise OSError(answer.errno, answer.text) if answer.errno is not None else kind(answer.text)
        raise ConnectionError("the worker process has ended")

    async def call(self, call: SystemCall, cluster: Cluster, runtime: Any) -> Any:
        """Calls a method of a system. Raises the errors of the method."""
        reader, writer = self.open_connection()
        return await call_system(reader, writer, call, cluster, runtime)

    async def close(self) -> None:
        """Ends the process. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._socket is not None:
            self._socket.close()
        if self._streams is not None:
            self._streams.close_output()  # the end of its input ends the process
        try:
            await asyncio.to_thread(process.wait, END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
        if self._showing is not None:  # a child of the process may hold its pipes open, so this wait is bounded, too
            await asyncio.wait([self._showing], timeout=END_SECONDS)
            self._showing.cancel()
            await asyncio.gather(self._showing, return_exceptions=True)
        if self._streams is not None:
            self._streams.close()
        if self._errors is not None:
            self._errors.close()

    async def _connect_socket(self) -> None:
        """Lets the process connect to the shared socket, if there is one. If it cannot, nothing changes."""
        shared, loop = self._command.shared_socket, asyncio.get_running_loop()
        if shared is None:
            return
        reader, writer = self.open_connection()
        try:
            writer.write(encode_message(CarryRequest(shared.path)))
            async with asyncio.timeout(CONNECT_SECONDS):
                answer = await receive_message(reader, ANSWERS)
                if isinstance(answer, OpenedAnswer):
                    shared.listener.setblocking(False)
                    accepted, _ = await loop.sock_accept(shared.listener)
                    _, self._socket = await loop.connect_accepted_socket(Multiplexer, accepted)
        except OSError:  # that includes a timeout
            return
        finally:
            shared.listener.close()
            writer.close()

    def _start_process(self) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                self._command.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=self._command.environment,
                start_new_session=True,  # Ctrl-C must not end it before the run is over
            )  # fmt: skip
        except OSError as error:
            raise NodeError(f"the clients' process cannot be started: {error}; {self._command.remedy}") from error

    async def _show_lines(self, reader: asyncio.StreamReader) -> None:
        """Shows each line that the process prints, cut after ``LINE_LENGTH`` bytes."""
        rest = b""
        while data := await reader.read(LINE_LENGTH):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LINE_LENGTH:
                lines.append(rest)
                rest = b""
            for line in lines:
                self._show_line(line)
        if rest:
            self._show_line(rest)

    def _show_line(self, line: bytes) -> None:
        text = "\t".join(map(to_printable, line.decode("utf-8", "replace").split("\t")))
        mark = debugger.make_mark(self._token)
        # A client may have printed the beginning of a line before its breakpoint, so the mark can follow.
        stops = bool(self._token) and mark in text
        if stops:
            text = text.replace(mark, debugger.MARK)
        self._last_lines = [*self._last_lines[-2:], text.strip()]
        self._show(text)
        if stops and self._command.terminal:
            self._connect_terminal()

    def _connect_terminal(self) -> None:
        """Lets the user debug a client at the terminal. The harness stands still until the client goes on."""
        try:
            with self._open_terminal() as terminal:
                terminal.write(f"\r\n{self._last_lines[-1]}; Ctrl-D continues\r\n".encode())
                subprocess.run(
                    [*self._command.terminal, *debugger.COMMAND, debugger.SOCKET.format(self._token)],
                    env=self._command.environment, stdin=terminal, stdout=terminal, stderr=terminal, check=False,
                )  # fmt: skip
        except OSError as error:
            self._show(f"assay: no terminal for the breakpoint: {error}")
