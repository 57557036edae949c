"""The worker process: runs clients of one workload for the harness, one per connection.

An operation does not end when the harness gives up waiting for it. As any paused program would, a paused process may
read a request later, and execute an operation that the history records as indeterminate. Therefore the end of a
connection drops no request: the running operation may end within its time limit, and only then the client is closed.
"""

import argparse
import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from assay.cluster.node import Dial
from assay.harness.core.blocking import adapt_client
from assay.harness.core.client import Client, is_kept_after_info
from assay.harness.core.interpreter_status import describe_error
from assay.harness.core.observed_node import ObservedEndpoint
from assay.harness.core.operation import Completion, Operation
from assay.harness.remote import debugger, messages, system_calls
from assay.harness.remote.multiplexer import Accept, ByteWriter, Multiplexer
from assay.harness.remote.runtime import import_object

GREET_SECONDS: Final = 1.0
"""Seconds that a worker process has to answer."""

_log = logging.getLogger("assay.worker")


def make_worker_command(
    client: str | None, zookeeper: str | None, *, streams: bool = False, terminal: str = ""
) -> list[str]:
    """Returns the command of a worker process, which imports ``client`` (``module:Class``) and ``zookeeper``, if any.

    - ``streams``: whether it serves on its standard input and output instead of a port
    - ``terminal``: a random token if the harness connects a terminal when the client calls ``breakpoint()``
    """
    options = [] if client is None else ["--client", client]
    options += [] if zookeeper is None else ["--zookeeper", zookeeper]
    options += ["--streams"] if streams else []
    options += [debugger.OPTION + terminal] if terminal else []
    return ["python3", "-m", "assay.harness.remote", *options]


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m assay.harness.remote", description=__doc__)
    parser.add_argument("--client", metavar="MODULE:CLASS", help="the workload's client, if it has one")
    parser.add_argument("--zookeeper", metavar="MODULE:CALLABLE", help="the ZooKeeper client that it gets, if any")
    parser.add_argument("--streams", action="store_true", help="serve on standard input and output instead of a port")
    parser.add_argument(
        "--terminal", metavar="TOKEN", default="",
        help="with --streams: breakpoint() waits for a terminal, and asks for it by a line with this token",
    )  # fmt: skip
    parser.add_argument(
        "--port", type=int, default=messages.PORT, metavar="N", help=f"where to listen ({messages.PORT})"
    )
    return parser.parse_args(words)


async def run_worker(runtime: Any, words: Sequence[str]) -> int:
    """Runs the process until it is stopped, in the real world and in the simulation.

    ``words`` are its arguments, ``--client ...``. All clients of the node share ``runtime``:
    :class:`~assay.harness.remote.runtime.ClientRuntime`, or that of the simulation.
    """
    options, loop = parse_arguments(words), asyncio.get_running_loop()
    make_client = import_object(options.client)

    def make_protocol() -> asyncio.StreamReaderProtocol:
        reader = messages.ObservedReader()

        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _Connection(make_client, runtime, reader, writer).run()

        return asyncio.StreamReaderProtocol(reader, accept)

    server = await loop.create_server(make_protocol, None, options.port)
    try:
        # This is not serve_forever, which waits after a cancellation until the harness has closed its connections.
        await loop.create_future()
    except asyncio.CancelledError:
        return 0
    finally:
        server.close()
    return 0


def make_acceptor(runtime: Any, words: Sequence[str]) -> Accept:
    """Returns the function that serves the connections of a multiplexer.

    The process imports the client when the first one is opened. An error of its module then reaches the harness.
    """
    options, running = parse_arguments(words), set[asyncio.Task[None]]()

    def make_client() -> Any:
        return import_object(options.client)()

    def accept(reader: messages.ObservedReader, writer: ByteWriter) -> None:
        connection = _Connection(make_client, runtime, reader, writer, accept)
        task = asyncio.get_running_loop().create_task(connection.run())
        running.add(task)
        task.add_done_callback(running.discard)

    return accept


async def relay(request: messages.RelayRequest, reader: asyncio.StreamReader, writer: ByteWriter) -> None:
    """Connects to an address and relays all bytes between the two connections, until one of them ends."""
    try:
        async with asyncio.timeout(request.timeout):
            far_reader, far_writer = await asyncio.open_connection(request.host, request.port)
    except OSError as error:
        writer.write(messages.encode_message(system_calls.make_failed_answer("OSError", error)))
        return
    writer.write(messages.encode_message(messages.OpenedAnswer()))
    sending = asyncio.ensure_future(copy_stream(reader, far_writer))
    try:
        await copy_stream(far_reader, writer)
    finally:
        sending.cancel()
        far_writer.close()


async def copy_stream(reader: asyncio.StreamReader, writer: ByteWriter) -> None:
    """Copies all bytes from a connection to another one, and then closes it."""
    with contextlib.suppress(OSError):
        while data := await reader.read(messages.MAX_RELAYED):
            writer.write(data)
            await writer.drain()
    writer.close()


async def is_ready(address: str, port: int = messages.PORT, dial: Dial = asyncio.open_connection) -> bool:
    """Returns whether the worker process answers. Raises ``OSError`` if it cannot be reached."""
    async with asyncio.timeout(GREET_SECONDS):
        reader, writer = await dial(address, port)
        try:
            writer.write(messages.encode_message(messages.GreetRequest()))
            return await messages.receive_message(reader, messages.ANSWERS) is not None
        finally:
            writer.close()


