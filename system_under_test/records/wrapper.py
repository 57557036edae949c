"""Compressed message sets: one message, the wrapper, whose value is the compressed set.

The wrapper has the offset of its last inner message.

- In format 1 the inner offsets are relative, so a leader assigns offsets without decompressing. A message's offset is
  its inner offset, plus the wrapper's offset, minus the last inner offset (KIP-31).
- In format 0 the inner offsets are absolute.

A wrapper has the newest timestamp of its messages. If its timestamp type is "append", that timestamp applies to all of
them.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self
from zlib import crc32

from assay.system_under_test.records import message
from assay.system_under_test.records.compression import (
    CompressionError,
    ExpandsTooFar,
    compress,
    compress_in_steps,
    decompress,
)
from assay.system_under_test.records.message import (
    BODY_HEADS,
    CODEC_MASK,
    CRC_START,
    ENTRY_HEADER,
    ENTRY_PREFIX,
    HEADER_SIZE,
    INT32,
    INT64,
    KEY_POSITION,
    MINIMUM_ENTRY_SIZE,
    MINIMUM_SIZE,
    MINIMUM_SIZES,
    NO_TIMESTAMP,
    TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_BIT,
    UINT32,
    Buffer,
    CorruptMessage,
    Message,
    MessageTooLarge,
    SetTooLarge,
)
from assay.system_under_test.records.steps import STEP_BYTES, Steps

MAX_EXPANDED: Final = 32 * 1024 * 1024
"""Maximum decompressed bytes of a wrapper, and of all wrappers in a producer's set.

Kafka has no limit, although one megabyte can decompress to a gigabyte.
"""
MAX_INNER_MESSAGES: Final = 256 * 1024
"""Maximum messages in all wrappers of a producer's set. A log may have more of them from an earlier version."""
_STEP_MESSAGES: Final = STEP_BYTES // MINIMUM_ENTRY_SIZE
_INNER_HEADS = (struct.Struct(">qiIbbi"), struct.Struct(">qiIbbqi"))
"""Offset, size, crc, magic, attributes, [timestamp, magic 1 only], key length; by magic."""


@dataclass(slots=True)
class Allowance:
    """Decompressed bytes and messages that a producer's set may still have in its wrappers.

    ``request`` is the allowance of all sets in the request, if that is limited.
    """

    size: int = MAX_EXPANDED
    messages: int = MAX_INNER_MESSAGES
    request: "Allowance | None" = None

    def make_for_set(self) -> "Allowance":
        """Returns the allowance of the request's next set."""
        return Allowance(min(self.size, MAX_EXPANDED), min(self.messages, MAX_INNER_MESSAGES), self)

    def spend(self, size: int, messages: int) -> None:
        self.size -= size
        self.messages -= messages
        if self.request is not None:
            self.request.spend(size, messages)


class InnerFacts(NamedTuple):
    """Facts about the messages in a wrapper. Timestamps are in milliseconds; -1 for none."""

    number: int
    first: int
    """The first inner offset, as it is stored."""
    consecutive: bool
    """Whether the inner offsets have no gaps."""
    newest: int
    oldest: int
    keyed: bool


class Span(NamedTuple):
    """The extent of a wrapper."""

    first: int
    """The offset of its first message, as readers see it."""
    number: int
    """The number of its messages."""
    expanded: int
    """Decompressed bytes."""


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


class OpenedEntry:
    """The messages of an entry as bytes: its inner messages if it is compressed, else the entry itself.

    Inner CRCs are not checked again. ``stamp`` is a wrapper's append time, which replaces the times of its messages.
    """

    __slots__ = ("data", "magic", "shift", "size", "stamp", "view")

    def __init__(self, data: Buffer, magic: int, shift: int, stamp: int | None) -> None:
        self.data, self.magic, self.shift, self.stamp = data, magic, shift, stamp
        self.view = memoryview(data)
        self.size = len(data)

    @classmethod
    def of(cls, data: Buffer, position: int, end: int, *, check_crc: bool) -> Self:
        """Opens the entry from ``position`` to ``end``. Raises the errors of :func:`unwrap`."""
        data = memoryview(data)[position:end]
        wrapper = message.decode(data, check_crc=check_crc)
        if not wrapper.attributes & CODEC_MASK:
            return cls(data, wrapper.magic, 0, None)
        expanded = _decompress(wrapper)
        stamp = None
        if wrapper.attributes & TIMESTAMP_TYPE_BIT:
            stamp = NO_TIMESTAMP if wrapper.timestamp is None else wrapper.timestamp
        _, last, _ = _walk(expanded, wrapper.offset)
        return cls(expanded, wrapper.magic, wrapper.offset - last if wrapper.magic else 0, stamp)

    def iterate(self) -> Iterator[tuple[int, int]]:
        """Yields position and offset of each message. The offset is the one that readers see."""
        position, shift, data, unpack = 0, self.shift, self.data, ENTRY_HEADER.unpack_from
        while position < self.size:
            offset, size = unpack(data, position)
            yield position, offset + shift
            position += HEADER_SIZE + size

    def read(self, position: int, offset: int) -> Message:
        """Returns the message at ``position`` as readers see it."""
        found = message.decode(self.data, position, check_crc=False)
        if self.stamp is None:
            return found if found.offset == offset else found._replace(offset=offset)
        timestamp = None if self.stamp == NO_TIMESTAMP else self.stamp
        return found._replace(offset=offset, timestamp=timestamp, attributes=found.attributes | TIMESTAMP_TYPE_BIT)


