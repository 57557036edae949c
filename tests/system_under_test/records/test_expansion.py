"""The content of compressed sets is limited, read as bytes, and processed in steps; all else stays as it was.

The laws compare with the plain way over objects, one for each message, in which the broker did this before.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.records import compression, message, message_set, wrapper
from assay.system_under_test.records.compression import COMPRESSION_PIECE, GZIP, LZ4, SNAPPY, compress
from assay.system_under_test.records.message import (
    CODEC_MASK,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    CorruptMessage,
    InvalidTimestamp,
    Message,
    MessageTooLarge,
    SetTooLarge,
    encode,
)
from assay.system_under_test.records.produced import (
    assign_offsets,
    rebuild,
    rebuild_in_steps,
    stamp,
    validate,
    validate_in_steps,
)
from assay.system_under_test.records.steps import Steps, run
from assay.system_under_test.records.wrapper import MAX_EXPANDED, MAX_INNER_MESSAGES, Allowance, unwrap

from helpers.producing import validated

EMPTY = encode(Message(0, 0, 0, None, None, None))
ANY_SIZE = 1 << 30


def packed(inner: bytes, count: int, *, codec: int = GZIP, magic: int = 0) -> bytes:
    return encode(Message(count - 1, magic, codec, None, None, compress(codec, inner, magic)))


def large(size: int, codec: int = GZIP) -> bytes:
    """A wrapper with one message, of so many bytes together."""
    return packed(encode(Message(0, 1, 0, None, None, bytes(size - 34))), 1, codec=codec, magic=1)


def count_steps(steps: Steps[Any]) -> int:
    count = 0
    for _ in steps:
        count += 1
    return count


class Decompressed:
    """Counts what is decompressed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.size = 0
        original = compression.decompress

        def counting(codec: int, data: bytes, magic: int, limit: int) -> bytes:
            found = original(codec, data, magic, limit)
            self.size += len(found)
            return found

        monkeypatch.setattr(wrapper, "decompress", counting)


