"""Message sets from producers: validates them, rebuilds irregular ones, and sets their offsets before the append.

The time per message limits a leader's throughput, so :func:`validate` reads a set once and collects all facts that the
leader needs. They include the entries' positions for :func:`stamp`, and the newest timestamp for the time index.

A compressed entry is regular if its messages are numbered from 0 without gaps, and its timestamp is the newest of
theirs. A set is regular if all its compressed entries are regular.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from assay.system_under_test.records import message
from assay.system_under_test.records.message import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CRC_START,
    ENTRY_HEADER,
    ENTRY_PREFIX,
    HEADER_SIZE,
    INT32,
    INT64,
    KEY_POSITION,
    LAST_CODEC,
    MINIMUM_ENTRY_SIZE,
    MINIMUM_SIZE,
    MINIMUM_SIZES,
    NO_TIMESTAMP,
    TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_BIT,
    UINT32,
    Buffer,
    CorruptMessage,
    InvalidTimestamp,
    MessageTooLarge,
)
from assay.system_under_test.records.message_set import SetTimes, convert_entry, encode, iterate_entries, scan
from assay.system_under_test.records.wrapper import unwrap, wrap


@dataclass(frozen=True, slots=True)
class ValidatedSet:
    """A set that a leader may append, with the facts that :func:`validate` collected."""

    data: Buffer
    size: int
    """Bytes of the whole messages, without a partial last one."""
    positions: Sequence[int]
    """The position of each entry."""
    count: int
    """The number of messages. A compressed entry counts as the messages in it."""
    magics: frozenset[int]
    """Formats of the entries."""
    codecs: frozenset[int]
    """Codecs of the entries; 0 for an uncompressed message."""
    maximum_timestamp: int
    """The greatest timestamp in milliseconds; -1 if no message has one."""
    newest_index: int
    """Index of the last message in the first entry with ``maximum_timestamp``; -1 if there is none.

    As in Kafka, the time index points at this message.
    """
    has_unstamped: bool
    """Whether an entry has no timestamp; a compressed entry has one if any of its messages has."""
    minimum_timestamp: int | None
    """The least timestamp in milliseconds of messages in format 1.

    It is -1 if one of them has no timestamp, and None if no message is in format 1.
    """
    regular: bool
    """Whether :func:`stamp` accepts the set; otherwise :func:`rebuild` must make it regular first."""
    keyed: bool
    """Whether every message has a key."""


_STAMP_AND_KEY = Struct(">qi")
"""Timestamp and key length, which are adjacent in format 1."""
_WITHOUT_KEY = KEY_POSITION[1] + INT32.size
"""Position in the entry of the value's length in format 1, if the key is null or empty."""


def validate(data: Buffer, max_message_bytes: int) -> ValidatedSet:
    """Checks a producer's set before a leader appends it.

    ``max_message_bytes`` limits one entry with its header. Each error names the byte position:

    - :class:`CorruptMessage`
    - :class:`MessageTooLarge`
    - :class:`InvalidTimestamp`, if the producer set the timestamp type "append"
    """
    prefix, stamp_and_key, int32 = ENTRY_PREFIX.unpack_from, _STAMP_AND_KEY.unpack_from, INT32.unpack_from
    view, length = memoryview(data), len(data)
    positions: list[int] = []
    position = count = 0
    kinds = 0  # a bit for each format with codec that occurs (``_FORMATS_AND_CODECS``)
    newest, newest_index, oldest = NO_TIMESTAMP, -1, None
    regular = keyed = True
    has_unstamped = False
    while length - position >= MINIMUM_ENTRY_SIZE:
        _, size, crc, magic, attributes = prefix(data, position)
        end = position + HEADER_SIZE + size
        if size < MINIMUM_SIZE or end > length:
            break
        if end - position > max_message_bytes:
            raise MessageTooLarge(
                f"message at byte {position} has {end - position} bytes; the limit is {max_message_bytes}"
            )
        if crc32(view[position + CRC_START : end]) != crc:
            raise CorruptMessage(f"message at byte {position}: its CRC does not match")
        if magic == 1 and not attributes and size >= MINIMUM_SIZES[1]:  # the common case, inlined for speed
            timestamp, key_length = stamp_and_key(data, position + TIMESTAMP_POSITION)
            has_key = key_length >= 0
            value = position + _WITHOUT_KEY + (key_length if has_key else 0)
            (value_length,) = int32(data, value) if value + 4 <= end else (-2,)  # invalid: raises below
            if key_length < -1 or value_length < -1 or value + 4 + (value_length if value_length > 0 else 0) != end:
                message.find_key_and_value(data, position, end, magic, attributes)  # raises the specific error
            number, earliest = 1, timestamp
            kinds |= _PLAIN
        else:
            entry = _validate_entry(data, position, end)
            number, timestamp, earliest, has_key = entry.number, entry.newest, entry.oldest, entry.keyed
            regular = regular and entry.regular
            kinds |= 1 << (magic * _CODECS + (attributes & CODEC_MASK))
        positions.append(position)
        count += number
        position = end
        if timestamp > newest:
            newest, newest_index = timestamp, count - 1
        elif timestamp < 0:
            has_unstamped = True
        if magic and (oldest is None or earliest < oldest):
            oldest = earliest
        keyed = keyed and has_key
    for _ in scan(data, position):  # raises if the rest is not the beginning of a message
        pass
    magics, codecs = _FORMATS_AND_CODECS[kinds]
    return ValidatedSet(
        data, position, positions, count, magics, codecs, newest, newest_index, has_unstamped, oldest, regular, keyed
    )


