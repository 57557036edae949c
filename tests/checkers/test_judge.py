"""Verdicts: fail on what is forbidden, never pass without proof that enough happened."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.checkers.check import LONG_STANDSTILL, Check, Family
from assay.checkers.engine import EngineError
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import BROKEN_INVARIANT, NO_RECOVERY, UNEXPECTED_EXIT, Contract, forbid
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.judge import find_unknown_kinds
from assay.checkers.judging.judge import judge as judge_with
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.log.family import LOG_ANOMALIES, REPORTED, STATEMENTS
from assay.checkers.log.loss import LOST_WRITE
from assay.harness.core.history import SCHEMAS, HistoryError, translation

from helpers.judging import TABLES, judge
from helpers.log_histories import Book, Row, effect, make_ops, write
from helpers.nightly import some_by_day

SECOND = 1_000_000_000
FAULT = (2_000, 4_000)
"""When the fault of ``run`` is injected and healed, in milliseconds."""

CONTRACT = forbid(*LOG_ANOMALIES, recovery_deadline=3.0)
COVERAGE = Contract(forbidden=(NO_RECOVERY,), recovery_deadline=3.0)


def fault(phase: str, time: int, *, id: int = 1, took_effect: bool | None = None, stage: str | None = None) -> Row:
    return {
        "id": id,
        "fault": "partition",
        "targets": '["n1"]',
        "phase": phase,
        "time": time * 1_000_000,
        "detail": "{}",
        "stage": stage,
        "took_effect": took_effect,
    }


def partition(*, took_effect: bool = True) -> list[Row]:
    return [
        fault("intended", 1_990),
        fault("injected", FAULT[0]),
        fault("healed", FAULT[1], took_effect=took_effect),
        fault("recovered", FAULT[1] + 500),
    ]


def run(
    *, silent: tuple[int, int] | None = None, stuck: bool = False, without: int | None = None, drained: bool = True
) -> Book:
    """Ten seconds of sends of two values, polls and end reads, a sentinel and a drain.

    ``silent``: sends called in this span of milliseconds are not acknowledged. ``stuck``: polls find nothing once the
    fault is healed. ``without``: an offset that the drain passes without showing it.
    """
    book, log, reader = Book(), [], 0
    for number in range(50):
        now = number * 200
        values = [2 * number, 2 * number + 1]
        if silent is not None and silent[0] <= now < silent[1]:
            book.send(values, None, (now, None), outcome="info", process=100 + number)
        else:
            book.send(values, len(log), (now, now + 50), process=1)
            log += values
        end = reader if stuck and now >= FAULT[1] else len(log)
        book.poll(reader, [(offset, log[offset]) for offset in range(reader, end)], end, (now + 60, now + 90))
        reader = end
        book.add("end", (now + 100, now + 110), len(log), leader_epoch=1, process=2)
    book.send([9_999], len(log), (10_000, 10_050), phase="sentinel", process=3)
    log.append(9_999)
    shown = [(offset, value) for offset, value in enumerate(log) if offset != without]
    if drained:
        book.poll(0, shown, len(log), (10_100, 10_200), phase="drain", process=4)
        book.drained(len(log), (10_300, 10_400))
    return book


def verdict(
    folder: Path, book: Book, contract: Contract = CONTRACT, faults: Sequence[Row] = (), **given: Any
) -> Judgement:
    return judge(write(folder / "history", book.rows, faults=faults), contract, **given)


def covered(folder: Path, book: Book, contract: Contract = COVERAGE, faults: Sequence[Row] = ()) -> Judgement:
    """Whether enough happened, and whether the system came back; what it said is beside the point."""
    return verdict(folder, book, contract, faults, families=TABLES)


def test_a_good_run_passes(tmp_path: Path) -> None:
    judged = verdict(tmp_path, run(), faults=partition())
    assert judged.unknown == ()
    assert judged.verdict is Verdict.PASS
    assert judged.findings == ()
    assert {one.check for one in judged.examined} == {*LOG_ANOMALIES, NO_RECOVERY}
    optional = {check.anomaly for family in (STATEMENTS, REPORTED) for check in family.checks if check.optional}
    assert all(one.rows > 0 for one in judged.examined if one.check not in optional)
    assert (judged.operations, judged.engine) == (153, "sqlite")
    (recovery,) = [one for one in judged.examined if one.check == NO_RECOVERY]
    assert recovery.note == "fault 1 (partition): send 0.050 s, poll 0.090 s after the heal"


def test_a_forbidden_anomaly_fails_and_a_tolerated_one_is_reported(tmp_path: Path) -> None:
    book = run(without=40)
    for row in [row for row in book.rows if row["kind"] == "observe" and row["position"] == 40]:
        book.rows.remove(row)
    failed = verdict(tmp_path / "a", book, faults=partition())
    assert failed.verdict is Verdict.FAIL
    assert failed.anomalies == {"lost-write": 1}
    tolerated = verdict(tmp_path / "b", book, CONTRACT.tolerate("lost-write"), partition())
    assert tolerated.verdict is Verdict.PASS
    assert tolerated.anomalies == {"lost-write": 1}
    assert [finding.anomaly for finding in tolerated.findings] == ["lost-write"]
    silent = Contract(forbidden=tuple(name for name in LOG_ANOMALIES if name != "lost-write"))
    neither = verdict(tmp_path / "c", book, silent, partition())
    assert neither.verdict is Verdict.UNKNOWN
    assert any("neither forbids nor tolerates" in reason for reason in neither.unknown)


def test_a_finding_names_faults_and_leader_of_its_time(tmp_path: Path) -> None:
    book = run(without=22)
    for row in [row for row in book.rows if row["kind"] == "observe" and row["position"] == 22]:
        book.rows.remove(row)
    events = [
        {
            "time": time * 1_000_000,
            "node": node,
            "incarnation": 1,
            "seq": time,
            "event": "became-leader",
            "key": "orders-0",
            "epoch": epoch,
            "detail": "{}",
        }
        for time, node, epoch in ((0, "n1", 0), (2_100, "n2", 1), (2_900, "n3", 2))
    ]
    folder = write(tmp_path / "history", book.rows, faults=partition(), events=events)
    (finding,) = judge(folder, CONTRACT).findings
    assert finding.time == 2_250_000_000
    assert (finding.leader, finding.epoch, finding.faults) == ("n2", 1, (1,))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"interrupted": True}, "interrupted"),
        ({"complete": False}, "not closed"),
        ({"notes": ["process 3 raised KeyError"]}, "KeyError"),
    ],
)
def test_never_a_pass_with_something_against_it(tmp_path: Path, given: dict[str, Any], reason: str) -> None:
    judged = verdict(tmp_path, run(), faults=partition(), **given)
    assert judged.verdict is Verdict.UNKNOWN
    assert any(reason in one for one in judged.unknown), judged.unknown


@pytest.mark.parametrize("key", ["it's", "a\\b", "a\0b"])
def test_a_compacted_key_that_engines_read_in_different_ways_is_named(tmp_path: Path, key: str) -> None:
    write(tmp_path, [])
    with pytest.raises(HistoryError) as raised:
        judge(tmp_path, Contract(compacted=(key,)))
    assert f"the contract's compacted key {key!r} is no literal" in str(raised.value)


def test_an_interrupted_run_may_fail(tmp_path: Path) -> None:
    book = run(without=40, drained=True)
    judged = verdict(tmp_path, book, faults=partition(), interrupted=True)
    assert judged.verdict is Verdict.FAIL
    assert judged.anomalies == {"vanished": 1, "poll-skip": 1}


def test_an_interrupted_drain_is_not_a_missed_deadline(tmp_path: Path) -> None:
    book = run(drained=False)
    assert verdict(tmp_path / "a", book, interrupted=True).anomalies == {}
    assert verdict(tmp_path / "b", book).anomalies["unseen"] > 0


def test_a_tester_that_stood_still_holds_no_missed_deadline_against_anyone(tmp_path: Path) -> None:
    """Nor does it let the run pass. A contradiction at any time fails the run all the same."""
    late, stalled = run(drained=False), {"stood_still": LONG_STANDSTILL}
    judged = verdict(tmp_path / "late", late, faults=partition(), **stalled)
    assert judged.verdict is Verdict.UNKNOWN
    assert judged.anomalies["unseen"] > 0
    assert judged.unknown[0].startswith(
        "unseen: deadlines were missed, but the tester itself stood still for 3.0 s in all"
    )
    stuck = verdict(tmp_path / "stuck", run(stuck=True), COVERAGE, partition(), families=TABLES, **stalled)
    assert (stuck.verdict, stuck.anomalies) == (Verdict.UNKNOWN, {NO_RECOVERY: 1})
    assert (
        verdict(tmp_path / "busy", late, faults=partition(), stood_still=LONG_STANDSTILL - 0.1).verdict is Verdict.FAIL
    )
    both = verdict(tmp_path / "both", run(stuck=True, without=40), faults=partition(), **stalled)
    assert both.verdict is Verdict.FAIL
    assert {NO_RECOVERY, "lost-write"} <= both.anomalies.keys()
    assert verdict(tmp_path / "good", run(), faults=partition(), **stalled).verdict is Verdict.PASS


def test_an_answer_that_a_tester_took_late_is_held_against_no_one(tmp_path: Path) -> None:
    """Half of the time that an answer may take is enough: what was waiting there, it took only afterwards."""
    book = run()
    when = (9_911, 9_999)
    book.add("waited", when, 91, process=60, max_wait_ms=9_000, waited_ms=4_600, empty=True)
    given = {"contract": forbid("untimely-answer", recovery_deadline=3.0), "families": (*TABLES, STATEMENTS)}
    judged = verdict(tmp_path / "late", book, faults=partition(), stood_still=0.35, **given)
    assert (judged.verdict, judged.anomalies) == (Verdict.UNKNOWN, {"untimely-answer": 1})
    assert judged.unknown[0].startswith("untimely-answer: deadlines were missed")
    judged = verdict(tmp_path / "own", book, faults=partition(), stood_still=0.3, **given)
    assert judged.verdict is Verdict.FAIL


def test_phantom_is_unknown_when_the_history_was_not_closed(tmp_path: Path) -> None:
    book = run()
    book.rows = [row for row in book.rows if row["kind"] != "append" or row["value"] != 41]
    judged = verdict(tmp_path, book, faults=partition(), complete=False)
    assert judged.verdict is Verdict.UNKNOWN
    assert "phantom" not in judged.anomalies
    assert any(reported.startswith("phantom cannot be judged") for reported in judged.unknown)


@pytest.mark.parametrize("contract", [CONTRACT, Contract()])
def test_an_empty_run_is_unknown(tmp_path: Path, contract: Contract) -> None:
    judged = verdict(tmp_path, Book(), contract)
    assert judged.verdict is Verdict.UNKNOWN
    assert "the history is empty" in judged.unknown


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        (partition(took_effect=False), "nothing shows that it took effect"),
        ([fault("intended", 1_990), fault("failed", 2_000)], "never injected"),
        (partition()[:2], "never healed"),
        ([*partition(), fault("intended", 20_000, id=2)], "fault 2 (partition) was intended but never injected"),
        ([*partition(), fault("failed", 4_500)], "failed in part"),
        ([*partition(), fault("failed", 2_500, stage="inject")], "failed in part"),
        (
            [fault("injected", 2_000), fault("healed", 2_001, took_effect=True)],
            "only 0 operations succeeded during fault 1",
        ),
        (
            [fault("injected", 2_000), fault("healed", 60_000, took_effect=True)],
            "only 0 operations succeeded after the last",
        ),
    ],
)
def test_faults_that_prove_nothing_make_it_unknown(tmp_path: Path, faults: list[Row], reason: str) -> None:
    judged = covered(tmp_path, run(), faults=faults)
    assert judged.verdict is Verdict.UNKNOWN
    assert any(reason in one for one in judged.unknown), judged.unknown


@pytest.mark.parametrize(("stage", "judged"), [("hindered", Verdict.PASS), ("inject", Verdict.UNKNOWN)])
def test_a_fault_that_others_have_hindered_is_not_held_against_the_run(
    tmp_path: Path, stage: str, judged: Verdict
) -> None:
    """As the conductor reports it: injected never, healed without effect."""
    second = [
        fault("intended", 1_990, id=2),
        fault("failed", 2_500, id=2, stage=stage),
        fault("healed", 2_501, id=2, took_effect=False),
        fault("failed", 2_501, id=2, stage="effect"),
    ]
    assert covered(tmp_path, run(), faults=[*partition(), *second]).verdict is judged


def test_a_run_of_which_all_faults_were_hindered_is_unknown(tmp_path: Path) -> None:
    alone = [fault("intended", 1_990), fault("failed", 2_500, stage="hindered")]
    assert covered(tmp_path, run(), faults=alone).verdict is Verdict.UNKNOWN


def test_a_heal_that_succeeded_when_it_was_tried_again_is_one(tmp_path: Path) -> None:
    unhealed = fault("failed", 2_500, stage="heal")
    assert covered(tmp_path / "a", run(), faults=[*partition(), unhealed]).verdict is Verdict.PASS
    never = covered(tmp_path / "b", run(), faults=[*partition()[:2], unhealed])
    assert any("never healed" in reason for reason in never.unknown)


def test_no_success_during_a_fault_is_unknown_unless_the_contract_expects_it(tmp_path: Path) -> None:
    book = run()
    inside = {row["op"] for row in book.rows if 2_000 <= row["call"] // 1_000_000 <= 4_000}
    book.rows = [row for row in book.rows if row["op"] not in inside or row["kind"] == "end"]
    book.rows = [row for row in book.rows if row["kind"] != "observe" or row["phase"] == "drain"]
    judged = covered(tmp_path / "a", book, Contract(forbidden=(NO_RECOVERY,)), partition())
    assert any("succeeded during fault 1" in reason for reason in judged.unknown)
    patient = Contract(forbidden=(NO_RECOVERY,), minimum_during_fault=0)
    assert not any("during fault" in reason for reason in covered(tmp_path / "b", book, patient, partition()).unknown)
    stalls, other = (Contract(forbidden=(NO_RECOVERY,), may_stall=(name,)) for name in ("partition", "kill"))
    assert not any("during fault" in reason for reason in covered(tmp_path / "c", book, stalls, partition()).unknown)
    assert any("during fault" in reason for reason in covered(tmp_path / "d", book, other, partition()).unknown)


@pytest.mark.parametrize(
    ("begin", "counts"), [(1_000, True), (1_900, True), (2_001, True), (2_440, True), (2_460, False)]
)
def test_faults_close_to_each_other_are_one_disturbance(tmp_path: Path, begin: int, counts: bool) -> None:
    """The short one alone leaves no time for an operation; the other does."""
    short = [fault("injected", 2_000), fault("healed", 2_001, took_effect=True)]
    end = 1_999 if begin == 1_000 else 6_000
    other = [fault("injected", begin, id=2), fault("healed", end, id=2, took_effect=True)]
    faults = sorted([*short, *other], key=lambda row: int(row["time"]))
    judged = covered(tmp_path, run(), faults=faults)
    assert (
        any("fault 1 (partition, " in reason and "succeeded during" in reason for reason in judged.unknown)
        is not counts
    ), judged.unknown


def test_a_forbidden_anomaly_without_data_is_unknown(tmp_path: Path) -> None:
    book = run()
    book.rows = [row for row in book.rows if not row["kind"].startswith("observe")]
    judged = verdict(tmp_path, book, CONTRACT.tolerate("unseen"), partition())
    assert "nonmonotonic-poll is forbidden, but its check had no data" in judged.unknown
    assert judged.verdict is Verdict.UNKNOWN


def test_what_a_history_need_not_speak_of_is_not_applicable(tmp_path: Path) -> None:
    book = run()
    book.rows = [row for row in book.rows if row["kind"] != "end"]
    contract = forbid(*LOG_ANOMALIES, "lost-update", recovery_deadline=3.0)
    judged = verdict(tmp_path / "a", book, contract, partition())
    assert (judged.verdict, judged.unknown) == (Verdict.PASS, ())
    notes = {one.check: one.note for one in judged.examined if not one.applies}
    assert notes == {
        "high-watermark-regression": "no one was given the end of a log and its leader's epoch",
        "lost-update": "no compare-and-set is known to have been done",
    }
    judged = verdict(tmp_path / "b", book, CONTRACT.forbid_also("duplicate"), partition())
    assert judged.unknown == ("high-watermark-regression is forbidden, but its check had no data",)


def test_what_is_forbidden_also_needs_no_data_and_fails_a_run_that_has_it(tmp_path: Path) -> None:
    contract = forbid("phantom", recovery_deadline=3.0).forbid_also(
        "high-watermark-regression", "vanished", "zombie-commit"
    )
    book = run()
    book.rows = [row for row in book.rows if row["kind"] != "end"]
    judged = verdict(tmp_path / "a", book, contract, partition())
    assert (judged.verdict, judged.unknown) == (Verdict.PASS, ())
    assert "zombie-commit" not in judged.forbidden, "there is no data for it"
    assert {"phantom", "vanished", "high-watermark-regression"} <= set(judged.forbidden)
    judged = verdict(tmp_path / "b", run(without=2), contract, partition())
    assert judged.verdict is Verdict.FAIL
    judged = verdict(tmp_path / "c", book, contract.need("high-watermark-regression", "zombie-commit"), partition())
    assert judged.unknown == (
        "high-watermark-regression is forbidden, but its check had no data",
        "zombie-commit is forbidden, but the history has no data for it",
    )


def test_a_drain_that_did_not_reach_the_sentinel_is_unknown(tmp_path: Path) -> None:
    judged = verdict(tmp_path, run(drained=False), CONTRACT.tolerate("unseen"), partition())
    assert judged.unknown == ("the drain did not reach a sentinel in orders-0",)


def test_a_drain_that_shows_the_sentinel_has_reached_it_without_saying_so(tmp_path: Path) -> None:
    book = run()
    book.rows = [row for row in book.rows if row["kind"] != "drained"]
    assert verdict(tmp_path, book, CONTRACT, partition()).verdict is Verdict.PASS


def test_no_send_in_time_after_the_heal_is_no_recovery(tmp_path: Path) -> None:
    judged = covered(tmp_path / "a", run(silent=(2_500, 7_800)), faults=partition())
    assert judged.verdict is Verdict.FAIL
    assert judged.anomalies == {NO_RECOVERY: 1}
    assert "acknowledged only 3.850 s later, at 7.850 s" in judged.findings[0].claim
    in_time = covered(tmp_path / "b", run(silent=(2_500, 6_800)), faults=partition())
    assert in_time.verdict is Verdict.PASS
    patient = covered(tmp_path / "c", run(silent=(2_500, 7_800)), Contract(forbidden=(NO_RECOVERY,)), partition())
    assert patient.verdict is Verdict.PASS


def test_no_poll_that_reaches_the_end_is_no_recovery(tmp_path: Path) -> None:
    judged = covered(tmp_path, run(stuck=True), faults=partition())
    assert judged.anomalies == {NO_RECOVERY: 1}
    assert "first poll of orders-0 reached the end only 6.200 s later" in judged.findings[0].claim


@pytest.mark.parametrize(
    ("call", "slow"),
    [(6_990, False), (6_260, False), (6_240, True), (5_600, True), (5_400, False)],
    ids=["just before the deadline", "in its last quarter", "a quarter before", "in its second half", "in its first"],
)
@pytest.mark.parametrize("kind", ["register-read", "register-write"])
def test_a_first_try_that_had_no_time_to_be_answered_is_no_missing_recovery(
    tmp_path: Path, kind: str, call: int, slow: bool
) -> None:
    """The heal is at 4 s, the deadline at 7 s; the first try after the heal is answered just after it."""
    book = Book(key="r")
    for now in (*range(0, 2_000, 100), *range(8_000, 10_000, 100)):
        book.add("register-write", (now, now + 50), None, value=now)
        book.add("register-read", (now + 60, now + 80), None, value=now)
    book.add(kind, (call, 7_010), None, value=1_900 if kind == "register-read" else 1_901, process=9)
    judged = covered(tmp_path, book, faults=partition())
    assert judged.anomalies == ({NO_RECOVERY: 1} if slow else {})


def test_the_next_fault_excuses_a_missing_recovery(tmp_path: Path) -> None:
    second = [
        fault("intended", 5_000, id=2),
        fault("injected", 5_001, id=2),
        fault("healed", 7_000, id=2, took_effect=True),
    ]
    judged = covered(tmp_path, run(silent=(2_500, 7_800)), faults=[*partition(), *second])
    assert NO_RECOVERY not in judged.anomalies


def test_a_history_from_elsewhere_may_lack_faults_and_added_columns(tmp_path: Path) -> None:
    folder = write(tmp_path / "history", run().rows, format=None)
    for name in ("events", "replicas", "looks"):
        (folder / name / "part-000000.parquet").unlink()
        (folder / name).rmdir()
    needed = pa.schema([SCHEMAS["faults"].field(name) for name in translation.REQUIRED["faults"].split()])
    rows = [{name: row[name] for name in needed.names} for row in partition()]
    pq.write_table(pa.Table.from_pylist(rows, schema=needed), folder / "faults" / "part-000000.parquet")
    judged = judge(folder, CONTRACT)
    assert judged.anomalies == {}
    assert any("nothing shows that it took effect" in reason for reason in judged.unknown)


EARLY = Check(
    anomaly="early-send",
    meaning="a send began in the first second",
    violations="select key, op as early_op, call from effects where kind = 'append' and call < 1000000000",
    evidence="select key, early_op from found_early_send order by call nulls first, early_op limit 1",
    examined="select count(*) as examined from effects where kind = 'append'",
    claim="{early_op} could not wait.",
)
OWN = Family(
    name="own",
    views=(),
    checks=(EARLY,),
    applies="select count(*) as examined from effects where kind = 'append'",
)


@pytest.mark.parametrize(
    ("kind", "meant"),
    [("apend", "append"), ("Append", "append"), ("append ", "append"), ("observe_end", "observe-end"), ("audit", None)],
)
def test_effects_of_a_kind_that_no_check_reads_are_a_warning_and_unknown_if_misspelt(
    tmp_path: Path, kind: str, meant: str | None
) -> None:
    book = run()
    for row in book.rows[:2]:
        row["kind"] = "audit"
    book.rows[2]["kind"] = kind
    judged = covered(tmp_path, book, faults=partition())
    counts = "audit (3)" if kind == "audit" else ", ".join(sorted([f"{kind} (1)", "audit (2)"]))
    assert f"3 effects of kinds that no check reads: {counts}" in judged.warnings
    reason = f"no check knows effects of kind {kind}; was {meant} meant?"
    assert (reason in judged.unknown) == (meant is not None)
    assert not any("kind audit" in one for one in judged.unknown)


def test_a_kind_that_a_users_own_check_names_is_read(tmp_path: Path) -> None:
    book = run()
    book.rows[0]["kind"] = "append-all"
    own = replace(OWN, applies="select count(*) as examined from effects where kind in ('append', 'append-all')")
    assert find_unknown_kinds({"append-all"}, FAMILIES) == {"append-all": "append"}
    assert find_unknown_kinds({"append-all", "apend"}, (*FAMILIES, own)) == {"apend": "append"}
    judged = verdict(tmp_path, book, COVERAGE.tolerate("early-send"), faults=partition(), families=(*TABLES, own))
    assert not any("no check" in one for one in (*judged.warnings, *judged.unknown))


def test_a_family_of_ones_own_is_judged_after_those_that_come_along(tmp_path: Path) -> None:
    watched: list[tuple[str, int, int]] = []
    families = (*FAMILIES, OWN)
    given = {"families": families, "progress": lambda *step: watched.append(step)}
    judged = verdict(tmp_path / "a", run(), CONTRACT.tolerate("early-send"), faults=partition(), **given)
    assert (judged.verdict, judged.unknown) == (Verdict.PASS, ())
    assert judged.anomalies["early-send"] > 1
    assert judged.findings[0].claim == "process 1 could not wait."
    assert judged.meanings["early-send"] == "a send began in the first second"
    assert judged.meanings["lost-write"] == LOST_WRITE.meaning
    assert set(judged.meanings) == {*(one.check for one in judged.examined), UNEXPECTED_EXIT, BROKEN_INVARIANT}
    checking = [step for step in watched if step[0] != "validating"]
    assert [what for what, *_ in checking] == [f"checking, now {name}" for name in (*LOG_ANOMALIES, "early-send")]
    assert {total for *_, total in checking} == {sum(len(family.checks) for family in families)}
    judged = verdict(tmp_path / "b", run(), forbid("early-send"), faults=partition(), families=families)
    assert judged.verdict is Verdict.FAIL
    judged = verdict(tmp_path / "c", run(), forbid("early-send"), faults=partition())
    assert "early-send is forbidden, but the history has no data for it" in judged.unknown


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"views": (), "violations": "select op as early_op from effects"}, EngineError),
        ({"examined": "select count(*) from efects"}, EngineError),
        ({"claim": "{late_op} could not wait."}, KeyError),
    ],
    ids=["a table of violations without a key", "a table that there is not", "a column that there is not"],
)
def test_what_a_check_of_ones_own_has_wrong_is_an_error_that_names_it(
    tmp_path: Path, given: dict[str, Any], error: type[Exception]
) -> None:
    wrong = replace(OWN, checks=(replace(EARLY, **given),))
    with pytest.raises(error) as caught:
        verdict(tmp_path, run(), CONTRACT, families=(*FAMILIES, wrong))
    assert caught.value.__notes__ == ["in the check 'early-send'", "in the family of checks 'own'"]


def test_the_number_that_says_whether_a_family_applies_may_have_any_name(tmp_path: Path) -> None:
    unnamed = replace(OWN, applies="select count(*) from effects where kind = 'append'")
    judged = verdict(tmp_path / "a", run(), CONTRACT.tolerate("early-send"), families=(*FAMILIES, unnamed))
    assert judged.anomalies["early-send"] > 1
    none = replace(OWN, applies="select count(*) from effects where kind = 'unheard-of'")
    judged = verdict(tmp_path / "b", run(), CONTRACT.tolerate("early-send"), families=(*FAMILIES, none))
    assert "early-send" not in judged.anomalies


def test_what_is_no_history_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HistoryError):
        judge(tmp_path / "nowhere", CONTRACT)


@pytest.mark.parametrize(
    "offset", some_by_day([2**61 - 1, 2**61, 2**62 + 75, 2**63 - 2, 2**63 - 1], (2**61, 2**63 - 1))
)
def test_an_absurd_offset_is_found_and_breaks_no_check(tmp_path: Path, offset: int) -> None:
    """A damaged record may claim any offset."""
    book = run()
    position = min(offset + 1, 2**63 - 1)
    book.poll(5, [(offset, 5)], position, (9_903, 9_913), assignment=7, process=77)
    book.add("end", (9_923, 9_933), offset, leader_epoch=1, process=78)
    judgement = judge(write(tmp_path / "history", book.rows, faults=partition()), CONTRACT)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.anomalies["duplicate"] == 1
    assert str(offset) in next(one for one in judgement.findings if one.anomaly == "duplicate").claim


def reported(first: int, last: int) -> list[Row]:
    """Two offsets wherever a client may report one, in a log with others and in one of its own."""
    book, other, clock = run(), Book("orders-1", next_op=10**6), itertools.count(9_911)

    def when() -> tuple[int, int]:
        return next(clock), next(clock)

    for log, group in ((book, "g"), (other, "h")):
        log.send([20_001, 20_002], first, when(), process=60)
        for rank, position in enumerate((last, 3, first)):
            sent = {"value": 20_003 + rank, "request": log.next_op, "process": 60}
            times = (millisecond * 1_000_000 for millisecond in (when() if rank == 0 else times_of(log.rows[-1])))
            log.rows.append(effect(log.next_op, rank, "append", log.key, *times, position=position, **sent))
        log.next_op += 1
        log.add("seek", when(), first, assignment=7, process=60)
        log.poll(first, [(first, 5), (last, 6), (4, 4)], last, when(), assignment=7, process=60)
        log.poll(4, [(5, 5)], first, when(), assignment=7, process=60)
        for kind, position in itertools.product(("end", "start"), (last, first)):
            log.add(kind, when(), position, leader_epoch=1, process=60)
        for position, outcome in ((last, "ok"), (first, "ok"), (3, "ok")):
            log.add("advance", when(), position, group=group, process=60, outcome=outcome)
            log.add("resume", when(), position, group=group, process=60)
    other.send([20_009], first, (10_410, 10_420), phase="sentinel", process=61)
    other.drained(first, (10_430, 10_440))
    return [*book.rows, *other.rows]


def times_of(row: Row) -> tuple[int, int]:
    return row["call"] // 1_000_000, row["ret"] // 1_000_000


@pytest.mark.parametrize(("first", "last"), [(2**63 - 2, 2**63 - 1), (-(2**63), 1 - 2**63)])
def test_whatever_offset_a_client_reports_the_history_is_judged(tmp_path: Path, first: int, last: int) -> None:
    folder = write(tmp_path / "history", reported(first, last), faults=partition())
    contract = msgspec.structs.replace(CONTRACT, linearizable_ends=True, dense_offsets=True)
    judgement = judge(folder, contract)
    assert judgement.verdict is Verdict.FAIL
    assert "send-skip" in judgement.anomalies


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize(("first", "last"), [(2**63 - 2, 2**63 - 1), (-(2**63), 1 - 2**63)])
def test_on_spark_it_is_judged_alike(tmp_path: Path, application: Any, first: int, last: int) -> None:
    folder = write(tmp_path / "history", reported(first, last), faults=partition())
    by_duck = judge(folder, CONTRACT)
    with application.engine(effects=1_000) as spark:
        by_spark = judge_with(open_history(folder), CONTRACT, spark)
    assert (by_spark.anomalies, by_spark.findings) == (by_duck.anomalies, by_duck.findings)


def test_what_is_tolerated_for_a_fault_is_so_in_runs_with_it_alone_and_the_verdict_says_why(tmp_path: Path) -> None:
    book = run(without=40)
    for row in [row for row in book.rows if row["kind"] == "observe" and row["position"] == 40]:
        book.rows.remove(row)
    asleep = CONTRACT.tolerate_under("lost-write", faults=["stop"], because="it sleeps")
    cut = CONTRACT.tolerate_under("lost-write", faults=["stop", "partition"], because="it is cut off")
    judged = verdict(tmp_path / "a", book, asleep, faults=partition())
    assert (judged.verdict, judged.reasons) == (Verdict.FAIL, {})
    judged = verdict(tmp_path / "b", book, cut, faults=partition())
    assert judged.verdict is Verdict.PASS
    assert judged.anomalies == {"lost-write": 1}
    assert judged.tolerated == ("lost-write",)
    assert judged.reasons == {"lost-write": "tolerated in a run with partition, because it is cut off"}
    assert verdict(tmp_path / "c", book, cut).verdict is Verdict.FAIL, "no such fault in this run"
    half = [row | ({"phase": "failed", "stage": "inject"} if row["phase"] == "injected" else {}) for row in partition()]
    assert verdict(tmp_path / "d", book, cut, faults=half).verdict is Verdict.UNKNOWN, "it may have done half of it"
    missed = [{**half[0]}, half[1] | {"stage": "target"}]
    assert verdict(tmp_path / "e", book, cut, faults=missed).verdict is Verdict.FAIL, "it found no target"


@pytest.mark.parametrize(
    ("named", "does", "tolerated"),
    [
        ("stop-consumer", {"pauses_process": True, "on_clients": True}, True),
        ("stop-consumer", {"pauses_process": True, "on_clients": False}, False),
        ("stop-consumer", {"ends_process": True, "on_clients": True}, False),
        ("zookeeper-pause", {"pauses_process": True, "targets": '["zk1", "zk2"]'}, True),
        ("zookeeper-pause", {"pauses_process": True, "targets": '["n1"]'}, False),
        ("clock", {"wrong_clock": True}, True),
        ("kill-consumer", {"ends_process": True, "on_clients": True}, False),
    ],
)
def test_what_is_tolerated_for_a_fault_is_so_for_any_that_declares_the_same(
    tmp_path: Path, named: str, does: dict[str, Any], tolerated: bool
) -> None:
    book = run(without=40)
    for row in [row for row in book.rows if row["kind"] == "observe" and row["position"] == 40]:
        book.rows.remove(row)
    contract = CONTRACT.tolerate_under("lost-write", faults=[named], because="it sleeps")
    faults = [row | {"fault": "nap"} | (does if row["phase"] != "intended" else {}) for row in partition()]
    judged = verdict(tmp_path, book, contract, faults=faults)
    assert judged.verdict is (Verdict.PASS if tolerated else Verdict.FAIL)
    words = f"tolerated in a run with nap (as {named}), because it sleeps"
    assert judged.reasons == ({"lost-write": words} if tolerated else {})


def test_a_family_that_does_not_apply_to_a_run_makes_it_unknown_only_if_its_data_are_asked_for(tmp_path: Path) -> None:
    contract = forbid("phantom", "zombie-commit", "set-lost", recovery_deadline=3.0)
    judged = verdict(tmp_path / "a", run(), contract, partition())
    assert (judged.verdict, judged.unknown) == (Verdict.PASS, ())
    notes = {one.check: one.note for one in judged.examined if not one.applies}
    assert {notes[name] for name in ("zombie-commit", "set-lost")} == {"the history has no data for it"}

    nothing = "zombie-commit is forbidden, but the history has no data for it"
    asked = forbid("phantom", recovery_deadline=3.0).need("zombie-commit")
    assert verdict(tmp_path / "b", run(), asked, partition()).unknown == (nothing,)
    alone = forbid("zombie-commit", recovery_deadline=3.0)
    assert nothing in verdict(tmp_path / "c", run(), alone, partition()).unknown, "nothing that it forbids was judged"
    no_check = verdict(tmp_path / "d", run(), forbid("phantom", "early-send", recovery_deadline=3.0), partition())
    assert no_check.verdict is Verdict.UNKNOWN, "its check is not there"


@pytest.mark.parametrize("described", [False, True])
def test_operations_without_effects_do_not_excuse_a_check_without_data(tmp_path: Path, described: bool) -> None:
    """The guarded operations are judged, and the acquires of the same lock are not, because effects() forgets them."""
    rows, ops = [], []
    for number in range(60):
        call, f = 100 * number, ("acquire", "guarded", "release")[number % 3]
        given: dict[str, Any] = {"token": number // 3 + 1, "process": number // 3 % 2, "owner": f"c{number // 3 % 2}"}
        ops.append(effect(number, 0, f, "lock", call, call + 50, assignment=number // 3, **given))
        if f == "guarded" or described:
            rows.append(ops[-1])
    found = judge(write(tmp_path / "history", rows, ops=make_ops(ops)), forbid("fencing-violation", "double-ownership"))
    assert found.verdict is (Verdict.PASS if described else Verdict.UNKNOWN), found.unknown
    if not described:
        assert found.unknown == (
            "double-ownership is forbidden, but the history has no data for it, and effects() returned "
            "nothing for acquire (20 ok), release (20 ok)",
        )


@pytest.mark.parametrize(("anomalies", "verdict"), [
    (("lost-update",), Verdict.UNKNOWN),
    (("lost-update", "stale-read"), Verdict.PASS),
])  # fmt: skip
def test_a_contract_of_which_nothing_applies_is_not_kept(
    tmp_path: Path, anomalies: tuple[str, ...], verdict: Verdict
) -> None:
    """There is no compare-and-set, which is no doubt, unless the contract names nothing else."""
    rows = [
        effect(op, 0, "register-write" if op % 2 == 0 else "register-read", "r", 100 * op, 100 * op + 50, value=op // 2)
        for op in range(24)
    ]
    found = judge(write(tmp_path / "history", rows), forbid(*anomalies))
    assert found.verdict is verdict, found.unknown
    assert (found.unknown == ()) is (verdict is Verdict.PASS)
