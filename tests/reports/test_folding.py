"""Rows that differ in numbers alone are one that opens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay.reports.model import fold, join_keys

TEXTS = st.lists(st.sampled_from(["a 1", "a 2", "a 10 at 3.5 s", "a 7 at 12.25 s", "b 1", "b", "a 1 b"]), max_size=12)


def test_fifty_partitions_are_one_row() -> None:
    rows = [f"__consumer_offsets-{number} lacks n{number % 3} since {number}.5 s" for number in range(50)]
    (one,) = fold(rows, str)
    assert (one.first, len(one.others)) == (rows[0], 49)


def test_two_are_read_as_quickly_unless_they_are_equal_and_other_words_are_another_row() -> None:
    folds = fold(["p-1 is gone", "p-2 is gone", "p-3 is late", "p-4 is late", "p-5 is late"], str)
    assert [(one.first, one.others) for one in folds] == [
        ("p-1 is gone", ()),
        ("p-2 is gone", ()),
        ("p-3 is late", ("p-4 is late", "p-5 is late")),
    ]
    assert [(one.first, one.others) for one in fold(["p-1 is gone", "p-1 is gone"], str)] == [
        ("p-1 is gone", ("p-1 is gone",))
    ]


@given(TEXTS)
def test_nothing_is_lost_or_comes_twice(texts: list[str]) -> None:
    items = list(enumerate(texts))
    found = [item for one in fold(items, lambda item: item[1]) for item in (one.first, *one.others)]
    assert sorted(found) == items


def test_some_keys_are_named() -> None:
    assert join_keys(["o-1", None, "o-1", "o-2"]) == "o-1, o-2"
    assert join_keys([f"o-{number}" for number in range(9)]) == "o-0, o-1, o-2 and 6 more"
    assert join_keys([None]) == ""
