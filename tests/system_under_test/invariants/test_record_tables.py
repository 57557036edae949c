"""Compact tables of the invariants equal dictionaries, for offsets in any order."""

from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.invariants.agreement import _Entry, _ReferenceLog
from assay.system_under_test.invariants.copies import CrcTable

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
