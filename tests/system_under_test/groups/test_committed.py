"""Committed offsets: what a fetch sees, and what may expire."""

from __future__ import annotations

from assay.system_under_test.clocks import Instant
from assay.system_under_test.groups.records import VALUE_VERSION, CommittedOffsets, OffsetRecord, OffsetValue

NOW = Instant(0, 5_000)


def at(milliseconds: int) -> Instant:
    """The moment this long after ``NOW`` on a machine whose clock is right."""
    return Instant(NOW.wall_ms + milliseconds, NOW.monotonic_ms + milliseconds)


def record(offset: int, *, expires: int = 100) -> OffsetRecord:
    value = OffsetValue(version=VALUE_VERSION, offset=offset, metadata="", commit_timestamp=0, expire_timestamp=expires)
    return OffsetRecord("g", "orders", 0, value)


def test_an_offset_is_seen_when_its_commit_is_settled_and_not_when_it_failed() -> None:
    offsets = CommittedOffsets()
    assert not offsets
    offsets.begin([record(1)])
    assert offsets
    assert offsets.values == {}
    offsets.resolve([record(1)], NOW)
    offsets.begin([record(2)])
    offsets.resolve([record(2)], None)
    assert offsets.values["orders", 0].offset == 1


def test_an_offset_expires_after_its_time_unless_a_commit_is_open() -> None:
    offsets = CommittedOffsets()
    offsets.put(record(1, expires=100), NOW)
    assert offsets.list_expired(at(99)) == []
    assert offsets.list_expired(at(100)) == [("orders", 0)]
    offsets.begin([record(2)])
    assert offsets.list_expired(at(100)) == []
    offsets.resolve([record(2)], None)
    gone = OffsetRecord("g", "orders", 0, None)
    offsets.begin([gone])
    offsets.resolve([gone], NOW)
    assert not offsets


def test_a_step_of_the_wall_clock_alone_expires_no_offset() -> None:
    offsets, key = CommittedOffsets(), ("orders", 0)
    offsets.put(record(1), NOW)
    assert offsets.list_expired(Instant(1_000_000, NOW.monotonic_ms + 99)) == [], "a step forward"
    assert offsets.list_expired(Instant(1_000_000, NOW.monotonic_ms + 100)) == [key]
    assert offsets.list_expired(Instant(99, NOW.monotonic_ms + 1000)) == [], "a step back only keeps longer"


def test_a_loaded_offset_is_kept_for_the_time_that_remains_but_at_most_for_its_retention() -> None:
    for loaded, left in ((40, 60), (100, 0), (1_000, 0), (-1_000_000, 100)):
        offsets = CommittedOffsets()
        offsets.put(record(1), Instant(loaded, NOW.monotonic_ms))
        assert offsets.list_expired(Instant(1_000_000, NOW.monotonic_ms + left - 1)) == [] or not left
        assert offsets.list_expired(Instant(1_000_000, NOW.monotonic_ms + left)) == [("orders", 0)]
