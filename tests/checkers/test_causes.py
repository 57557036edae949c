"""One cause is one finding, and two causes are two: only what is about the same is shown beneath."""

from __future__ import annotations

from pathlib import Path

from assay.checkers.causes import with_causes
from assay.checkers.contract import Contract
from assay.checkers.families import FAMILIES
from assay.checkers.verdict import Finding, Judgement
from assay.reports.evidence import EvidenceLines
from assay.reports.failure_text import Ending, describe

from helpers.judging import judge
from helpers.log_histories import Book, write

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


def judged(folder: Path, book: Book, contract: Contract | None = None) -> Judgement:
    return judge(write(folder, book.rows), contract or Contract())


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
    text = describe(judgement, EvidenceLines(), Ending())
    assert "  also seen as lost-write: value 1 at offset 0" in text
    assert "FAIL lost-write" not in text


def test_a_loss_at_another_offset_is_a_finding_of_its_own(tmp_path: Path) -> None:
    judgement = judged(tmp_path, reused(other=1))
    assert heads(judgement)["lost-write offset 0 of orders-0"] == "inconsistent-offset"
    assert heads(judgement)["lost-write offset 1 of orders-0"] is None
    assert "FAIL lost-write: value 3 at offset 1" in describe(judgement, EvidenceLines(), Ending())


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
        apart = with_causes([finding(better, "this"), finding(lesser, "that")], DECLARED, lambda _: True)
        assert [one.same_cause_as for one in apart] == [None, None]
        same = with_causes([finding(lesser, "this"), finding(better, "this")], DECLARED, lambda _: True)
        assert [one.same_cause_as for one in same] == [1, None]


def test_what_is_beneath_another_leads_to_the_first() -> None:
    found = [finding("unseen", "x"), finding("unsettled-group", "x", "y"), finding("stuck-reader", "y")]
    assert [one.same_cause_as for one in with_causes(found, DECLARED, lambda _: True)] == [2, 2, None]


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
