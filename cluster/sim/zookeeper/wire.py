"""Frames between the simulated ZooKeeper and its client: a 4-byte big-endian length, then one msgpack value.

The format is not ZooKeeper's own (jute), because no other client connects to this server. Only four-letter words such
as ``srvr`` are real, so that the harness can send them to real and simulated servers alike.

Messages are lists:

- The first request is ``[session or 0, timeout ms]``. Its answer is ``[session, timeout ms]`` (session 0 = expired).
- Later requests are ``[xid, verb, ...]``. Their answers are ``[xid, error code, result]``.
- Watch events are ``[WATCH, type, path]``.
"""

import asyncio
from typing import Any

import msgspec

WATCH = -1
PING = -2
MAX_FRAME = 8 * 1024 * 1024
"""Maximum bytes of a frame. Longer frames come from a peer with another protocol."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def pack(value: Any) -> bytes:
    body = _encode(value)
    return len(body).to_bytes(4, "big") + body


async def receive(reader: asyncio.StreamReader, head: bytes | None = None) -> Any:
    """Returns the next value. ``head``: the first 4 bytes, if the caller has read them already.

    Raises ``asyncio.IncompleteReadError`` or ``OSError`` if the connection has ended.
    """
    head = await reader.readexactly(4) if head is None else head
    size = int.from_bytes(head, "big")
    if size > MAX_FRAME:
        raise ConnectionError(f"a frame of {size} bytes: not a simulated ZooKeeper at the other end")
    return _decode(await reader.readexactly(size))
