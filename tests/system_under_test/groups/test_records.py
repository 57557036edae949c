"""Records written to the offsets topic come back from it, in Kafka's own bytes. Foreign records are recognised."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.groups.records import (
    GroupRecord,
    GroupValue,
    OffsetRecord,
    OffsetValue,
    StoredMember,
    UnknownRecord,
    encode_group,
    encode_offset,
    parse,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(-1, 2**63 - 1)
OFFSETS = st.builds(
    OffsetRecord,
    TEXTS,
    TEXTS,
    INT32,
    st.none()
    | st.builds(
        OffsetValue,
        version=st.just(1),
        offset=INT64,
        metadata=TEXTS,
        commit_timestamp=INT64,
        expire_timestamp=INT64,
    ),
)
MEMBERS = st.builds(
    StoredMember,
    member_id=TEXTS,
    client_id=TEXTS,
    client_host=TEXTS,
    rebalance_timeout=INT32,
    session_timeout=INT32,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
GROUPS = st.builds(
    GroupRecord,
    TEXTS,
    st.none()
    | st.builds(
        GroupValue,
        version=st.just(1),
        protocol_type=TEXTS,
        generation=INT32,
        protocol=st.none() | TEXTS,
        leader=st.none() | TEXTS,
        members=st.lists(MEMBERS, max_size=4),
    ),
)


@given(OFFSETS)
def test_offsets_come_back(record: OffsetRecord) -> None:
    assert parse(*encode_offset(record)) == record


@given(GROUPS)
def test_groups_come_back(record: GroupRecord) -> None:
    assert parse(*encode_group(record)) == record


def test_the_bytes_are_kafkas() -> None:
    value = OffsetValue(version=1, offset=7, metadata="m", commit_timestamp=2, expire_timestamp=3)
    key, data = encode_offset(OffsetRecord("g", "t", 5, value))
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000005")
    assert data == bytes.fromhex("0001 0000000000000007 0001 6d 0000000000000002 0000000000000003")
    assert encode_group(GroupRecord("g", None)) == (bytes.fromhex("0002 0001 67"), None)


@given(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_anything_else_is_refused_and_nothing_worse(key: bytes | None, value: bytes | None) -> None:
    with contextlib.suppress(UnknownRecord):
        parse(key, value)


@pytest.mark.parametrize("key", [b"\x00\x03\x00\x01g", b"", None, b"\x00"])
def test_a_later_version_and_no_version_at_all_are_refused(key: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        parse(key, None)