class MessageWriter:
    """Writes messages of other entries one after another, in the format ``magic``. It decodes none of them."""

    def __init__(self, magic: int, *, cleared: int = 0) -> None:
        """``cleared``: attributes that the written messages lose."""
        self.magic = magic
        self.body = bytearray()
        self._cleared = cleared if magic else cleared | TIMESTAMP_TYPE_BIT
        self.newest: int | None = None
        """The greatest timestamp; None before the first message."""
        self.append_time = 0
        """The timestamp type of the first message."""
        self._is_empty = True

    def add(self, source: OpenedEntry, position: int, offset: int) -> None:
        """Adds the message at ``position`` under this offset. Messages from magic 0 get no timestamp."""
        data, magic = source.data, source.magic
        _, size, _, _, attributes = ENTRY_PREFIX.unpack_from(data, position)
        end = position + HEADER_SIZE + size
        if source.stamp is not None:
            attributes |= TIMESTAMP_TYPE_BIT
        timestamp = NO_TIMESTAMP
        if magic and self.magic:
            (own,) = INT64.unpack_from(data, position + TIMESTAMP_POSITION)
            timestamp = own if source.stamp is None else source.stamp
        if self._is_empty:
            self._is_empty = False
            self.append_time = attributes & TIMESTAMP_TYPE_BIT if self.magic else 0
            self.newest = timestamp
        elif self.newest is None or timestamp > self.newest:
            self.newest = timestamp
        body, view = self.body, source.view
        if magic == self.magic and not attributes & self._cleared and source.stamp is None:
            start = len(body)
            body += view[position:end]
            INT64.pack_into(body, start, offset)
            return
        attributes &= ~self._cleared
        head = BODY_HEADS[1].pack(1, attributes, timestamp) if self.magic else BODY_HEADS[0].pack(0, attributes)
        rest = view[position + KEY_POSITION[magic] : end]
        body += ENTRY_HEADER.pack(offset, len(head) + len(rest) + UINT32.size)
        body += UINT32.pack(crc32(rest, crc32(head)))
        body += head
        body += rest


class WrapperWriter:
    """Writes a wrapper in the format ``magic``. At least one message must be added before the end."""

    def __init__(self, magic: int, codec_number: int) -> None:
        self._codec_number = codec_number
        self._inner = MessageWriter(magic, cleared=TIMESTAMP_TYPE_BIT)
        self._first: int | None = None
        self._last = 0

    def add(self, source: OpenedEntry, position: int, offset: int) -> None:
        """Adds the message at ``position`` under this offset, which must be greater than that of the last message."""
        if self._first is None:
            self._first = offset if self._inner.magic else 0
        self._inner.add(source, position, offset - self._first)
        self._last = offset

    def finish(self) -> Steps[bytes]:
        """Compresses the messages in steps, and returns the wrapper."""
        inner = self._inner
        magic, newest = inner.magic, inner.newest
        value = yield from compress_in_steps(self._codec_number, inner.body, magic)
        timestamp = None if newest == NO_TIMESTAMP or not magic else newest
        return message.encode(
            Message(self._last, magic, self._codec_number | inner.append_time, timestamp, None, value)
        )


def read_span(data: Buffer, position: int, end: int) -> Span:
    """Returns the extent of the wrapper from ``position`` to ``end``.

    Raises the errors of :func:`unwrap`, but checks no CRC, neither the wrapper's nor an inner message's.
    """
    wrapper = message.decode(data[position:end], check_crc=False)
    expanded = _decompress(wrapper)
    first, last, count = _walk(expanded, wrapper.offset)
    return Span(wrapper.offset - last + first if wrapper.magic else first, count, len(expanded))


def _walk(expanded: bytes, wrapper_offset: int) -> tuple[int, int, int]:
    """Returns the first and the last inner offset as they are stored, and the number of messages, at least one."""
    if not expanded:
        raise CorruptMessage(f"message {wrapper_offset}: it contains no messages")
    unpack, length, position = ENTRY_HEADER.unpack_from, len(expanded), 0
    count = first = offset = 0
    while position < length:
        if length - position < MINIMUM_ENTRY_SIZE:
            message.find_entry_end(expanded, position)  # raises the specific error
        offset, size = unpack(expanded, position)
        if size < MINIMUM_SIZE or size > length - position - HEADER_SIZE:
            message.find_entry_end(expanded, position)  # raises the specific error
        if not count:
            first = offset
        count += 1
        position += HEADER_SIZE + size
    return first, offset, count


