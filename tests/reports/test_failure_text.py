"""The failure text: short whatever was found, with what a reader needs next."""

from __future__ import annotations

import shlex
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.judging.verdict import LONGEST_LIST, MOST_OPERATIONS, Finding, Judgement, Verdict
from assay.reports.failure_text import MAX_LINES, MAX_WIDTH, EvidenceLines, FailureFooter, describe

ENDING = FailureFooter(seed=7, command="pytest t --seed=7", report="store/latest/report.html", digest="ab" * 32)


def judgement(verdict: Verdict, *findings: Finding, unknown: tuple[str, ...] = (), tolerated: int = 0) -> Judgement:
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.anomaly] = counts.get(finding.anomaly, 0) + 1
    if tolerated:
        counts["duplicate"] = tolerated
    return Judgement(
        verdict=verdict, anomalies=counts, forbidden=("lost-write", "vanished"), tolerated=("duplicate",),
        findings=findings, examined=(), unknown=unknown, operations=100, effects=200, seconds=1.0, engine="duckdb",
    )  # fmt: skip


def finding(anomaly: str = "lost-write", operations: int = 2, claim: str = "offset 4 is gone") -> Finding:
    return Finding(anomaly=anomaly, key="orders-3", claim=claim, operations=tuple(range(operations)), faults=(1,),
                   leader="n2", epoch=3)  # fmt: skip


def test_a_failure_shows_claim_evidence_faults_command_and_report() -> None:
    text = describe(
        judgement(Verdict.FAIL, finding(), tolerated=3),
        EvidenceLines(operations={0: "op 0: send", 1: "op 1: poll"}, faults={1: "kill n2 from 2.0 s"}),
        ENDING,
    )
    lines = text.splitlines()
    assert lines[0] == "FAIL lost-write: offset 4 is gone"
    assert "  op 0: send" in lines
    assert "  op 1: poll" in lines
    assert lines[lines.index("  faults in force:") + 1] == "    kill n2 from 2.0 s"
    assert "  leader then: n2, epoch 3" in lines
    assert "tolerated: duplicate 3" in lines
    assert lines[-3:] == ["seed: 7, history abababababababab", "repeat: pytest t --seed=7",
                          "report: store/latest/report.html"]  # fmt: skip


@pytest.mark.parametrize(
    ("named", "omitted", "rest"),
    [
        (LONGEST_LIST, 0, None),
        (LONGEST_LIST + 1, 0, "  and 1 more operation, 1 of them in the report"),
        (MOST_OPERATIONS, 5, f"  and {MOST_OPERATIONS - LONGEST_LIST + 5} more operations, "
         f"{MOST_OPERATIONS - LONGEST_LIST} of them in the report"),
        (2, 5, "  and 5 more operations, not listed"),
    ],
)  # fmt: skip
def test_no_list_of_operations_is_longer_than_a_person_reads(named: int, omitted: int, rest: str | None) -> None:
    found = msgspec.structs.replace(finding(operations=named), omitted=omitted)
    lines = describe(judgement(Verdict.FAIL, found), EvidenceLines(), ENDING).splitlines()
    assert sum(line.startswith("  operation ") for line in lines) == min(named, LONGEST_LIST)
    assert [line for line in lines if " more operation" in line] == ([] if rest is None else [rest])


def test_unknown_begins_so_and_says_why() -> None:
    text = describe(
        judgement(Verdict.UNKNOWN, unknown=("no operation succeeded", "kill did not bite")), EvidenceLines(), ENDING
    )
    assert text.startswith("UNKNOWN: no operation succeeded\n  kill did not bite\n")


def test_of_an_exception_in_a_client_its_own_line_is_shown_and_not_the_head_of_its_traceback() -> None:
    reason = "20 unexpected exceptions in the client; the first: KeyError: 'bug' at test_x.py:17, in operation 3:"
    unknown = (f"{reason}\nTraceback (most recent call last):\n  File ...\nKeyError: 'bug'", "the history is empty")
    text = describe(judgement(Verdict.UNKNOWN, unknown=unknown), EvidenceLines(), ENDING)
    assert text.startswith(f"UNKNOWN: {reason.removesuffix(':')}\n  the history is empty\n")
    text = describe(judgement(Verdict.FAIL, finding(), unknown=unknown), EvidenceLines(), ENDING)
    assert f"not a pass: {reason.removesuffix(':')}; the history is empty" in text.splitlines()


