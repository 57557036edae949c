"""The server keeps order and its limits, and no client can break it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.network.accepted import AcceptedConnection, Outbox
from assay.system_under_test.network.handler import CloseConnection, Handler, RequestContext
from assay.system_under_test.network.limits import FREE_REQUEST_BYTES, Limits
from assay.system_under_test.network.memory import RequestMemory
from assay.system_under_test.network.server import Server
from assay.system_under_test.protocol.api import APIS, ApiVersionsRequest, ApiVersionsResponse
from assay.system_under_test.protocol.compiler import decode
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from assay.system_under_test.protocol.header import encode_request
from assay.system_under_test.protocol.metadata import MetadataRequest, MetadataResponse
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from assay.system_under_test.storage.local import LocalStorage

from helpers.examples import some_of

METADATA, FETCH, PRODUCE = 3, 1, 0


class Peer:
    """A client that speaks bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, request: Any, version: int, correlation_id: int) -> None:
        self.send(encode_request(request, version, correlation_id, "test"))

    async def frame(self) -> bytes:
        async with asyncio.timeout(5):
            size = struct.unpack(">i", await self.reader.readexactly(4))[0]
            return await self.reader.readexactly(size)

    async def closed(self) -> bool:
        """Waits until the server has ended the connection; False when it sent something instead."""
        async with asyncio.timeout(5):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def serving(
    handlers: Mapping[int, Handler], limits: Limits | None = None
) -> AsyncIterator[tuple[Server, Callable[[], Coroutine[Any, Any, Peer]]]]:
    server = Server(handlers, APIS, limits)
    await server.start("127.0.0.1", 0)
    peers: list[Peer] = []

    async def connect() -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", server.port))
        peers.append(peer)
        return peer

    try:
        yield server, connect
    finally:
        for peer in peers:
            await peer.close()
        await server.close()
        assert server.connections == 0


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 (what is waited for is on the other side of a socket)
            await asyncio.sleep(0.005)


async def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[], cluster_id=context.client_id)


def fetched(records: Any) -> FetchResponse:
    partition = FetchPartitionResponse(partition=0, error_code=0, high_watermark=9, records=records)
    return FetchResponse(topics=[FetchTopicResponse(topic="t", partitions=[partition])])


FETCH_REQUEST = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[])


def produce(size: int) -> ProduceRequest:
    partition = ProducePartition(partition=0, records=bytes(size))
    return ProduceRequest(acks=0, timeout_ms=1, topics=[ProduceTopic(topic="t", partitions=[partition])])


def produce_acked(size: int) -> ProduceRequest:
    request = produce(size)
    request.acks = 1
    return request


def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    running = 0

    async def handler(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.001 * (7 - context.correlation_id))  # the earlier, the slower
        running -= 1
        return await metadata(request, context)

    async def main() -> None:
        async with serving({METADATA: handler}) as (_, connect):
            peer = await connect()
            for number in range(7):
                peer.ask(MetadataRequest(topics=[]), 2, number)
            frames = [await peer.frame() for _ in range(7)]
            assert [struct.unpack_from(">i", frame)[0] for frame in frames] == list(range(7))
            assert decode(MetadataResponse, 2, frames[0], 4).cluster_id == "test"

    asyncio.run(main())


