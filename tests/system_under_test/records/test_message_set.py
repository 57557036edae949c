"""Sets of messages: laws of building, scanning, checking, stamping and converting."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import (
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    CorruptMessage,
    InvalidTimestamp,
    Message,
    MessageTooLarge,
    encode,
)
from assay.system_under_test.records.message_set import Record
from assay.system_under_test.records.produced import validate

from helpers.producing import as_appended

BLOBS = st.none() | st.binary(max_size=30)
RECORDS = st.lists(st.tuples(BLOBS, BLOBS, st.none() | st.integers(0, 2**40)), max_size=6)
SOME = RECORDS.filter(bool)
MAGIC = st.sampled_from([0, 1])
BASES = st.integers(0, 2**40)


def contents(data: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [(message.key, message.value) for message in message_set.decode(data)]


@given(RECORDS, MAGIC, BASES)
def test_a_built_set_decodes_to_its_records(records: list[Record], magic: int, base: int) -> None:
    messages = message_set.decode(message_set.build(records, magic, base))
    assert [(m.key, m.value, m.timestamp) for m in messages] == [
        (key, value, timestamp if magic else None) for key, value, timestamp in records
    ]
    assert [m.offset for m in messages] == list(range(base, base + len(records)))


@given(SOME, MAGIC, st.data())
def test_every_reader_stops_at_a_partial_last_message(records: list[Record], magic: int, data: st.DataObject) -> None:
    whole = message_set.build(records[:-1], magic)
    full = message_set.build(records, magic)
    cut = full[: data.draw(st.integers(len(whole), len(full) - 1))]
    assert contents(cut) == contents(whole)
    assert [size for _, size, _ in message_set.scan(cut)] == [size for _, size, _ in message_set.scan(whole)]
    summary = validate(cut, 1000)
    assert (summary.count, summary.size) == (len(records) - 1, len(whole))
    checked = message_set.check(cut, 0)
    assert (checked.size, checked.next_offset, checked.problem) == (len(whole), len(records) - 1, None)
    assert message_set.convert(cut, magic) == whole
    if len(cut) > len(whole):
        with pytest.raises(CorruptMessage):
            as_appended(cut, 0)


@given(SOME, MAGIC, BASES, st.data())
def test_check_ends_at_the_message_with_a_flipped_bit(
    records: list[Record], magic: int, base: int, data: st.DataObject
) -> None:
    stored = bytearray(message_set.build(records, magic, base))
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    victim = next(index for index, (at, size, _) in enumerate(message_set.scan(bytes(stored))) if bit // 8 < at + size)
    stored[bit // 8] ^= 1 << bit % 8
    found = message_set.check(stored, base)
    assert (found.count, found.next_offset) == (victim, base + victim)
    assert found.size == len(message_set.build(records[:victim], magic))
    # If the size now points past the end, the message looks incomplete; all else is a problem.
    size_field = bit // 8 - found.size in range(8, 12)
    assert found.problem is not None or size_field


@given(SOME, MAGIC, BASES)
def test_offsets_can_be_assigned_without_touching_anything_else(records: list[Record], magic: int, base: int) -> None:
    stamped = as_appended(message_set.build(records, magic, 77), base)[0]
    assert stamped == message_set.build(records, magic, base)
    assert message_set.read_first_offset(stamped) == base


@given(RECORDS, BASES)
def test_down_conversion_loses_timestamps_only_and_up_conversion_has_none(records: list[Record], base: int) -> None:
    new, old = message_set.build(records, 1, base), message_set.build(records, 0, base)
    assert message_set.convert(new, 0) == old
    untimed: list[Record] = [(key, value, None) for key, value, _ in records]
    assert message_set.convert(old, 1) == message_set.build(untimed, 1, base)
    assert message_set.convert(new, 1) == new


def test_down_conversion_clears_the_timestamp_type() -> None:
    stamped_by_the_log = encode(Message(3, 1, 8, 5, b"k", b"v"))
    assert message_set.decode(message_set.convert(stamped_by_the_log, 0)) == [Message(3, 0, 0, None, b"k", b"v")]


def test_check_wants_dense_offsets_unless_gaps_are_allowed() -> None:
    gap = message_set.build([(None, b"a", None)], 1, 4) + message_set.build([(None, b"b", None)], 1, 9)
    dense = message_set.check(gap, 4)
    assert (dense.count, dense.next_offset, dense.problem) == (1, 5, "offset 9 where 5 belongs")
    assert message_set.check(gap, 2, gaps=True, highest=9).next_offset == 10
    low = message_set.check(gap, 2, gaps=True, highest=8)
    assert (low.count, low.next_offset, low.problem) == (1, 5, "offset 9 where 5 belongs")
    back = message_set.build([(None, b"a", None)], 1, 4) * 2
    assert message_set.check(back, 4, gaps=True).count == 1


def test_validate_summarises() -> None:
    mixed = message_set.build([(None, b"a", 40), (None, b"b", 7)], 1) + message_set.build([(None, b"c", None)], 0)
    summary = validate(mixed, 1000)
    assert (summary.count, summary.size, summary.maximum_timestamp) == (3, len(mixed), 40)
    assert (summary.magics, summary.codecs) == ({0, 1}, {0})
    empty = validate(b"", 1000)
    assert (empty.count, empty.magics, empty.codecs) == (0, set(), set())


def test_validate_refuses_what_a_leader_must_refuse() -> None:
    good = message_set.build([(b"k", b"v" * 50, 1)])
    with pytest.raises(MessageTooLarge):
        validate(good, len(good) - 1)
    assert validate(good, len(good)).count == 1
    with pytest.raises(CorruptMessage, match="gzip"):
        validate(encode(Message(0, 1, 1, 1, None, b"v")), 1000)
    with pytest.raises(CorruptMessage, match="CRC"):
        validate(good[:-1] + b"w", 1000)
    with pytest.raises(CorruptMessage, match="size"):
        validate(bytes(100), 1000)


@given(SOME, MAGIC, BASES, st.data())
def test_a_follower_learns_where_a_set_begins_and_which_is_the_youngest(
    records: list[Record], magic: int, base: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(records)))
    times = [(NO_TIMESTAMP if time is None else time, base + at) for at, (_, _, time) in enumerate(records[:count])]
    found = message_set.check(message_set.build(records[:count], magic, base), base - 3, gaps=True)
    youngest = max(times, key=lambda one: one[0], default=(NO_TIMESTAMP, -1))
    assert found.first == (base if count else base - 3)
    assert found.times[:2] == (youngest if magic and youngest[0] != NO_TIMESTAMP else (NO_TIMESTAMP, -1))


FIELDS = {"magic": (16, "b"), "attributes": (17, "b"), "key length": (26, "i"), "value length": (30, "i")}


@given(SOME, st.sampled_from(list(FIELDS)), st.integers(-3, 40), st.integers(0, 5))
@example([(None, b"\x80\x80\x80\x11", None)], "attributes", 2, 0)  # snappy that announces more than is allowed
def test_a_leader_takes_what_every_reader_can_read_and_nothing_else(
    records: list[Record], field: str, value: int, which: int
) -> None:
    """Whatever stands in an entry under a CRC that is right."""
    parts = [bytearray(message_set.build([record], 1)) for record in records]
    changed = parts[which % len(parts)]
    position, form = FIELDS[field]
    struct.pack_into(f">{form}", changed, position, value)
    struct.pack_into(">I", changed, 12, crc32(changed[16:]))
    whole = b"".join(parts)
    try:
        read = message_set.decode(whole)
    except (CorruptMessage, MessageTooLarge):
        read = None
    try:
        count: int | None = validate(whole, 1000).count
    except (CorruptMessage, MessageTooLarge):
        count = None
    except InvalidTimestamp:
        assert changed[17] & TIMESTAMP_TYPE_BIT
        return
    assert count == (None if read is None else len(read))
