"""Frames and headers of requests and responses.

A frame is a 32-bit size and that many bytes. A request begins with its API key, version, correlation id and client id.
A response begins with the request's correlation id alone. The code for headers is written by hand, not compiled from a
table, because every request needs it.
"""

import struct
from typing import NamedTuple

from assay.system_under_test.protocol.compiler import encode_into
from assay.system_under_test.protocol.schema import ProtocolError, Records, get_request_info

_SIZE = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")
_REQUEST = struct.Struct(">hhih")
_REQUEST_FRAME = struct.Struct(">ihhih")
_RESPONSE_FRAME = struct.Struct(">ii")

SIZE_BYTES = _SIZE.size


class RequestHeader(NamedTuple):
    """A request's header. ``body``: the position of the request's body; -1 if only the start was read."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_frame_size(prefix: bytes) -> int:
    """Returns the size that a frame's first four bytes announce. It is not checked, and may be negative."""
    size: int = _SIZE.unpack(prefix)[0]
    return size


def peek_request_header(data: bytes) -> RequestHeader:
    """Reads key, version and correlation id, which are at fixed positions. Raises ``ProtocolError``."""
    try:
        key, version, correlation_id = _REQUEST_START.unpack_from(data)
    except struct.error as error:
        raise ProtocolError(f"a request of {len(data)} bytes is shorter than its header") from error
    return RequestHeader(key, version, correlation_id, None, -1)


def decode_request_header(data: bytes) -> RequestHeader:
    """Decodes the header of a request; ``data`` is the frame without its size. Raises ``ProtocolError``."""
    try:
        key, version, correlation_id, length = _REQUEST.unpack_from(data)
    except struct.error as error:
        raise ProtocolError(f"a request of {len(data)} bytes is shorter than its header") from error
    if length == -1:
        return RequestHeader(key, version, correlation_id, None, _REQUEST.size)
    stop = _REQUEST.size + length
    if length < 0 or stop > len(data):
        raise ProtocolError(f"request key {key} v{version}: client id of length {length} in {len(data)} bytes")
    try:
        client_id = data[_REQUEST.size : stop].decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"request key {key} v{version}: client id is not UTF-8") from error
    return RequestHeader(key, version, correlation_id, client_id, stop)


def decode_correlation_id(data: bytes) -> int:
    """Decodes a response's header, which is its first four bytes. ``data`` has no frame size.

    Raises ``ProtocolError``.
    """
    try:
        correlation_id: int = _SIZE.unpack_from(data)[0]
    except struct.error as error:
        raise ProtocolError(f"a response of {len(data)} bytes has no correlation id") from error
    return correlation_id


def encode_request(request: object, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Returns a whole request frame as bytes; reads file slices into memory.

    Raises ``ProtocolError`` for values that do not fit their wire types.
    """
    chunks: list[Records] = [b""]
    name = b"" if client_id is None else client_id.encode()
    has_slices = encode_into(request, version, chunks) > 0
    if has_slices:
        chunks = [chunk if isinstance(chunk, bytes) else chunk.read() for chunk in chunks]
    size = _REQUEST.size + len(name) + sum(map(len, chunks))  # type: ignore[arg-type]
    length = -1 if client_id is None else len(name)
    chunks[0] = _REQUEST_FRAME.pack(size, get_request_info(type(request)).key, version, correlation_id, length) + name
    return b"".join(chunks)  # type: ignore[arg-type]


def encode_response(response: object, version: int, correlation_id: int) -> list[Records]:
    """Returns a whole response frame: one chunk of bytes, or bytes and slices in wire order."""
    chunks: list[Records] = [b""]
    has_slices = encode_into(response, version, chunks) > 0
    if not has_slices:
        size = 4 + sum(map(len, chunks))  # type: ignore[arg-type]
        chunks[0] = _RESPONSE_FRAME.pack(size, correlation_id)
        return [b"".join(chunks)]  # type: ignore[arg-type]
    size = 4 + sum(len(chunk) if isinstance(chunk, bytes) else chunk.size for chunk in chunks)
    chunks[0] = _RESPONSE_FRAME.pack(size, correlation_id)
    return _join_bytes(chunks)


def _join_bytes(chunks: list[Records]) -> list[Records]:
    """Joins neighbouring bytes, because each chunk is one write."""
    result: list[Records] = []
    run: list[bytes] = []
    for chunk in chunks:
        if isinstance(chunk, bytes):
            run.append(chunk)
            continue
        result += [b"".join(run), chunk]
        run = []
    if run:
        result.append(b"".join(run))
    return result
