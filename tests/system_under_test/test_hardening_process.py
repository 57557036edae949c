"""Strangers do no harm to a real broker process: its memory stays bounded, and its other clients notice nothing.

The broker is tested in virtual time by ``test_hardening``, and with noise by ``test_fuzz_process``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from assay.system_under_test.network.connection import Connection
from assay.system_under_test.network.limits import Limits
from assay.system_under_test.protocol.header import encode_request
from assay.system_under_test.protocol.metadata import MetadataRequest
from assay.system_under_test.protocol.schema import read_records

from helpers.broker_process import MB, Process, fetch, produce, running_broker, until

pytestmark = pytest.mark.slow

LIMITS = Limits()
PATIENCE = 1.0
"""Seconds within which a request is answered on a machine with other things to do; else it takes one or two ms."""
ANNOUNCED = LIMITS.max_request_bytes
HALF = encode_request(MetadataRequest(topics=["orders"]), 1, 1, "half")[:-3]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with running_broker(tmp_path_factory.mktemp("hardening")) as process:
        yield process


@dataclass
class Customer:
    """An honest client that was there before the strangers: seconds that its answers took."""

    small: list[float] = field(default_factory=list)
    large: list[float] = field(default_factory=list)


async def _produces(connection: Connection, size: int, pause: float, took: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        answer = await connection.call(produce(bytes(size)), 2, 20.0)
        took.append(loop.time() - began)
        assert answer.topics[0].partitions[0].error_code == 0
        await asyncio.sleep(pause)


@asynccontextmanager
async def customer(port: int) -> AsyncIterator[Customer]:
    """Produces small messages, and ones that need the memory that all share, as long as this lasts."""
    made = Customer()
    connections = [await Connection.open("127.0.0.1", port, 1.0) for _ in range(2)]
    tasks = [
        asyncio.create_task(_produces(connections[0], 100, 0.02, made.small)),
        asyncio.create_task(_produces(connections[1], 100_000, 0.2, made.large)),
    ]
    try:
        yield made
        for task in tasks:
            assert not task.done(), "the customer goes on: " + repr(task.exception() if task.done() else None)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for connection in connections:
            await connection.close()


async def opened(port: int, count: int) -> list[socket.socket]:
    """Connections of a stranger, with as little room for answers as there can be."""
    loop, made = asyncio.get_running_loop(), []
    for _ in range(count):
        stranger = socket.socket()
        stranger.setblocking(False)
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await loop.sock_connect(stranger, ("127.0.0.1", port))
        made.append(stranger)
    return made


def test_announced_sizes_and_half_requests_cost_nothing(running: Process) -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        before = running.memory()
        async with customer(running.port) as honest:
            await asyncio.sleep(0.2)
            giants = await opened(running.port, 100)
            for stranger in giants:
                await loop.sock_sendall(stranger, struct.pack(">i", 2**31 - 1) + b"x")
            for stranger in giants:
                with contextlib.suppress(ConnectionResetError):
                    assert await loop.sock_recv(stranger, 10) == b""
            assert running.lines(f"request of {2**31 - 1} bytes") == 100
            dribbling, halves = await opened(running.port, 100), await opened(running.port, 100)
            for stranger in dribbling:
                await loop.sock_sendall(stranger, struct.pack(">i", ANNOUNCED))
            for stranger in halves:
                await loop.sock_sendall(stranger, HALF)
            for _ in range(10):
                for stranger in dribbling:
                    await loop.sock_sendall(stranger, b"drop")
                await asyncio.sleep(0.1)
            assert max(honest.large) < PATIENCE, "no one has the memory that they announced"
            stalled = await opened(running.port, 3)
            for stranger in stalled:
                third = (LIMITS.max_buffered_bytes - 10_000) // 3
                await loop.sock_sendall(stranger, struct.pack(">i", third) + bytes(100_000))
            for stranger in stalled:
                with contextlib.suppress(ConnectionResetError):
                    assert await loop.sock_recv(stranger, 10) == b""
            assert running.lines("it sends too slowly") == 3
            await asyncio.sleep(0.5)
            for stranger in (*giants, *dribbling, *halves, *stalled):
                stranger.close()
            assert max(honest.small) < PATIENCE
            assert max(honest.large) < LIMITS.stall_timeout + 2

            async def reported() -> bool:
                return running.lines("went away after") == 200

            await until(reported, "each that left is one line", 10)
        assert running.memory() - before < 60 * MB

    asyncio.run(check())


def test_giant_requests_that_arrive_slowly_let_others_be_served(running: Process) -> None:
    """Fifty connections announce as much as they may and send 70 kB. Requests of 100 kB are answered all the same."""

    async def check() -> None:
        loop = asyncio.get_running_loop()
        before = running.memory()
        async with customer(running.port) as honest:
            giants = await opened(running.port, 50)
            for stranger in giants:
                await loop.sock_sendall(stranger, struct.pack(">i", ANNOUNCED) + bytes(70_000))
            served = len(honest.large)

            async def goes_on() -> bool:
                return len(honest.large) >= served + 10

            await until(goes_on, "the customer's large requests are answered", 30)
            assert max(honest.large) < PATIENCE
            assert running.memory() - before < 60 * MB
            for stranger in giants:
                stranger.close()

    asyncio.run(check())


def test_a_client_that_asks_and_reads_nothing_is_closed_before_the_memory_is_gone(running: Process) -> None:
    """Sixty times 8 MB of answers are more than answers may take, and the honest client's come all the same."""

    async def check() -> None:
        loop = asyncio.get_running_loop()
        filling = await Connection.open("127.0.0.1", running.port, 1.0)
        for _ in range(12):
            answer = await filling.call(produce(bytes(900_000)), 2, 5.0)
        end = answer.topics[0].partitions[0].base_offset
        start = end - 11
        before, most = running.memory(), 0
        async with customer(running.port) as honest:
            strangers = await opened(running.port, 60)
            asked = encode_request(fetch(start), 3, 1, "deaf") * 1_000
            for stranger in strangers:
                with contextlib.suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(0.02):  # it takes no more than a few of them
                        await loop.sock_sendall(stranger, asked)
                most = max(most, running.memory())
                fetched = await filling.call(fetch(end), 3, 5.0)
                assert len(read_records(fetched.topics[0].partitions[0].records)) > 900_000
            await asyncio.sleep(0.5)
            most = max(most, running.memory())
            assert most - before < 2 * LIMITS.max_unsent_bytes, "buffers are larger than what is in them"
            assert running.lines("does not take its response") >= 20
            assert max(honest.small + honest.large) < PATIENCE
            for stranger in strangers:
                stranger.close()
        await filling.close()

    asyncio.run(check())


