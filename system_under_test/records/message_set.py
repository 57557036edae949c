"""A sequence of entries back to back: what a produce request carries, a segment stores and a fetch returns.

A set has no header or count. A fetch response may end in the middle of a message, so every reader here stops at a
partial last entry instead of failing. Functions take any buffer and walk it with ``unpack_from``; only keys
and values that a caller asked for are copied.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from assay.system_under_test.records import message as codec
from assay.system_under_test.records.message import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CRC_START,
    ENTRY_HEADER,
    ENTRY_PREFIX,
    HEADER_SIZE,
    INT64,
    LAST_CODEC,
    MINIMUM_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_BIT,
    UINT32,
    Buffer,
    CorruptMessage,
    InvalidTimestamp,
    Message,
    MessageTooLarge,
    RecordError,
)
from assay.system_under_test.records.wrapper import span, unwrap, wrap

HIGHEST = 2**63 - 1
"""The greatest offset that an entry can state."""

Record = tuple[bytes | None, bytes | None, int | None]
"""Key, value, timestamp in milliseconds."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What :func:`validate` learned. ``size`` counts the bytes of whole messages; a partial last one is left out."""

    count: int
    """Of messages as readers see them: those within a compressed message count, that message does not."""
    size: int
    magics: frozenset[int]
    """Formats of the entries."""
    codecs: frozenset[int]
    """Of the entries; 0 for a message as it is."""
    maximum_timestamp: int
    """Milliseconds; -1 when no message has one."""
    regular: bool
    """:func:`stamp` can take it as it is; else :func:`rebuild` makes it so."""
    minimum_timestamp: int | None
    """Milliseconds, of the messages in format 1; -1 when one has none, None when no message is in that format."""
    keyed: bool
    """Has every message a key?"""


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


def pack(records: Sequence[Record], magic: int, codec_number: int) -> bytes:
    """As :func:`build`, compressed into one entry by this codec; 0: as they are."""
    data = build(records, magic)
    return wrap(decode(data), codec_number) if codec_number else data


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
    """One message after the other, those within compressed ones in their place, CRCs checked unless switched off.

    Raises as :func:`message.decode` and :func:`wrapper.unwrap` when it comes to damage.
    """
    for message in _shallow(data, check_crcs):
        if message.attributes & CODEC_MASK:
            yield from unwrap(message, check_crc=check_crcs)
        else:
            yield message


def _shallow(data: Buffer, check_crcs: bool = True) -> Iterator[Message]:
    """As :func:`messages`, but each compressed set is one message still."""
    return (codec.decode(data, position, check_crc=check_crcs) for position, _, _ in scan(data))


def check(data: Buffer, next_offset: int, *, gaps: bool = False, highest: int = HIGHEST) -> Checked:
    """Follows entries from the start of ``data`` as far as they are good; never raises.

    Good: a possible size, a matching CRC, and the offset ``next_offset`` for the first and one more for each later
    one (with ``gaps``: at least that, and ``highest`` at most). Offsets are outside the CRC, so only their density
    gives damage away, or, where gaps are allowed, that there is no room for one.
    """
    prefix, header, length = ENTRY_PREFIX.unpack_from, ENTRY_HEADER.unpack_from, len(data)
    view = memoryview(data)
    position = count = 0
    problem = None
    while length - position >= HEADER_SIZE:
        offset, size = header(data, position)
        rises = next_offset < offset <= highest
        if offset != next_offset and not (rises and (gaps or _may_be_wrapper(data, position))):
            problem = f"offset {offset} where {next_offset} belongs"
            break
        if size < MINIMUM_SIZE:
            problem = f"message {offset}: impossible size {size}"
            break
        end = position + HEADER_SIZE + size
        if end > length:
            break
        _, _, crc, _, attributes = prefix(data, position)
        if crc32(view[position + CRC_START : end]) != crc:
            problem = f"message {offset}: its CRC does not match"
            break
        number = 1
        if attributes & CODEC_MASK:
            try:
                first, number = span(view, position, end)
            except RecordError as error:
                problem = str(error)
                break
            if first != next_offset and not (gaps and first > next_offset):
                problem = f"offset {first}, in message {offset}, where {next_offset} belongs"
                break
        position, next_offset, count = end, offset + 1, count + number
    return Checked(position, next_offset, count, problem)


