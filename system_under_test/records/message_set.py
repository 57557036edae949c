"""Message sets: sequences of entries, as in produce requests, segments and fetch responses.

A set has no header or count. A fetch response may end in the middle of a message, so all functions here stop at a
partial last entry without an error. They take any buffer, and copy only the keys and values that a caller asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from assay.system_under_test.records import message
from assay.system_under_test.records.message import (
    CODEC_MASK,
    CRC_START,
    ENTRY_HEADER,
    ENTRY_PREFIX,
    HEADER_SIZE,
    INT64,
    MINIMUM_ENTRY_SIZE,
    MINIMUM_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_POSITION,
    Buffer,
    CorruptMessage,
    Message,
    RecordError,
)
from assay.system_under_test.records.steps import ENTRY_COST, REWRITE_STEP, STEP_BYTES, Steps, run
from assay.system_under_test.records.wrapper import (
    MessageWriter,
    OpenedEntry,
    WrapperWriter,
    read_span,
    unwrap,
    wrap,
)

MAX_OFFSET = 2**63 - 1
"""The greatest offset that an entry can have."""
NO_OFFSET = -1

Record = tuple[bytes | None, bytes | None, int | None]
"""Key, value, timestamp in milliseconds."""


class SetTimes(NamedTuple):
    """The timestamps of a set's entries.

    A compressed entry counts as one message, with the entry's timestamp and its last message's offset.
    """

    newest: int
    """The greatest timestamp in milliseconds; -1 if no entry has one."""
    offset: int
    """The offset of the first entry with that timestamp; -1 if there is none."""
    has_unstamped: bool
    """Whether an entry has no timestamp."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of :func:`check`: the first ``size`` bytes are ``count`` valid messages, up to ``next_offset``."""

    size: int
    first: int
    """Offset of the first message, or the expected offset if there is no message."""
    next_offset: int
    count: int
    times: SetTimes
    problem: str | None
    """Why the entry at ``size`` is bad.

    None at the end of the data, at an entry that is only incomplete, or where ``max_expanded`` ended the check.
    """
    expanded: int = 0
    """How many bytes were decompressed for the check."""


def build(records: Sequence[Record], magic: int = 1, base_offset: int = 0) -> bytes:
    """Builds a set with offsets from ``base_offset`` on. Timestamps are dropped in magic 0."""
    return b"".join(
        message.encode(Message(base_offset + index, magic, 0, timestamp if magic else None, key, value))
        for index, (key, value, timestamp) in enumerate(records)
    )


def pack(records: Sequence[Record], magic: int, codec_number: int) -> bytes:
    """Builds a set from offset 0 on, compressed into one entry; codec 0 leaves it uncompressed."""
    data = build(records, magic)
    return wrap(decode(data), codec_number) if codec_number else data


