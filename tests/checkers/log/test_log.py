"""Each anomaly: a history made by hand that has it, and its nearest neighbour that has not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding
from assay.checkers.log.family import LOG, LOG_TABLES

from helpers.judging import opened
from helpers.log_histories import Book, write
from helpers.oracle import Judge

Make = Callable[[Book], None]


def found(folder: Path, *books: Book, contract: Contract | None = None) -> list[Finding]:
    """All findings; the oracle agrees on which anomalies there are in each book."""
    contract = contract or Contract()
    with opened(write(folder / "history", [row for book in books for row in book.rows])) as engine:
        register_contract(engine, contract)
        create_views(engine, (*LOG.views, *LOG_TABLES))
        reported = []
        for check in LOG.checks:
            create_views(engine, check.views)
            reported += read_findings(engine, check)
    for book in books:
        judge = Judge(book.rows, linearizable_ends=contract.linearizable_ends, compacted=book.key in contract.compacted)
        judge.lasting_tombstones = contract.lasting_tombstones
        mine = {finding.anomaly for finding in reported if finding.key == book.key}
        assert mine == {anomaly for anomaly, _ in judge.found()}
    return reported


def _same_offset_twice(book: Book) -> None:
    book.send([1], 5, (0, 10))
    book.poll(5, [(5, 2)], None, (20, 30), outcome="info")
    book.send([2], None, (1, None), outcome="info")


def _same_value_seen_twice(book: Book) -> None:
    book.send([1], 5, (0, 10))
    book.send([2], None, (1, None), outcome="info")
    book.poll(5, [(5, 1)], None, (20, 30), outcome="info")
    book.poll(6, [(6, 2)], 7, (40, 50), assignment=2)


def _at_two_offsets(book: Book) -> None:
    book.send([1], 5, (0, 10))
    book.poll(5, [(5, 1), (6, 1)], 7, (20, 30))


def _sent_again_after_info(book: Book) -> None:
    """The workload retried: each of the two sends may account for one offset."""
    book.send([1], None, (0, None), outcome="info")
    book.send([1], 6, (11, 15), process=1)
    book.poll(5, [(5, 1), (6, 1)], 7, (20, 30))


def _failed_and_read(book: Book) -> None:
    book.send([1], None, (0, 10), outcome="fail")
    book.poll(0, [(0, 1)], 1, (20, 30))


def _indeterminate_and_read(book: Book) -> None:
    book.send([1], None, (0, 10), outcome="fail")
    book.send([1], None, (11, None), outcome="info", process=1)
    book.poll(0, [(0, 1)], 1, (20, 30))


def _read_and_never_sent(book: Book) -> None:
    book.send([1], 0, (0, 10))
    book.poll(0, [(0, 1), (1, 77)], 2, (20, 30))


def _undecodable(book: Book) -> None:
    book.poll(0, [(0, None)], 1, (20, 30))


def _read_before_the_send_returned(book: Book) -> None:
    book.send([1], 0, (0, 10))
    book.send([77], None, (15, None), outcome="info", process=1)
    book.poll(0, [(0, 1), (1, 77)], 2, (20, 30))


def _passed_without_it(book: Book) -> None:
    book.send([1, 2, 3], 0, (0, 10))
    book.poll(0, [(0, 1), (2, 3)], 3, (20, 30))


def _not_passed(book: Book) -> None:
    """Short polls, one that failed and one that gave no end prove nothing about offset 1."""
    book.send([1, 2, 3], 0, (0, 10))
    book.poll(0, [(0, 1)], 1, (20, 30))
    book.poll(0, [(0, 1)], 3, (40, 50), outcome="fail", assignment=2)
    book.poll(0, [(0, 1)], None, (60, 70), assignment=3)
    book.poll(2, [(2, 3)], 3, (80, 90), assignment=4)


def _below_the_log_start(book: Book) -> None:
    _passed_without_it(book)
    book.add("start", (40, 50), 2)


def _cut_below_the_sentinel(book: Book) -> None:
    """The log was cut to two records and went on: value 4 lies behind the settled end."""
    book.send([1, 2, 3, 4], 0, (0, 10))
    book.send([9], 2, (20, 30), phase="sentinel", process=1)
    book.poll(0, [(0, 1), (1, 2), (2, 9)], 3, (40, 50), phase="drain")
    book.drained(3, (60, 70))


def _raced_with_the_sentinel(book: Book) -> None:
    """Value 4 may rightly land behind the settled end: it was acknowledged after the sentinel was called."""
    book.send([1, 2, 3], 0, (0, 10))
    book.send([9], 3, (20, 30), phase="sentinel", process=1)
    book.send([4], 4, (15, 25))
    book.poll(0, [(0, 1), (1, 2), (2, 3), (3, 9)], 4, (40, 50), phase="drain")
    book.drained(4, (60, 70))


def _seen_then_gone(book: Book) -> None:
    book.send([1], 0, (0, 10))
    book.send([2], None, (11, None), outcome="info")
    book.poll(0, [(0, 1), (1, 2)], 2, (20, 30))
    book.poll(0, [(0, 1)], 2, (40, 50), assignment=2)


def _never_seen_indeterminate(book: Book) -> None:
    book.send([1], 0, (0, 10))
    book.send([2], None, (11, None), outcome="info")
    book.poll(0, [(0, 1)], 2, (40, 50), assignment=2)


def _drain_stuck(book: Book) -> None:
    book.send([1, 2], 0, (0, 10))
    book.send([9], 2, (20, 30), phase="sentinel", process=1)
    book.poll(0, [(0, 1)], 1, (40, 50), phase="drain")


def _drain_not_begun(book: Book) -> None:
    book.send([1, 2], 0, (0, 10))
    book.poll(0, [(0, 1)], 1, (40, 50))


def _drain_goes_on_where_reading_stopped(book: Book) -> None:
    """It never asks for what was read before, so it does not owe it."""
    book.send([1, 2], 0, (0, 10))
    book.send([9], 2, (20, 30), phase="sentinel", process=1)
    book.poll(0, [(0, 1), (1, 2)], 2, (40, 50))
    book.poll(2, [(2, 9)], 3, (60, 70), phase="drain")


def _drain_skips_ahead(book: Book) -> None:
    book.send([1, 2], 0, (0, 10))
    book.send([9], 2, (20, 30), phase="sentinel", process=1)
    book.poll(1, [(1, 2)], 2, (60, 70), phase="drain")


def _later_send_lower(book: Book) -> None:
    book.send([1], 5, (0, 10))
    book.send([2], 4, (20, 30), process=1)


def _concurrent_send_lower(book: Book) -> None:
    book.send([1], 5, (0, 10))
    book.send([2], 4, (9, 30), process=1)


def _seen_makes_it_earlier(book: Book) -> None:
    """The send of 5 is indeterminate, but a poll that ended by 10 had shown its record."""
    book.send([1], None, (0, None), outcome="info")
    book.poll(5, [(5, 1)], 6, (5, 10))
    book.send([2], 4, (20, 30), process=1)


def _read_before_sent(book: Book) -> None:
    book.poll(5, [(5, 1)], 6, (0, 10))
    book.send([1], 5, (20, 30))


def _own_sends_fall(book: Book) -> None:
    """Two values of one operation, in two message sets, the first of which was retried and overtaken."""
    book.send([1, 2], 5, (0, 10))
    book.rows[0]["position"], book.rows[1]["position"] = 6, 5
    book.rows[1]["request"] = 77


def _others_sends_between(book: Book) -> None:
    book.send([1], 5, (0, 10))
    book.send([2], 9, (20, 30))
    book.send([3], 7, (12, 25), process=1)


def _set_split(book: Book) -> None:
    book.send([1, 2], 5, (0, 10))
    book.rows[1]["position"] = 7
    book.send([3], 6, (5, 15), process=1)


def _acknowledged_set_in_another_order(book: Book) -> None:
    book.send([1, 2, 3], None, (0, 10))
    book.poll(0, [(0, 1), (1, 3), (2, 2)], 3, (20, 30))


def _acknowledged_set_in_order(book: Book) -> None:
    book.send([1, 2, 3], None, (0, 10))
    book.poll(0, [(0, 1), (1, 2), (2, 3)], 3, (20, 30))


def _set_over_a_gap(book: Book) -> None:
    book.send([1, 2], 5, (0, 10))
    book.rows[1]["position"] = 7


def _poll_goes_back(book: Book) -> None:
    book.send([1, 2], 5, (0, 10))
    book.poll(5, [(5, 1), (6, 2)], 7, (20, 30))
    book.poll(7, [(6, 2)], 7, (40, 50))


def _poll_goes_back_after_seek(book: Book) -> None:
    book.send([1, 2], 5, (0, 10))
    book.poll(5, [(5, 1), (6, 2)], 7, (20, 30))
    book.add("seek", (31, 32), 6, assignment=2, process=9)
    book.poll(6, [(6, 2)], 7, (40, 50), assignment=2)


def _poll_skips(book: Book) -> None:
    book.send([1, 2, 3], 5, (0, 10))
    book.poll(5, [(5, 1)], 6, (20, 30))
    book.poll(7, [(7, 3)], 8, (40, 50))
    book.poll(6, [(6, 2)], 7, (60, 70), process=8)


def _poll_skips_a_raw_gap(book: Book) -> None:
    book.send([1], 5, (0, 10))
    book.send([3], 7, (11, 15))
    book.poll(5, [(5, 1), (7, 3)], 8, (20, 30))


def _skip_at_the_first(book: Book) -> None:
    book.send([1, 2], 5, (0, 10))
    book.poll(5, [(6, 2)], None, (20, 30))
    book.poll(5, [(5, 1)], 6, (40, 50), process=8)


def _failed_poll_between(book: Book) -> None:
    """The poll that broke off showed 6: no one knows where the consumer went on, and 6 was shown."""
    book.send([1, 2, 3], 5, (0, 10))
    book.poll(5, [(5, 1)], 6, (20, 30))
    book.poll(6, [(6, 2)], None, (31, 32), outcome="fail")
    book.poll(6, [(6, 2), (7, 3)], 8, (40, 50))


def _acknowledged_below_zero(book: Book) -> None:
    book.send([1], -1, (0, 10))
    book.send([2], 0, (20, 30), process=1)
    book.poll(0, [(0, 2)], 1, (40, 50))


def _indeterminate_below_zero(book: Book) -> None:
    book.send([1], -1, (0, 10), outcome="info")
    book.send([2], 0, (20, 30), process=1)
    book.poll(0, [(0, 2)], 1, (40, 50))


def _end_falls(book: Book) -> None:
    book.add("end", (0, 10), 8, leader_epoch=3)
    book.add("end", (20, 30), 7, leader_epoch=4)


def _end_falls_concurrently(book: Book) -> None:
    book.add("end", (0, 10), 8, leader_epoch=3)
    book.add("end", (9, 30), 7, leader_epoch=4)
    book.add("end", (40, 50), 7, leader_epoch=2)
    book.add("end", (60, 70), 5)


CASES: list[tuple[str, Make, set[str]]] = [
    ("inconsistent-offset", _same_offset_twice, {"inconsistent-offset"}),
    ("inconsistent-offset", _same_value_seen_twice, set()),
    ("duplicate", _at_two_offsets, {"duplicate"}),
    ("duplicate", _sent_again_after_info, set()),
    ("aborted-read", _failed_and_read, {"aborted-read"}),
    ("aborted-read", _indeterminate_and_read, set()),
    ("phantom", _read_and_never_sent, {"phantom"}),
    ("phantom", _undecodable, {"phantom"}),
    ("phantom", _read_before_the_send_returned, set()),
    ("lost-write", _passed_without_it, {"lost-write"}),
    ("lost-write", _not_passed, set()),
    ("lost-write", _below_the_log_start, set()),
    ("lost-write", _cut_below_the_sentinel, {"inconsistent-offset", "lost-write", "real-time-order"}),
    ("lost-write", _raced_with_the_sentinel, set()),
    ("lost-write", _acknowledged_below_zero, {"lost-write"}),
    ("lost-write", _indeterminate_below_zero, set()),
    ("vanished", _seen_then_gone, {"vanished"}),
    ("vanished", _never_seen_indeterminate, set()),
    ("unseen", _drain_stuck, {"unseen"}),
    ("unseen", _drain_not_begun, set()),
    ("unseen", _drain_goes_on_where_reading_stopped, set()),
    ("unseen", _drain_skips_ahead, {"unseen"}),
    ("real-time-order", _later_send_lower, {"real-time-order"}),
    ("real-time-order", _concurrent_send_lower, set()),
    ("real-time-order", _seen_makes_it_earlier, {"real-time-order"}),
    ("real-time-order", _read_before_sent, {"real-time-order"}),
    ("nonmonotonic-send", _own_sends_fall, {"nonmonotonic-send"}),
    ("nonmonotonic-send", _others_sends_between, set()),
    ("send-skip", _set_split, {"send-skip"}),
    ("send-skip", _set_over_a_gap, set()),
    ("send-skip", _acknowledged_set_in_another_order, {"send-skip"}),
    ("send-skip", _acknowledged_set_in_order, set()),
    ("nonmonotonic-poll", _poll_goes_back, {"nonmonotonic-poll"}),
    ("nonmonotonic-poll", _poll_goes_back_after_seek, set()),
    ("poll-skip", _poll_skips, {"poll-skip"}),
    ("poll-skip", _skip_at_the_first, {"poll-skip"}),
    ("poll-skip", _poll_skips_a_raw_gap, set()),
    ("poll-skip", _failed_poll_between, set()),
    ("high-watermark-regression", _end_falls, {"high-watermark-regression"}),
    ("high-watermark-regression", _end_falls_concurrently, set()),
]


@pytest.fixture(scope="module")
def found_of_all(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Finding]]:
    """The findings of all cases, judged in one run, by the name of the case."""
    books = []
    for index, (_, make, _) in enumerate(CASES):
        books.append(Book(key=make.__name__, next_op=100 * index))
        make(books[-1])
    reported: dict[str, list[Finding]] = {book.key: [] for book in books}
    for finding in found(tmp_path_factory.mktemp("cases"), *books):
        assert finding.key is not None
        reported[finding.key].append(finding)
    return reported


@pytest.mark.parametrize(("anomaly", "make", "expected"), CASES, ids=[f"{a}:{m.__name__[1:]}" for a, m, _ in CASES])
def test_by_hand(found_of_all: dict[str, list[Finding]], anomaly: str, make: Make, expected: set[str]) -> None:
    reported = found_of_all[make.__name__]
    assert {finding.anomaly for finding in reported} == expected
    for finding in reported:
        assert finding.operations
        assert finding.claim.endswith(".")
        assert "None" not in finding.claim
        assert "unknown process" not in finding.claim


def test_every_anomaly_has_a_case_with_it_and_one_without() -> None:
    assert {anomaly for anomaly, _, expected in CASES if anomaly in expected} == set(LOG.anomalies)
    assert {anomaly for anomaly, _, expected in CASES if anomaly not in expected} == set(LOG.anomalies)


def test_a_compacted_topic_must_keep_only_the_last_value_of_each_message_key(tmp_path: Path) -> None:
    book = Book()
    book.send([1], 0, (0, 10), message_key="a")
    book.send([2], 1, (11, 15), message_key="b")
    book.send([3], 2, (16, 20), message_key="a")
    book.poll(0, [(1, 2), (2, 3)], 3, (30, 40))
    compacted = Contract(compacted=(book.key,))
    assert not found(tmp_path / "first", book, contract=compacted)
    assert [finding.anomaly for finding in found(tmp_path / "plain", book)] == ["lost-write"]
    book.poll(0, [(2, 3)], 3, (50, 60), assignment=2)
    second = found(tmp_path / "second", book, contract=compacted)
    assert {finding.anomaly for finding in second} == {"vanished", "poll-skip"}


def test_another_send_of_a_value_may_have_superseded_the_last_one_of_its_message_key(tmp_path: Path) -> None:
    for resent, expected in ((True, set()), (False, {"lost-write"})):
        book = Book()
        book.send([1], None, (0, None), message_key="a", outcome="info")
        book.poll(0, [(0, 1)], 1, (5, 10))
        if resent:
            book.send([1], None, (11, None), message_key="a", outcome="info", process=1)
        book.send([2], 1, (12, 15), message_key="a", process=2)
        book.send([3], 2, (16, 20), message_key="b", process=2)
        book.poll(1, [(2, 3)], 3, (30, 40))
        reported = found(tmp_path / str(resent), book, contract=Contract(compacted=(book.key,)))
        assert {finding.anomaly for finding in reported} == expected
        if resent:
            book.poll(3, [(3, 1)], 4, (50, 60))
            assert not found(tmp_path / "seen", book, contract=Contract(compacted=(book.key,)))


def test_a_tombstone_may_go_as_well_unless_the_contract_has_it_stay_and_no_other_last_value(tmp_path: Path) -> None:
    for tombstone, expected in ((True, set()), (False, {"lost-write"})):
        book = Book()
        book.send([1], 0, (0, 10), message_key="a", timestamp=1_700_000_000_000)
        book.send([2], 1, (11, 15), message_key="b", timestamp=1_700_000_000_000)
        book.send([3], 2, (16, 20), message_key="a", tombstone=tombstone)
        book.poll(0, [(1, 2)], 3, (30, 40))
        reported = found(tmp_path / str(tombstone), book, contract=Contract(compacted=(book.key,)))
        assert {finding.anomaly for finding in reported} == expected
        lasting = Contract(compacted=(book.key,), lasting_tombstones=True)
        assert {one.anomaly for one in found(tmp_path / f"{tombstone}-stays", book, contract=lasting)} == {"lost-write"}


def test_end_reads_enter_rule_u_only_where_the_contract_declares_them_linearizable(tmp_path: Path) -> None:
    book = Book()
    book.send([1], 0, (0, 10))
    stale = book.add("end", (20, 30), 0)
    assert not found(tmp_path / "plain", book)
    (finding,) = found(tmp_path / "declared", book, contract=Contract(linearizable_ends=True))
    assert (finding.anomaly, finding.operations) == ("real-time-order", (0, stale))
    assert finding.claim == (
        f"The end of {book.key} was reported as 0 (process 0, which asked at 0.020 s), although offset 0 had been "
        "acknowledged 0.010 s earlier (process 0, by 0.010 s)."
    )


def test_a_claim_about_two_ends_says_where_the_log_ended(tmp_path: Path) -> None:
    book = Book()
    book.add("end", (0, 10), 5)
    book.add("end", (20, 30), 4)
    (finding,) = found(tmp_path, book, contract=Contract(linearizable_ends=True))
    assert finding.claim == (
        f"The end of {book.key} was reported as 4 (process 0, which asked at 0.020 s), although 5 had been "
        "reported 0.010 s earlier (process 0, by 0.010 s)."
    )


def test_a_claim_names_the_numbers(tmp_path: Path) -> None:
    book = Book(key="orders-3")
    book.send([17], 4711, (14_000, 14_203), process=12)
    book.poll(4700, [], 4750, (20_000, 20_114), process=3)
    (finding,) = found(tmp_path, book)
    assert finding.claim == (
        "value 17 at offset 4711 of orders-3 was acknowledged to process 12 at 14.203 s, but the poll by process 3 "
        "from 20.000 s to 20.114 s passed that offset without it, and no one ever saw it."
    )
    assert finding.operations == (0, 1)
    assert finding.time == 14_203_000_000