def _may_be_wrapper(data: Buffer, position: int) -> bool:
    """Could it be a compressed message, as far as its bytes are there? Only that has an offset above its first."""
    return len(data) - position < ENTRY_PREFIX.size or bool(ENTRY_PREFIX.unpack_from(data, position)[4] & CODEC_MASK)


def validate(data: Buffer, max_message_bytes: int) -> Summary:
    """Checks a producer's set before a leader appends it.

    ``max_message_bytes`` limits one entry with its header. Raises :class:`CorruptMessage`, :class:`MessageTooLarge`,
    or :class:`InvalidTimestamp` for one that claims to be a log's own, each naming the byte.
    """
    unpack = ENTRY_PREFIX.unpack_from
    view = memoryview(data)
    count = valid = 0
    shapes = 0
    newest, oldest = NO_TIMESTAMP, None
    regular = keyed = True
    for position, size, offset in scan(data):
        if size > max_message_bytes:
            raise MessageTooLarge(f"message at byte {position} has {size} bytes, the limit is {max_message_bytes}")
        end = position + size
        _, _, crc, magic, attributes = unpack(data, position)
        if crc32(view[position + CRC_START : end]) != crc:
            raise CorruptMessage(f"message at byte {position}: its CRC does not match")
        key_start, key_end, _, _ = codec.layout(data, position, end, magic, attributes)
        has_key = key_end >= key_start
        number, timestamp = 1, NO_TIMESTAMP
        if magic:
            if attributes & TIMESTAMP_TYPE_BIT:
                raise InvalidTimestamp(f"message at byte {position}: only a log sets the time of the append")
            (timestamp,) = INT64.unpack_from(data, position + TIMESTAMP_POSITION)
        earliest = timestamp
        if attributes & CODEC_MASK:
            inner = unwrap(codec.decode(view[position:end], check_crc=False))
            number = len(inner)
            times = [NO_TIMESTAMP if m.timestamp is None else m.timestamp for m in inner]
            earliest, within = min(times), max(times)
            has_key = all(m.key is not None for m in inner)
            dense = all(m.offset == index for index, m in enumerate(inner, start=offset - number + 1))
            regular = regular and offset == number - 1 and dense and timestamp == within
            timestamp = within
        keyed = keyed and has_key
        newest = max(newest, timestamp)
        if magic:
            oldest = earliest if oldest is None else min(oldest, earliest)
        shapes |= 1 << (magic * _CODECS + (attributes & CODEC_MASK))
        count, valid = count + number, end
    magics, codecs = _SHAPES[shapes]
    return Summary(count, valid, magics, codecs, newest, regular, oldest, keyed)


