"""The worker process: runs clients of one workload for the harness, one per connection.

An operation does not end when the harness gives up waiting for it. As any paused program would, a paused process may
read a request later, and execute an operation that the history records as indeterminate. Therefore the end of a
connection drops no request: the running operation may end within its time limit, and only then the client is closed.
"""

import argparse
import asyncio
import contextlib
import logging
import traceback
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
from assay.harness.remote.multiplexer import ByteWriter, Multiplexer
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
    options = parse_arguments(words)
    make_client = import_object(options.client)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _Connection(make_client, runtime, reader, writer).run()

    server = await asyncio.start_server(accept, None, options.port, limit=messages.MAX_LINE)
    try:
        # This is not serve_forever, which waits after a cancellation until the harness has closed its connections.
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        return 0
    finally:
        server.close()
    return 0


async def serve_streams(runtime: Any, words: Sequence[str], reader: asyncio.StreamReader, writer: ByteWriter) -> None:
    """Runs the process on one pair of byte streams, which carry all connections, until the pair ends.

    The process imports the client when the first one is opened. An error of its module then reaches the harness.
    """
    options, running = parse_arguments(words), set[asyncio.Task[None]]()

    def make_client() -> Any:
        return import_object(options.client)()

    def accept(reader: asyncio.StreamReader, writer: ByteWriter) -> None:
        task = asyncio.get_running_loop().create_task(_Connection(make_client, runtime, reader, writer).run())
        running.add(task)
        task.add_done_callback(running.discard)

    await Multiplexer(reader, writer, accept).run()


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
    """A connection, which stands for one logical process of the history."""

    make_client: Callable[[], Any]
    runtime: Any
    reader: asyncio.StreamReader
    writer: ByteWriter
    _client: Client | None = None
    _endpoint: ObservedEndpoint | None = None
    _limit: float = 0.0

    async def run(self) -> None:
        next_request = self._receive_request()
        try:
            while (request := await next_request) is not None:
                if isinstance(request, messages.CallRequest):
                    return await self._serve_call(request)
                if isinstance(request, messages.RelayRequest):
                    return await relay(request, self.reader, self.writer)
                next_request = self._receive_request()
                answer = await self._answer(request, next_request)
                if answer is not None:
                    self.writer.write(answer)
                    await self.writer.drain()
        except OSError as error:
            _log.debug("a connection of the harness broke: %s", error)
        finally:
            if not next_request.cancel() and not next_request.cancelled():
                next_request.exception()  # retrieved, so that asyncio does not report it
            self.writer.close()
            await self._close()

    async def _serve_call(self, request: messages.CallRequest) -> None:
        answer = await system_calls.serve_call(request, self.reader, self.writer, self.runtime)
        if answer is not None:
            self.writer.write(answer)
            await self.writer.drain()

    def _receive_request(self) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(messages.receive_message(self.reader, messages.REQUESTS))

    async def _answer(self, request: messages.Request, next_request: asyncio.Task[Any]) -> bytes | None:
        """Returns the answer, or None if the harness has closed the connection, which ends ``next_request``."""
        if not isinstance(request, messages.OpenRequest | messages.Invoke):
            return messages.encode_message(messages.OpenedAnswer())
        if isinstance(request, messages.OpenRequest):
            self._limit = request.limit
        task = asyncio.get_running_loop().create_task(self._execute(request))
        try:
            await asyncio.wait([task, next_request], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await self._await_abandoned(request, task)
                return None
            return task.result()
        finally:
            task.cancel()

    async def _await_abandoned(
        self, request: messages.OpenRequest | messages.Invoke, task: asyncio.Task[bytes]
    ) -> None:
        """Waits for a request that the harness has given up, up to its time limit."""
        what = f"operation {request.operation.f}" if isinstance(request, messages.Invoke) else "open"
        await asyncio.wait([task], timeout=self._limit)
        result = task.result().decode().strip() if task.done() else f"had not ended {self._limit:g} s later"
        _log.info("%s, which the harness had given up: %s", what, result[:500])

    async def _execute(self, request: messages.OpenRequest | messages.Invoke) -> bytes:
        try:
            if isinstance(request, messages.OpenRequest):
                return messages.encode_message(await self._open(request))
            return messages.encode_message(await self._invoke(request.operation))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return messages.encode_message(_make_raised_answer(error))  # the client leaked a cancellation of its own
        except Exception as error:  # noqa: BLE001 - user code; the harness gets it with its traceback
            return messages.encode_message(_make_raised_answer(error))

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


def _make_raised_answer(error: BaseException) -> messages.RaisedAnswer:
    return messages.RaisedAnswer(describe_error(error), "".join(traceback.format_exception(error)))
