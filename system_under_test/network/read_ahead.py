"""Exact numbers of bytes out of a stream that is read in larger pieces.

A small request is a size and a body, which nearly always arrive together: one read of the stream brings both, and often
the requests behind it.
"""

import asyncio

PIECE = 64 * 1024
"""Bytes asked of the stream at once, and so about the most that lies here."""


class ReadAhead:
    """The only reader of ``stream`` from now on."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._data = b""
        self._position = 0

    @property
    def ahead(self) -> bool:
        """Whether bytes are here already."""
        return self._position < len(self._data)

    async def exactly(self, size: int) -> bytes:
        """The next ``size`` bytes. Raises ``IncompleteReadError`` when the stream ends before, and ``OSError``.

        A call that is cancelled loses what it had: the stream is of no use afterwards.
        """
        position = self._position
        end = position + size
        data = self._data
        if end > len(data):
            data = data[position:]
            self._data, self._position = b"", 0
            if len(data) + PIECE > size:  # the usual case: one piece more is enough
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
