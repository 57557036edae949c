"""Each codec undoes itself, reads what other clients write, and gives no more than it may."""

from __future__ import annotations

import contextlib
import gzip
import struct
import time

import cramjam
import lz4.frame
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.records.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    CompressionError,
    ExpandsTooFar,
    compress,
    decompress,
)

CODECS = st.sampled_from([GZIP, SNAPPY, LZ4])
MAGICS = st.sampled_from([0, 1])
DATA = st.one_of(st.binary(max_size=200), st.integers(0, 100_000).map(lambda size: b"again " * (size // 6)))


@given(CODECS, MAGICS, DATA)
def test_what_was_compressed_comes_back(codec: int, magic: int, data: bytes) -> None:
    packed = compress(codec, data, magic)
    assert packed == compress(codec, data, magic)
    assert decompress(codec, packed, magic, len(data)) == data


@given(CODECS, MAGICS, DATA.filter(bool))
def test_one_byte_more_than_the_limit_is_refused(codec: int, magic: int, data: bytes) -> None:
    with pytest.raises(ExpandsTooFar):
        decompress(codec, compress(codec, data, magic), magic, len(data) - 1)


@given(CODECS, MAGICS, st.binary(max_size=100))
def test_nonsense_is_refused_or_small(codec: int, magic: int, nonsense: bytes) -> None:
    with contextlib.suppress(CompressionError):
        assert len(decompress(codec, nonsense, magic, 1000)) <= 1000


@given(CODECS, MAGICS, st.binary(min_size=1, max_size=100), st.data())
def test_data_cut_short_or_followed_by_more_never_pass_for_the_whole(
    codec: int, magic: int, data: bytes, draw: st.DataObject
) -> None:
    packed = compress(codec, data, magic)
    cut = packed[: draw.draw(st.integers(1, len(packed) - 1))]
    with contextlib.suppress(CompressionError):
        assert decompress(codec, cut, magic, 1000) != data or cut == packed
    with pytest.raises(CompressionError):
        decompress(codec, packed + b"\x00\x00\x00\x07more", magic, 1000)


def test_raw_snappy_is_read_as_librdkafka_sends_it() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 20)), 1, 60) == b"abc" * 20


def test_snappy_of_several_blocks_is_framed_as_the_java_library_does() -> None:
    data = bytes(range(256)) * 300
    packed = compress(SNAPPY, data, 1)
    assert packed[:8] == b"\x82SNAPPY\x00"
    assert struct.unpack_from(">ii", packed, 8) == (1, 1)
    (first,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == data[:32768]


def test_many_gzip_members_take_linear_time() -> None:
    """The time of eight times as many members, which would be 64 times as long if it grew as their square."""
    empty, end = gzip.compress(b""), gzip.compress(b"abc")
    times = []
    for many in (10_000, 80_000):
        begun = time.process_time()
        assert decompress(GZIP, empty * many + end, 1, 3) == b"abc"
        times.append(time.process_time() - begun)
    small, large = times
    assert large < 20 * small + 0.1


@pytest.mark.parametrize("many", [0, 1, 203, 204, 205, 206])
def test_many_gzip_members_are_whole(many: int) -> None:
    """A member may begin or end at any byte of a piece."""
    data = gzip.compress(b"") * many + gzip.compress(bytes(range(256)) * 40)
    assert decompress(GZIP, data, 1, 10_240) == bytes(range(256)) * 40
    for wrong in (data[:-1], data + b"x", data + data[:5]):
        with pytest.raises(CompressionError):
            decompress(GZIP, wrong, 1, 20_480)
    with pytest.raises(ExpandsTooFar):
        decompress(GZIP, data, 1, 10_239)


def test_gzip_is_the_standard_librarys() -> None:
    assert gzip.decompress(compress(GZIP, b"abc", 1)) == b"abc"
    assert decompress(GZIP, gzip.compress(b"abc") + gzip.compress(b"def"), 1, 6) == b"abcdef"


def test_lz4_of_format_0_bears_the_mistaken_header_checksum_and_either_is_read() -> None:
    right, wrong = compress(LZ4, b"abc", 1), compress(LZ4, b"abc", 0)
    assert lz4.frame.decompress(right) == b"abc"
    assert right[6] == xxhash.xxh32_intdigest(right[4:6]) >> 8 & 0xFF
    assert wrong[6] == xxhash.xxh32_intdigest(wrong[0:6]) >> 8 & 0xFF
    assert right[6] != wrong[6]
    assert decompress(LZ4, right, 0, 3) == decompress(LZ4, wrong, 0, 3) == b"abc"
    with pytest.raises(CompressionError):
        decompress(LZ4, wrong, 1, 3)


def test_lz4_with_the_size_of_its_content_is_read_in_format_0() -> None:
    frame = bytearray(lz4.frame.compress(b"abc", store_size=True))
    frame[14] = xxhash.xxh32_intdigest(bytes(frame[0:14])) >> 8 & 0xFF
    assert decompress(LZ4, bytes(frame), 0, 3) == b"abc"


@pytest.mark.parametrize("codec", [0, 4, 7])
def test_an_unknown_codec_is_named(codec: int) -> None:
    with pytest.raises(CompressionError, match=f"codec {codec}"):
        decompress(codec, b"", 1, 1)
    with pytest.raises(CompressionError, match=f"codec {codec}"):
        compress(codec, b"", 1)
