"""A sequence of entries back to back: what a produce request carries, a segment stores and a fetch returns.

A set has no header or count. A fetch response may end in the middle of a message, so every reader here stops at a
partial last entry instead of failing. Functions take any buffer and walk it with ``unpack_from``; nothing but keys
and values that somebody asked for is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from system_under_test.records import message as codec
from system_under_test.records.message import (
    CRC_START,
    ENTRY_HEADER,
    ENTRY_PREFIX,
    HEADER_SIZE,
    INT64,
    MINIMUM_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_BIT,
    Buffer,
    CorruptMessage,
    Message,
    MessageTooLarge,
)

Record = tuple[bytes | None, bytes | None, int | None]
"""Key, value, timestamp in milliseconds."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What :func:`validate` learned. ``size`` counts the bytes of whole messages; a partial last one is left out."""

    count: int
    size: int
    minimum_magic: int
    maximum_magic: int
    maximum_timestamp: int
    """Milliseconds; -1 when no message has one."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What :func:`check` found: the first ``size`` bytes are ``count`` good entries and end before ``next_offset``."""

    size: int
    next_offset: int
    count: int
    problem: str | None
    """Why the entry at ``size`` is bad; None at the end, or at an entry that is merely not all there."""


def build(records: Sequence[Record], magic: int = 1, base_offset: int = 0) -> bytes:
    """A set with offsets ``base_offset, base_offset + 1, ...``; a timestamp is dropped in magic 0."""
    return b"".join(
        codec.encode(Message(base_offset + index, magic, 0, timestamp if magic else None, key, value))
        for index, (key, value, timestamp) in enumerate(records)
    )


def scan(data: Buffer, position: int = 0) -> Iterator[tuple[int, int, int]]:
    """``(position, size, offset)`` of each whole entry from ``position`` on; ``size`` includes the entry's header.

    Looks at headers only. Raises :class:`CorruptMessage` at a size that no message can have.
    """
    unpack, length = ENTRY_HEADER.unpack_from, len(data)
    while length - position >= HEADER_SIZE:
        offset, size = unpack(data, position)
        if size < MINIMUM_SIZE:
            raise CorruptMessage(f"message {offset} at byte {position}: impossible size {size}")
        size += HEADER_SIZE
        if length - position < size:
            return
        yield position, size, offset
        position += size


def decode(data: Buffer) -> list[Message]:
    """All whole messages; raises as :func:`messages`."""
    return list(messages(data))


def messages(data: Buffer, *, check_crcs: bool = True) -> Iterator[Message]:
    """One whole message after the other, each CRC checked unless that was switched off.

    Raises as :func:`message.decode` when it comes to damage.
    """
    return (codec.decode(data, position, check_crc=check_crcs) for position, _, _ in scan(data))


def check(data: Buffer, next_offset: int, *, gaps: bool = False) -> Checked:
    """Follows entries from the start of ``data`` as far as they are good; never raises.

    Good: a possible size, a matching CRC, and the offset ``next_offset`` for the first and one more for each later
    one (with ``gaps``: at least that). Offsets are outside the CRC, so only their density gives damage away.
    """
    prefix, header, length = ENTRY_PREFIX.unpack_from, ENTRY_HEADER.unpack_from, len(data)
    view = memoryview(data)
    position = count = 0
    problem = None
    while length - position >= HEADER_SIZE:
        offset, size = header(data, position)
        if offset != next_offset and not (gaps and offset > next_offset):
            problem = f"offset {offset} where {next_offset} belongs"
            break
        if size < MINIMUM_SIZE:
            problem = f"message {offset}: impossible size {size}"
            break
        end = position + HEADER_SIZE + size
        if end > length:
            break
        if crc32(view[position + CRC_START : end]) != prefix(data, position)[2]:
            problem = f"message {offset}: its CRC does not match"
            break
        position, next_offset, count = end, offset + 1, count + 1
    return Checked(position, next_offset, count, problem)


def validate(data: Buffer, max_message_bytes: int) -> Summary:
    """What a leader demands of a producer's set before it appends it.

    ``max_message_bytes`` limits one entry with its header. Raises :class:`CorruptMessage`,
    :class:`MessageTooLarge`, or :class:`~.message.UnsupportedCompression`, each naming the byte.
    """
    unpack = ENTRY_PREFIX.unpack_from
    view = memoryview(data)
    count = valid = 0
    magics = [1, 0]
    newest = NO_TIMESTAMP
    for position, size, _ in scan(data):
        if size > max_message_bytes:
            raise MessageTooLarge(f"message at byte {position} has {size} bytes, the limit is {max_message_bytes}")
        end = position + size
        _, _, crc, magic, attributes = unpack(data, position)
        if crc32(view[position + CRC_START : end]) != crc:
            raise CorruptMessage(f"message at byte {position}: its CRC does not match")
        codec.layout(data, position, end, magic, attributes)
        if magic:
            (timestamp,) = INT64.unpack_from(data, position + TIMESTAMP_POSITION)
            newest = max(newest, timestamp)
        magics[0] = min(magics[0], magic)
        magics[1] = max(magics[1], magic)
        count, valid = count + 1, end
    if not count:
        magics = [0, 0]
    return Summary(count, valid, magics[0], magics[1], newest)


def stamp(data: Buffer, base_offset: int) -> tuple[bytes, int]:
    """A copy with offsets ``base_offset, base_offset + 1, ...``, and how many messages it has.

    ``data`` must be whole entries (:class:`CorruptMessage`).
    """
    stamped = bytearray(data)
    header, pack, length = ENTRY_HEADER.unpack_from, INT64.pack_into, len(stamped)
    position = count = 0
    while length - position >= HEADER_SIZE:
        size = header(stamped, position)[1]
        end = position + HEADER_SIZE + size
        if size < MINIMUM_SIZE or end > length:
            break
        pack(stamped, position, base_offset + count)
        position, count = end, count + 1
    if position != length:
        raise CorruptMessage(f"no whole message at byte {position} of {length}")
    return bytes(stamped), count


def assign_offsets(data: Buffer, base_offset: int) -> bytes:
    """The copy that :func:`stamp` makes."""
    return stamp(data, base_offset)[0]


def first_offset(data: Buffer) -> int:
    """Offset of the first entry; ``data`` must have one."""
    return int(ENTRY_HEADER.unpack_from(data)[0])


def convert(data: Buffer, magic: int) -> bytes:
    """The same messages and offsets in another format; up from magic 0 there is no timestamp (KIP-32).

    A partial last message is dropped. Raises as :func:`decode`.
    """
    messages = decode(data)
    if all(message.magic == magic for message in messages):
        size = 0
        for position, length, _ in scan(data):
            size = position + length
        return bytes(data[:size])
    return b"".join(
        codec.encode(
            message._replace(
                magic=magic,
                attributes=message.attributes if magic else message.attributes & ~TIMESTAMP_TYPE_BIT,
                timestamp=message.timestamp if magic else None,
            )
        )
        for message in messages
    )
