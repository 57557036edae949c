"""A connection reports the truth after an error: not sent means not sent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.process import Process
from assay.system_under_test.client.connection import Connection, NotSent, UnknownOutcome
from assay.system_under_test.protocol.api import ApiVersionsRequest, ApiVersionsResponse
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.header import encode_response
from assay.system_under_test.protocol.metadata import MetadataRequest
from assay.system_under_test.protocol.schema import ProtocolError

from helpers.sim_brokers import simulate

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ASK = ApiVersionsRequest()


@contextlib.asynccontextmanager
async def connected(script: Script) -> AsyncIterator[Connection]:
    """A connection to a peer that does what ``script`` says; afterwards no task is left."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = await Connection.open("127.0.0.1", server.sockets[0].getsockname()[1], 1.0)
    try:
        yield connection
    finally:
        await connection.close()
        server.close()
        await asyncio.sleep(0.01)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left


async def read(reader: asyncio.StreamReader) -> int:
    """Reads a request; returns its correlation id."""
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return int(struct.unpack_from(">i", await reader.readexactly(size), 4)[0])


def answer(writer: asyncio.StreamWriter, correlation_id: int, code: int = 0) -> None:
    response = ApiVersionsResponse(error_code=code, api_versions=[])
    for chunk in encode_response(response, 0, correlation_id):
        assert isinstance(chunk, bytes)
        writer.write(chunk)


def test_pipelined_calls_get_their_own_answers_whatever_the_order() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ids = [await read(reader) for _ in range(5)]
        for place in (3, 0, 4, 1, 2):
            answer(writer, ids[place], place)
        await reader.read()

    async def main() -> None:
        async with connected(script) as connection:
            answers = await asyncio.gather(*(connection.call(ASK, 0, 1.0) for _ in range(5)))
            assert [response.error_code for response in answers] == [0, 1, 2, 3, 4]

    simulate(main)


def test_a_refused_connection_is_not_sent() -> None:
    async def main() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))  # bound, not listening
            with pytest.raises(NotSent, match="no connection"):
                await Connection.open("127.0.0.1", probe.getsockname()[1], 1.0)

    simulate(main)


def test_a_connection_lost_before_the_call_is_not_sent_and_after_it_unknown() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read(reader)

    async def main() -> None:
        async with connected(script) as connection:
            with pytest.raises(UnknownOutcome, match=r"closed the connection|was lost"):
                await connection.call(ASK, 0, 1.0)
            assert not connection.usable
            with pytest.raises(NotSent):
                await connection.call(ASK, 0, 1.0)

    simulate(main)


def test_a_call_without_answer_spares_the_calls_that_still_wait_and_no_others() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read(reader)
        patient = await read(reader)
        await asyncio.sleep(0.2)
        answer(writer, patient, 7)
        await reader.read()

    async def main() -> None:
        async with connected(script) as connection:
            hasty = asyncio.create_task(connection.call(ASK, 0, 0.05))
            await asyncio.sleep(0)
            patient = asyncio.create_task(connection.call(ASK, 0, 5.0))
            with pytest.raises(UnknownOutcome, match=r"no answer within 0.05 s"):
                await hasty
            with pytest.raises(NotSent):
                await connection.call(ASK, 0, 1.0)
            assert (await patient).error_code == 7

    simulate(main)


def test_a_peer_that_takes_nothing_more_leaves_the_waiting_call_not_sent() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0.5)

    async def main() -> None:
        async with connected(script) as connection:
            big = MetadataRequest(topics=["x" * 30_000] * 1000)
            first = asyncio.create_task(connection.call(big, 0, 5.0))
            await asyncio.sleep(0.05)
            with pytest.raises(NotSent, match="not taken"):
                await connection.call(ASK, 0, 0.1)
            with pytest.raises(UnknownOutcome):
                await first

    simulate(main)


@pytest.mark.parametrize(
    "reply",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\2ab",
        struct.pack(">iih", 6, 1, 0),
        b"HTTP/1.1 400 Bad Request",
    ],
    ids=["negative", "absurd", "short", "truncated", "HTTP"],
)
def test_an_answer_that_is_none_is_unknown_and_ends_the_connection(reply: bytes) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read(reader)
        writer.write(reply)
        await reader.read()

    async def main() -> None:
        async with connected(script) as connection:
            with pytest.raises(UnknownOutcome, match=r"cannot be read|does not speak"):
                await connection.call(ASK, 0, 1.0)
            assert not connection.usable

    simulate(main)


