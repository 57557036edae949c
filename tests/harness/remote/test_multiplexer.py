"""Many connections over one pair of streams: each arrives whole, in order and alone, and ends when it should."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.remote.multiplexer import HEADER, MAX_FRAME, WINDOW, Accept, ByteWriter, Multiplexer

from helpers.examples import some_of

Connection = tuple[asyncio.StreamReader, ByteWriter]


class Pair:
    """Two ends that carry each other's connections. The far end collects what it accepts."""

    async def open(self) -> Pair:
        near, far = socket.socketpair()
        self.accepted: asyncio.Queue[Connection] = asyncio.Queue()
        self.near = await connect(near)
        self.far = await connect(far, lambda *connection: self.accepted.put_nowait(connection))
        return self

    async def close(self) -> None:
        self.near.close()
        self.far.close()
        await asyncio.gather(self.near.wait_end(), self.far.wait_end())


async def connect(end: socket.socket, accept: Accept | None = None) -> Multiplexer:
    _, multiplexer = await asyncio.get_running_loop().create_connection(lambda: Multiplexer(accept), sock=end)
    return multiplexer


PIECES = st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=50) | st.just(b"x" * (MAX_FRAME + 1))), max_size=20)


@settings(max_examples=some_of(50), deadline=None)
@given(PIECES, PIECES)
def test_each_connection_gets_its_own_bytes_in_their_order(
    there: list[tuple[int, bytes]], back: list[tuple[int, bytes]]
) -> None:
    async def main() -> None:
        pair = await Pair().open()
        try:
            near = [pair.near.open_connection() for _ in range(4)]
            for number, (_, writer) in enumerate(near):
                writer.write(bytes([number]))  # opens it, in this order
            far = [await pair.accepted.get() for _ in range(4)]
            for sent, ends in ((there, near), (back, far)):
                for number, data in sent:
                    ends[number][1].write(data)
                    await ends[number][1].drain()
                for _, writer in ends:
                    writer.close()
            for number in range(4):
                assert await far[number][0].read() == bytes([number]) + b"".join(d for n, d in there if n == number)
                assert await near[number][0].read() == b"".join(d for n, d in back if n == number)
        finally:
            await pair.close()

    asyncio.run(main())


def test_a_closed_connection_disturbs_no_other_and_takes_no_more_bytes() -> None:
    async def main() -> None:
        pair = await Pair().open()
        try:
            (_, first), (second_reader, second) = pair.near.open_connection(), pair.near.open_connection()
            first.write(b"1")
            second.write(b"2")
            first.close()
            first.close()
            with pytest.raises(ConnectionError, match="closed"):
                first.write(b"more")
            (first_far, writer), (second_far, answer) = await pair.accepted.get(), await pair.accepted.get()
            assert await first_far.read() == b"1"
            writer.write(b"unread")
            writer.close()
            answer.write(b"3")
            answer.close()
            assert await second_reader.read() == b"3"
            second.close()
            assert await second_far.read() == b"2"
        finally:
            await pair.close()

    asyncio.run(main())


def test_a_frame_that_is_longer_than_any_ends_every_connection() -> None:
    async def main() -> bytes:
        near, far = socket.socketpair()
        multiplexer = await connect(near)
        reader, _ = multiplexer.open_connection()
        far.sendall(HEADER.pack(1, MAX_FRAME + 1))
        await multiplexer.wait_end()
        far.close()
        return await reader.read()

    assert asyncio.run(main()) == b""


def test_with_the_carrying_pair_every_connection_ends() -> None:
    async def main() -> None:
        pair = await Pair().open()
        reader, writer = pair.near.open_connection()
        writer.write(b"x")
        far, _ = await pair.accepted.get()
        await pair.close()
        assert (await reader.read(), await far.read()) == (b"", b"x")
        with pytest.raises(ConnectionError, match="has ended"):
            pair.near.open_connection()

    asyncio.run(main())


