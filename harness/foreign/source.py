"""The text of a file in pieces, with the number of bytes read so far."""

import codecs
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from assay.harness.foreign.malformed import MalformedError, TextPosition

CHUNK: Final = 1 << 20
"""Bytes read at a time."""

Read = Callable[[int], None]
"""Called with the number of bytes of the file that have been read so far."""


def read_pieces(path: Path, read: Read, chunk: int = CHUNK) -> Iterator[str]:
    """Yields the file's text in pieces, with its line ends, without a byte order mark.

    Raises ``MalformedError`` at the first byte that is not UTF-8 and for an empty file, and ``OSError``.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    total, place = 0, TextPosition(1, 1)
    with path.open("rb") as file:
        while True:
            data = file.read(chunk)
            total += len(data)
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                raise MalformedError(
                    path,
                    advance(place, bytes(error.object[: error.start]).decode()),
                    f"the byte 0x{error.object[error.start]:02x} is not UTF-8: the file is in another encoding, "
                    "compressed, damaged or cut short",
                ) from error
            if not data:
                break
            yield text
            place = advance(place, text)
            read(total)
    if total == 0:
        raise MalformedError(path, None, "the file is empty; a history has at least one operation")


def read_lines(path: Path, read: Read, chunk: int = CHUNK) -> Iterator[tuple[int, str, bool]]:
    """Yields (number from 1, text without its end, whether it has an end) of each line."""
    number, rest = 0, ""
    for text in read_pieces(path, read, chunk):
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            number += 1
            yield number, line.removesuffix("\r"), True
    if rest:
        yield number + 1, rest, False


def advance(place: TextPosition, text: str) -> TextPosition:
    """Returns the place after ``text``."""
    breaks = text.count("\n")
    return TextPosition(place.line + breaks, len(text) - text.rfind("\n") if breaks else place.column + len(text))