@dataclass(frozen=True, slots=True)
class _EntryFacts:
    """Facts about one entry. Timestamps are in milliseconds; -1 for none."""

    number: int
    """The number of messages in the entry."""
    newest: int
    oldest: int
    keyed: bool
    regular: bool


def _validate_entry(data: Buffer, position: int, end: int) -> _EntryFacts:
    """Validates an entry of any kind after its CRC check. Raises the errors of :func:`validate`."""
    offset, _, _, magic, attributes = ENTRY_PREFIX.unpack_from(data, position)
    key_start, key_end, _, _ = message.find_key_and_value(data, position, end, magic, attributes)
    timestamp = NO_TIMESTAMP
    if magic:
        if attributes & TIMESTAMP_TYPE_BIT:
            raise InvalidTimestamp(f"message at byte {position}: only a log sets the time of the append")
        (timestamp,) = INT64.unpack_from(data, position + TIMESTAMP_POSITION)
    if not attributes & CODEC_MASK:
        return _EntryFacts(1, timestamp, timestamp, key_end >= key_start, regular=True)
    inner = unwrap(message.decode(memoryview(data)[position:end], check_crc=False))
    number = len(inner)
    times = [NO_TIMESTAMP if m.timestamp is None else m.timestamp for m in inner]
    newest = max(times)
    dense = all(m.offset == index for index, m in enumerate(inner, start=offset - number + 1))
    regular = offset == number - 1 and dense and timestamp == newest
    return _EntryFacts(number, newest, min(times), all(m.key is not None for m in inner), regular)


_CODECS = LAST_CODEC + 1
_PLAIN = 1 << _CODECS
"""The bit of an uncompressed message of format 1."""
_FORMATS_AND_CODECS = [
    (
        frozenset(bit // _CODECS for bit in range(2 * _CODECS) if kinds >> bit & 1),
        frozenset(bit % _CODECS for bit in range(2 * _CODECS) if kinds >> bit & 1),
    )
    for kinds in range(1 << 2 * _CODECS)
]
"""Maps a set of kinds (format and codec) of entries, as bits, to the formats and the codecs.

Python sets for each message would double the time of a validation.
"""


def stamp(produced: ValidatedSet, base_offset: int, append_time: int | None = None) -> tuple[bytes, SetTimes]:
    """Returns a copy with offsets from ``base_offset`` on, and its timestamps.

    ``append_time``, in milliseconds, replaces all timestamps, and requires format 1. The set must be regular: a
    compressed entry's offset is then the number of its messages minus one. Compressed entries of format 0 are repacked,
    because their inner messages have absolute offsets. Raises :class:`CorruptMessage` for a set that ends in a partial
    message.
    """
    data = produced.data
    if produced.size != len(data):
        raise CorruptMessage(f"no whole message at byte {produced.size} of {len(data)}")
    if 0 in produced.magics and produced.codecs != {0}:
        return _repack(data, base_offset), SetTimes(NO_TIMESTAMP, -1, has_unstamped=True)
    stamped = bytearray(data)
    pack = INT64.pack_into
    if produced.codecs == {0}:
        for offset, position in enumerate(produced.positions, start=base_offset):
            pack(stamped, position, offset)
    else:
        last = base_offset - 1
        for position in produced.positions:
            last += 1
            if stamped[position + ATTRIBUTES_POSITION] & CODEC_MASK:
                last += INT64.unpack_from(stamped, position)[0]
            pack(stamped, position, last)
    if append_time is not None:
        _set_time(stamped, produced.positions, append_time)
        return bytes(stamped), SetTimes(append_time, INT64.unpack_from(stamped)[0], has_unstamped=False)
    newest_offset = base_offset + produced.newest_index if produced.newest_index >= 0 else -1
    return bytes(stamped), SetTimes(produced.maximum_timestamp, newest_offset, produced.has_unstamped)


def _set_time(stamped: bytearray, positions: Sequence[int], append_time: int) -> None:
    for position in positions:
        stamped[position + ATTRIBUTES_POSITION] |= TIMESTAMP_TYPE_BIT
        INT64.pack_into(stamped, position + TIMESTAMP_POSITION, append_time)
        end = position + HEADER_SIZE + ENTRY_HEADER.unpack_from(stamped, position)[1]
        crc = crc32(memoryview(stamped)[position + CRC_START : end])
        UINT32.pack_into(stamped, position + HEADER_SIZE, crc)


def _repack(data: Buffer, base_offset: int) -> bytes:
    """Sets the offsets of a set of format 0; decompresses and compresses its entries again."""
    parts, offset = [], base_offset
    for entry in iterate_entries(data):
        inner = unwrap(entry) if entry.attributes & CODEC_MASK else [entry]
        numbered = [m._replace(offset=offset + index) for index, m in enumerate(inner)]
        parts.append(encode(numbered, entry.attributes & CODEC_MASK))
        offset += len(inner)
    return b"".join(parts)


def rebuild(data: Buffer, magic: int, codec_number: int | None = None) -> bytes:
    """Rebuilds a producer's set in this format, and makes it :attr:`regular <ValidatedSet.regular>`.

    - ``codec_number`` None: each entry keeps its codec
    - ``codec_number`` 0: each message becomes its own entry
    - any other ``codec_number``: all messages become one entry of that codec
    """
    parts = []
    if codec_number is not None:
        inner = itertools.chain.from_iterable(convert_entry(entry, magic) for entry in iterate_entries(data))
        found = [m._replace(offset=index) for index, m in enumerate(inner)]
        return wrap(found, codec_number) if codec_number else b"".join(message.encode(m) for m in found)
    for entry in iterate_entries(data):
        found = [m._replace(offset=index) for index, m in enumerate(convert_entry(entry, magic))]
        parts.append(encode(found, entry.attributes & CODEC_MASK))
    return b"".join(parts)
