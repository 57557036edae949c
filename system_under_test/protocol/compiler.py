"""Compiles the table of a message (``schema``) in one version into an encoder and a decoder, at first use.

Interpreting a table field by field takes about ten times as long as straight-line code. This matters in the simulation,
in which all brokers and clients share one process. So Python source is generated and executed:

- nested messages become nested loops
- adjacent fields of fixed width, and the length that follows them, become one ``struct`` call
"""

from functools import cache
from typing import Any, TypeVar

from assay.system_under_test.protocol.decoder import Decoder, DecoderSource
from assay.system_under_test.protocol.encoder import Encoder, EncoderSource
from assay.system_under_test.protocol.schema import Records

T = TypeVar("T")


def encode_into(message: Any, version: int, chunks: list[Records]) -> int:
    """Appends the encoded message to ``chunks`` and returns how many of them are file slices (``schema.Records``).

    Raises ``ProtocolError`` for a value that does not fit its wire type.
    """
    return _compile_encoder(type(message), version)(message, chunks)  # type: ignore[arg-type]


def encode(message: Any, version: int) -> list[Records]:
    """Returns the encoded message: one chunk of bytes, or bytes and slices in wire order if it holds slices."""
    chunks: list[Records] = []
    has_slices = encode_into(message, version, chunks) > 0
    return chunks if has_slices else [b"".join(chunks)]  # type: ignore[arg-type]


def encode_bytes(message: Any, version: int) -> bytes:
    """Returns the encoded message as bytes. Slices are read into memory."""
    chunks: list[Records] = []
    if encode_into(message, version, chunks):
        return b"".join(chunk if isinstance(chunk, bytes) else chunk.read() for chunk in chunks)
    return b"".join(chunks)  # type: ignore[arg-type]


def decode(cls: type[T], version: int, data: bytes, offset: int = 0) -> T:
    """Decodes ``data`` from ``offset`` to its end.

    Raises ``ProtocolError`` for truncated data, leftover bytes, and lengths that are negative or exceed the data.
    """
    return _compile_decoder(cls, version)(data, offset)  # type: ignore[arg-type, no-any-return]


@cache
def _compile_encoder(cls: type[Any], version: int) -> Encoder:
    return EncoderSource(cls, version).compile()


@cache
def _compile_decoder(cls: type[Any], version: int) -> Decoder:
    return DecoderSource(cls, version).compile()
