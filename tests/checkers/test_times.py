"""Times of one sentence have milliseconds, or microseconds for all where two of them tie."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.checkers.judging.contract import forbid
from assay.checkers.times import find_digits, format_seconds, shorten_times

from helpers.judging import judge
from helpers.log_histories import Book, Row, write


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((1_000_000_000, 2_000_000_000), "from 1.000 s to 2.000 s"),
        ((1_000_000_000, 1_001_000_000), "from 1.000 s to 1.001 s"),
        ((1_000_100_000, 1_000_200_000), "from 1.000100 s to 1.000200 s"),
        ((1_000_100_000, 1_000_100_000), "from 1.000 s to 1.000 s"),
        ((1_499_500_000, 1_499_600_000), "from 1.499500 s to 1.499600 s"),
        ((123_456_789_123_456_789, 1), "from 123456789.123 s to 0.000 s"),
    ],
)
def test_as_many_digits_as_tell_the_times_of_a_sentence_apart(times: tuple[int, int], expected: str) -> None:
    begin, end = times
    assert shorten_times(f"from {format_seconds(begin)} to {format_seconds(end)}") == expected


def test_other_numbers_stay_as_they_are() -> None:
    assert shorten_times("offset 4.000000001 of s, 0.5 s, 12 s") == "offset 4.000000001 of s, 0.5 s, 12 s"
    assert shorten_times("no time at all") == "no time at all"


def test_what_is_not_known_ties_with_nothing() -> None:
    assert find_digits([None, None, 1]) == find_digits([]) == 3


def late(unit: int) -> list[Row]:
    """Offset 0 is filled after offset 1; an operation takes a few units of time."""
    book = Book()
    book.send([1], 1, (0, 1))
    book.send([2], 0, (3, 4), process=1)
    return [row | {name: row[name] // 10**6 * unit + 10**9 for name in ("call", "ret")} for row in book.rows]


def test_a_claim_shows_microseconds_where_its_times_tie(tmp_path: Path) -> None:
    claims = [
        next(iter(judge(write(tmp_path / str(unit), late(unit)), forbid("real-time-order")).findings)).claim
        for unit in (10**6, 10**5)
    ]
    assert "was there by 1.001 s (process 0)" in claims[0]
    assert "began only at 1.003 s." in claims[0]
    assert "was there by 1.000100 s (process 0)" in claims[1]
    assert "began only at 1.000300 s." in claims[1]