@dataclass
class _Connection:
    """A connection, which stands for one logical process of the history. A single task serves it.

    The harness sends no request before the last one was answered. So the stream is not read during a request, and
    ``reader`` reports its end.
    """

    make_client: Callable[[], Any]
    runtime: Any
    reader: messages.ObservedReader
    writer: ByteWriter
    accept: Accept | None = None
    """Serves the connections that another pair carries; None if the process serves on a port."""
    _client: Client | None = None
    _endpoint: ObservedEndpoint | None = None
    _limit: float = 0.0
    _task: asyncio.Task[Any] | None = None
    _timer: asyncio.TimerHandle | None = None
    """Ends the request that the harness has given up."""
    _executes: bool = False
    """Whether a request of the client is being executed."""
    _closing: asyncio.Task[None] | None = None
    """Closes the client of a request that was given up and did not end in time."""

    async def run(self) -> None:
        self._task = asyncio.current_task()
        self.reader.on_end = self._set_timer
        try:
            while (request := await messages.receive_message(self.reader, messages.REQUESTS)) is not None:
                if isinstance(request, messages.CallRequest):
                    return await self._serve_call(request)
                if isinstance(request, messages.RelayRequest):
                    return await relay(request, self.reader, self.writer)
                answer = await self._answer(request)
                if answer is None:
                    return None
                self.writer.write(answer)
                await self.writer.drain()
        except OSError as error:
            _log.debug("a connection of the harness broke: %s", error)
        finally:
            self.writer.close()
            await (self._closing or self._close())

    async def _serve_call(self, request: messages.CallRequest) -> None:
        answer = await system_calls.serve_call(request, self.reader, self.writer, self.runtime)
        if answer is not None:
            self.writer.write(answer)
            await self.writer.drain()

    async def _answer(self, request: messages.Request) -> bytes | None:
        """Returns the answer, or None if the harness has closed the connection."""
        if isinstance(request, messages.CarryRequest):
            return messages.encode_message(await self._carry(request))
        if not isinstance(request, messages.OpenRequest | messages.Invoke):
            return messages.encode_message(messages.OpenedAnswer())
        if isinstance(request, messages.OpenRequest):
            self._limit = request.limit
        self._executes = True
        if self.reader.has_ended:
            self._set_timer()
        try:
            answer = await self._execute(request)
        finally:
            self._executes = False
            if self._timer is not None:
                self._timer.cancel()
        if not self.reader.has_ended:
            return answer
        what = f"operation {request.operation.f}" if isinstance(request, messages.Invoke) else "open"
        result = f"had not ended {self._limit:g} s later" if answer is None else answer.decode().strip()
        _log.info("%s, which the harness had given up: %s", what, result[:500])
        return None

    async def _carry(self, request: messages.CarryRequest) -> messages.Answer:
        try:
            if self.accept is None:
                raise PermissionError("connections on a port ask for nothing on this machine")
            await asyncio.get_running_loop().create_unix_connection(lambda: Multiplexer(self.accept), request.path)
        except OSError as error:
            return system_calls.make_failed_answer("OSError", error)
        return messages.OpenedAnswer()

    def _set_timer(self) -> None:
        """Limits the time of a request that the harness has given up."""
        if self._executes:
            self._timer = asyncio.get_running_loop().call_later(self._limit, self._expire)

    def _expire(self) -> None:
        """Cancels the request, and closes the client even if it ignores that."""
        assert self._task is not None, "run comes first"
        self._task.cancel()
        self._closing = asyncio.get_running_loop().create_task(self._close())

    async def _execute(self, request: messages.OpenRequest | messages.Invoke) -> bytes | None:
        """Returns the answer, or None if the request was cancelled because its time was over."""
        assert self._task is not None, "run comes first"
        cancellations = self._task.cancelling()
        try:
            if isinstance(request, messages.OpenRequest):
                return messages.encode_message(await self._open(request))
            return messages.encode_message(await self._invoke(request.operation))
        except asyncio.CancelledError as error:
            if self._closing is not None:
                return None
            if self._task.cancelling() > cancellations:
                raise
            return messages.encode_message(
                messages.make_raised_answer(error)
            )  # the client leaked a cancellation of its own
        except Exception as error:  # noqa: BLE001 - user code; the harness gets it with its traceback
            return messages.encode_message(messages.make_raised_answer(error))

    async def _open(self, request: messages.OpenRequest) -> messages.OpenedAnswer:
        client = self._client = adapt_client(self.make_client())
        endpoint = self._endpoint = ObservedEndpoint.of_endpoint(request.endpoint)
        async with asyncio.timeout(request.limit):
            await client.open(endpoint, self.runtime)
        return messages.OpenedAnswer(is_kept_after_info(client), endpoint.has_read_others)

    async def _invoke(self, operation: Operation) -> messages.InvokedAnswer:
        assert self._client is not None, "an operation came before a client was opened"
        assert self._endpoint is not None, "an operation came before a client was opened"
        completion = await self._client.invoke(operation)
        if not isinstance(completion, Completion):
            raise TypeError(f"invoke returned {completion!r}, not a Completion")
        return messages.InvokedAnswer(completion, self._endpoint.has_read_others)

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        try:
            async with asyncio.timeout(self._limit):
                await client.close()
        except Exception as error:  # noqa: BLE001 - a broken connection may fail to close in any way
            _log.info("closing a client: %s", describe_error(error))
