"""However a stream is cut into pieces, the same bytes come out, and its end is reported where it is."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.network.accepted import PIECE_BYTES, ReadAhead


@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(0, 200), max_size=20))
def test_reads_give_the_stream_in_order_and_its_end(pieces: list[bytes], sizes: list[int]) -> None:
    async def check() -> None:
        stream, whole, position = asyncio.StreamReader(), b"".join(pieces), 0
        reader = ReadAhead(stream)
        feeding = asyncio.create_task(_feed(stream, pieces))
        for size in sizes:
            if position + size > len(whole):
                with pytest.raises(asyncio.IncompleteReadError) as error:
                    await reader.read_exactly(size)
                assert error.value.partial == whole[position:]
                break
            assert await reader.read_exactly(size) == whole[position : position + size]
            position += size
        await feeding

    asyncio.run(check())


def test_more_than_a_piece_is_gathered() -> None:
    async def check() -> None:
        stream, whole = asyncio.StreamReader(), bytes(range(256)) * (PIECE_BYTES // 64)
        stream.feed_data(whole)
        stream.feed_eof()
        reader = ReadAhead(stream)
        assert await reader.read_exactly(3) == whole[:3]
        assert reader.has_buffered
        assert await reader.read_exactly(len(whole) - 3) == whole[3:]
        assert not reader.has_buffered

    asyncio.run(check())


async def _feed(stream: asyncio.StreamReader, pieces: list[bytes]) -> None:
    for piece in pieces:
        stream.feed_data(piece)
        await asyncio.sleep(0)
    stream.feed_eof()
