"""Tests the shares and their intervals."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.sensitivity import FILE, PlantedShare, Sensitivity, wilson_interval
from assay.harness.core.files import read_json_if_valid


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [
        (8, 10, 0.490, 0.943),
        (0, 30, 0.0, 0.114),
        (30, 30, 0.886, 1.0),
        (15, 30, 0.332, 0.668),
        (1, 1, 0.207, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_intervals_are_the_known_ones(hits: int, tries: int, low: float, high: float) -> None:
    assert wilson_interval(hits, tries) == pytest.approx((low, high), abs=0.0006)


@pytest.mark.parametrize("tries", [1, 7, 30])
def test_an_interval_has_its_share_and_lies_between_0_and_1(tries: int) -> None:
    for hits in range(tries + 1):
        low, high = wilson_interval(hits, tries)
        assert 0 <= low <= hits / tries <= high <= 1
        assert wilson_interval(tries - hits, tries) == pytest.approx((1 - high, 1 - low))


def share(caught: int, planted: int) -> PlantedShare:
    return PlantedShare(anomaly="set-lost", meaning="", claims=40, exposed=30, planted=planted, caught=caught,
                        planted_exposed=30, caught_exposed=30)  # fmt: skip


@pytest.mark.parametrize(
    ("caught", "planted", "words", "low"),
    [
        (29, 30, "97 % of 30 (83 to 99 %)", False),
        (8, 10, "80 % of 10 (49 to 94 %)", False),
        (23, 30, "77 % of 30 (59 to 88 %)", True),
        (0, 0, "no claims", False),
    ],
)
def test_a_share_is_shown_with_its_interval(caught: int, planted: int, words: str, low: bool) -> None:
    one = share(caught, planted)
    assert (str(one), one.is_low) == (words, low)


@pytest.mark.parametrize(
    ("changes", "readable"),
    [
        ({}, True),
        ({"planted": -5, "caught": -3}, False),
        ({"caught": 31}, False),
        ({"caught_exposed": 31}, False),
        ({"claims": 29}, False),
        ({"claims": 10**400, "planted": 10**400}, False),
        ({"found_as": {"set-lost": -1}}, False),
    ],
)
def test_numbers_that_contradict_each_other_are_damage(
    tmp_path: Path, changes: dict[str, object], readable: bool
) -> None:
    one = {**msgspec.to_builtins(share(29, 30)), **changes}
    whole = {"shares": [one], "not_planted": [], "seed": 0, "seconds": 1.0, "judging_seconds": 1.0, "copies": 60}
    (tmp_path / FILE).write_text(json.dumps(whole))
    assert (read_json_if_valid(tmp_path / FILE, Sensitivity) is not None) is readable