def test_the_handler_learns_who_asks_what() -> None:
    seen: list[RequestContext] = []

    async def handler(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        seen.append(context)
        return await metadata(request, context)

    async def main() -> None:
        async with serving({METADATA: handler}) as (_, connect):
            peer = await connect()
            peer.ask(MetadataRequest(topics=[]), 1, 42)
            await peer.frame()
            host, port = peer.writer.get_extra_info("sockname")
            assert [context[:5] for context in seen] == [(METADATA, 1, 42, "test", f"{host}:{port}")]

    asyncio.run(main())


def test_what_waits_for_a_response_is_done_once_when_it_was_handed_over() -> None:
    done: list[int] = []

    async def handler(request: MetadataRequest, context: RequestContext) -> MetadataResponse | None:
        assert context.correlation_id not in done
        if context.correlation_id < 3:
            context.after_response(lambda: done.append(context.correlation_id))
        return None if context.correlation_id == 2 else await metadata(request, context)

    async def main() -> None:
        async with serving({METADATA: handler}) as (_, connect):
            peer = await connect()
            for number in (1, 2, 3, 4):
                peer.ask(MetadataRequest(topics=[]), 1, number)
            for _ in (1, 3, 4):
                await peer.frame()
            assert done == [1], "2 sent nothing, 3 and 4 asked for nothing"

    asyncio.run(main())


def test_api_versions_announces_what_has_a_handler() -> None:
    async def main() -> None:
        async with serving({METADATA: metadata, FETCH: metadata}) as (_, connect):
            peer = await connect()
            peer.ask(ApiVersionsRequest(), 0, 1)
            response = decode(ApiVersionsResponse, 0, await peer.frame(), 4)
            ranges = [(r.api_key, r.min_version, r.max_version) for r in response.api_versions]
            assert (response.error_code, ranges) == (0, [(1, 0, 3), (3, 0, 2), (18, 0, 0)])

    asyncio.run(main())


def test_api_versions_of_the_future_is_answered_in_version_0_with_error_35_and_the_connection_goes_on() -> None:
    async def main() -> None:
        async with serving({}) as (_, connect):
            peer = await connect()
            body = struct.pack(">hhi", 18, 3, 77) + b"\x00\x04name\x00\x05thing\x021\x00"
            peer.send(struct.pack(">i", len(body)) + body)
            frame = await peer.frame()
            assert frame == struct.pack(">ihihhh", 77, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 0), (
                "only what to ask in"
            )
            peer.ask(ApiVersionsRequest(), 0, 78)
            assert decode(ApiVersionsResponse, 0, await peer.frame(), 4).error_code == 0

    asyncio.run(main())


BAD = {
    "an unknown key": struct.pack(">ihhih", 10, 99, 0, 1, -1),
    "a key without handler": encode_request(FETCH_REQUEST, 0, 1, None),
    "an unsupported version": struct.pack(">ihhih", 10, METADATA, 3, 1, -1),
    "a negative size": struct.pack(">i", -5),
    "an oversized request": struct.pack(">i", 5001),
    "an empty request": struct.pack(">i", 0),
    "a request shorter than its header": struct.pack(">ihhi", 8, METADATA, 0, 1),
    "a body that is cut": struct.pack(">ihhihi", 14, METADATA, 0, 1, -1, 5),
    "bytes after the body": struct.pack(">ihhihiq", 22, METADATA, 0, 1, -1, 0, 0),
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_what_is_no_request_closes_its_connection_alone_with_one_log_line(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        limits = Limits(max_request_bytes=5000)
        async with serving({METADATA: metadata}, limits) as (server, connect):
            good, bad = await connect(), await connect()
            bad.send(data)
            assert await bad.closed()
            await eventually(lambda: server.connections == 1)
            good.ask(MetadataRequest(topics=[]), 0, 1)
            await good.frame()

    with caplog.at_level(logging.INFO, logger="assay.network"):
        asyncio.run(main())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "closing the connection of 127.0.0.1:" in caplog.text


def test_answers_before_the_bad_request_still_arrive() -> None:
    async def main() -> None:
        async with serving({METADATA: metadata}) as (_, connect):
            peer = await connect()
            peer.ask(MetadataRequest(topics=[]), 0, 1)
            peer.send(BAD["an unknown key"])
            assert await peer.frame()
            assert await peer.closed()

    asyncio.run(main())


@settings(max_examples=some_of(25), deadline=None)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5))
def test_no_garbage_stops_the_server(chunks: list[bytes]) -> None:
    async def main() -> None:
        async with serving({METADATA: metadata}, Limits(max_request_bytes=1000)) as (server, connect):
            bad = await connect()
            for chunk in chunks:
                bad.send(struct.pack(">i", len(chunk)) + chunk)
            bad.writer.write_eof()
            await eventually(lambda: server.connections == 0)
            good = await connect()
            good.ask(MetadataRequest(topics=[]), 0, 1)
            await good.frame()

    logging.getLogger("assay.network").setLevel(logging.CRITICAL)
    try:
        asyncio.run(main())
    finally:
        logging.getLogger("assay.network").setLevel(logging.NOTSET)


def test_half_a_request_ends_with_its_sender_and_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving({METADATA: metadata}) as (server, connect):
            peer = await connect()
            peer.send(encode_request(MetadataRequest(topics=["topic"]), 0, 1, None)[:-2])
            await eventually(lambda: server.connections == 1)
            peer.writer.write_eof()
            await eventually(lambda: server.connections == 0)

    with caplog.at_level(logging.INFO, logger="assay.network"):
        asyncio.run(main())
    assert len(caplog.records) == 1
    assert "went away after" in caplog.text


def test_a_connection_that_was_reset_leaves_no_error_that_asyncio_would_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio stores the error of a lost connection for ``wait_closed``, and logs it if no one asks."""
    retrieved: list[BaseException] = []
    wait_closed = asyncio.StreamWriter.wait_closed

    async def noted(writer: asyncio.StreamWriter) -> None:
        try:
            await wait_closed(writer)
        except OSError as error:
            retrieved.append(error)
            raise

    async def main() -> None:
        async with serving({METADATA: metadata}) as (server, connect):
            peer = await connect()
            peer.send(b"\0\0")
            await eventually(lambda: server.connections == 1)
            await asyncio.sleep(0.05)
            own = peer.writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.writer.transport.abort()
            await eventually(lambda: server.connections == 0)

    monkeypatch.setattr(asyncio.StreamWriter, "wait_closed", noted)
    asyncio.run(main())
    assert [type(error) for error in retrieved] == [ConnectionResetError]


def test_a_client_that_leaves_between_requests_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving({METADATA: metadata}) as (server, connect):
            peer = await connect()
            peer.ask(MetadataRequest(topics=[]), 0, 1)
            await peer.frame()
            peer.writer.write_eof()
            await eventually(lambda: server.connections == 0)

    with caplog.at_level(logging.INFO, logger="assay.network"):
        asyncio.run(main())
    assert not caplog.records


@pytest.mark.parametrize("sent", [b"", b"\x00\x00\x00\x20half"], ids=["nothing", "half a request"])
def test_an_idle_connection_is_closed(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving({METADATA: metadata}, Limits(idle_timeout=0.05)) as (server, connect):
            peer = await connect()
            peer.send(sent)
            assert await peer.closed()
            await eventually(lambda: server.connections == 0)

    with caplog.at_level(logging.INFO, logger="assay.network"):
        asyncio.run(main())
    assert len(caplog.records) == 1
    assert "idle" in caplog.text


def test_a_slow_handler_is_not_idleness() -> None:
    async def slow(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        await asyncio.sleep(0.2)
        return await metadata(request, context)

    async def main() -> None:
        async with serving({METADATA: slow}, Limits(idle_timeout=0.05)) as (_, connect):
            peer = await connect()
            peer.ask(MetadataRequest(topics=[]), 0, 1)
            assert await peer.frame()

    asyncio.run(main())


def test_a_slow_reader_gets_no_further_response_prepared_and_is_closed_in_the_end() -> None:
    handled = 0

    async def big(request: FetchRequest, context: RequestContext) -> FetchResponse:
        nonlocal handled
        handled += 1
        return fetched(bytes(4_000_000))

    async def main() -> None:
        async with serving({FETCH: big}, Limits(idle_timeout=0.3)) as (server, connect):
            peer = await connect()
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for number in range(50):
                peer.ask(FETCH_REQUEST, 0, number)
            await eventually(lambda: server.connections == 1)
            await eventually(lambda: server.connections == 0)
            assert handled < 10  # what the kernel's buffers took, and one more

    asyncio.run(main())


def test_a_peer_that_takes_its_last_response_late_ends_its_connection_without_an_error() -> None:
    """Python 3.11 cannot abort a transport that was closed with something still to be written, and has ended since."""
    late = bytes(20_000_000)

    async def main() -> None:
        served: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = AcceptedConnection(reader, writer, {}, APIS, Limits(), RequestMemory(1, 1.0), Outbox(1))
            writer.write(late)
            served.set_result(asyncio.create_task(accepted.run()))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(struct.pack(">i", -5))
        assert await reader.read() == late
        await (await served)
        writer.close()
        server.close()

    asyncio.run(main())


def test_nothing_is_sent_for_none() -> None:
    async def silent(request: ProduceRequest, context: RequestContext) -> None:
        return None

    async def main() -> None:
        async with serving({PRODUCE: silent, METADATA: metadata}) as (_, connect):
            peer = await connect()
            peer.ask(produce(3), 2, 1)
            peer.ask(MetadataRequest(topics=[]), 0, 2)
            assert struct.unpack_from(">i", await peer.frame())[0] == 2

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "level"), [(CloseConnection("acks 0 failed"), "WARNING"), (ZeroDivisionError("oops"), "ERROR")]
)
def test_a_handler_that_raises_closes_its_connection_with_one_record(
    error: Exception, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(request: MetadataRequest, context: RequestContext) -> None:
        raise error

    async def main() -> None:
        async with serving({METADATA: failing}) as (_, connect):
            peer = await connect()
            peer.ask(MetadataRequest(topics=[]), 0, 1)
            assert await peer.closed()

    with caplog.at_level(logging.INFO, logger="assay.network"):
        asyncio.run(main())
    assert [record.levelname for record in caplog.records] == [level]
    (record,) = caplog.records
    traceback = record.exc_info[1] if record.exc_info else None
    assert traceback is (error if level == "ERROR" else None)
    assert str(error) in f"{record.getMessage()} {traceback}"


def test_stored_slices_go_out_by_their_own_way_between_the_bytes() -> None:
    class Stored:
        size = 6

        def read(self) -> bytes:
            raise AssertionError("read")

        async def send(self, writer: asyncio.StreamWriter) -> None:
            writer.write(b"abc")
            await writer.drain()
            writer.write(b"def")

    async def handler(request: FetchRequest, context: RequestContext) -> FetchResponse:
        return fetched(Stored())

    async def main() -> None:
        async with serving({FETCH: handler}) as (_, connect):
            peer = await connect()
            peer.ask(FETCH_REQUEST, 3, 1)
            assert decode(FetchResponse, 3, await peer.frame(), 4) == fetched(b"abcdef")

    asyncio.run(main())


@pytest.mark.parametrize("limits", [Limits(idle_timeout=0.3), Limits(max_unsent_bytes=1)], ids=["idle", "crowded"])
def test_who_does_not_take_a_stored_slice_is_closed_and_the_next_one_is_served(limits: Limits, tmp_path: Path) -> None:
    """Twelve MB go by sendfile, and its sender is woken when its connection ends."""
    file = LocalStorage(str(tmp_path)).open("log")
    file.append(bytes(12_000_000))

    async def handler(request: FetchRequest, context: RequestContext) -> FetchResponse:
        return fetched(file.slice(0, file.size))

    async def main() -> None:
        async with serving({FETCH: handler}, limits) as (server, connect):
            deaf = await connect()
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            deaf.ask(FETCH_REQUEST, 3, 1)
            await eventually(lambda: server._outbox.unsent > 0)
            good = await connect()
            good.ask(FETCH_REQUEST, 3, 1)
            assert decode(FetchResponse, 3, await good.frame(), 4) == fetched(bytes(file.size))
            await good.close()
            await eventually(lambda: server.connections == 0)
            assert server._outbox.unsent == 0

    asyncio.run(main())
    file.close()


def test_connections_above_the_limit_are_refused_and_the_others_go_on() -> None:
    async def main() -> None:
        async with serving({METADATA: metadata}, Limits(max_connections=2)) as (server, connect):
            peers = [await connect(), await connect()]
            await eventually(lambda: server.connections == 2)
            assert await (await connect()).closed()
            for peer in peers:
                peer.ask(MetadataRequest(topics=[]), 0, 1)
                await peer.frame()
            await peers[0].close()
            await eventually(lambda: server.connections == 1)
            late = await connect()
            late.ask(MetadataRequest(topics=[]), 0, 1)
            await late.frame()

    asyncio.run(main())


def test_an_address_has_no_more_connections_than_it_may_have(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving({METADATA: metadata}, Limits(max_connections_per_ip=2)) as (server, connect):
            peers = [await connect(), await connect()]
            await eventually(lambda: server.connections == 2)
            assert await (await connect()).closed()
            elsewhere = Peer(*await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0)))
            for peer in (*peers, elsewhere):
                peer.ask(MetadataRequest(topics=[]), 0, 1)
                await peer.frame()
            await elsewhere.close()
            await peers[0].close()
            await eventually(lambda: server.connections == 1)
            late = await connect()
            late.ask(MetadataRequest(topics=[]), 0, 1)
            await late.frame()
            assert server._per_host == {"127.0.0.1": 2}, "nothing is kept of who has left"

    with caplog.at_level(logging.INFO, logger="assay.network"):
        asyncio.run(main())
    assert len(caplog.records) == 1
    assert "its address has reached its limit of 2 connections" in caplog.text


def test_large_requests_wait_for_the_common_memory_and_small_ones_do_not() -> None:
    async def main() -> None:
        handling, go = 0, asyncio.Event()

        async def blocking(request: ProduceRequest, context: RequestContext) -> None:
            nonlocal handling
            handling += 1
            await go.wait()

        limits = Limits(max_request_bytes=300_000, max_buffered_bytes=500_000)
        async with serving({PRODUCE: blocking, METADATA: metadata}, limits) as (_, connect):
            large = [await connect() for _ in range(3)]
            for peer in large:
                peer.ask(produce(200_000), 2, 1)
            await eventually(lambda: handling == 2)
            small = await connect()
            small.ask(MetadataRequest(topics=[]), 0, 1)
            await small.frame()
            assert handling == 2
            go.set()
            await eventually(lambda: handling == 3)

    asyncio.run(main())


def test_a_request_whose_handler_dropped_its_bytes_keeps_no_memory_while_it_waits() -> None:
    async def main() -> None:
        handling, go = 0, asyncio.Event()

        async def waiting(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
            nonlocal handling
            handling += 1
            request.topics.clear()
            context.release()
            await go.wait()
            return ProduceResponse(topics=[])

        limits = Limits(max_request_bytes=1_000_000, max_buffered_bytes=1_500_000)
        async with serving({PRODUCE: waiting}, limits) as (server, connect):
            large = [await connect() for _ in range(5)]
            before, _ = tracemalloc.get_traced_memory()
            for peer in large:
                peer.ask(produce_acked(990_000), 2, 1)
            await eventually(lambda: handling == 5)
            assert server._memory.free == 1_500_000
            await asyncio.sleep(0.05)
            assert tracemalloc.get_traced_memory()[0] - before < 2_000_000, "the bytes are still somewhere"
            go.set()
            for peer in large:
                await peer.frame()

    tracemalloc.start()
    try:
        asyncio.run(main())
    finally:
        tracemalloc.stop()


async def accept(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
    return ProduceResponse(topics=[])


def test_slow_senders_of_giant_requests_keep_no_memory_from_others(caplog: pytest.LogCaptureFixture) -> None:
    """Fifty announce 100 MB each and send 70 kB. Others are answered at once, and no one had to go for that."""

    async def main() -> None:
        giant = struct.pack(">i", Limits().max_request_bytes) + bytes(70_000)
        async with serving({PRODUCE: accept}) as (server, connect):
            slow = [await connect() for _ in range(50)]
            for peer in slow:
                peer.send(giant)
                await peer.writer.drain()
            await eventually(lambda: server._memory.free == Limits().max_buffered_bytes - 50 * FREE_REQUEST_BYTES)
            for size in (70_000, 200_000, 5_000_000):
                honest = await connect()
                honest.send(encode_request(produce_acked(size), 2, 1, "honest"))
                assert await honest.frame()
            assert server.connections == 53
            assert caplog.text == ""

    with caplog.at_level(logging.INFO, logger="assay.network"):
        asyncio.run(main())


def test_slow_senders_that_have_filled_the_memory_are_closed_for_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limits = Limits(max_request_bytes=1_000_000, max_buffered_bytes=2_000_000, crowded_timeout=0.05)
        giant = struct.pack(">i", 1_000_000) + bytes(999_900)
        async with serving({PRODUCE: accept}, limits) as (_, connect):
            slow = [await connect() for _ in range(8)]
            for peer in slow:
                peer.send(giant)
            honest = await connect()
            honest.send(encode_request(produce_acked(200_000), 2, 1, "honest"))
            assert await honest.frame()
            await eventually(lambda: "and other requests wait for the memory" in caplog.text)
            assert "closing the connection of 127.0.0.1:" in caplog.text

    with caplog.at_level(logging.INFO, logger="assay.network"):
        asyncio.run(main())


def test_a_sender_that_stalls_is_closed_when_no_one_waits_too(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving({PRODUCE: accept}, Limits(stall_timeout=0.05)) as (server, connect):
            peer = await connect()
            peer.send(struct.pack(">i", 1_000_000) + bytes(70_000))
            assert await peer.closed()
            await eventually(lambda: server._memory.free == Limits().max_buffered_bytes)
            assert (
                "it sends too slowly: 934464 of the 1000000 bytes of its request are missing, and the next piece did "
                "not arrive within 0.05 s" in caplog.text
            )

    with caplog.at_level(logging.INFO, logger="assay.network"):
        asyncio.run(main())


def test_more_large_requests_at_once_than_there_is_memory_are_all_answered(caplog: pytest.LogCaptureFixture) -> None:
    """All of them arrive side by side. Senders that wait for memory are no slow senders."""

    async def main() -> None:
        limits = Limits(max_request_bytes=1_000_000, max_buffered_bytes=1_500_000)
        async with serving({PRODUCE: accept}, limits) as (_, connect):
            peers = [await connect() for _ in range(12)]
            for number, peer in enumerate(peers):
                peer.send(encode_request(produce_acked(990_000 - 70_000 * number), 2, 1, "honest"))
            for peer in peers:
                assert await peer.frame()
            assert caplog.text == ""

    with caplog.at_level(logging.INFO, logger="assay.network"):
        asyncio.run(main())


def test_close_ends_connections_and_the_handlers_they_wait_for() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def endless(request: MetadataRequest, context: RequestContext) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("handler")

        server = Server({METADATA: endless}, APIS)
        await server.start("127.0.0.1", 0)
        peer = Peer(*await asyncio.open_connection("127.0.0.1", server.port))
        peer.ask(MetadataRequest(topics=[]), 0, 1)
        await eventually(lambda: server.connections == 1)
        await asyncio.sleep(0.02)
        await server.close()
        assert ended == ["handler"]
        assert await peer.closed()
        await peer.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_handler_for_an_api_without_a_description_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="99"):
        Server({99: metadata}, APIS)


def test_limits_that_could_never_be_met_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="max_buffered_bytes"):
        Limits(max_request_bytes=10, max_buffered_bytes=9)


def test_a_broker_may_be_configured_for_what_any_client_may_ask_of_it() -> None:
    config = BrokerConfig(
        "zk:2181", "h", connections_max_idle_ms=1_500, max_connections_per_ip=7, socket_request_max_bytes=9
    )
    limits = Limits.from_config(config)
    assert (limits.idle_timeout, limits.max_connections_per_ip, limits.max_request_bytes) == (1.5, 7, 9)
    assert Limits.from_config(BrokerConfig("zk:2181", "h")) == Limits()
    little = Limits.from_config(BrokerConfig("zk:2181", "h", queued_max_request_bytes=70_000))
    assert (little.max_buffered_bytes, little.max_request_bytes) == (70_000, 70_000), "a larger one would wait for ever"