_CODECS = LAST_CODEC + 1
_SHAPES = [
    (
        frozenset(bit // _CODECS for bit in range(2 * _CODECS) if shapes >> bit & 1),
        frozenset(bit % _CODECS for bit in range(2 * _CODECS) if shapes >> bit & 1),
    )
    for shapes in range(1 << 2 * _CODECS)
]
"""The formats and codecs in a set, by its entries' bits: one message is looked at in a microsecond or two."""


def stamp(data: Buffer, base_offset: int, append_time: int | None = None) -> tuple[bytes, int]:
    """A copy with offsets ``base_offset, base_offset + 1, ...``, and how many messages it has.

    With ``append_time``, in milliseconds, that is the time of all; the set must be of format 1 then. ``data`` must be
    whole entries (:class:`CorruptMessage`), and regular, as :func:`validate` says: a compressed message's offset is
    the number of messages before the last within it. In format 0 each message within one is numbered, so that such
    sets are packed again.
    """
    stamped = bytearray(data)
    prefix, pack, length = ENTRY_PREFIX.unpack_from, INT64.pack_into, len(stamped)
    position = count = 0
    while length - position >= ENTRY_PREFIX.size:
        offset, size, _, magic, attributes = prefix(stamped, position)
        end = position + HEADER_SIZE + size
        if size < MINIMUM_SIZE or end > length:
            break
        if attributes & CODEC_MASK:
            if not magic:
                return _packed_again(data, base_offset)
            count += offset
        pack(stamped, position, base_offset + count)
        if append_time is not None:
            stamped[position + ATTRIBUTES_POSITION] |= TIMESTAMP_TYPE_BIT
            pack(stamped, position + TIMESTAMP_POSITION, append_time)
            crc = crc32(memoryview(stamped)[position + CRC_START : end])
            UINT32.pack_into(stamped, position + HEADER_SIZE, crc)
        position, count = end, count + 1
    if position != length:
        raise CorruptMessage(f"no whole message at byte {position} of {length}")
    return bytes(stamped), count


def _packed_again(data: Buffer, base_offset: int) -> tuple[bytes, int]:
    """As :func:`stamp`, of a set in format 0."""
    parts, offset = [], base_offset
    for entry in _shallow(data):
        inner = unwrap(entry) if entry.attributes & CODEC_MASK else [entry]
        numbered = [message._replace(offset=offset + index) for index, message in enumerate(inner)]
        parts.append(_encode(numbered, entry.attributes & CODEC_MASK))
        offset += len(inner)
    return b"".join(parts), offset - base_offset


def first_offset(data: Buffer) -> int:
    """Offset of the first message; ``data`` must have one, whole."""
    offset, size, _, _, attributes = ENTRY_PREFIX.unpack_from(data)
    return span(data, 0, HEADER_SIZE + size)[0] if attributes & CODEC_MASK else int(offset)


def timestamps(data: Buffer) -> Iterator[tuple[int, int, int]]:
    """``(newest timestamp in ms, -1 for none; last offset; end position)`` of each whole entry, by headers alone."""
    for start, size, offset in scan(data):
        magic = ENTRY_PREFIX.unpack_from(data, start)[3]
        yield (INT64.unpack_from(data, start + TIMESTAMP_POSITION)[0] if magic else NO_TIMESTAMP), offset, start + size


def youngest(data: Buffer) -> tuple[int, int]:
    """``(timestamp, offset)`` of the first of the youngest messages; ``data`` must have an entry."""
    timestamp, offset, _ = max(timestamps(data), key=lambda found: found[0])
    return timestamp, offset


def convert(data: Buffer, magic: int) -> bytes:
    """The same messages and offsets in another format; up from magic 0 there is no timestamp (KIP-32).

    A partial last message is dropped. Raises as :func:`decode`.
    """
    entries = list(_shallow(data))
    if all(entry.magic == magic for entry in entries):
        size = 0
        for position, length, _ in scan(data):
            size = position + length
        return bytes(data[:size])
    return b"".join(_encode(_converted(entry, magic), entry.attributes & CODEC_MASK) for entry in entries)


def rebuild(data: Buffer, magic: int, codec_number: int | None = None) -> bytes:
    """A producer's set, rebuilt in this format and :class:`regular <Summary>`, with any offsets that it had.

    ``codec_number``: all of it is one entry of that codec, or with 0 as many as there are messages; None: each entry
    keeps its own.
    """
    parts = []
    if codec_number is not None:
        entries = [_converted(entry, magic) for entry in _shallow(data)]
        found = [m._replace(offset=index) for index, m in enumerate(itertools.chain.from_iterable(entries))]
        return wrap(found, codec_number) if codec_number else b"".join(codec.encode(message) for message in found)
    for entry in _shallow(data):
        found = [m._replace(offset=index) for index, m in enumerate(_converted(entry, magic))]
        parts.append(_encode(found, entry.attributes & CODEC_MASK))
    return b"".join(parts)


def select(data: Buffer, keep: Callable[[Message], bool]) -> bytes:
    """The messages that ``keep`` wants, offsets as they are; a compressed set is rebuilt if it loses some.

    A partial last message is dropped. Raises as :func:`decode`.
    """
    parts: list[Buffer] = []
    view = memoryview(data)
    for position, size, _ in scan(data):
        entry = codec.decode(data, position)
        found = unwrap(entry) if entry.attributes & CODEC_MASK else [entry]
        kept = [message for message in found if keep(message)]
        if len(kept) == len(found):
            parts.append(view[position : position + size])
        elif kept:
            parts.append(wrap(kept, entry.attributes & CODEC_MASK))
    return b"".join(parts)


def _converted(entry: Message, magic: int) -> list[Message]:
    """The messages of an entry in another format."""
    return [
        message._replace(
            magic=magic,
            attributes=message.attributes if magic else message.attributes & ~TIMESTAMP_TYPE_BIT,
            timestamp=message.timestamp if magic else None,
        )
        for message in (unwrap(entry) if entry.attributes & CODEC_MASK else [entry])
    ]


def _encode(messages: Sequence[Message], codec_number: int) -> bytes:
    return wrap(messages, codec_number) if codec_number else codec.encode(messages[0])
