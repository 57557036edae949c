"""The harness's side of a worker process on the network of the nodes, for engines whose networks it cannot reach.

All its connections are carried by the standard input and output of one command, such as ``docker exec -i``.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any, Final, cast

from assay.cluster.node import Cluster, NodeError
from assay.cluster.ssh.command_stream import StreamCommand
from assay.harness.remote.messages import (
    Answer,
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
END_SECONDS: Final = 3.0
"""Seconds that the process has to end by itself. Then it is killed."""


class NetworkWorker:
    """A worker process that ``command`` starts. ``show`` is called with each line that its clients print."""

    def __init__(self, command: StreamCommand, show: Callable[[str], None] | None = None) -> None:
        self._command = command
        self._show = show or (lambda line: print(line, file=sys.stderr))
        self._process: asyncio.subprocess.Process | None = None
        self._streams: Multiplexer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._last_lines: list[str] = []

    async def start(self) -> None:
        """Starts the process and waits until it answers. Raises :class:`NodeError`."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command.argv, stdin=pipe, stdout=pipe, stderr=pipe, env=self._command.environment,
                start_new_session=True,  # Ctrl-C must not end it before the run is over
            )  # fmt: skip
        except OSError as error:
            raise NodeError(f"the clients' process cannot be started: {error}; {self._command.remedy}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._streams = Multiplexer(process.stdout, process.stdin)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._streams.run(), name="the clients' connections"),
            loop.create_task(self._show_lines(process.stderr), name="what clients print"),
        ]
        reader, writer = self.open_connection()
        try:
            async with asyncio.timeout(START_SECONDS):
                writer.write(encode_message(GreetRequest()))
                answer = await receive_message(reader, Answer)
        except TimeoutError:
            answer = None
        writer.close()
        if answer is None:
            await asyncio.sleep(0.1)  # its last lines may not be read yet
            said = " | ".join(self._last_lines) or "it printed nothing"
            raise NodeError(f"the clients' process on the network of the nodes does not answer: {said}")

    def open_connection(self) -> tuple[asyncio.StreamReader, ByteWriter]:
        """Opens a connection to the worker process. Raises ``ConnectionError`` if the process has ended."""
        assert self._streams is not None, "start comes first"
        return self._streams.open_connection()

    async def relay(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Opens a connection to an address on the network of the nodes. Raises ``OSError``."""
        reader, writer = self.open_connection()
        try:
            writer.write(encode_message(RelayRequest(host, port, CONNECT_SECONDS)))
            answer = await receive_message(reader, Answer)
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
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _show_lines(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            text = line.decode("utf-8", "replace").rstrip("\n")
            self._last_lines = [*self._last_lines[-2:], text.strip()]
            self._show(text)