def inspect(wrapper: Message, allowance: Allowance) -> Steps[InnerFacts]:
    """Checks the inner messages of a producer's wrapper as bytes, in steps. Makes no object for a message.

    Raises the errors of :func:`unwrap`, and :class:`SetTooLarge` if the set as a whole exceeds its allowance.
    """
    magic = wrapper.magic
    fits_alone = allowance.size < MAX_EXPANDED or allowance.messages < MAX_INNER_MESSAGES
    error_type = SetTooLarge if fits_alone else MessageTooLarge
    limit, messages_left = allowance.size, allowance.messages
    try:
        expanded = _decompress(wrapper, limit)
    except MessageTooLarge as error:
        allowance.spend(limit, 0)
        raise error_type(str(error)) from error
    allowance.spend(len(expanded), 0)
    unpack, int32, minimum = _INNER_HEADS[magic].unpack_from, INT32.unpack_from, HEADER_SIZE + MINIMUM_SIZES[magic]
    without_key = KEY_POSITION[magic] + INT32.size
    view, length = memoryview(expanded), len(expanded)
    position = number = first = expected = 0
    newest: int | None = None
    oldest = timestamp = NO_TIMESTAMP
    consecutive = keyed = True
    while position < length or not number:
        if number and not number % _STEP_MESSAGES:
            yield
            if number > messages_left:
                break
        if length - position < minimum:
            _require_inner(expanded, position, wrapper)
        if magic:
            offset, size, crc, inner_magic, attributes, timestamp, key_length = unpack(expanded, position)
        else:
            offset, size, crc, inner_magic, attributes, key_length = unpack(expanded, position)
        end = position + HEADER_SIZE + size
        value = position + without_key + (key_length if key_length > 0 else 0)
        if (
            inner_magic != magic
            or attributes & CODEC_MASK
            or size < MINIMUM_SIZE
            or end > length
            or key_length < -1
            or value + 4 > end
            or (value_length := int32(expanded, value)[0]) < -1
            or value + 4 + (value_length if value_length > 0 else 0) != end
            or crc32(view[position + CRC_START : end]) != crc
        ):
            _require_inner(expanded, position, wrapper)
        if not number:
            first, newest, oldest = offset, timestamp, timestamp
        elif offset != expected:
            consecutive = False
        if newest is None or timestamp > newest:
            newest = timestamp
        elif timestamp < oldest:
            oldest = timestamp
        if key_length < 0:
            keyed = False
        expected = offset + 1
        number += 1
        position = end
    allowance.spend(0, number)
    if number > messages_left:
        raise error_type(f"message {wrapper.offset}: more than {messages_left} messages")
    return InnerFacts(number, first, consecutive, NO_TIMESTAMP if newest is None else newest, oldest, keyed)


def _require_inner(expanded: bytes, position: int, wrapper: Message) -> None:
    """Raises the error of the inner message at ``position``, which is invalid."""
    message.find_entry_end(expanded, position)
    magic, attributes = ENTRY_PREFIX.unpack_from(expanded, position)[3:]
    if magic != wrapper.magic:
        raise CorruptMessage(f"message {wrapper.offset} of format {wrapper.magic} holds one of format {magic}")
    if attributes & CODEC_MASK:
        raise CorruptMessage(f"message {wrapper.offset}: it contains a compressed message")
    message.decode(expanded, position)
    raise CorruptMessage(f"message {wrapper.offset}: it contains an invalid message at byte {position}")


def _iterate_inner(wrapper: Message, check_crc: bool) -> Iterator[Message]:
    expanded = _decompress(wrapper)
    position = 0
    while True:
        end = message.find_entry_end(expanded, position)
        magic, attributes = ENTRY_PREFIX.unpack_from(expanded, position)[3:]
        if magic != wrapper.magic or attributes & CODEC_MASK:
            _require_inner(expanded, position, wrapper)
        yield message.decode(expanded, position, check_crc=check_crc)
        if end == len(expanded):
            return
        position = end


def _decompress(wrapper: Message, limit: int = MAX_EXPANDED) -> bytes:
    if wrapper.value is None:
        raise CorruptMessage(f"message {wrapper.offset}: compressed, but its value is null")
    try:
        return decompress(wrapper.attributes & CODEC_MASK, wrapper.value, wrapper.magic, max(limit, 0))
    except ExpandsTooFar as error:
        raise MessageTooLarge(f"message {wrapper.offset}: {error}") from error
    except CompressionError as error:
        raise CorruptMessage(f"message {wrapper.offset}: {error}") from error
