"""Laws of every message in every version: it survives the wire, and no other bytes do harm."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.system_under_test.protocol.api import APIS, build_api_table
from assay.system_under_test.protocol.compiler import decode, encode, encode_bytes
from assay.system_under_test.protocol.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from assay.system_under_test.protocol.internal import INTERNAL_APIS
from assay.system_under_test.protocol.metadata import MetadataRequest, find_requested_topics
from assay.system_under_test.protocol.schema import (
    Array,
    Blob,
    Fixed,
    Int8,
    Int32,
    ProtocolError,
    RecordsType,
    Text,
    is_message,
    message,
    read_table,
    wire,
)

from helpers.examples import some_of

MESSAGES = [
    (cls, version)
    for api in (*APIS.values(), *INTERNAL_APIS.values())
    for cls in (api.request, api.response)
    for version in range(api.min_version, api.max_version + 1)
]


def values(type_: Any, version: int) -> st.SearchStrategy[Any]:
    match type_:
        case Fixed(code="?"):
            return st.booleans()
        case Fixed(size=size):
            return st.integers(-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1)
        case Text(nullable=nullable):
            text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
            return st.none() | text if nullable else text
        case Blob(nullable=nullable):
            return st.none() | st.binary(max_size=6) if nullable else st.binary(max_size=6)
        case RecordsType():
            return st.binary(max_size=20)
        case Array(element=element, nullable=nullable):
            elements = st.lists(values(element, version), max_size=3)
            return st.none() | elements if nullable else elements
        case _:
            return messages(type_, version)


def messages(cls: Any, version: int) -> st.SearchStrategy[Any]:
    """Messages whose fields outside the version have their defaults, as decoding leaves them."""
    present = {row.name: values(row.type, version) for row in read_table(cls) if row.exists_in(version)}
    return st.builds(cls, **present)


any_message = st.sampled_from(MESSAGES).flatmap(lambda kind: st.tuples(st.just(kind), messages(*kind)))


@settings(max_examples=some_of(150), deadline=None)
@given(any_message)
def test_every_message_survives_the_wire_in_every_version(sample: Any) -> None:
    (cls, version), value = sample
    assert decode(cls, version, encode_bytes(value, version)) == value


@settings(max_examples=some_of(100), deadline=None)
@given(any_message, st.data())
def test_a_truncated_message_is_refused(sample: Any, data: st.DataObject) -> None:
    (cls, version), value = sample
    wire_bytes = encode_bytes(value, version)
    if wire_bytes:
        cut = data.draw(st.integers(0, len(wire_bytes) - 1))
        with pytest.raises(ProtocolError):
            decode(cls, version, wire_bytes[:cut])


@settings(max_examples=some_of(100), deadline=None)
@given(any_message, st.binary(min_size=1, max_size=9))
def test_bytes_left_over_are_refused(sample: Any, more: bytes) -> None:
    (cls, version), value = sample
    with pytest.raises(ProtocolError):
        decode(cls, version, encode_bytes(value, version) + more)


@settings(max_examples=some_of(150), deadline=None)
@given(any_message, st.data())
def test_mutated_bytes_raise_nothing_but_protocol_error(sample: Any, data: st.DataObject) -> None:
    (cls, version), value = sample
    wire_bytes = bytearray(encode_bytes(value, version))
    for _ in range(data.draw(st.integers(1, 4))):
        if wire_bytes:
            wire_bytes[data.draw(st.integers(0, len(wire_bytes) - 1))] = data.draw(
                st.sampled_from([0, 1, 127, 128, 255])
            )
    try:
        decoded = decode(cls, version, bytes(wire_bytes))
    except ProtocolError:
        return
    assert decode(cls, version, encode_bytes(decoded, version)) == decoded


@settings(max_examples=some_of(150), deadline=None)
@given(st.sampled_from(MESSAGES), st.binary(max_size=60))
def test_random_bytes_raise_nothing_but_protocol_error(kind: Any, garbage: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode(*kind, garbage)


@message
class Matrix:
    rows: list[list[Int32]]
    names: list[str] | None


@message
class Nested:
    first: Matrix
    small: Int8


@pytest.mark.parametrize("cls", [Matrix, MetadataRequest, FetchResponse])
@pytest.mark.parametrize("count", [2**31 - 1, 10_000_000, -2, -(2**31)])
def test_an_absurd_count_is_refused_before_memory_is_taken_for_it(cls: type, count: int) -> None:
    data = struct.pack(">i", count) + bytes(64)
    decode(MetadataRequest, 1, encode_bytes(MetadataRequest(topics=[]), 1))  # compiled outside the measurement
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(cls, 0, data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_messages_nest_directly_and_in_lists_of_lists() -> None:
    value = Nested(first=Matrix(rows=[[1, 2], [], [3]], names=None), small=-1)
    assert decode(Nested, 0, encode_bytes(value, 0)) == value


def test_invalid_utf_8_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="MetadataRequest v1"):
        decode(MetadataRequest, 1, struct.pack(">ih", 1, 2) + b"\xff\xff")


@pytest.mark.parametrize("topic", ["x" * 40_000, "\ud800"])
def test_a_value_that_does_not_fit_is_a_protocol_error(topic: str) -> None:
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        encode_bytes(MetadataRequest(topics=[topic]), 0)


class Stored:
    """A slice that must not be read while a response is encoded."""

    size = 5

    def read(self) -> bytes:
        raise AssertionError("read")


def test_stored_records_stay_unread_between_the_chunks() -> None:
    def response(records: Any) -> FetchResponse:
        partition = FetchPartitionResponse(partition=0, error_code=0, high_watermark=9, records=records)
        return FetchResponse(topics=[FetchTopicResponse(topic="t", partitions=[partition])])

    stored = Stored()
    chunks = encode(response(stored), 3)
    assert stored in chunks
    sent = b"".join(b"12345" if chunk is stored else chunk for chunk in chunks)
    assert sent == encode_bytes(response(b"12345"), 3)


def test_null_records_are_read_as_empty() -> None:
    empty = FetchPartitionResponse(partition=0, error_code=0, high_watermark=9, records=b"")
    assert decode(FetchPartitionResponse, 0, encode_bytes(empty, 0)[:-4] + b"\xff\xff\xff\xff") == empty


def test_a_field_that_some_version_lacks_needs_a_default() -> None:
    with pytest.raises(TypeError, match="default"):
        wire(since=1)  # type: ignore[call-arg]


def test_a_field_without_a_wire_type_is_refused() -> None:
    @message
    class Wrong:
        field: int

    with pytest.raises(TypeError, match="no wire type"):
        encode(Wrong(field=1), 0)


def test_default_lists_are_not_shared() -> None:
    @message
    class Listed:
        numbers: list[Int32] = wire(since=1, default=[])

    one, other = decode(Listed, 0, b""), Listed()
    one.numbers.append(1)
    assert decode(Listed, 0, b"").numbers == other.numbers == []


def test_two_requests_with_one_key_are_refused() -> None:
    with pytest.raises(ValueError, match="both have key 3"):
        build_api_table([MetadataRequest, MetadataRequest])


def test_all_topics_are_null_since_version_1_and_an_empty_list_before() -> None:
    assert find_requested_topics(MetadataRequest(topics=[]), 0) is None
    assert find_requested_topics(MetadataRequest(topics=[]), 1) == []
    assert find_requested_topics(MetadataRequest(topics=None), 1) is None


def test_every_public_message_is_a_table() -> None:
    assert [api.key for api in APIS.values()] == [*range(17), 18, 19, 20]
    assert all(is_message(api.request) and is_message(api.response) for api in APIS.values())