def scan(data: Buffer, position: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yields ``(position, size, offset)`` of each whole entry from ``position`` on; ``size`` includes its header.

    Reads headers only. Raises :class:`CorruptMessage` for a size that no message can have.
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
    """Returns all whole messages; raises like :func:`iterate_messages`."""
    return list(iterate_messages(data))


def iterate_messages(data: Buffer, *, check_crcs: bool = True) -> Iterator[Message]:
    """Yields all messages in order, also those in compressed entries. ``check_crcs=False`` skips the CRC checks.

    Raises the errors of :func:`message.decode` and :func:`wrapper.unwrap` when it reaches damage.
    """
    for entry in iterate_entries(data, check_crcs):
        if entry.attributes & CODEC_MASK:
            yield from unwrap(entry, check_crc=check_crcs)
        else:
            yield entry


def iterate_entries(data: Buffer, check_crcs: bool = True) -> Iterator[Message]:
    """Yields the entries; a compressed entry counts as one message."""
    return (message.decode(data, position, check_crc=check_crcs) for position, _, _ in scan(data))


def check(
    data: Buffer,
    next_offset: int,
    *,
    gaps: bool = False,
    highest: int = MAX_OFFSET,
    max_expanded: int | None = None,
) -> CheckResult:
    """Checks entries from the start of ``data``, up to the first one that is not valid. Never raises.

    A valid entry has a possible size, a matching CRC and the expected offset. The first expected offset is
    ``next_offset``, and each message adds one. With ``gaps``, an offset may be higher, up to ``highest``. The CRC does
    not cover offsets. So with ``gaps``, a damaged offset is found only if it falls or exceeds ``highest``.

    Stops after the first entry with which the decompressed bytes reach ``max_expanded``.
    """
    unpack_prefix, unpack_int64, length, view = ENTRY_PREFIX.unpack_from, INT64.unpack_from, len(data), memoryview(data)
    position = count = expanded = 0
    begin, newest, newest_offset, has_unstamped = next_offset, NO_TIMESTAMP, NO_OFFSET, False
    problem = None
    while length - position >= MINIMUM_ENTRY_SIZE:
        offset, size, crc, magic, attributes = unpack_prefix(data, position)
        codec_number = attributes & CODEC_MASK
        if offset != next_offset and not ((gaps or codec_number) and next_offset < offset <= highest):
            problem = f"offset {offset} where {next_offset} belongs"
            break
        end = position + HEADER_SIZE + size
        if size < MINIMUM_SIZE or end > length:
            break
        if crc32(view[position + CRC_START : end]) != crc:
            problem = f"message {offset}: its CRC does not match"
            break
        first, number = offset, 1
        if codec_number:
            if max_expanded is not None and expanded >= max_expanded:
                break
            try:
                first, number, size = read_span(view, position, end)
            except RecordError as error:
                problem = str(error)
                break
            expanded += size
            if first != next_offset and not (gaps and first > next_offset):
                problem = f"offset {first}, in message {offset}, where {next_offset} belongs"
                break
            if number != offset - first + 1 and not gaps:
                problem = f"message {offset}: it has {number} messages from offset {first} on"
                break
        if magic:
            (timestamp,) = unpack_int64(data, position + TIMESTAMP_POSITION)
            if timestamp > newest:
                newest, newest_offset = timestamp, offset
            elif timestamp < 0:
                has_unstamped = True
        else:
            has_unstamped = True
        if not position:
            begin = first
        position, next_offset, count = end, offset + 1, count + number
    if problem is None:
        problem = _find_problem_of_rest(data, position, next_offset, gaps, highest)
    times = SetTimes(newest, newest_offset, has_unstamped)
    return CheckResult(position, begin, next_offset, count, times, problem, expanded)


def _find_problem_of_rest(data: Buffer, position: int, next_offset: int, gaps: bool, highest: int) -> str | None:
    """Returns why the header of an incomplete entry is bad, or None if it is good."""
    if len(data) - position < HEADER_SIZE:
        return None
    offset, size = ENTRY_HEADER.unpack_from(data, position)
    rises = next_offset < offset <= highest
    if offset != next_offset and not (rises and (gaps or _may_be_wrapper(data, position))):
        return f"offset {offset} where {next_offset} belongs"
    return f"message {offset}: impossible size {size}" if size < MINIMUM_SIZE else None


def _may_be_wrapper(data: Buffer, position: int) -> bool:
    """Returns whether a compressed entry may begin here. Its offset, which is its last message's, may be higher."""
    return len(data) - position < ENTRY_PREFIX.size or bool(ENTRY_PREFIX.unpack_from(data, position)[4] & CODEC_MASK)


def read_first_offset(data: Buffer) -> int:
    """Returns the offset of the first message; ``data`` must begin with a whole entry."""
    offset, size, _, _, attributes = ENTRY_PREFIX.unpack_from(data)
    return read_span(data, 0, HEADER_SIZE + size)[0] if attributes & CODEC_MASK else int(offset)


def iterate_timestamps(data: Buffer) -> Iterator[tuple[int, int, int]]:
    """Yields (newest timestamp in ms or -1, last offset, end position) of each whole entry. Reads only headers."""
    for start, size, offset in scan(data):
        magic = ENTRY_PREFIX.unpack_from(data, start)[3]
        yield (INT64.unpack_from(data, start + TIMESTAMP_POSITION)[0] if magic else NO_TIMESTAMP), offset, start + size


def convert(data: Buffer, magic: int) -> bytes:
    """Returns the same messages and offsets in another format. Messages from magic 0 get no timestamp (KIP-32).

    Drops a partial last message. Raises the errors of :func:`decode`.
    """
    return run(convert_in_steps(data, magic))[0]


def convert_in_steps(data: Buffer, magic: int, max_expanded: int | None = None) -> Steps[tuple[bytes, int]]:
    """Converts as :func:`convert`, in steps. Returns the result, and how many bytes were decompressed for it.

    Stops after the first entry with which the decompressed bytes reach ``max_expanded``.
    """
    places = [(position, position + size) for position, size, _ in scan(data)]
    if all(ENTRY_PREFIX.unpack_from(data, position)[3] == magic for position, _ in places):
        return bytes(data[: places[-1][1]] if places else b""), 0
    output = MessageWriter(magic)
    expanded = work = 0
    has_opened = False
    for position, end in places:
        codec_number = ENTRY_PREFIX.unpack_from(data, position)[4] & CODEC_MASK
        if codec_number and (not has_opened or work >= STEP_BYTES):
            has_opened, work = True, 0
            yield
        opened = OpenedEntry.of(data, position, end, check_crc=True)
        writer = WrapperWriter(magic, codec_number) if codec_number else None
        add = output.add if writer is None else writer.add
        for index, (place, offset) in enumerate(opened.iterate(), start=1):
            add(opened, place, offset)
            if not index % REWRITE_STEP:
                yield
        if writer is not None:
            output.body += yield from writer.finish()
            expanded += opened.size
            work += opened.size + ENTRY_COST
            if max_expanded is not None and expanded >= max_expanded:
                break
    return bytes(output.body), expanded


def select(data: Buffer, keep: Callable[[Message], bool]) -> bytes:
    """Returns the messages that ``keep`` accepts, with unchanged offsets.

    Rebuilds a compressed entry that loses messages. Drops a partial last message. Raises the errors of :func:`decode`.
    """
    return run(select_in_steps(data, keep))


def select_in_steps(data: Buffer, keep: Callable[[Message], bool]) -> Steps[bytes]:
    """Selects as :func:`select`, in steps."""
    parts: list[Buffer] = []
    view = memoryview(data)
    for position, size, _ in scan(data):
        codec_number = ENTRY_PREFIX.unpack_from(data, position)[4] & CODEC_MASK
        opened = OpenedEntry.of(data, position, position + size, check_crc=True)
        kept, is_whole = [], True
        for index, (place, offset) in enumerate(opened.iterate(), start=1):
            if keep(opened.read(place, offset)):
                kept.append((place, offset))
            else:
                is_whole = False
            if not index % REWRITE_STEP:
                yield
        if is_whole:
            parts.append(view[position : position + size])
        elif kept:
            writer = WrapperWriter(opened.magic, codec_number)
            for place, offset in kept:
                writer.add(opened, place, offset)
            parts.append((yield from writer.finish()))
    return b"".join(parts)


def iterate_stored(data: Buffer) -> Iterator[Message]:
    """Yields all messages of entries that were checked before. Makes one object at a time, and checks no CRC."""
    for position, size, _ in scan(data):
        opened = OpenedEntry.of(data, position, position + size, check_crc=False)
        for place, offset in opened.iterate():
            yield opened.read(place, offset)
