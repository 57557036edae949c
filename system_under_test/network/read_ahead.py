"""Reads exact numbers of bytes from a stream, with larger reads underneath.

The size and the body of a small request nearly always arrive together. One read of the stream returns both, and often
the following requests.
"""

import asyncio

PIECE = 64 * 1024
"""Bytes requested from the stream at once, and so about the most that is buffered here."""


class ReadAhead:
    """Buffered reader, which must be the only reader of ``stream``."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._data = b""
        self._position = 0

    @property
    def ahead(self) -> bool:
        """Whether bytes are buffered."""
        return self._position < len(self._data)

    async def exactly(self, size: int) -> bytes:
        """Returns the next ``size`` bytes. Raises ``OSError``, or ``IncompleteReadError`` if the stream ends too early.

        A cancelled call loses its bytes, so the stream is unusable afterwards.
        """
        position = self._position
        end = position + size
        data = self._data
        if end > len(data):
            data = data[position:]
            self._data, self._position = b"", 0
            if len(data) + PIECE > size:  # the usual case: one more read is enough
                data += await self._stream.read(PIECE)
            if len(data) < size:
                data = await self._gather(data, size)
            self._data = data
            position, end = 0, size
        self._position = end
        return data[position:end]

    async def _gather(self, data: bytes, size: int) -> bytes:
        pieces, have = [data], len(data)
        while have < size:
            piece = await self._stream.read(PIECE)
            if not piece:
                raise asyncio.IncompleteReadError(b"".join(pieces), size)
            pieces.append(piece)
            have += len(piece)
        return b"".join(pieces)