# -- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [GZIP, LZ4])
def test_a_set_holds_no_more_than_one_wrapper_may(monkeypatch: pytest.MonkeyPatch, codec: int) -> None:
    found = Decompressed(monkeypatch)
    with pytest.raises(SetTooLarge):
        validate(large(MAX_EXPANDED // 2, codec) * 40, ANY_SIZE)
    assert found.size <= MAX_EXPANDED
    assert validate(large(MAX_EXPANDED // 2, codec) * 2, ANY_SIZE).count == 2


def test_many_wrappers_of_many_empty_messages_are_refused_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that blocked a broker for minutes: 13 wrappers of 1,200,000 empty messages each, in 985 kB."""
    found = Decompressed(monkeypatch)
    with pytest.raises(MessageTooLarge, match="messages"):
        validate(packed(EMPTY * 1_200_000, 1_200_000) * 13, 1_000_012)
    assert found.size <= MAX_EXPANDED


def test_the_messages_of_a_set_are_limited_over_all_its_wrappers() -> None:
    half = packed(EMPTY * (MAX_INNER_MESSAGES // 2), MAX_INNER_MESSAGES // 2)
    assert validate(half * 2, ANY_SIZE).count == MAX_INNER_MESSAGES
    with pytest.raises(SetTooLarge):
        validate(half * 2 + packed(EMPTY, 1), ANY_SIZE)


def test_the_sets_of_a_request_share_an_allowance_and_a_refused_set_spends_it_too() -> None:
    request = Allowance(3000, 100)
    for size in (1000, 1500):
        run(validate_in_steps(large(size), ANY_SIZE, request.make_for_set()))
    assert (request.size, request.messages) == (500, 98)
    with pytest.raises(SetTooLarge):
        run(validate_in_steps(large(501), ANY_SIZE, request.make_for_set()))
    with pytest.raises(SetTooLarge):
        run(validate_in_steps(large(100), ANY_SIZE, request.make_for_set()))


def test_uncompressed_messages_need_no_allowance() -> None:
    plain = message_set.build([(None, b"v", 5)] * 10) + message_set.build([(None, b"v", None)] * 10, 0)
    assert run(validate_in_steps(plain, ANY_SIZE, Allowance(0, 0))).count == 20


@pytest.mark.slow
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_an_ordinary_set_of_a_megabyte_passes(codec: int) -> None:
    """Ten times as much before the compression, in messages of 60 to 200 bytes."""
    rng = random.Random(codec)
    words = [rng.randbytes(6).hex().encode() for _ in range(40)]
    inner, size, count = bytearray(), 10 * 1000 * 1000, 0
    while len(inner) < size:
        inner += encode(Message(count, 1, 0, 5, None, b" ".join(rng.choices(words, k=rng.randint(2, 12)))))
        count += 1
    data = encode(Message(count - 1, 1, codec, 5, None, compress(codec, bytes(inner), 1)))
    summary = validate(data, ANY_SIZE)
    assert (summary.count, summary.regular) == (count, True)


# -- bytes instead of objects ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [None, 0, GZIP])
def test_no_object_is_made_for_an_inner_message(monkeypatch: pytest.MonkeyPatch, codec: int | None) -> None:
    made = 0

    def counting(original: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            made += 1
            return original(*args, **kwargs)

        return count

    data = packed(EMPTY * 1000, 1000) * 3
    monkeypatch.setattr(message, "decode", counting(message.decode))
    monkeypatch.setattr(message, "encode", counting(message.encode))
    assert validate(data, ANY_SIZE).count == 3000
    assert validated(rebuild(data, 1, codec)).count == 3000
    if codec != 0:
        assert len(message_set.convert(rebuild(data, 1, codec), 0)) > 0
    assert made < 50


# -- steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("magic", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_greatest_sets_are_worked_on_in_many_steps(magic: int) -> None:
    one = encode(Message(0, magic, 0, None, None, None))
    data = packed(one * MAX_INNER_MESSAGES, MAX_INNER_MESSAGES, magic=magic)
    assert count_steps(validate_in_steps(data, ANY_SIZE, Allowance())) >= 6
    assert count_steps(rebuild_in_steps(data, 1, None)) >= 16
    assert count_steps(rebuild_in_steps(data, 1, 0)) >= 16
    stored = stamp(validated(rebuild(data, 1)), 0)[0]
    assert count_steps(message_set.convert_in_steps(stored, 0)) >= 16
    assert count_steps(message_set.select_in_steps(stored, lambda each: each.offset % 2 == 0)) >= 16


def test_a_check_of_small_sets_has_one_step_and_one_more_if_something_is_compressed() -> None:
    assert count_steps(validate_in_steps(message_set.build([(None, b"v", 5)] * 10), ANY_SIZE, Allowance())) == 0
    assert count_steps(validate_in_steps(packed(EMPTY, 1) * 10, ANY_SIZE, Allowance())) == 1


def test_a_check_ends_after_the_wrapper_with_which_it_has_decompressed_enough() -> None:
    stored = stamp(validated(large(1000) * 5), 0)[0]
    found = message_set.check(stored, 0, max_expanded=1001)
    assert (found.count, found.next_offset, found.problem, found.expanded) == (2, 2, None, 2000)
    rest = message_set.check(stored[found.size :], found.next_offset)
    assert (rest.count, rest.next_offset, rest.expanded) == (3, 5, 3000)


def test_a_conversion_ends_after_the_wrapper_with_which_it_has_decompressed_enough() -> None:
    stored = stamp(validated(large(1000) * 5), 0)[0]
    converted, expanded = run(message_set.convert_in_steps(stored, 0, 1001))
    assert [each.offset for each in message_set.decode(converted)] == [0, 1]
    assert expanded == 2000


# -- laws: as before ---------------------------------------------------------------------------------------------------


def wrap_objects(messages: list[Message], codec: int) -> bytes:
    """Compresses messages, each from its object."""
    magic, first = messages[0].magic, messages[0].offset if messages[0].magic else 0
    body = b"".join(
        encode(m._replace(offset=m.offset - first, attributes=m.attributes & ~TIMESTAMP_TYPE_BIT)) for m in messages
    )
    newest = max(NO_TIMESTAMP if m.timestamp is None else m.timestamp for m in messages)
    time = None if newest == NO_TIMESTAMP or not magic else newest
    attributes = codec | messages[0].attributes & TIMESTAMP_TYPE_BIT
    return encode(Message(messages[-1].offset, magic, attributes, time, None, compress(codec, body, magic)))


def encode_objects(messages: list[Message], codec: int) -> bytes:
    return wrap_objects(messages, codec) if codec else encode(messages[0])


def objects_of(entry: Message, magic: int) -> list[Message]:
    return [
        m._replace(
            magic=magic,
            attributes=m.attributes if magic else m.attributes & ~TIMESTAMP_TYPE_BIT,
            timestamp=m.timestamp if magic else None,
        )
        for m in (unwrap(entry) if entry.attributes & CODEC_MASK else [entry])
    ]


def rebuild_objects(data: bytes, magic: int, codec: int | None) -> bytes:
    parts = [(entry.attributes & CODEC_MASK, objects_of(entry, magic)) for entry in message_set.iterate_entries(data)]
    if codec is None:
        return b"".join(
            encode_objects([m._replace(offset=index) for index, m in enumerate(found)], own) for own, found in parts
        )
    every = [m._replace(offset=index) for index, m in enumerate(m for _, found in parts for m in found)]
    return wrap_objects(every, codec) if codec else b"".join(map(encode, every))


BLOBS = st.none() | st.binary(max_size=20)
TIMES = st.none() | st.integers(-5, 2**40)
ATTRIBUTES = st.sampled_from([0, 0, 0, 0x10, 0x20, 0x40 | 0x10, -0x80, TIMESTAMP_TYPE_BIT])


@st.composite
def entries(draw: st.DrawFn, magics: st.SearchStrategy[int]) -> bytes:
    """An entry as any producer may send it: with any offsets, times and attributes."""
    magic, codec = draw(magics), draw(st.sampled_from([0, GZIP, SNAPPY, LZ4]))
    inner = [
        Message(
            draw(st.integers(0, 3) | st.just(index)), magic, draw(ATTRIBUTES), draw(TIMES) if magic else None,
            draw(BLOBS), draw(BLOBS),
        )
        for index in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    if not codec:
        return encode(inner[0]._replace(attributes=inner[0].attributes & ~TIMESTAMP_TYPE_BIT))
    offset, time = draw(st.integers(0, 5) | st.just(len(inner) - 1)), draw(TIMES) if magic else None
    return encode(Message(offset, magic, codec, time, None, compress(codec, b"".join(map(encode, inner)), magic)))


SETS = st.lists(entries(st.sampled_from([0, 1])), min_size=1, max_size=4).map(b"".join)
OLD_SETS = st.lists(entries(st.just(0)), min_size=1, max_size=4).map(b"".join)


@given(SETS)
def test_a_set_is_judged_as_by_its_objects(data: bytes) -> None:
    found = validated(data)
    parts = [objects_of(entry, entry.magic) for entry in message_set.iterate_entries(data)]
    all_of_them = [m for part in parts for m in part]
    timed = [NO_TIMESTAMP if m.timestamp is None else m.timestamp for m in all_of_them if m.magic]
    assert found.count == len(all_of_them)
    assert found.maximum_timestamp == max([NO_TIMESTAMP, *timed])
    assert found.minimum_timestamp == min(timed, default=None)
    assert found.keyed == all(m.key is not None for m in all_of_them)
    regular = True
    for entry, part in zip(message_set.iterate_entries(data), parts, strict=True):
        if entry.attributes & CODEC_MASK:
            newest = max(NO_TIMESTAMP if m.timestamp is None else m.timestamp for m in part)
            time = NO_TIMESTAMP if entry.timestamp is None else entry.timestamp
            regular &= entry.offset == len(part) - 1 and time == newest
            regular &= [m.offset for m in part] == list(range(len(part)))
    assert found.regular == regular


@given(SETS, st.sampled_from([0, 1]), st.sampled_from([None, 0, GZIP, SNAPPY, LZ4]))
def test_a_set_is_rebuilt_to_the_same_bytes(data: bytes, magic: int, codec: int | None) -> None:
    assert rebuild(data, magic, codec) == rebuild_objects(data, magic, codec)


@given(OLD_SETS, st.integers(0, 2**40))
def test_a_set_of_format_0_gets_the_same_bytes_from_its_offset_on(data: bytes, base: int) -> None:
    parts, offset = [], base
    for entry in message_set.iterate_entries(data):
        found = objects_of(entry, 0)
        parts.append(encode_objects([m._replace(offset=offset + i) for i, m in enumerate(found)], entry.attributes & 7))
        offset += len(found)
    found_set = validated(data)
    if not found_set.holds_offsets:
        return
    expected = b"".join(parts)
    numbered = run(assign_offsets(found_set, base))
    assert numbered.data == expected
    assert stamp(numbered, base)[0] == stamp(found_set, base)[0] == expected
    assert stamp(numbered, base + 1)[0] == stamp(found_set, base + 1)[0]


@given(SETS, st.integers(0, 2**40), st.none() | st.integers(0, 2**40), st.data())
def test_stored_sets_are_converted_and_selected_to_the_same_bytes(
    data: bytes, base: int, time: int | None, draw: st.DataObject
) -> None:
    try:
        stored = stamp(validated(rebuild(data, 1)), base, time)[0]
    except InvalidTimestamp:
        return
    entries_of = list(message_set.iterate_entries(stored))
    parts = [(entry.attributes & CODEC_MASK, objects_of(entry, 0)) for entry in entries_of]
    assert message_set.convert(stored, 0) == b"".join(encode_objects(found, codec) for codec, found in parts)
    assert list(message_set.iterate_stored(stored)) == message_set.decode(stored)
    kept = draw.draw(st.sets(st.integers(base, base + 12)))
    expected = []
    for (position, size, _), entry in zip(message_set.scan(stored), entries_of, strict=True):
        found = unwrap(entry) if entry.attributes & CODEC_MASK else [entry]
        left = [m for m in found if m.offset in kept]
        if len(left) == len(found):
            expected.append(stored[position : position + size])
        elif left:
            expected.append(wrap_objects(left, entry.attributes & CODEC_MASK))
    assert message_set.select(stored, lambda m: m.offset in kept) == b"".join(expected)


@given(SETS, st.data())
def test_a_damaged_message_in_a_wrapper_is_found_as_by_its_objects(data: bytes, draw: st.DataObject) -> None:
    entry = draw.draw(st.sampled_from(list(message_set.iterate_entries(data))))
    codec = entry.attributes & CODEC_MASK
    if not codec or entry.value is None:
        return
    inner = bytearray(compression.decompress(codec, entry.value, entry.magic, 10_000))
    bit = draw.draw(st.integers(0, len(inner) * 8 - 1))
    inner[bit // 8] ^= 1 << bit % 8
    damaged = entry._replace(value=compress(codec, bytes(inner), entry.magic))
    by_objects = problem_of(lambda: unwrap(damaged))
    assert problem_of(lambda: validated(encode(damaged))) == by_objects


def problem_of(check: Callable[[], object]) -> str | None:
    try:
        check()
    except CorruptMessage as error:
        return str(error)
    return None


@given(st.sampled_from([GZIP, SNAPPY, LZ4]), st.integers(0, 2**32), st.integers(0, 5 * COMPRESSION_PIECE // 2))
def test_compression_in_steps_gives_the_same_bytes(codec: int, seed: int, size: int) -> None:
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(1, 40)) for _ in range(rng.randint(1, 400))]
    data = b"".join(rng.choices(words, k=size // 20 + 1))[:size]
    assert run(compression.compress_in_steps(codec, bytearray(data), 1)) == compress(codec, data, 1)