def test_an_interrupted_run_says_so() -> None:
    reported = ("the run was interrupted",)
    assert "interrupted" in describe(judgement(Verdict.UNKNOWN, unknown=reported), EvidenceLines(), ENDING)
    assert "interrupted" in describe(judgement(Verdict.FAIL, finding(), unknown=reported), EvidenceLines(), ENDING)


@given(
    st.sampled_from(Verdict),
    st.lists(
        st.builds(finding, st.sampled_from(["lost-write", "vanished"]), st.integers(0, 20), st.text()), max_size=40
    ),
    st.lists(st.text(), max_size=40),
)
def test_never_more_than_25_lines_and_the_command_is_always_there(
    verdict: Verdict, findings: list[Finding], unknown: list[str]
) -> None:
    text = describe(judgement(verdict, *findings, unknown=tuple(unknown)), EvidenceLines(), ENDING)
    lines = text.split("\n")
    assert len(lines) <= MAX_LINES
    assert len(text.splitlines()) <= MAX_LINES
    assert max(len(line) for line in lines) <= MAX_WIDTH
    assert "repeat: pytest t --seed=7" in lines


@pytest.mark.parametrize("verdict", Verdict)
def test_the_command_and_the_path_are_whole_however_long(verdict: Verdict) -> None:
    options = [f"--set=setting.{number}=a  value, with spaces" for number in range(100)]
    command = shlex.join(["pytest", "workloads/test_log.py::test_log", *options, "--seed=7"])
    report = "store/" + "deep/" * 100 + "report.html"
    ending = replace(ENDING, command=command, report=report, remarks=("r" * 1_000,))
    lines = describe(judgement(verdict, finding(claim="c" * 1_000)), EvidenceLines(), ending).split("\n")
    assert f"repeat: {command}" in lines
    assert f"report: {report}" in lines
    assert max(len(line) for line in lines if not line.startswith(("repeat:", "report:"))) == MAX_WIDTH


def test_a_command_cannot_move_the_cursor() -> None:
    lines = describe(judgement(Verdict.FAIL), EvidenceLines(), replace(ENDING, command="pytest \x1b[2J\nx")).split("\n")
    assert "repeat: pytest \\x1b[2J\\nx" in lines


def test_doubts_that_anomalies_share_are_one_line_in_the_plural() -> None:
    unknown = tuple(f"{name} is forbidden, but its check had no data" for name in ("stale", "lost", "torn"))
    text = describe(judgement(Verdict.UNKNOWN, unknown=unknown), EvidenceLines(), ENDING)
    assert text.startswith(
        "UNKNOWN: stale, lost and torn are forbidden, but their checks had no data\n100 operations, "
    )


def test_one_more_of_anything_is_singular() -> None:
    unknown = tuple(f"reason {'x' * number}" for number in range(7))
    assert "  and 1 more reason (verdict.json)" in describe(
        judgement(Verdict.UNKNOWN, unknown=unknown), EvidenceLines(), ENDING
    )


def test_of_several_doubts_each_that_is_shown_is_whole_and_the_others_are_counted() -> None:
    unknown = tuple(f"only 0 operations succeeded during fault {number}, {'so ' * 20}name it" for number in range(8))
    line = next(
        line
        for line in describe(judgement(Verdict.FAIL, finding(), unknown=unknown), EvidenceLines(), ENDING).splitlines()
        if line.startswith("not a pass")
    )
    assert line == f"not a pass: {unknown[0]}; {unknown[1]}; and 6 more reasons (verdict.json)"


def test_a_long_doubt_loses_its_middle_because_it_ends_with_what_to_do() -> None:
    doubt = f"only 0 operations succeeded during {'fault 1 (stop, 10.000 s to 13.000 s); ' * 20}name it in may_stall"
    for verdict in (Verdict.UNKNOWN, Verdict.FAIL):
        lines = describe(judgement(verdict, finding(), unknown=(doubt,)), EvidenceLines(), ENDING).splitlines()
        (line,) = (line for line in lines if "only 0" in line)
        assert line.endswith("name it in may_stall")
        assert " … " in line


