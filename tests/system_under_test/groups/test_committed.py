"""Committed offsets: what a fetch sees, and what may expire."""

from __future__ import annotations

from assay.system_under_test.groups.records import VALUE_VERSION, CommittedOffsets, OffsetRecord, OffsetValue


def record(offset: int, *, expires: int = 100) -> OffsetRecord:
    value = OffsetValue(version=VALUE_VERSION, offset=offset, metadata="", commit_timestamp=0, expire_timestamp=expires)
    return OffsetRecord("g", "orders", 0, value)


def test_an_offset_is_seen_when_its_commit_is_settled_and_not_when_it_failed() -> None:
    offsets = CommittedOffsets()
    assert not offsets
    offsets.begin([record(1)])
    assert offsets
    assert offsets.values == {}
    offsets.settle([record(1)], committed=True)
    offsets.begin([record(2)])
    offsets.settle([record(2)], committed=False)
    assert offsets.values["orders", 0].offset == 1


def test_an_offset_expires_after_its_time_unless_a_commit_is_open() -> None:
    offsets = CommittedOffsets()
    offsets.put(record(1, expires=100))
    assert offsets.list_expired(99) == []
    assert offsets.list_expired(100) == [("orders", 0)]
    offsets.begin([record(2)])
    assert offsets.list_expired(100) == []
    offsets.settle([record(2)], committed=False)
    gone = OffsetRecord("g", "orders", 0, None)
    offsets.begin([gone])
    offsets.settle([gone], committed=True)
    assert not offsets
