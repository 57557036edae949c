"""Compressed message sets: one message, the wrapper, whose value is the compressed set.

The wrapper has the offset of its last inner message.

- In format 1 the inner offsets are relative, so a leader assigns offsets without decompressing. A message's offset is
  its inner offset, plus the wrapper's offset, minus the last inner offset (KIP-31).
- In format 0 the inner offsets are absolute.

A wrapper has the newest timestamp of its messages. If its timestamp type is "append", that timestamp applies to all of
them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from assay.system_under_test.records import message
from assay.system_under_test.records.compression import CompressionError, ExpandsTooFar, compress, decompress
from assay.system_under_test.records.message import (
    CODEC_MASK,
    ENTRY_HEADER,
    ENTRY_PREFIX,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    Buffer,
    CorruptMessage,
    Message,
    MessageTooLarge,
)

MAX_EXPANDED: Final = 32 * 1024 * 1024
"""Maximum bytes of a decompressed wrapper. Kafka has no limit, although one megabyte can decompress to a gigabyte."""


def unwrap(wrapper: Message, *, check_crc: bool = True) -> list[Message]:
    """Returns the inner messages, at least one, with the offsets and timestamps that readers see.

    Raises :class:`CorruptMessage` unless the value has only whole, uncompressed messages of the wrapper's format.
    Raises :class:`MessageTooLarge` beyond :data:`MAX_EXPANDED`.
    """
    inner = list(_iterate_inner(wrapper, check_crc))
    shift = wrapper.offset - inner[-1].offset if wrapper.magic else 0
    if wrapper.attributes & TIMESTAMP_TYPE_BIT:
        stamp = wrapper.timestamp
        inner = [m._replace(timestamp=stamp, attributes=m.attributes | TIMESTAMP_TYPE_BIT) for m in inner]
    return [m._replace(offset=m.offset + shift) for m in inner] if shift else inner


def wrap(messages: Sequence[Message], codec_number: int) -> bytes:
    """Compresses messages of one format, at least one, with rising offsets. The inverse of :func:`unwrap`."""
    magic, first = messages[0].magic, messages[0].offset if messages[0].magic else 0
    append_time = messages[0].attributes & TIMESTAMP_TYPE_BIT
    body = b"".join(
        message.encode(m._replace(offset=m.offset - first, attributes=m.attributes & ~TIMESTAMP_TYPE_BIT))
        for m in messages
    )
    newest = max(NO_TIMESTAMP if m.timestamp is None else m.timestamp for m in messages)
    wrapper = Message(
        messages[-1].offset,
        magic,
        codec_number | append_time,
        None if newest == NO_TIMESTAMP or not magic else newest,
        None,
        compress(codec_number, body, magic),
    )
    return message.encode(wrapper)


def read_span(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Returns the first offset and the number of messages of the wrapper from ``position`` to ``end``.

    Raises the errors of :func:`unwrap`, but checks no CRC, neither the wrapper's nor an inner message's.
    """
    wrapper = message.decode(data[position:end], check_crc=False)
    expanded = _decompress(wrapper)
    count = position_inside = first = last = 0
    while position_inside < len(expanded):
        # If the header is not whole, find_entry_end raises an error.
        rest = len(expanded) - position_inside
        last = ENTRY_HEADER.unpack_from(expanded, position_inside)[0] if rest >= ENTRY_HEADER.size else 0
        position_inside = message.find_entry_end(expanded, position_inside)
        first = last if not count else first
        count += 1
    if not count:
        raise CorruptMessage(f"message {wrapper.offset}: it contains no messages")
    return (wrapper.offset - last + first if wrapper.magic else first), count


def _iterate_inner(wrapper: Message, check_crc: bool) -> Iterator[Message]:
    expanded = _decompress(wrapper)
    position = 0
    while True:
        end = message.find_entry_end(expanded, position)
        magic, attributes = ENTRY_PREFIX.unpack_from(expanded, position)[3:]
        if magic != wrapper.magic:
            raise CorruptMessage(f"message {wrapper.offset} of format {wrapper.magic} holds one of format {magic}")
        if attributes & CODEC_MASK:
            raise CorruptMessage(f"message {wrapper.offset}: it contains a compressed message")
        yield message.decode(expanded, position, check_crc=check_crc)
        if end == len(expanded):
            return
        position = end


def _decompress(wrapper: Message) -> bytes:
    if wrapper.value is None:
        raise CorruptMessage(f"message {wrapper.offset}: compressed, but its value is null")
    try:
        return decompress(wrapper.attributes & CODEC_MASK, wrapper.value, wrapper.magic, MAX_EXPANDED)
    except ExpandsTooFar as error:
        raise MessageTooLarge(f"message {wrapper.offset}: {error}") from error
    except CompressionError as error:
        raise CorruptMessage(f"message {wrapper.offset}: {error}") from error