def test_a_call_without_time_is_not_sent_and_harms_no_other() -> None:
    """Sent, its outcome would be unknown for nothing."""
    ids: list[int] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            ids.append(await read(reader))
            answer(writer, ids[-1])

    async def main() -> None:
        async with connected(script) as connection:
            for left in (0.0, -1.0):
                with pytest.raises(NotSent, match="no time is left"):
                    await connection.call(ASK, 0, left)
            assert (await connection.call(ASK, 0, 1.0)).error_code == 0
            assert len(ids) == 1

    simulate(main)


def test_a_late_answer_to_a_cancelled_call_is_dropped() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ids = [await read(reader), await read(reader)]
        answer(writer, ids[0], ErrorCode.UNKNOWN)
        answer(writer, ids[1], 5)
        await reader.read()

    async def main() -> None:
        async with connected(script) as connection:
            cancelled = asyncio.create_task(connection.call(ASK, 0, 1.0))
            await asyncio.sleep(0)
            cancelled.cancel()
            assert (await connection.call(ASK, 0, 1.0)).error_code == 5
            assert connection.usable

    simulate(main)


def test_a_request_that_cannot_be_encoded_is_not_sent_and_harms_no_other() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer(writer, await read(reader))
        await reader.read()

    async def main() -> None:
        async with connected(script) as connection:
            with pytest.raises(ProtocolError):
                await connection.call(MetadataRequest(topics=["x" * 40_000]), 0, 1.0)
            await connection.call(ASK, 0, 1.0)

    simulate(main)


def test_close_ends_waiting_calls_as_unknown() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with connected(script) as connection:
            call = asyncio.create_task(connection.call(ASK, 0, 5.0))
            await asyncio.sleep(0.01)
            await connection.close()
            with pytest.raises(UnknownOutcome, match="was closed"):
                await call

    simulate(main)


@pytest.mark.parametrize("abort_on_timeout", [False, True])
def test_what_was_given_up_in_a_partition_arrives_late_unless_it_is_taken_back(abort_on_timeout: bool) -> None:
    """A commit that nothing fences would undo those that came after it."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        client, broker = (
            Process(loop, loop.network.add_host(name, f"198.18.0.{2 + number}"), name, name)
            for number, name in enumerate(("client", "broker"))
        )
        arrived: list[float] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await read(reader)
                arrived.append(loop.time())
            writer.close()

        await broker.spawn(asyncio.start_server(serve, "0.0.0.0", 9092), "listen")

        async def ask() -> None:
            connection = await Connection.open("broker", 9092, 1.0, abort_on_timeout=abort_on_timeout)
            patient = asyncio.create_task(connection.call(ASK, 0, 20.0))
            loop.network.drop(client.host, broker.host)
            with pytest.raises(UnknownOutcome):
                await connection.call(ASK, 0, 1.5)
            if abort_on_timeout:  # it does not wait for the others
                await connection.wait_ended()
            loop.network.heal(broker.host)
            await asyncio.sleep(10)
            await connection.close()
            with pytest.raises(UnknownOutcome):
                await patient

        await client.spawn(ask(), "ask")
        assert bool(arrived) != abort_on_timeout
        client.kill()
        broker.kill()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(main())


def test_a_connection_that_takes_back_is_closed_on_real_sockets_too() -> None:
    async def main() -> None:
        endings: list[str] = []
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while await reader.read(100):
                    pass
                endings.append("eof")
            except ConnectionResetError:
                endings.append("reset")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for abort_on_timeout in (True, False):
            connection = await Connection.open("127.0.0.1", port, 1.0, abort_on_timeout=abort_on_timeout)
            with pytest.raises(UnknownOutcome):
                await connection.call(ASK, 0, 0.05)
            await connection.close()
            await asyncio.sleep(0.05)
        server.close()
        assert endings == ["reset", "eof"]
        assert not failures, "the call is answered once"

    asyncio.run(main())
