"""Compression codecs of message sets: gzip, snappy and lz4, numbered as in a message's attributes.

- Snappy is read raw (librdkafka) or in the blocks of the Java library snappy-java ("xerial"). It is written in these
  blocks, which all clients can read.
- Lz4 uses frames. In format 0 the checksum of a frame's header also covers the magic number. This was a mistake of the
  first Java client, which all other programs must repeat (KAFKA-3160, KIP-57).

Callers set a limit on the decompressed size. Larger data are rejected before they are fully decompressed.
"""

import struct
import zlib
from collections.abc import Callable, Generator
from typing import Final, TypeVar

import cramjam
import lz4.frame
import xxhash

F = TypeVar("F")

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
NAMES: Final = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4"}

_GZIP_WINDOW = 31
"""zlib's ``wbits`` for a gzip header and the largest window."""
_GZIP_PIECE = 4096
"""Bytes of compressed data that zlib gets at once."""
COMPRESSION_PIECE: Final = 256 * 1024
"""Bytes that gzip, by far the slowest codec, compresses before other tasks run."""
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_BLOCK = 32 * 1024
_SIZE = struct.Struct(">i")
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE = 0x08
_LZ4_DICTIONARY = 0x01


class CompressionError(ValueError):
    """Raised for an unknown codec, or for bytes that the codec cannot decode."""


class ExpandsTooFar(CompressionError):
    """Raised if the decompressed data would exceed the limit."""


def compress(codec: int, data: bytes, magic: int) -> bytes:
    """Compresses data for a message of format ``magic``; equal data give equal results.

    Raises :class:`CompressionError` for an unknown codec.
    """
    return _find_codec(_COMPRESS, codec)(data, magic)


def compress_in_steps(codec: int, data: bytes | bytearray, magic: int) -> Generator[None, None, bytes]:
    """Compresses as :func:`compress`, but yields after each piece."""
    if codec != GZIP:
        return compress(codec, bytes(data), magic)
    view, compressor = memoryview(data), zlib.compressobj(wbits=_GZIP_WINDOW)
    parts: list[bytes] = []
    for start in range(0, len(view), COMPRESSION_PIECE):
        if start:
            yield
        parts.append(compressor.compress(view[start : start + COMPRESSION_PIECE]))
    return b"".join((*parts, compressor.flush()))


def decompress(codec: int, data: bytes, magic: int, limit: int) -> bytes:
    """Decompresses to at most ``limit`` bytes. Raises :class:`CompressionError`, also if further bytes follow."""
    try:
        return _find_codec(_DECOMPRESS, codec)(data, magic, limit)
    except (zlib.error, cramjam.DecompressionError, RuntimeError, struct.error, IndexError) as error:
        raise CompressionError(f"not {NAMES[codec]}: {error}") from error


def _find_codec(functions: dict[int, F], codec: int) -> F:
    if codec not in functions:
        raise CompressionError(f"unknown codec {codec}")
    return functions[codec]


def _compress_gzip(data: bytes, magic: int) -> bytes:
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: bytes, magic: int, limit: int) -> bytes:
    """Decompresses all members in turn, because gzip allows several.

    The data are given to zlib in pieces, because zlib copies what follows a member. With all data in one piece, the
    time would be quadratic in the number of members.
    """
    parts: list[bytes] = []
    size = 0
    decompressor = None
    for start in range(0, len(data), _GZIP_PIECE):
        piece = data[start : start + _GZIP_PIECE]
        while piece:
            decompressor = decompressor or zlib.decompressobj(wbits=_GZIP_WINDOW)
            parts.append(decompressor.decompress(piece, limit - size + 1))
            size += len(parts[-1])
            if size > limit:
                raise ExpandsTooFar(f"gzip: more than {limit} bytes")
            piece = decompressor.unused_data
            if decompressor.eof:
                decompressor = None
    if decompressor is not None:
        raise CompressionError("gzip: ends too early")
    return b"".join(parts)


def _compress_snappy(data: bytes, magic: int) -> bytes:
    chunks = [_XERIAL_HEADER.pack(_XERIAL, 1, 1)]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        chunks += [_SIZE.pack(len(block)), block]
    return b"".join(chunks)


def _decompress_snappy(data: bytes, magic: int, limit: int) -> bytes:
    if not data.startswith(_XERIAL):
        return _decompress_raw_snappy(data, limit)
    parts: list[bytes] = []
    position = _XERIAL_HEADER.size
    while position < len(data):
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        if not 0 <= size <= len(data) - position:
            raise CompressionError(f"snappy: a block of {size} bytes in {len(data) - position}")
        parts.append(_decompress_raw_snappy(data[position : position + size], limit))
        limit -= len(parts[-1])
        position += size
    return b"".join(parts)


def _decompress_raw_snappy(data: bytes, limit: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > limit:  # the declared length, which the decoder enforces
        raise ExpandsTooFar(f"snappy: more than {limit} bytes")
    return bytes(cramjam.snappy.decompress_raw(data))


def _compress_lz4(data: bytes, magic: int) -> bytes:
    """Writes independent blocks without the content size, because older Java readers accept nothing else."""
    frame = lz4.frame.compress(
        data, block_linked=False, store_size=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB, content_checksum=False
    )
    return frame if magic else _replace_header_checksum(frame, 0)


def _decompress_lz4(data: bytes, magic: int, limit: int) -> bytes:
    if not magic:
        data = _replace_header_checksum(data, len(_LZ4_MAGIC))
    decompressor = lz4.frame.LZ4FrameDecompressor()
    result: bytes = decompressor.decompress(data, max_length=limit + 1)
    if len(result) > limit:
        raise ExpandsTooFar(f"lz4: more than {limit} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise CompressionError("lz4: not exactly one frame")
    return result


def _replace_header_checksum(frame: bytes, start: int) -> bytes:
    """Replaces the header checksum by that of the bytes from ``start``.

    ``start``: 4 leaves out the magic number, which is correct. 0 includes it, as messages of format 0 do.
    """
    if not frame.startswith(_LZ4_MAGIC):
        raise CompressionError("lz4: no frame")
    flags = frame[len(_LZ4_MAGIC)]
    end = len(_LZ4_MAGIC) + 2 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    checksum = xxhash.xxh32_intdigest(frame[start:end]) >> 8 & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]


_COMPRESS: dict[int, Callable[[bytes, int], bytes]] = {
    GZIP: _compress_gzip,
    SNAPPY: _compress_snappy,
    LZ4: _compress_lz4,
}
_DECOMPRESS: dict[int, Callable[[bytes, int, int], bytes]] = {
    GZIP: _decompress_gzip,
    SNAPPY: _decompress_snappy,
    LZ4: _decompress_lz4,
}
