"""A message of format (magic) 0 or 1, which is the same on the wire and on disk.

Messages are stored in entries. Numbers are big-endian, and a null key or value has length -1:

- ``offset int64, size int32``
- then ``size`` bytes: ``crc32 uint32, magic int8, attributes int8, [timestamp int64, magic 1 only], key length int32,
  key, value length int32, value``

The CRC covers all bytes after it. It does not cover the offset, so a leader assigns offsets without changing a message
(Kafka protocol guide, "Message sets"; KIP-32 for magic 1).

Attributes: bits 0-2 are the codec (0 for none), bit 3 is the timestamp type (0 create, 1 append). The value of a
compressed message is a message set (:mod:`~assay.system_under_test.records.wrapper`). This module does not decode it.
"""

import struct
from typing import NamedTuple
from zlib import crc32

Buffer = bytes | bytearray | memoryview

ENTRY_HEADER = struct.Struct(">qi")
"""Offset and size, before the message itself."""
ENTRY_PREFIX = struct.Struct(">qiIbb")
"""Offset, size, crc, magic, attributes."""
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
UINT32 = struct.Struct(">I")

HEADER_SIZE = ENTRY_HEADER.size
CRC_START = HEADER_SIZE + 4
"""Position in the entry of the first byte that the CRC covers."""
TIMESTAMP_POSITION = ENTRY_PREFIX.size
ATTRIBUTES_POSITION = TIMESTAMP_POSITION - 1
KEY_POSITION = (TIMESTAMP_POSITION, TIMESTAMP_POSITION + INT64.size)
"""Position in the entry of the key's length, by magic."""
MINIMUM_SIZES = (14, 22)
"""Size of a message with null key and null value, by magic. A smaller size field is invalid."""
MINIMUM_SIZE = MINIMUM_SIZES[0]
MINIMUM_ENTRY_SIZE = HEADER_SIZE + MINIMUM_SIZE
"""Size of the smallest entry, in bytes."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
NO_TIMESTAMP = -1
LAST_CODEC = 3

BODY_HEADS = (struct.Struct(">bb"), struct.Struct(">bbq"))
"""Magic, attributes and, in magic 1, the timestamp; by magic."""
_NULL = INT32.pack(-1)


class RecordError(ValueError):
    """Base class of errors for invalid messages."""


class CorruptMessage(RecordError):
    """Raised for a message with a bad CRC, size, magic or length (Kafka's error 2)."""


class MessageTooLarge(RecordError):
    """Raised for a message above ``message.max.bytes`` (Kafka's error 10)."""


class SetTooLarge(RecordError):
    """Raised for a set whose compressed entries hold too much in total (Kafka's error 18)."""


class InvalidTimestamp(RecordError):
    """Raised for a timestamp that a producer must not set (Kafka's error 32)."""


class Message(NamedTuple):
    """A decoded message. ``timestamp`` is in milliseconds; None in magic 0, or if the sender has set none."""

    offset: int
    magic: int
    attributes: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None


def encode(message: Message) -> bytes:
    """Returns the entry's bytes. Raises ``ValueError`` for an unknown magic, or for a timestamp in magic 0."""
    magic, timestamp = message.magic, message.timestamp
    if magic == 1:
        head = BODY_HEADS[1].pack(1, message.attributes, NO_TIMESTAMP if timestamp is None else timestamp)
    elif magic == 0:
        if timestamp is not None:
            raise ValueError(f"message {message.offset}: magic 0 has no place for timestamp {timestamp}")
        head = BODY_HEADS[0].pack(0, message.attributes)
    else:
        raise ValueError(f"message {message.offset}: magic {magic} is neither 0 nor 1")
    key, value = message.key, message.value
    body = b"".join(
        (
            head,
            _NULL if key is None else INT32.pack(len(key)) + key,
            _NULL if value is None else INT32.pack(len(value)) + value,
        )
    )
    return ENTRY_HEADER.pack(message.offset, len(body) + 4) + crc32(body).to_bytes(4, "big") + body


def decode(data: Buffer, position: int = 0, *, check_crc: bool = True) -> Message:
    """Returns the entry that begins at ``position``. ``check_crc=False`` skips the CRC check.

    Raises :class:`CorruptMessage` for any damage, including an entry that ends after ``data``.
    """
    end = find_entry_end(data, position)
    offset, _, crc, magic, attributes = ENTRY_PREFIX.unpack_from(data, position)
    view = memoryview(data)
    if check_crc and crc32(view[position + CRC_START : end]) != crc:
        raise CorruptMessage(f"message {offset} at byte {position}: its CRC does not match")
    key_start, key_end, value_start, value_end = find_key_and_value(data, position, end, magic, attributes)
    timestamp: int | None = None
    if magic == 1:
        (stamp,) = INT64.unpack_from(data, position + TIMESTAMP_POSITION)
        timestamp = None if stamp == NO_TIMESTAMP else stamp
    return Message(
        offset,
        magic,
        attributes,
        timestamp,
        None if key_end < key_start else bytes(view[key_start:key_end]),
        None if value_end < value_start else bytes(view[value_start:value_end]),
    )


def find_entry_end(data: Buffer, position: int) -> int:
    """Returns the end of the entry at ``position``. Raises :class:`CorruptMessage` for a bad size or missing bytes."""
    if len(data) - position < HEADER_SIZE + MINIMUM_SIZE:
        raise CorruptMessage(f"{len(data) - position} bytes at byte {position} are too few for a message")
    offset, size = ENTRY_HEADER.unpack_from(data, position)
    if size < MINIMUM_SIZE or position + HEADER_SIZE + size > len(data):
        raise CorruptMessage(f"message {offset} at byte {position}: impossible size {size}")
    return position + HEADER_SIZE + int(size)


def find_key_and_value(data: Buffer, position: int, end: int, magic: int, attributes: int) -> tuple[int, int, int, int]:
    """Returns start and end of the key, then of the value, in the entry from ``position`` to ``end``.

    A null key or value has its end before its start. Raises :class:`CorruptMessage` if the lengths do not fill the
    entry exactly, or for an unknown magic or codec.
    """
    if magic not in (0, 1):
        raise CorruptMessage(f"message at byte {position}: magic {magic} is neither 0 nor 1")
    if attributes & CODEC_MASK > LAST_CODEC:
        raise CorruptMessage(f"message at byte {position}: unknown codec {attributes & CODEC_MASK}")
    if end - position - HEADER_SIZE < MINIMUM_SIZES[magic]:
        raise CorruptMessage(f"message at byte {position}: too short for magic {magic}")
    key_start = position + KEY_POSITION[magic] + 4
    (key_length,) = INT32.unpack_from(data, key_start - 4)
    value_start = key_start + max(key_length, 0) + 4
    if key_length < -1 or value_start > end:
        raise CorruptMessage(f"message at byte {position}: impossible key length {key_length}")
    (value_length,) = INT32.unpack_from(data, value_start - 4)
    if value_length < -1 or value_start + max(value_length, 0) != end:
        raise CorruptMessage(f"message at byte {position}: impossible value length {value_length}")
    return key_start, key_start + key_length, value_start, value_start + value_length
