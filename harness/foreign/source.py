"""Text of a file in pieces, positions in it, and the error for a file that does not have the expected format."""

import codecs
import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from assay.harness.core.history import HistoryError
from assay.harness.core.printable import to_printable

SHOWN: Final = 60
"""Maximum number of characters of a file that an error quotes."""
CHUNK: Final = 1 << 20
"""Bytes read at a time."""
GZIP_MAGIC: Final = b"\x1f\x8b"
"""The first bytes of a gzip file."""

LONGEST_VALUE: Final = 1 << 27
"""Maximum characters of an operation or a line. A longer one is damaged or hostile, and would exhaust the memory."""
UNPACKED_LIMIT: Final = 1 << 33
"""Maximum bytes of a compressed file after decompression, unless ``LIMIT_VARIABLE`` says another number."""
LIMIT_VARIABLE: Final = "ASSAY_UNPACKED_LIMIT"

Progress = Callable[[int], None]
"""Function that is called with the number of bytes of the file that have been read so far."""


class TextPosition(NamedTuple):
    """A position in a file; both numbers count from 1."""

    line: int
    column: int


class MalformedError(HistoryError):
    """A file does not have the expected format. The message names the file, the place and the reason.

    ``place`` is None if the reason concerns the whole file.
    """

    def __init__(self, path: Path, place: TextPosition | None, reason: str) -> None:
        where = "" if place is None else f" line {place.line}, column {place.column}:"
        super().__init__(f"{path}:{where} {to_printable(reason)}")
        self.path = path
        self.place = place
        self.reason = reason


def shorten(text: str) -> str:
    """Quotes and shortens a piece of a file for an error."""
    return f"`{text if len(text) <= SHOWN else text[:SHOWN] + '…'}`"


def read_pieces(path: Path, progress: Progress, chunk: int = CHUNK) -> Iterator[str]:
    """Yields the file's text in pieces, with its line ends, without a byte order mark. A gzip file is decompressed.

    Raises ``MalformedError`` at the first byte that is not UTF-8, for an empty file, for damaged compression, and for a
    file that unpacks to more than the limit. Raises ``OSError``.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    total, place = 0, TextPosition(1, 1)
    for data in _read_bytes(path, progress, chunk):
        total += len(data)
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise MalformedError(
                path,
                advance(place, bytes(error.object[: error.start]).decode()),
                f"the byte 0x{error.object[error.start]:02x} is not UTF-8: the file is in another encoding, compressed "
                "by another program than gzip, damaged or cut short",
            ) from error
        if text:
            yield text
            place = advance(place, text)
    if total == 0:
        raise MalformedError(path, None, "the file is empty; a history has at least one operation")


def _read_bytes(path: Path, progress: Progress, chunk: int) -> Iterator[bytes]:
    """Yields the bytes of a file, decompressed if necessary, and an empty piece at the end."""
    with ExitStack() as stack:
        raw = stack.enter_context(path.open("rb"))
        counted = _CountedFile(raw)
        compressed = raw.peek(len(GZIP_MAGIC))[: len(GZIP_MAGIC)] == GZIP_MAGIC
        file = stack.enter_context(gzip.GzipFile(fileobj=counted)) if compressed else counted  # type: ignore[call-overload]
        limit, total = _read_unpacked_limit(path) if compressed else None, 0
        while True:
            try:
                data = file.read(chunk)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise MalformedError(
                    path,
                    None,
                    "the compressed file is damaged or cut short; decompress it with gunzip to see how much is left",
                ) from error
            total += len(data)
            if limit is not None and total > limit:
                raise MalformedError(
                    path,
                    None,
                    f"the compressed file unpacks to more than {limit} bytes; if that is right, set {LIMIT_VARIABLE} "
                    "to a higher number of bytes",
                )
            yield data
            if not data:
                return
            progress(counted.total)


def _read_unpacked_limit(path: Path) -> int:
    """Returns the limit of bytes after decompression. Raises ``MalformedError`` if the variable is no number."""
    text = os.environ.get(LIMIT_VARIABLE, str(UNPACKED_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise MalformedError(path, None, f"{LIMIT_VARIABLE} is {shorten(text)}; it is a number of bytes")
    return int(text)


class _CountedFile:
    """Counts the bytes that are read from a file, which may be a pipe."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.total = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.total += len(data)
        return data


def take_text(pieces: Iterator[str], minimum: int) -> str:
    """Returns the next pieces, with more than ``minimum`` characters in all; fewer at the end of the file."""
    taken: list[str] = []
    size = 0
    while size <= minimum:
        piece = next(pieces, None)
        if piece is None:
            break
        taken.append(piece)
        size += len(piece)
    return "".join(taken)


def require_short(path: Path, place: TextPosition, length: int) -> None:
    """Raises ``MalformedError`` if the operation at ``place`` has more than ``LONGEST_VALUE`` characters so far."""
    if length > LONGEST_VALUE:
        raise MalformedError(
            path,
            place,
            f"this operation has more than {LONGEST_VALUE} characters: a bracket or a quotation mark is not closed, or "
            "the file is no history",
        )


def read_lines(path: Path, progress: Progress, chunk: int = CHUNK) -> Iterator[tuple[int, str, bool]]:
    """Yields (line number, text without line end, whether there was a line end) of each line. Numbers begin at 1."""
    number = 0
    begun: list[str] = []  # pieces of a line whose end is still to come
    length = 0
    for text in read_pieces(path, progress, chunk):
        *whole, rest = text.split("\n")
        if whole:
            whole[0] = "".join((*begun, whole[0]))
            begun, length = [], 0
        begun.append(rest)
        length += len(rest)
        require_short(path, TextPosition(number + len(whole) + 1, 1), length)
        for line in whole:
            number += 1
            yield number, line.removesuffix("\r"), True
    if rest := "".join(begun):
        yield number + 1, rest, False


def advance(place: TextPosition, text: str) -> TextPosition:
    """Returns the place after ``text``."""
    breaks = text.count("\n")
    return TextPosition(place.line + breaks, len(text) - text.rfind("\n") if breaks else place.column + len(text))
