"""States are words about what happened, coarse enough to come again and fine enough to tell runs apart."""

from __future__ import annotations

import pytest

from assay.harness.search.coverage_features import to_bucket, to_time_bucket


@pytest.mark.parametrize(
    ("number", "is_in"), [(0, 0), (7, 7), (8, 8), (15, 8), (16, 16), (1000, 512), (-1, -1), (-5, -4)]
)
def test_small_numbers_are_themselves_and_others_powers_of_two(number: int, is_in: int) -> None:
    assert to_bucket(number) == is_in


@pytest.mark.parametrize(
    ("nanoseconds", "is_in"), [(0, 0), (999_999, 0), (1_000_000, 2), (5_200_000, 8), (900_000_000, 1024)]
)
def test_times_are_powers_of_two_of_milliseconds(nanoseconds: int, is_in: int) -> None:
    assert to_time_bucket(nanoseconds) == is_in
