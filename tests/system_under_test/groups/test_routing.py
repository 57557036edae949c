"""The hash is Java's, known values of which every client of this kind relies on."""

from __future__ import annotations

import pytest

from assay.system_under_test.groups.terms import java_hash, partition_of


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
    assert java_hash(text) == known


def test_every_group_has_a_partition() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    assert {partition_of(f"group-{number}", 8) for number in range(200)} == set(range(8))