class RecordingTransport(asyncio.Transport):
    """Notes each write, and never has too many bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False


def test_frames_of_one_iteration_are_written_at_once_and_in_their_order() -> None:
    async def main() -> list[bytes]:
        multiplexer, transport = Multiplexer(), RecordingTransport()
        multiplexer.connection_made(transport)
        writers = [multiplexer.open_connection()[1] for _ in range(3)]

        async def send(writer: ByteWriter, data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        await asyncio.gather(*(send(writer, b"%d" % number) for number, writer in enumerate(writers)))
        writers[0].write(b"more")
        writers[0].close()
        await asyncio.sleep(0)
        assert transport.written.pop() == HEADER.pack(1, 4) + b"more" + HEADER.pack(1, 0)
        return transport.written

    assert asyncio.run(main()) == [b"".join(HEADER.pack(number + 1, 1) + b"%d" % number for number in range(3))]


def test_many_bytes_are_written_before_the_iteration_ends() -> None:
    async def main() -> list[int]:
        multiplexer, transport = Multiplexer(), RecordingTransport()
        multiplexer.connection_made(transport)
        _, writer = multiplexer.open_connection()
        writer.write(b"x" * (3 * MAX_FRAME + 1))
        return [len(data) for data in transport.written]

    assert asyncio.run(main()) == 3 * [HEADER.size + MAX_FRAME]


FRAMES = st.lists(st.tuples(st.integers(1, 3), st.binary(min_size=1, max_size=20)), max_size=10)


@settings(max_examples=some_of(100), deadline=None)
@given(FRAMES, st.data())
def test_frames_arrive_however_the_carrying_pair_cuts_them(
    frames: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    async def main() -> dict[int, bytes]:
        multiplexer = Multiplexer()
        readers = {number: multiplexer.open_connection()[0] for number in (1, 2, 3)}
        carried = b"".join(HEADER.pack(number, len(part)) + part for number, part in frames)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(carried)), max_size=8)))
        for start, stop in zip([0, *cuts], [*cuts, len(carried)], strict=True):
            multiplexer.data_received(carried[start:stop])
        multiplexer.eof_received()
        return {number: await reader.read() for number, reader in readers.items()}

    arrived = asyncio.run(main())
    assert arrived == {number: b"".join(part for to, part in frames if to == number) for number in (1, 2, 3)}


async def send_without_end(writer: ByteWriter, sent: list[int]) -> None:
    while True:
        writer.write(b"x" * 4096)
        await writer.drain()
        sent[0] += 4096
        await asyncio.sleep(0)


MOST_ON_THE_WAY = 4 << 20
"""Bytes that the window, the sockets and the transports may hold."""


@pytest.mark.slow
@pytest.mark.parametrize("far_sends", [False, True])
def test_a_sender_that_is_faster_than_its_receiver_is_paused_and_delays_no_other(far_sends: bool) -> None:
    async def main() -> None:
        pair = await Pair().open()
        try:
            near = [pair.near.open_connection() for _ in range(2)]
            for number, (_, writer) in enumerate(near):
                writer.write(bytes([number]))
            far = [await pair.accepted.get() for _ in range(2)]
            for reader, _ in far:
                await reader.readexactly(1)
            senders, receivers = (far, near) if far_sends else (near, far)
            sent = [0]
            sending = asyncio.ensure_future(send_without_end(senders[0][1], sent))
            before = -1
            while sent[0] > before:
                before = sent[0]
                await asyncio.sleep(0.3)
            assert WINDOW < sent[0] < MOST_ON_THE_WAY
            for number in range(100):  # the other connection goes on, in both directions
                senders[1][1].write(b"%3d" % number)
                await asyncio.wait_for(senders[1][1].drain(), 10)
                assert await asyncio.wait_for(receivers[1][0].readexactly(3), 10) == b"%3d" % number
                receivers[1][1].write(b"%3d" % number)
                assert await asyncio.wait_for(senders[1][0].readexactly(3), 10) == b"%3d" % number
            assert sent[0] == before
            read = 0
            while read < 3 * MOST_ON_THE_WAY:  # the receiver reads again
                read += len(await asyncio.wait_for(receivers[0][0].read(1 << 16), 10))
            assert read - MOST_ON_THE_WAY < sent[0] < read + MOST_ON_THE_WAY
            sending.cancel()
        finally:
            await pair.close()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["a line", "exactly"])
def test_one_read_may_take_more_than_the_window(how: str) -> None:
    size = 20 * WINDOW

    async def main() -> None:
        pair = await Pair().open()
        try:
            _, writer = pair.near.open_connection()
            writer.write(b"first\n")
            reader, _ = await pair.accepted.get()
            assert await reader.readline() == b"first\n"

            async def send() -> None:
                for _ in range(size // 4096):
                    writer.write(b"x" * 4096)
                    await writer.drain()
                writer.write(b"\nrest")
                await writer.drain()
                writer.close()

            sending = asyncio.ensure_future(send())
            await asyncio.sleep(0.2)
            reading = reader.readline() if how == "a line" else reader.readexactly(size + 1)
            assert await asyncio.wait_for(reading, 30) == b"x" * size + b"\n"
            assert await asyncio.wait_for(reader.read(), 10) == b"rest"
            await sending
        finally:
            await pair.close()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["the receiver closes", "the pair ends"])
def test_a_paused_sender_does_not_wait_for_a_receiver_that_is_gone(how: str) -> None:
    async def main() -> None:
        pair = await Pair().open()
        near_reader, near = pair.near.open_connection()
        near.write(b"x")
        _, far = await pair.accepted.get()
        for _ in range(3 * WINDOW // MAX_FRAME):
            far.write(b"x" * MAX_FRAME)
            await asyncio.sleep(0.01)
        draining = asyncio.ensure_future(far.drain())
        await asyncio.sleep(0.1)
        assert not draining.done()
        if how == "the receiver closes":
            near.close()
            await asyncio.wait_for(draining, 10)
            far.close()
            assert await asyncio.wait_for(near_reader.read(), 10) == b"x" * 3 * WINDOW
            await pair.close()
            return
        await pair.close()
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(draining, 10)

    asyncio.run(main())


@pytest.mark.parametrize("ends", [False, True])
def test_writers_wait_while_the_other_side_does_not_read(ends: bool) -> None:
    async def main() -> int:
        near, far = socket.socketpair()
        far.setblocking(False)
        multiplexer = await connect(near)
        writers = [multiplexer.open_connection()[1] for _ in range(1000)]
        for writer in writers:
            writer.write(b"x" * 4096)  # each far below any limit
        waiting = [asyncio.ensure_future(writer.drain()) for writer in writers]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        received, loop = 0, asyncio.get_running_loop()
        if ends:
            multiplexer.close()
        while not ends and received < 1000 * (HEADER.size + 4096):
            received += len(await loop.sock_recv(far, 1 << 20))
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        multiplexer.close()
        far.close()
        return sum(isinstance(error, ConnectionError) for error in ended)

    assert asyncio.run(main()) == (1000 if ends else 0)


def test_answers_still_arrive_after_the_other_side_has_stopped_to_read() -> None:
    async def main() -> bytes:
        loop, multiplexer = asyncio.get_running_loop(), Multiplexer()
        (from_far, far_output), (far_input, to_far) = os.pipe(), os.pipe()
        await loop.connect_read_pipe(lambda: multiplexer, os.fdopen(from_far, "rb", 0))
        await loop.connect_write_pipe(lambda: multiplexer, os.fdopen(to_far, "wb", 0))
        reader, writer = multiplexer.open_connection()
        os.close(far_input)

        async def write_until_lost() -> None:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0)

        with pytest.raises(ConnectionError):
            await write_until_lost()
        os.write(far_output, HEADER.pack(1, 6) + b"answer")
        os.close(far_output)
        await multiplexer.wait_end()
        return await reader.read()

    assert asyncio.run(main()) == b"answer"
