"""Many connections over one pair of streams: each arrives whole, in order and alone, and ends when it should."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.remote.multiplexer import HEADER, MAX_FRAME, ByteWriter, Multiplexer

from helpers.examples import some_of

Connection = tuple[asyncio.StreamReader, ByteWriter]


class Pair:
    """Two ends that carry each other's connections. The far end collects what it accepts."""

    async def open(self) -> Pair:
        near, far = socket.socketpair()
        self.accepted: asyncio.Queue[Connection] = asyncio.Queue()
        near_streams = await asyncio.open_connection(sock=near)
        far_streams = await asyncio.open_connection(sock=far)
        self.near = Multiplexer(*near_streams)
        self.far = Multiplexer(*far_streams, lambda *connection: self.accepted.put_nowait(connection))
        self.tasks = [asyncio.ensure_future(self.near.run()), asyncio.ensure_future(self.far.run())]
        self.writers = (near_streams[1], far_streams[1])
        return self

    async def close(self) -> None:
        for writer in self.writers:
            writer.close()
        await asyncio.gather(*self.tasks)


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
        streams = await asyncio.open_connection(sock=near)
        multiplexer = Multiplexer(*streams)
        reader, _ = multiplexer.open_connection()
        far.sendall(HEADER.pack(1, MAX_FRAME + 1))
        await multiplexer.run()
        streams[1].close()
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
