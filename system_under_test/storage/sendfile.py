"""Sends bytes of a file to a connection without copying them into this process.

``loop.sendfile`` takes the connection away from its transport while it runs (reading pauses, a closed transport is not
noticed, a transport that is aborted then leaves the caller waiting for ever), and what it does for that costs more than
it saves for less than half a megabyte. So sendfile is only tried here while the transport has nothing to send, and
never waited for: what the socket does not take at once goes the usual way in small pieces, and the transport says when
the socket has room again.

The kernel queues references to the file's pages, not copies. They are read when the peer's kernel takes them, which
may be long after this returns, so the range must never change: see ``LocalFile.truncate``.
"""

import asyncio
import errno
import os

PIECE = 64 * 1024
"""Bytes copied when the socket is full, for the transport to wait with."""


async def send_range(descriptor: int, position: int, size: int, writer: asyncio.StreamWriter) -> None:
    """Returns when all was given to the kernel. Raises ``OSError``: the connection was lost, or the file has less."""
    transport = writer.transport
    socket = writer.get_extra_info("socket")
    low, high = transport.get_write_buffer_limits()
    transport.set_write_buffer_limits(0)  # drained is when nothing is left: only then may other bytes go past it
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