def test_more_connections_than_there_may_be_shut_no_one_out(running: Process) -> None:
    async def check() -> None:
        before, files = running.memory(), running.files()
        async with customer(running.port) as honest:
            await asyncio.sleep(0.2)
            strangers = await opened(running.port, LIMITS.max_connections + 300)
            await asyncio.sleep(LIMITS.evictable_after)

            async def refused() -> bool:
                """A connection is closed a turn of the broker's loop after the line about it."""
                lines = running.lines("refusing") + running.lines("a new one needs its place")
                return lines >= 300 and running.files() - files <= LIMITS.max_connections + 10

            await until(refused, "no more are open than there may be", 10)
            assert running.memory() - before < 60 * MB
            for _ in range(20):
                late = await Connection.open("127.0.0.1", running.port, 1.0)
                await late.call(MetadataRequest(topics=["orders"]), 1, 5.0)
                await late.close()
            assert max(honest.small + honest.large) < PATIENCE
            for stranger in strangers:
                stranger.close()

        async def closed() -> bool:
            return running.files() <= files + 5

        await until(closed, "all their connections are closed", 10)

    asyncio.run(check())


def test_a_burst_of_requests_is_not_one_turn(running: Process) -> None:
    """A hundred thousand small requests, their answers read as fast as they come."""

    async def check() -> None:
        asked = encode_request(MetadataRequest(topics=None), 1, 1, None) * 100_000
        async with customer(running.port) as honest:
            await asyncio.sleep(0.2)
            loop = asyncio.get_running_loop()
            began = loop.time()
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(asked)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.7):
                    while await reader.read(MB):
                        pass
            assert loop.time() - began >= 0.7, "it was a burst for as long as this watched"
            writer.transport.abort()
            assert len(honest.small) > 7
            assert max(honest.small) < PATIENCE

    asyncio.run(check())