@pytest.mark.parametrize("verdict", Verdict)
def test_warnings_follow_the_verdict(verdict: Verdict) -> None:
    warned = msgspec.structs.replace(judgement(verdict, unknown=("the history is empty",)), warnings=("few answers",))
    assert "warning: few answers" in describe(warned, EvidenceLines(), ENDING).splitlines()
    many = msgspec.structs.replace(warned, warnings=tuple(f"weakness {number}" for number in range(5)))
    lines = describe(many, EvidenceLines(), ENDING).splitlines()
    assert sum(line.startswith("warning: weakness") for line in lines) == 3
    assert "and 2 more warnings (verdict.json)" in lines


def lines_of(judged: Judgement) -> list[str]:
    return describe(judged, EvidenceLines(), FailureFooter()).splitlines()


def test_each_anomaly_has_one_headline_with_its_count_and_at_most_one_further_example() -> None:
    lost = [finding(operations=0, claim=f"offset {number} is gone") for number in range(5)]
    lost.append(finding(operations=0, claim="offset 7 was cut off"))
    vanished = [finding("vanished", operations=0, claim=f"value {number} is gone") for number in range(2)]
    lines = lines_of(judgement(Verdict.FAIL, *vanished[:1], *lost, *vanished[1:]))
    assert [line for line in lines if line.startswith(("FAIL", "  another"))] == [
        "FAIL vanished (2 times): value 0 is gone",
        "  another: value 1 is gone",
        "FAIL lost-write (6 times): offset 0 is gone",
        "  another: offset 7 was cut off",
    ]


def test_equal_sentences_are_one() -> None:
    lines = lines_of(judgement(Verdict.FAIL, *[finding(operations=0)] * 3))
    assert [line for line in lines if "offset 4 is gone" in line] == ["FAIL lost-write (3 times): offset 4 is gone"]


def test_the_count_is_that_of_all_instances_not_of_those_described() -> None:
    judged = msgspec.structs.replace(judgement(Verdict.FAIL, finding()), anomalies={"lost-write": 1234})
    assert lines_of(judged)[0] == "FAIL lost-write (1,234 times): offset 4 is gone"


def test_findings_of_the_history_come_before_broken_invariants() -> None:
    judged = judgement(Verdict.FAIL, finding("broken-invariant", claim="the end went back"), finding())
    judged = msgspec.structs.replace(judged, forbidden=("broken-invariant", "lost-write"))
    assert [line for line in lines_of(judged) if line.startswith("FAIL")] == [
        "FAIL lost-write: offset 4 is gone",
        "FAIL broken-invariant: the end went back",
    ]


def test_what_is_seen_of_one_cause_is_one_line_for_each_anomaly() -> None:
    beneath = [
        msgspec.structs.replace(finding("vanished", claim=f"value {number} is gone"), same_cause_as=0)
        for number in range(3)
    ]
    lines = lines_of(judgement(Verdict.FAIL, finding(), *beneath))
    assert [line for line in lines if "vanished" in line and "also" in line] == [
        "  also seen as vanished (3 times): value 0 is gone"
    ]


def test_examples_of_other_anomalies_give_way_to_what_follows_them() -> None:
    names = ("lost-write", "vanished", "phantom", "stale-read")
    found = [finding(name, operations=10, claim=f"{word} of {name}") for name in names for word in ("one", "other")]
    found += [
        msgspec.structs.replace(finding(name), same_cause_as=0)
        for name in ("end-too-low", "duplicate", "misplaced-ack")
    ]
    judged = msgspec.structs.replace(judgement(Verdict.FAIL, *found, tolerated=1), forbidden=names)
    lines = describe(judged, EvidenceLines(), ENDING).splitlines()
    assert len(lines) <= MAX_LINES
    assert [line for line in lines if line.startswith("  another")] == ["  another: other of lost-write"]
    assert any(line.startswith("forbidden: ") for line in lines)


def test_one_operation_with_one_effect_is_singular() -> None:
    one = msgspec.structs.replace(judgement(Verdict.PASS), operations=1, effects=1)
    assert describe(one, EvidenceLines(), FailureFooter()) == "PASS: 1 operation, 1 effect"


def test_what_says_the_same_of_the_same_cause_is_counted() -> None:
    alike = [
        msgspec.structs.replace(finding(claim=f"offset {number} is gone"), same_cause_as=0) for number in range(5, 8)
    ]
    other = msgspec.structs.replace(finding(claim="it came back"), same_cause_as=0)
    lines = lines_of(judgement(Verdict.FAIL, finding(), *alike, other))
    assert [line for line in lines if "more like it" in line or "also" in line] == [
        "  and 3 more like it, of the same cause",
        "  also seen as lost-write: it came back",
    ]
