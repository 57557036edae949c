"""Tests that one cause is one finding, and two causes are two: only what is about the same is shown beneath."""

from __future__ import annotations

from pathlib import Path

from assay.checkers.families import FAMILIES
from assay.checkers.judging.cause_grouping import group_by_cause
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Finding, Judgement
from assay.reports.evidence import EvidenceLines
from assay.reports.failure_text import FailureFooter, describe

from helpers.epoch_histories import began, mark, replica
from helpers.judging import judge
from helpers.log_histories import Book, Row, write

DECLARED = {check.anomaly: check.explained_by for family in FAMILIES for check in family.checks}


def reused(*, other: int = 0) -> Book:
    """Two sends were given offset 0; and at ``other``, if it is another offset, a value is lost."""
    book = Book()
    book.send([1], 0, (100, 110))
    book.send([2], 0, (200, 210))
    book.send([3, 4], 1, (220, 230))
    shown = [pair for pair in ((0, 2), (1, 3), (2, 4)) if pair[0] != other or other == 0]
    book.poll(0, shown, 3, (300, 310))
    return book


def judged(folder: Path, book: Book, contract: Contract | None = None, **others: list[Row]) -> Judgement:
    return judge(write(folder, book.rows, **others), contract or Contract())


def heads(judgement: Judgement) -> dict[str, str | None]:
    """By claim's anomaly and what it is about: the anomaly beneath which it is shown."""
    return {
        f"{finding.anomaly} {finding.about[0]}": None
        if finding.same_cause_as is None
        else judgement.findings[finding.same_cause_as].anomaly
        for finding in judgement.findings
        if finding.about
    }


def test_a_reused_offset_is_one_finding(tmp_path: Path) -> None:
    judgement = judged(tmp_path, reused())
    assert heads(judgement)["inconsistent-offset offset 0 of orders-0"] is None
    assert heads(judgement)["lost-write offset 0 of orders-0"] == "inconsistent-offset"
    assert judgement.anomalies["lost-write"] == 1, "it counts as before"
    text = describe(judgement, EvidenceLines(), FailureFooter())
    assert "  also seen as lost-write: value 1 at offset 0" in text
    assert "FAIL lost-write" not in text


def test_a_loss_at_another_offset_is_a_finding_of_its_own(tmp_path: Path) -> None:
    judgement = judged(tmp_path, reused(other=1))
    assert heads(judgement)["lost-write offset 0 of orders-0"] == "inconsistent-offset"
    assert heads(judgement)["lost-write offset 1 of orders-0"] is None
    assert "FAIL lost-write: value 3 at offset 1" in describe(judgement, EvidenceLines(), FailureFooter())


def test_a_record_that_cannot_be_decoded_is_one_finding(tmp_path: Path) -> None:
    book = Book()
    book.send([1], 0, (100, 110))
    book.poll(0, [(0, None)], 1, (300, 310))
    found = heads(judged(tmp_path, book))
    assert found["inconsistent-offset offset 0 of orders-0"] is None
    assert found["lost-write offset 0 of orders-0"] == "inconsistent-offset"
    assert found["phantom offset 0 of orders-0"] == "inconsistent-offset"


def test_a_forbidden_finding_is_never_beneath_a_tolerated_one(tmp_path: Path) -> None:
    judgement = judged(tmp_path, reused(), Contract().tolerate("inconsistent-offset"))
    assert heads(judgement)["lost-write offset 0 of orders-0"] is None


def finding(anomaly: str, *about: str) -> Finding:
    return Finding(anomaly=anomaly, key="k", claim=f"{anomaly} is wrong", about=about)


def test_names_alone_never_join_two_findings() -> None:
    pairs = [
        ("phantom", "altered-record"),
        ("nonmonotonic-poll", "position-jump"),
        ("end-too-low", "high-watermark-regression"),
        ("unseen", "stuck-reader"),
        ("unsettled-group", "stuck-reader"),
    ]
    for lesser, better in pairs:
        apart = group_by_cause([finding(better, "this"), finding(lesser, "that")], DECLARED, lambda _: True)
        assert [one.same_cause_as for one in apart] == [None, None]
        same = group_by_cause([finding(lesser, "this"), finding(better, "this")], DECLARED, lambda _: True)
        assert [one.same_cause_as for one in same] == [1, None]


def test_what_is_beneath_another_leads_to_the_first() -> None:
    found = [finding("unseen", "x"), finding("unsettled-group", "x", "y"), finding("stuck-reader", "y")]
    assert [one.same_cause_as for one in group_by_cause(found, DECLARED, lambda _: True)] == [2, 2, None]


def test_declarations_name_checks_and_go_round_in_no_circle() -> None:
    assert {better for names in DECLARED.values() for better in names} <= DECLARED.keys()

    def deeper(anomaly: str, seen: tuple[str, ...]) -> None:
        assert anomaly not in seen, seen
        for better in DECLARED[anomaly]:
            deeper(better, (*seen, anomaly))

    for anomaly in DECLARED:
        deeper(anomaly, ())


def test_a_poll_that_began_too_low_is_one_finding(tmp_path: Path) -> None:
    book = Book()
    book.send([1, 2], 0, (100, 110))
    book.poll(0, [(0, 1), (1, 2)], 2, (200, 210))
    book.poll(0, [(0, 1), (1, 2)], 2, (300, 310))
    judgement = judged(tmp_path, book)
    under = {
        one.anomaly: judgement.findings[one.same_cause_as].anomaly
        for one in judgement.findings
        if one.same_cause_as is not None
    }
    assert under == {"nonmonotonic-poll": "position-jump"}


KEY = "orders-0"


