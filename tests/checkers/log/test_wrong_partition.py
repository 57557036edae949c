"""A record that went to another partition is said to have gone there, by the findings on both sides."""

from __future__ import annotations

from pathlib import Path

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Finding

from helpers.judging import judge
from helpers.log_histories import Book, write


def found(folder: Path, book: Book) -> dict[str, Finding]:
    return {finding.anomaly: finding for finding in judge(write(folder, book.rows), Contract()).findings}


def astray(*, sent_twice: bool = False, sent: bool = True) -> Book:
    """Value 7 was acknowledged for orders-0, is missing there, and was read in orders-1."""
    book = Book()
    if sent:
        book.send([7], 0, (1_000, 1_010), process=1)
    book.send([8], 1, (1_020, 1_030), process=1)
    book.poll(0, [(1, 8)], 2, (2_000, 2_010), process=2)
    book.key = "orders-1"
    if sent_twice:
        book.send([7], 4, (1_100, 1_110), process=3)
    book.poll(4, [(4, 7)], 5, (3_001, 3_011), process=4)
    return book


def test_a_lost_write_says_where_its_value_was_read(tmp_path: Path) -> None:
    finding = found(tmp_path, astray())["lost-write"]
    assert "it was read in another partition, orders-1, at offset 4 (process 4 at 3.001 s)" in finding.claim
    assert finding.operations == (0, 2, 3)


def test_a_phantom_says_where_its_value_was_sent(tmp_path: Path) -> None:
    finding = found(tmp_path, astray())["phantom"]
    assert "no one sent it there: process 1 had sent it to another partition, orders-0, at 1.000 s" in finding.claim
    assert finding.operations == (3, 0)


def test_an_altered_record_says_the_same(tmp_path: Path) -> None:
    book = astray()
    for row in book.rows:
        row["timestamp"] = 5 if row["value"] is not None else None
    assert "but process 1 had sent it to another partition, orders-0" in found(tmp_path, book)["altered-record"].claim


def test_what_was_never_delivered_says_it_too(tmp_path: Path) -> None:
    book = Book()
    book.send([7], 0, (1_000, 1_010), process=1)
    book.poll(0, [], 0, (3_000, 3_010), phase="drain")
    book.key = "orders-1"
    book.poll(4, [(4, 7)], 5, (3_001, 3_011), process=4)
    assert "; it was read in another partition, orders-1, at offset 4" in found(tmp_path, book)["unseen"].claim


def test_the_same_number_sent_to_both_partitions_is_two_values(tmp_path: Path) -> None:
    findings = found(tmp_path, astray(sent_twice=True))
    assert findings["lost-write"].claim.endswith("and no one ever saw it.")
    assert "phantom" not in findings


def test_a_value_that_no_one_sent_anywhere_is_from_nowhere(tmp_path: Path) -> None:
    assert found(tmp_path, astray(sent=False))["phantom"].claim.endswith("but no one sent it.")


def test_an_earlier_topic_of_that_name_is_no_other_partition(tmp_path: Path) -> None:
    book = Book()
    book.send([7], 0, (1_000, 1_010), process=1)
    book.key = "orders#2-0"
    book.poll(0, [(0, 7)], 1, (3_000, 3_010), process=4)
    assert "process 1 had sent it to orders-0, an earlier topic's" in found(tmp_path, book)["phantom"].claim
