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
    """The time of 45,000 members, compared with that of the standard library for the same bytes."""
    data = gzip.compress(b"") * 45_000 + gzip.compress(b"abc")
    begun = time.process_time()
    assert gzip.decompress(data[: len(data) // 4 // 20 * 20]) == b""
    middle = time.process_time()
    assert decompress(GZIP, data, 1, 3) == b"abc"
    assert time.process_time() - middle < 20 * (middle - begun) + 0.5
    with pytest.raises(CompressionError):
        decompress(GZIP, data[:-1], 1, 3)
    with pytest.raises(CompressionError):
        decompress(GZIP, data + b"x", 1, 3)


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
