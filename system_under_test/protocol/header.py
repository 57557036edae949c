"""What precedes a message: its size, and a header that says what it is.

A frame is a 32-bit size and so many bytes. A request begins with its API's key, version, a correlation id that the
answer repeats, and the client's name; a response with the correlation id alone. Headers pass with every request, so
they are written by hand rather than compiled from a table.
"""

import struct
from typing import NamedTuple

from assay.system_under_test.protocol.compiler import encode_into
from assay.system_under_test.protocol.schema import ProtocolError, Records, request_info

_SIZE = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")
_REQUEST = struct.Struct(">hhih")
_REQUEST_FRAME = struct.Struct(">ihhih")
_RESPONSE_FRAME = struct.Struct(">ii")

SIZE_BYTES = _SIZE.size


class RequestHeader(NamedTuple):
    """``body`` is the position at which the request proper begins; -1 where the header was not read that far."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def frame_size(prefix: bytes) -> int:
    """The size that the first four bytes of a frame announce; it may be negative or absurd."""
    size: int = _SIZE.unpack(prefix)[0]
    return size


def peek_request_header(data: bytes) -> RequestHeader:
    """Key, version and correlation id, which stand where they stand in every version. Raises ``ProtocolError``."""
    try:
        key, version, correlation_id = _REQUEST_START.unpack_from(data)
    except struct.error as error:
        raise ProtocolError(f"a request of {len(data)} bytes is shorter than its header") from error
    return RequestHeader(key, version, correlation_id, None, -1)


def decode_request_header(data: bytes) -> RequestHeader:
    """``data`` is a frame without its size. Raises ``ProtocolError``."""
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
    """``data`` is a response's frame without its size; its body begins at 4. Raises ``ProtocolError``."""
    try:
        correlation_id: int = _SIZE.unpack_from(data)[0]
    except struct.error as error:
        raise ProtocolError(f"a response of {len(data)} bytes has no correlation id") from error
    return correlation_id


def encode_request(request: object, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request frame; slices in it are read. Raises ``ProtocolError`` for values that do not fit."""
    chunks: list[Records] = [b""]
    name = b"" if client_id is None else client_id.encode()
    if encode_into(request, version, chunks):
        chunks = [chunk if isinstance(chunk, bytes) else chunk.read() for chunk in chunks]
    size = _REQUEST.size + len(name) + sum(map(len, chunks))  # type: ignore[arg-type]
    length = -1 if client_id is None else len(name)
    chunks[0] = _REQUEST_FRAME.pack(size, request_info(type(request)).key, version, correlation_id, length) + name
    return b"".join(chunks)  # type: ignore[arg-type]


def encode_response(response: object, version: int, correlation_id: int) -> list[Records]:
    """A whole response frame: one chunk of bytes, or bytes and slices in wire order."""
    chunks: list[Records] = [b""]
    if not encode_into(response, version, chunks):
        size = 4 + sum(map(len, chunks))  # type: ignore[arg-type]
        chunks[0] = _RESPONSE_FRAME.pack(size, correlation_id)
        return [b"".join(chunks)]  # type: ignore[arg-type]
    size = 4 + sum(len(chunk) if isinstance(chunk, bytes) else chunk.size for chunk in chunks)
    chunks[0] = _RESPONSE_FRAME.pack(size, correlation_id)
    return _joined(chunks)


def _joined(chunks: list[Records]) -> list[Records]:
    """The same, with neighbouring bytes joined: each chunk is one write."""
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
