"""Compact tables of the invariants equal dictionaries, for offsets in any order."""

from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.invariants.agreement import _Entry, _ReferenceLog
from assay.system_under_test.invariants.copies import CrcTable, ReplicaCopy, _find_changed_epoch

OFFSETS = st.integers(0, 30)
ENTRIES = st.builds(_Entry, st.integers(0, 2**32 - 1), st.none() | st.integers(0, 2), st.sampled_from(["n1", "n2"]))


@given(st.lists(st.tuples(OFFSETS, st.integers(0, 2**32 - 1))), OFFSETS, OFFSETS)
def test_table_of_crcs_equals_a_dictionary(records: list[tuple[int, int]], low: int, high: int) -> None:
    table, expected = CrcTable(), dict(records)
    for offset, crc in records:
        table[offset] = crc
    assert {offset: table.find(offset) for offset in range(31)} == {
        offset: expected.get(offset) for offset in range(31)
    }
    assert table.between(low, high) == {offset: crc for offset, crc in expected.items() if low <= offset < high}


@given(st.lists(st.tuples(OFFSETS, ENTRIES)))
def test_a_reference_log_keeps_the_first_record_of_each_offset(records: list[tuple[int, _Entry]]) -> None:
    reference, expected = _ReferenceLog(), dict[int, _Entry]()
    for offset, entry in records:
        assert reference.enter(offset, entry) == expected.setdefault(offset, entry)


CRCS = st.integers(0, 2)


def make_table(records: list[tuple[int, int]]) -> CrcTable:
    table = CrcTable()
    for offset, crc in records:
        table[offset] = crc
    return table


@given(st.lists(st.tuples(OFFSETS, CRCS)), st.lists(st.tuples(OFFSETS, CRCS)), st.integers(0, 30), st.booleans())
def test_no_record_before_the_difference_of_two_tables_differs(
    records: list[tuple[int, int]], others: list[tuple[int, int]], shared: int, rising: bool
) -> None:
    if rising:
        records, others = sorted(dict(records).items()), sorted(dict(others).items())
    others = [*records[:shared], *others]
    if rising:
        others = sorted(dict(others).items())
    one, other = make_table(records), make_table(others)
    differing = [offset for offset in range(31) if one.find(offset) != other.find(offset)]
    found = one.find_difference(other)
    assert found == other.find_difference(one)
    if differing:
        assert found is not None
        assert found <= differing[0]
    if rising:
        assert found == (differing[0] if differing else None)


HISTORIES = st.lists(st.tuples(OFFSETS, st.integers(0, 5)), unique=True, max_size=6).map(sorted)


def epoch_at(history: list[tuple[int, int]], offset: int) -> int | None:
    return max(((start, epoch) for start, epoch in history if start <= offset), default=(0, None))[1]


@given(HISTORIES, HISTORIES, st.integers(0, 6))
def test_epochs_before_the_change_of_a_history_are_the_same(
    former: list[tuple[int, int]], added: list[tuple[int, int]], kept: int
) -> None:
    current = sorted({*former[:kept], *added})
    copy = ReplicaCopy(None, "orders-0")
    copy._history = current
    assert [copy.epoch(offset) for offset in range(32)] == [epoch_at(current, offset) for offset in range(32)]
    changed = _find_changed_epoch(former, current)
    if current[: len(former)] == former:
        assert changed > 31
    else:
        assert [epoch_at(former, offset) for offset in range(changed)] == [
            epoch_at(current, offset) for offset in range(changed)
        ]
