"""The hash is Java's, known values of which every client of this kind relies on."""

from __future__ import annotations

import pytest

from assay.system_under_test.groups.terms import compute_java_hash, find_partition


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", 0x80000000),  # Integer.MIN_VALUE, of which there is no absolute value
        ("ü", 252),
        ("😀", 1772899),  # two UTF-16 units: 0xD83D * 31 + 0xDE00
    ],
)
def test_known_hashes(text: str, known: int) -> None:
    assert compute_java_hash(text) == known


def test_every_group_has_a_partition() -> None:
    assert find_partition("polygenelubricants", 50) == 0
    assert {find_partition(f"group-{number}", 8) for number in range(200)} == set(range(8))