def held(**lacking: set[int]) -> list[Row]:
    """Replicas of a log of four records, each without these offsets."""
    rows = [row for node in ("n1", "n2", "n3") for row in replica(node, {0: 0}, 0, 4, key=KEY)]
    return [
        row
        for row in rows
        if row.get("high_watermark") is not None or row["position"] not in lacking.get(row["node"], ())
    ]


def lost_at(offset: int) -> Book:
    book = Book()
    book.send([0, 1, 2, 3], 0, (100, 110))
    book.poll(0, [(place, place) for place in range(4) if place != offset], 4, (300, 310))
    return book


def shown(judgement: Judgement, *anomalies: str) -> list[tuple[str, str | None]]:
    """In order: an anomaly, and the one beneath which it is shown."""
    return [
        (one.anomaly, None if one.same_cause_as is None else judgement.findings[one.same_cause_as].anomaly)
        for one in judgement.findings
        if one.anomaly in anomalies
    ]


def test_a_record_that_several_replicas_lack_is_one_finding(tmp_path: Path) -> None:
    judgement = judged(tmp_path, lost_at(4), replicas=held(n1={1, 2}, n2={1, 2}))
    assert shown(judgement, "replica-hole") == [("replica-hole", None), ("replica-hole", "replica-hole")]
    assert judgement.anomalies["replica-hole"] == 2, "they count as before"
    text = describe(judgement, EvidenceLines(), FailureFooter())
    assert text.count("FAIL replica-hole") == 1
    assert "and 1 more like it, of the same cause" in text


def test_what_one_replica_lacks_and_what_another_does_are_two(tmp_path: Path) -> None:
    for name, second in (("apart", {3}), ("overlapping", {2, 3}), ("larger", {0, 1, 2})):
        judgement = judged(tmp_path / name, lost_at(4), replicas=held(n1={1, 2}, n2=second))
        assert shown(judgement, "replica-hole") == [("replica-hole", None)] * 2, name


def test_holes_at_a_lost_record_are_beneath_it_and_those_elsewhere_are_not(tmp_path: Path) -> None:
    same = judged(tmp_path / "same", lost_at(1), replicas=held(n1={1}, n2={1, 2}))
    assert shown(same, "lost-write") == [("lost-write", None)]
    assert shown(same, "replica-hole") == [("replica-hole", "lost-write")] * 2
    other = judged(tmp_path / "other", lost_at(3), replicas=held(n1={1}, n2={1, 2}))
    assert shown(other, "replica-hole") == [("replica-hole", None)] * 2
    torn = judged(tmp_path / "torn", lost_at(1), replicas=held(n1={1, 3}))
    assert shown(torn, "replica-hole") == [("replica-hole", None)], "what lies in between is there: two causes, perhaps"


def replaced(node: str, offset: int) -> list[Row]:
    """As ``held``, with another record on this node."""
    return [
        row | {"value": 77, "crc": 7} if (row["node"], row["position"]) == (node, offset) else row for row in held()
    ]


def test_replicas_that_differ_at_a_lost_record_are_beneath_it(tmp_path: Path) -> None:
    same = judged(tmp_path / "same", lost_at(2), replicas=replaced("n2", 2))
    assert shown(same, "replica-divergence") == [("replica-divergence", "lost-write")]
    other = judged(tmp_path / "other", lost_at(2), replicas=replaced("n2", 1))
    assert shown(other, "replica-divergence") == [("replica-divergence", None)]


def led(*begins: Row) -> list[Row]:
    """Offset 3 was announced as committed, and then others led, who have less."""
    return [row | {"key": KEY} for row in (began(1, 3, 0, 0), mark(2, 3, 4), *begins)]


def test_a_leader_that_lacks_a_record_is_seen_again_in_later_epochs_on_disks_and_by_clients(tmp_path: Path) -> None:
    twice = led(began(3, 4, 2, 2, node="n2"), began(4, 5, 3, 2, node="n3"))
    judgement = judged(tmp_path / "led", lost_at(4), events=twice, replicas=replaced("n2", 3))
    one = "leader-completeness"
    assert shown(judgement, one) == [(one, None), (one, one)]
    assert shown(judgement, "replica-divergence") == [("replica-divergence", one)]
    by_clients = judged(tmp_path / "clients", lost_at(3), events=twice, replicas=replaced("n2", 3))
    assert {head for _, head in shown(by_clients, one, "replica-divergence")} == {"lost-write"}
    elsewhere = judged(tmp_path / "elsewhere", lost_at(1), events=twice, replicas=replaced("n2", 1))
    assert shown(elsewhere, one) == [(one, None), (one, one)]
    assert shown(elsewhere, "replica-divergence") == [("replica-divergence", "lost-write")]


def test_what_was_committed_again_and_lost_again_is_two(tmp_path: Path) -> None:
    again = led(began(3, 4, 2, 2, node="n2"), mark(4, 4, 4), began(5, 5, 3, 2, node="n3"))
    one = "leader-completeness"
    assert shown(judged(tmp_path, lost_at(4), events=again), one) == [(one, None)] * 2


def test_epochs_that_begin_at_different_offsets_are_beneath_the_record_that_differs_there(tmp_path: Path) -> None:
    def disks(differing: int) -> list[Row]:
        rows = [*replica("n1", {0: 0, 1: 2}, 0, 4, key=KEY), *replica("n2", {0: 0, 1: 3}, 0, 4, key=KEY)]
        return [row | {"crc": 7} if (row["node"], row["position"]) == ("n2", differing) else row for row in rows]

    name = "epoch-history-divergence"
    same = judged(tmp_path / "same", lost_at(4), replicas=disks(2))
    assert shown(same, name) == [(name, "replica-divergence")]
    other = judged(tmp_path / "other", lost_at(4), replicas=disks(1))
    assert shown(other, name) == [(name, None)]
