"""Client of RESP, the protocol of Redis: sends commands and decodes replies."""

import asyncio
from collections.abc import Sequence
from typing import Any


async def ask(address: str, *words: object, seconds: float = 1.0) -> Any:
    """Sends one command on a connection of its own, and returns the reply.

    Raises ``OSError``, ``EOFError``, or ``ValueError`` for an error reply.
    """
    (reply,) = await converse(address, words, seconds=seconds)
    if isinstance(reply, ValueError):
        raise reply
    return reply


async def converse(address: str, *commands: Sequence[object], seconds: float = 1.0) -> list[Any]:
    """Sends the commands on a connection of their own, and returns the replies in order.

    An error reply is a ``ValueError`` in the list. Raises ``OSError`` or ``EOFError`` if a reply is missing.
    """
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        try:
            writer.write(b"".join(map(_encode_command, commands)))
            return [await _read_reply_or_error(reader) for _ in commands]
        finally:
            writer.close()


def _encode_command(words: Sequence[object]) -> bytes:
    texts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in texts)


async def _read_reply_or_error(reader: asyncio.StreamReader) -> Any:
    try:
        return await _read_reply(reader)
    except ValueError as error:
        return error


async def _read_reply(reader: asyncio.StreamReader) -> Any:
    """Returns an integer, text, a list, or None. Raises ``ValueError`` for an error reply."""
    line = (await reader.readuntil(b"\r\n"))[:-2].decode()
    kind, rest = line[0], line[1:]
    if kind == "-":
        raise ValueError(rest)
    if kind == "*":
        return [await _read_reply(reader) for _ in range(int(rest))]
    if kind == "$":
        return None if rest == "-1" else (await reader.readexactly(int(rest) + 2))[:-2].decode()
    return int(rest) if kind == ":" else rest
