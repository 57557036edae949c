"""Message sets from producers: validates them, rebuilds irregular ones, and sets their offsets before the append.

The time per message limits a leader's throughput, so :func:`validate` reads a set once and collects all facts that the
leader needs. They include the entries' positions for :func:`stamp`, and the newest timestamp for the time index.

Compressed entries are checked and rebuilt as bytes, one after another, in steps (``steps``). The decompressed bytes of
a set are limited, and counted while they are decompressed.

A compressed entry is regular if its messages are numbered from 0 without gaps, and its timestamp is the newest of
theirs. A set is regular if all its compressed entries are regular.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    SetTooLarge,
)
from assay.system_under_test.records.message_set import SetTimes, scan
from assay.system_under_test.records.steps import (
    ENTRY_COST,
    PLAIN_COST,
    REWRITE_STEP,
    SMALL_BYTES,
    SMALL_MESSAGES,
    STEP_BYTES,
    Steps,
    run,
)
from assay.system_under_test.records.wrapper import (
    Allowance,
    MessageWriter,
    OpenedEntry,
    WrapperWriter,
    inspect,
)


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
    expanded: int = 0
    """Decompressed bytes of the compressed entries."""
    numbered_from: int | None = None
    """The offset from which :func:`assign_offsets` has numbered a set of format 0; None before."""

    @property
    def holds_offsets(self) -> bool:
        """Whether compressed entries hold absolute offsets, so that numbering the set must compress them again."""
        return 0 in self.magics and self.codecs != {0}

    @property
    def is_small(self) -> bool:
        """Whether work on the set is done in a single step (``steps``)."""
        return self.size <= SMALL_BYTES and self.expanded <= SMALL_BYTES and self.count <= SMALL_MESSAGES


_STAMP_AND_KEY = Struct(">qi")
"""Timestamp and key length, which are adjacent in format 1."""
_WITHOUT_KEY = KEY_POSITION[1] + INT32.size
"""Position in the entry of the value's length in format 1, if the key is null or empty."""


def validate(data: Buffer, max_message_bytes: int) -> ValidatedSet:
    """Checks a producer's set before a leader appends it.

    ``max_message_bytes`` limits one entry with its header. Each error names the byte position:

    - :class:`CorruptMessage`
    - :class:`MessageTooLarge`
    - :class:`SetTooLarge`
    - :class:`InvalidTimestamp`, if the producer set the timestamp type "append"
    """
    return run(validate_in_steps(data, max_message_bytes, Allowance()))


def validate_small(data: Buffer, max_message_bytes: int, allowance: Allowance) -> ValidatedSet | None:
    """Checks a small set (``steps``) as :func:`validate`. Returns None for any other set, also if it is invalid."""
    if len(data) > SMALL_BYTES:
        return None
    # A set that turns out to be large must not count twice, so the request's allowance is spent at the end.
    attempted = Allowance(min(allowance.size, SMALL_BYTES), min(allowance.messages, SMALL_MESSAGES))
    size, messages = attempted.size, attempted.messages
    try:
        found = run(validate_in_steps(data, max_message_bytes, attempted))
    except SetTooLarge:
        return None
    if not found.is_small:
        return None
    allowance.spend(size - attempted.size, messages - attempted.messages)
    return found


def validate_in_steps(data: Buffer, max_message_bytes: int, allowance: Allowance) -> Steps[ValidatedSet]:
    """Checks a set as :func:`validate`, in steps. ``allowance`` limits the content of its compressed entries."""
    work, has_opened, expanded = 0, False, 0
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
            if attributes & CODEC_MASK:
                if not has_opened or work >= STEP_BYTES:
                    has_opened, work = True, 0
                    yield
                before = allowance.size
                entry = yield from _validate_wrapper(data, position, end, allowance)
                expanded += before - allowance.size
                work += ENTRY_COST + before - allowance.size
            else:
                work += PLAIN_COST
                if work >= STEP_BYTES:
                    work = 0
                    yield
                entry = _validate_plain(data, position, end)
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
        data, position, positions, count, magics, codecs, newest, newest_index, has_unstamped, oldest, regular, keyed,
        expanded,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _EntryFacts:
    """Facts about one entry. Timestamps are in milliseconds; -1 for none."""

    number: int
    """The number of messages in the entry."""
    newest: int
    oldest: int
    keyed: bool
    regular: bool


