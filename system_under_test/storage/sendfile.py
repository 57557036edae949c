"""Sends bytes of a file to a connection without copying them into this process.

``loop.sendfile`` is not used. It takes the connection away from its transport: reading pauses, a closed transport goes
unnoticed, and aborting the transport leaves the caller waiting forever. Below half a megabyte it costs more than it
saves.

Instead, sendfile is tried only while the transport has nothing to send, and never waited for. Bytes that the socket
does not take at once go through the transport in small pieces; it signals when the socket has room again.

The kernel queues references to the file's pages, not copies. They are read when the peer's kernel takes them, which may
be long after this returns. So the range must never change: see ``LocalFile.truncate``.
"""

import asyncio
import errno
import os

PIECE = 64 * 1024
"""Bytes copied to the transport when the socket is full, so that it can signal room."""


async def send_range(descriptor: int, position: int, size: int, writer: asyncio.StreamWriter) -> None:
    """Returns when the kernel has everything. Raises ``OSError`` if the connection is lost or the file is shorter."""
    transport = writer.transport
    socket = writer.get_extra_info("socket")
    low, high = transport.get_write_buffer_limits()
    transport.set_write_buffer_limits(0)  # drained must mean empty: only then may bytes bypass the transport
    try:
        if transport.get_write_buffer_size():
            await writer.drain()
        end = position + size
        while position < end:
            if writer.is_closing():
                raise ConnectionResetError(errno.ECONNRESET, "closed while a range of a file was being sent")
            try:
                sent = os.sendfile(socket.fileno(), descriptor, position, end - position)
            except BlockingIOError:
                piece = os.pread(descriptor, min(end - position, PIECE), position)
                writer.write(piece)
                await writer.drain()
                sent = len(piece)
            if not sent:
                raise OSError(errno.EIO, f"the file ends at {position}, {end - position} bytes early")
            position += sent
    finally:
        transport.set_write_buffer_limits(high, low)
