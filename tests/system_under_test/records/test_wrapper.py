"""Compressed sets: what is wrapped is read in its place, with offsets, times and damage as if it were not."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.records import message_set
from assay.system_under_test.records.compression import GZIP, LZ4, SNAPPY, compress
from assay.system_under_test.records.message import (
    TIMESTAMP_TYPE_BIT,
    CorruptMessage,
    InvalidTimestamp,
    Message,
    MessageTooLarge,
    encode,
)
from assay.system_under_test.records.message_set import Record
from assay.system_under_test.records.produced import rebuild, stamp, validate
from assay.system_under_test.records.wrapper import MAX_EXPANDED, unwrap, wrap

from helpers.producing import as_appended

BLOBS = st.none() | st.binary(max_size=30)
RECORDS = st.lists(st.tuples(BLOBS, BLOBS, st.none() | st.integers(0, 2**40)), min_size=1, max_size=6)
CODECS = st.sampled_from([GZIP, SNAPPY, LZ4])
MAYBE_CODECS = st.sampled_from([0, GZIP, SNAPPY, LZ4])
MAGICS = st.sampled_from([0, 1])
BASES = st.integers(0, 2**40)
SETS = st.lists(st.tuples(RECORDS, MAYBE_CODECS), min_size=1, max_size=4)


def produced(parts: list[tuple[list[Record], int]], magic: int, base: int = 0, *, regular: bool = True) -> bytes:
    """As a producer sends it; ``regular``: compressed ones number their messages from 0."""
    chunks = []
    for records, codec in parts:
        plain = message_set.decode(message_set.build(records, magic, base if not regular else 0))
        chunks.append(wrap(plain, codec) if codec else message_set.build(records, magic))
    return b"".join(chunks)


def contents(data: bytes) -> list[tuple[bytes | None, bytes | None, int | None]]:
    return [(m.key, m.value, m.timestamp) for m in message_set.decode(data)]


def flat(parts: list[tuple[list[Record], int]]) -> list[Record]:
    return [record for records, _ in parts for record in records]


@given(RECORDS, CODECS, MAGICS, BASES)
def test_unwrap_undoes_wrap(records: list[Record], codec: int, magic: int, base: int) -> None:
    messages = message_set.decode(message_set.build(records, magic, base))
    wrapped = wrap(messages, codec)
    assert message_set.decode(wrapped) == messages
    assert message_set.read_first_offset(wrapped) == base
    assert [offset for _, _, offset in message_set.scan(wrapped)] == [base + len(records) - 1]


@given(SETS, MAGICS)
def test_a_leader_counts_what_lies_within(parts: list[tuple[list[Record], int]], magic: int) -> None:
    data = produced(parts, magic)
    summary = validate(data, 10_000)
    times = [time if magic and time is not None else -1 for _, _, time in flat(parts)]
    assert (summary.count, summary.size) == (len(flat(parts)), len(data))
    assert summary.maximum_timestamp == max(times)
    assert summary.regular
    assert (summary.magics, summary.codecs) == ({magic}, {codec for _, codec in parts})


@given(SETS, BASES, MAGICS)
def test_stamped_sets_are_dense_and_checked(parts: list[tuple[list[Record], int]], base: int, magic: int) -> None:
    stamped, count = as_appended(produced(parts, magic), base)
    assert count == len(flat(parts))
    assert [m.offset for m in message_set.decode(stamped)] == list(range(base, base + count))
    assert contents(stamped) == [(key, value, time if magic else None) for key, value, time in flat(parts)]
    found = message_set.check(stamped, base)
    assert (found.count, found.size, found.next_offset, found.problem) == (count, len(stamped), base + count, None)
    assert message_set.read_first_offset(stamped) == base


@given(SETS, BASES, st.sampled_from([-2, -1, 1, 2]))
def test_a_set_that_does_not_go_on_densely_is_found_out(
    parts: list[tuple[list[Record], int]], base: int, shift: int
) -> None:
    stamped, _ = as_appended(produced(parts, 1), base + 2)
    found = message_set.check(stamped, base + 2 + shift)
    assert found.count == 0
    assert found.problem is not None


@given(SETS, MAGICS, st.integers(1, 2**30), BASES)
def test_whatever_numbers_a_producer_gave_a_rebuilt_set_is_regular(
    parts: list[tuple[list[Record], int]], magic: int, first: int, base: int
) -> None:
    """Format 1 would keep them relative; the first message of a compressed one is moved off 0 by hand."""
    data = produced(parts, magic, first, regular=False)
    rebuilt = rebuild(data, 1)
    assert validate(rebuilt, 10_000).regular
    stamped, count = as_appended(rebuilt, base)
    assert [m.offset for m in message_set.decode(stamped)] == list(range(base, base + count))
    assert [record[:2] for record in contents(stamped)] == [record[:2] for record in flat(parts)]


@given(SETS, MAGICS, MAGICS, MAYBE_CODECS, BASES)
def test_a_log_may_have_a_format_and_a_codec_of_its_own(
    parts: list[tuple[list[Record], int]], sent: int, stored: int, codec: int, base: int
) -> None:
    rebuilt = rebuild(produced(parts, sent), stored, codec)
    summary = validate(rebuilt, 10_000)
    assert (summary.magics, summary.codecs, summary.regular) == ({stored}, {codec}, True)
    assert len(list(message_set.scan(rebuilt))) == (1 if codec else len(flat(parts)))
    stamped, count = as_appended(rebuilt, base)
    assert message_set.check(stamped, base).next_offset == base + count
    assert contents(stamped) == [(k, v, time if sent and stored else None) for k, v, time in flat(parts)]


@given(RECORDS, CODECS)
def test_a_wrapper_whose_offset_says_nothing_is_irregular_and_mended(records: list[Record], codec: int) -> None:
    wrapped = message_set.decode(message_set.build(records))
    data = bytearray(wrap(wrapped, codec))
    data[0:8] = (len(records) + 6).to_bytes(8, "big")
    assert not validate(bytes(data), 10_000).regular
    assert rebuild(bytes(data), 1) == wrap(wrapped, codec)


@given(SETS, BASES)
def test_down_conversion_keeps_offsets_codecs_and_contents(parts: list[tuple[list[Record], int]], base: int) -> None:
    stamped, _ = as_appended(produced(parts, 1), base)
    old = message_set.convert(stamped, 0)
    before, after = message_set.decode(stamped), message_set.decode(old)
    assert [(m.offset, m.key, m.value) for m in after] == [(m.offset, m.key, m.value) for m in before]
    assert all(m.magic == 0 and m.timestamp is None for m in after)
    assert [size for size in message_set.scan(old)]
    assert len(list(message_set.scan(old))) == len(list(message_set.scan(stamped)))
    assert message_set.check(old, base).next_offset == base + len(before)


@given(SETS, BASES, st.integers(0, 2**40))
def test_append_time_is_that_of_all_and_the_crcs_hold(
    parts: list[tuple[list[Record], int]], base: int, time: int
) -> None:
    stamped, count = as_appended(produced(parts, 1), base, time)
    messages = message_set.decode(stamped)
    assert len(messages) == count
    assert all(m.timestamp == time and m.attributes & TIMESTAMP_TYPE_BIT for m in messages)
    assert message_set.check(stamped, base).problem is None


@given(RECORDS, CODECS, BASES, st.sampled_from([0, 1]), st.data())
def test_no_flipped_bit_of_a_wrapper_passes(
    records: list[Record], codec: int, base: int, magic: int, data: st.DataObject
) -> None:
    stored = bytearray(wrap(message_set.decode(message_set.build(records, magic, base)), codec))
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    stored[bit // 8] ^= 1 << bit % 8
    assert message_set.check(stored, base).count == 0


def compressed(inner: bytes, magic: int = 1, codec: int = GZIP) -> bytes:
    return encode(Message(0, magic, codec, None, None, compress(codec, inner, magic)))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (compressed(b""), "too few"),
        (compressed(message_set.build([(None, b"a", 1)])[:-1]), "impossible size"),
        (compressed(message_set.build([(None, b"a", None)], 0)), "holds one of format 0"),
        (compressed(compressed(message_set.build([(None, b"a", 1)]))), "contains a compressed message"),
        (compressed(message_set.build([(None, b"a", 1)])[:-1] + b"b"), "CRC"),
        (encode(Message(0, 1, GZIP, None, None, None)), "null"),
        (encode(Message(0, 1, LZ4, None, None, b"nonsense")), "lz4"),
        (encode(Message(0, 1, 5, None, None, b"nonsense")), "unknown codec 5"),
    ],
)
def test_what_a_leader_refuses(data: bytes, what: str) -> None:
    with pytest.raises(CorruptMessage, match=what):
        validate(data, 10_000)


def test_a_message_that_expands_too_far_is_too_large() -> None:
    bomb = encode(Message(0, 1, GZIP, None, None, zlib.compress(bytes(MAX_EXPANDED + 1), wbits=31)))
    with pytest.raises(MessageTooLarge):
        validate(bomb, 1_000_000)


def test_no_one_but_a_log_says_when_it_appended() -> None:
    with pytest.raises(InvalidTimestamp):
        validate(encode(Message(0, 1, TIMESTAMP_TYPE_BIT, 5, None, b"v")), 1000)


def test_relative_offsets_with_gaps_count_back_from_the_last() -> None:
    """Compaction leaves offsets 10, 12 and 15 of a set of six (KIP-31)."""
    inner = b"".join(encode(Message(offset, 1, 0, 7, None, b"v")) for offset in (0, 2, 5))
    wrapper = Message(15, 1, GZIP, 7, None, compress(GZIP, inner, 1))
    assert [m.offset for m in unwrap(wrapper)] == [10, 12, 15]
    assert message_set.check(encode(wrapper), 10, gaps=True).next_offset == 16
    assert message_set.check(encode(wrapper), 9, gaps=True).next_offset == 16
    assert message_set.check(encode(wrapper), 11, gaps=True).problem is not None


@given(SETS, BASES, st.booleans(), st.data())
def test_what_is_selected_keeps_its_offsets_times_and_codecs(
    parts: list[tuple[list[Record], int]], base: int, append_time: bool, data: st.DataObject
) -> None:
    stamped, count = as_appended(produced(parts, 1), base, 77 if append_time else None)
    before = message_set.decode(stamped)
    kept = data.draw(st.sets(st.integers(base, base + count - 1)))
    selected = message_set.select(stamped, lambda message: message.offset in kept)
    assert message_set.decode(selected) == [message for message in before if message.offset in kept]
    found = message_set.check(selected, base, gaps=True)
    assert (found.size, found.problem) == (len(selected), None)
    assert len(list(message_set.scan(selected))) <= len(list(message_set.scan(stamped)))
    assert message_set.select(stamped, lambda _: True) == stamped


@given(SETS, MAGICS)
def test_a_leader_learns_the_oldest_time_and_whether_a_key_is_missing(
    parts: list[tuple[list[Record], int]], magic: int
) -> None:
    summary = validate(produced(parts, magic), 1 << 20)
    times = [-1 if time is None else time for _, _, time in flat(parts)]
    assert summary.minimum_timestamp == (min(times) if magic else None)
    assert summary.keyed == all(key is not None for key, _, _ in flat(parts))


@given(SETS, BASES, MAGICS, st.none() | st.integers(0, 2**40))
def test_a_leader_and_its_followers_agree_which_entry_is_the_youngest(
    parts: list[tuple[list[Record], int]], base: int, magic: int, append_time: int | None
) -> None:
    time = append_time if magic else None
    data, times = stamp(validate(produced(parts, magic), 1 << 20), base, time)
    found = message_set.check(data, base)
    entries = [(newest, last) for newest, last, _ in message_set.iterate_timestamps(data) if newest >= 0]
    assert times == found.times
    assert times[:2] == max(entries, key=lambda one: one[0], default=(-1, -1))
    assert times.has_unstamped == any(newest < 0 for newest, _, _ in message_set.iterate_timestamps(data))
    assert found.first == base