def _validate_plain(data: Buffer, position: int, end: int) -> _EntryFacts:
    """Validates an entry of any kind after its CRC check, but does not open it. Raises the errors of :func:`validate`.

    The facts are those of an uncompressed message.
    """
    _, _, _, magic, attributes = ENTRY_PREFIX.unpack_from(data, position)
    key_start, key_end, _, _ = message.find_key_and_value(data, position, end, magic, attributes)
    timestamp = NO_TIMESTAMP
    if magic:
        if attributes & TIMESTAMP_TYPE_BIT:
            raise InvalidTimestamp(f"message at byte {position}: only a log sets the time of the append")
        (timestamp,) = INT64.unpack_from(data, position + TIMESTAMP_POSITION)
    return _EntryFacts(1, timestamp, timestamp, key_end >= key_start, regular=True)


def _validate_wrapper(data: Buffer, position: int, end: int, allowance: Allowance) -> Steps[_EntryFacts]:
    """Validates a compressed entry after its CRC check, in steps. Raises the errors of :func:`validate`."""
    timestamp = _validate_plain(data, position, end).newest
    offset, _, _, magic, _ = ENTRY_PREFIX.unpack_from(data, position)
    inner = yield from inspect(message.decode(memoryview(data)[position:end], check_crc=False), allowance)
    # Offsets are relative in format 1, absolute in format 0.
    numbered = inner.consecutive and (magic > 0 or inner.first == offset - inner.number + 1)
    regular = offset == inner.number - 1 and numbered and timestamp == inner.newest
    return _EntryFacts(inner.number, inner.newest, inner.oldest, inner.keyed, regular)


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
    if produced.holds_offsets:
        numbered = produced if produced.numbered_from == base_offset else run(assign_offsets(produced, base_offset))
        return bytes(numbered.data), SetTimes(NO_TIMESTAMP, -1, has_unstamped=True)
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


def assign_offsets(produced: ValidatedSet, base_offset: int) -> Steps[ValidatedSet]:
    """Gives a set of format 0 its offsets from ``base_offset`` on, in steps, and compresses its entries again.

    :func:`stamp` then does not have to, if the set is appended at that offset.
    """
    data = yield from _rewrite(produced.data, 0, None, base_offset)
    return replace(produced, data=data, size=len(data), numbered_from=base_offset)


def rebuild(data: Buffer, magic: int, codec_number: int | None = None) -> bytes:
    """Rebuilds a producer's set in this format, and makes it :attr:`regular <ValidatedSet.regular>`.

    The set must be valid.

    - ``codec_number`` None: each entry keeps its codec
    - ``codec_number`` 0: each message becomes its own entry
    - any other ``codec_number``: all messages become one entry of that codec
    """
    return run(rebuild_in_steps(data, magic, codec_number))


def rebuild_in_steps(data: Buffer, magic: int, codec_number: int | None) -> Steps[bytes]:
    """Rebuilds a set as :func:`rebuild`, in steps."""
    return _rewrite(data, magic, codec_number, None)


def _rewrite(data: Buffer, magic: int, codec_number: int | None, base_offset: int | None) -> Steps[bytes]:
    """Rewrites a set in steps. ``base_offset``: the offset of the first message; None numbers each entry from 0."""
    yield
    output = MessageWriter(magic)
    whole = WrapperWriter(magic, codec_number) if codec_number else None
    offset, work = base_offset or 0, 0
    for position, size, _ in scan(data):
        codec = codec_number
        if codec is None:
            codec = ENTRY_PREFIX.unpack_from(data, position)[4] & CODEC_MASK
            offset = 0 if base_offset is None else offset
        if work >= STEP_BYTES:
            work = 0
            yield
        opened = OpenedEntry.of(data, position, position + size, check_crc=False)
        wrapper = whole or (WrapperWriter(magic, codec) if codec else None)
        add = output.add if wrapper is None else wrapper.add
        for index, (place, _) in enumerate(opened.iterate(), start=1):
            add(opened, place, offset)
            offset += 1
            if not index % REWRITE_STEP:
                yield
        work += opened.size + ENTRY_COST
        if wrapper is not None and whole is None:
            output.body += yield from wrapper.finish()
    if whole is not None:
        output.body += yield from whole.finish()
    return bytes(output.body)
