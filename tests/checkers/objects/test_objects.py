"""Counters, max registers, sets and queues: each anomaly, its nearest legal neighbour, and brute force on thousands."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import Family, create_views, read_findings
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.objects.counters import COUNTER_ANOMALIES, COUNTERS
from assay.checkers.objects.max_registers import MAX_REGISTER_ANOMALIES, MAX_REGISTERS
from assay.checkers.objects.queues import QUEUE_ANOMALIES, QUEUES
from assay.checkers.objects.sets import SET_ANOMALIES, SETS

from helpers.judging import judge, opened
from helpers.log_histories import Row, effect, write
from helpers.object_histories import broken, counter, max_register, queue, some_set
from helpers.object_oracle import (
    count,
    element,
    largest,
    linearizable,
    of_element,
    queue_losses,
    queue_unexplained,
    queue_wrong,
    wrong_with,
)

S = 1_000_000_000
Instances = dict[str, set[tuple[str, Any]]]
Make = Callable[[str, random.Random, int], list[Row]]


@pytest.fixture(params=[600, pytest.param(2000, marks=pytest.mark.long)])
def many(request: pytest.FixtureRequest) -> int:
    """The number of histories."""
    number: int = request.param
    return number


def histories(make: Make, name: str, many: int) -> list[list[Row]]:
    """Every third is a correct one."""
    made = []
    for index in range(many):
        rng = random.Random(f"{name}/{index}")
        one = make(f"k-{index}", rng, index * 100)
        made.append(one if index % 3 == 0 else broken(one, rng))
    return [one for one in made if one]


def by_sql(folder: Path, rows: list[Row], family: Family) -> Instances:
    """Returns, by key with findings, each (anomaly, value) as often as it is found."""
    reported: Instances = {}
    with opened(write(folder / "history", rows)) as engine:
        register_contract(engine, Contract())
        assert family.prepare is not None
        family.prepare(engine)
        for check in family.checks:
            create_views(engine, check.views)
            for row in engine.rows(f"select * from {check.found}"):
                reported.setdefault(row["key"], set()).add(
                    (check.anomaly, (row.get("value"), row.get("op"), row.get("sub")))
                )
            for finding in read_findings(engine, check):
                assert finding.claim.endswith(".")
                assert "None" not in finding.claim, finding.claim
                assert "an unknown time" not in finding.claim, finding.claim
                assert "an unknown process" not in finding.claim, finding.claim
                assert finding.operations
    return reported


def values(reported: Instances, key: str) -> set[tuple[str, Any]]:
    return {(anomaly, instance[0]) for anomaly, instance in reported.get(key, ())}


def seen(reported: Instances, anomalies: tuple[str, ...], least: int) -> None:
    """The fuzzing was worth it: every anomaly was there often."""
    total = Counter(anomaly for found in reported.values() for anomaly in {anomaly for anomaly, _ in found})
    assert set(total) == set(anomalies)
    assert min(total.values()) > least, total


def test_counters_get_the_answer_of_the_search(tmp_path: Path, many: int) -> None:
    some = histories(counter, "counter", many)
    reported = by_sql(tmp_path, [row for one in some for row in one], COUNTERS)
    for one in some:
        assert linearizable(one, 0, count) is (one[0]["key"] not in reported), (one, reported.get(one[0]["key"]))
        results = Counter(row["value"] for row in one if row["kind"] == "counter-add" and row["outcome"] == "ok")
        twice = {value for value, times in results.items() if times > 1 and value >= 0}
        assert twice == {value for name, value in values(reported, one[0]["key"]) if name == "counter-duplicate"}
    seen(reported, COUNTER_ANOMALIES, many // 40)


def test_max_registers_get_the_answer_of_the_search(tmp_path: Path, many: int) -> None:
    some = histories(max_register, "max", many)
    reported = by_sql(tmp_path, [row for one in some for row in one], MAX_REGISTERS)
    for one in some:
        assert linearizable(one, None, largest) is (one[0]["key"] not in reported), (one, reported.get(one[0]["key"]))
    seen(reported, MAX_REGISTER_ANOMALIES, many // 40)


def test_elements_of_sets_get_the_answer_of_the_search(tmp_path: Path, many: int) -> None:
    some = histories(some_set, "set", many)
    reported = by_sql(tmp_path, [row for one in some for row in one], SETS)
    removed = 0
    for one in some:
        found = values(reported, one[0]["key"])
        for value in {row["value"] for row in one} - {None}:
            mine = of_element(one, value)
            wrong = {name for name, element_found in found if element_found == value}
            good = linearizable(mine, False, element)
            if any(row["kind"] == "set-remove" and row["outcome"] != "fail" for row in mine):
                assert not wrong or not good, (one, wrong)
                assert wrong <= {"set-phantom"}
                removed += 1
            else:
                assert good is (not wrong), (one, wrong)
                assert wrong_with(mine) == next(iter(wrong - {"set-phantom"}), None), (one, wrong)
    assert removed > many // 40
    seen(reported, SET_ANOMALIES, many // 250)


def test_queues_get_the_answer_of_every_matching(tmp_path: Path, many: int) -> None:
    some = histories(queue, "queue", many)
    reported = by_sql(tmp_path, [row for one in some for row in one], QUEUES)
    excused = 0
    for one in some:
        found = reported.get(one[0]["key"], set())
        assert sum(name == "queue-lost" for name, _ in found) == queue_losses(one), (one, found)
        wrong = queue_wrong(one)
        assert {(n, v) for n, v in values(reported, one[0]["key"]) if n != "queue-lost"} == wrong, (one, found)
        assert bool(wrong) is bool(queue_unexplained(one)), one
        excused += queue_losses(one) < queue_losses([row for row in one if row["outcome"] != "info"])
    assert excused > many // 100
    seen(reported, QUEUE_ANOMALIES, many // 45)


def step(op: int, kind: str, value: int | None, when: tuple[int, int | None], **given: Any) -> Row:
    ret = None if when[1] is None else when[1] * S
    return effect(
        op, 0, kind, "k", when[0] * S, ret, value=value, process=op, outcome="info" if ret is None else "ok", **given
    )


def fail(op: int, kind: str, value: int | None, when: tuple[int, int]) -> Row:
    return step(op, kind, value, when) | {"outcome": "fail"}


HAVE = [
    (COUNTERS, "counter-duplicate",
     [step(1, "counter-add", 0, (1, 3)), step(2, "counter-add", 0, (2, 4))],
     [step(1, "counter-add", 0, (1, 3)), step(2, "counter-add", 1, (2, 4))],
     "k: process 1 (called at 1.000 s) and process 2 (called at 2.000 s) were given the same 0"),
    (COUNTERS, "counter-order",
     [step(1, "counter-add", 1, (1, 2)), step(2, "counter-add", 0, (3, 4))],
     [step(1, "counter-add", 1, (1, 3)), step(2, "counter-add", 0, (3, 4))],
     "process 2 has been given 0 by an add called at 3.000 s, although process 1 had been given 1 by an add by 2.000"),
    (COUNTERS, "counter-phantom",
     [step(1, "counter-add", None, (5, None)), step(2, "counter-add", 0, (1, 2)), step(3, "counter-read", 2, (3, 4))],
     [step(1, "counter-add", None, (4, None)), step(2, "counter-add", 0, (1, 2)), step(3, "counter-read", 2, (3, 4))],
     "process 3 had read 2 by 4.000 s. Only 1 of the 2 adds below 2 had been acknowledged, and of those of unknown "
     "outcome number 1 was called only at 5.000 s."),
    (MAX_REGISTERS, "max-phantom",
     [step(1, "max-read", 5, (3, 4)), fail(2, "max-write", 5, (1, 2))],
     [step(1, "max-read", 5, (3, 4)), step(2, "max-write", 5, (1, None))],
     "process 1 read 5 at 3.000 s, but its write by process 2 at 1.000 s had definitely failed."),
    (MAX_REGISTERS, "max-order",
     [step(1, "max-write", 5, (1, 2)), step(2, "max-write", 3, (1, 4)), step(3, "max-read", 3, (3, 4))],
     [step(1, "max-write", 5, (1, 3)), step(2, "max-write", 3, (1, 4)), step(3, "max-read", 3, (3, 4))],
     "k: process 3 read 3, called at 3.000 s, although process 1 had written 5 by 2.000 s."),
    (MAX_REGISTERS, "max-order",
     [step(1, "max-write", 5, (1, 2)), step(2, "max-write", 3, (3, 6)), step(3, "max-read", 3, (0, 4))],
     [step(1, "max-write", 5, (1, 2)), step(2, "max-write", 3, (3, 6)), step(3, "max-read", None, (0, 4))],
     "3 was read as the largest by process 3, and no one began to write it before process 2 did at 3.000 s, although "
     "process 1 had written 5 by 2.000 s."),
    (SETS, "set-lost",
     [step(1, "set-add", 7, (1, 2)), step(2, "set-read", None, (3, 4))],
     [step(1, "set-add", 7, (1, 3)), step(2, "set-read", None, (3, 4))],
     "the add of 7 by process 1 was acknowledged at 2.000 s, and the read by process 2, called at 3.000 s, lacks it; "
     "no read ever showed it."),
    (SETS, "set-stale",
     [step(1, "set-add", 7, (1, 2)), step(2, "set-read", None, (3, 4)), step(3, "set-read", 7, (5, 6))],
     [step(1, "set-add", 7, (1, 3)), step(2, "set-read", None, (3, 4)), step(3, "set-read", 7, (5, 6))],
     "lacks it; the first to show it, by process 3, returned at 6.000 s."),
    (SETS, "set-stale",  # a read that begins as the add returns need not show the element, so it is not counted
     [step(1, "set-add", 7, (1, 3)), step(2, "set-read", 7, (3, 6)), step(3, "set-read", None, (4, 5))],
     [step(1, "set-add", 7, (1, 3)), step(2, "set-read", 7, (3, 6)), step(3, "set-read", None, (3, 5))],
     "lacks it; the first to show it, by process 2, returned at 6.000 s."),
    (SETS, "set-vanished",
     [step(1, "set-add", 7, (1, None)), step(2, "set-read", 7, (3, 4)), step(3, "set-read", None, (5, 6))],
     [step(1, "set-add", 7, (1, None)), step(2, "set-read", 7, (3, 5)), step(3, "set-read", None, (5, 6))],
     "7 was in a read by process 2 that returned at 4.000 s, and the read by process 3, called at 5.000 s, lacks it."),
    (SETS, "set-phantom",
     [step(1, "set-add", 7, (5, 6)), step(2, "set-read", 7, (3, 4))],
     [step(1, "set-add", 7, (4, 6)), step(2, "set-read", 7, (3, 4))],
     "7 was in a read by process 2 that returned at 4.000 s, before process 1 began to add it at 5.000 s."),
    (QUEUES, "queue-lost",
     [step(1, "queue-enqueue", 7, (1, 2)), step(2, "queue-drained", None, (3, 4))],
     [step(1, "queue-enqueue", 7, (1, 2)), step(2, "queue-drained", None, (3, 4)),
      step(3, "queue-dequeue", None, (2, None))],
     "7 was acknowledged to process 1 at 2.000 s and never dequeued, though the drain that was called at 3.000 s"),
    (QUEUES, "queue-duplicate",
     [step(1, "queue-enqueue", 7, (1, 2)), step(2, "queue-dequeue", 7, (3, 4)), step(3, "queue-dequeue", 7, (5, 6))],
     [step(1, "queue-enqueue", 7, (1, 2)), step(2, "queue-dequeue", 7, (3, 4)), step(3, "queue-dequeue", 7, (5, 6)),
      step(4, "queue-enqueue", 7, (1, None))],
     "7 was enqueued once and dequeued 2 times, by process 2 at 4.000 s and again by process 3 at 6.000 s."),
    (QUEUES, "queue-phantom",
     [step(1, "queue-enqueue", 7, (5, 6)), step(2, "queue-dequeue", 7, (3, 4))],
     [step(1, "queue-enqueue", 7, (4, 6)), step(2, "queue-dequeue", 7, (3, 4))],
     "7 was dequeued by process 2, which returned at 4.000 s, before process 1 began to enqueue it at 5.000 s."),
]  # fmt: skip


@pytest.mark.parametrize(("family", "anomaly", "bad", "good", "words"), HAVE)
def test_it_is_found_and_its_neighbour_is_not(
    tmp_path: Path, family: Family, anomaly: str, bad: list[Row], good: list[Row], words: str
) -> None:
    reported = []
    with opened(write(tmp_path / "bad" / "history", bad)) as engine:
        register_contract(engine, Contract())
        assert family.prepare is not None
        family.prepare(engine)
        for check in family.checks:
            create_views(engine, check.views)
            reported += read_findings(engine, check)
    (finding,) = reported
    assert finding.anomaly == anomaly
    assert words in finding.claim
    assert by_sql(tmp_path / "good", good, family) == {}
    if anomaly != "counter-phantom":  # of adds there are too few
        named = by_sql(tmp_path / "named", [row for row in bad if row["op"] in finding.operations], family)
        assert anomaly in {name for name, _ in named["k"]}, "what is named proves it"


def test_a_kind_that_does_not_name_its_object_is_reported(tmp_path: Path) -> None:
    rows = [step(op, "add", op, (2 * op + 1, 2 * op + 2)) for op in range(20)]
    judged = judge(write(tmp_path / "history", rows), Contract())
    assert judged.verdict is Verdict.UNKNOWN
    assert any("k has effects of a kind that does not name its object" in reason for reason in judged.unknown)
    named = [row | {"kind": "counter-add"} for row in rows]
    judged = judge(write(tmp_path / "named" / "history", named), Contract())
    assert not any("name its object" in reason for reason in judged.unknown)


def test_a_queue_is_no_log_and_its_loss_is_unknown_without_a_drain(tmp_path: Path) -> None:
    rows = [
        step(
            2 * op + kind, ("queue-enqueue", "queue-dequeue")[kind], op, (4 * op + 2 * kind + 1, 4 * op + 2 * kind + 2)
        )
        for op in range(8)
        for kind in (0, 1)
    ]
    judged = judge(write(tmp_path / "open" / "history", rows), Contract())
    assert (judged.verdict, judged.anomalies) == (Verdict.UNKNOWN, {})
    assert any("queue-lost cannot be judged for k: no drain" in reason for reason in judged.unknown)
    assert {one.check for one in judged.examined} == {*QUEUE_ANOMALIES, "no-recovery"}
    judged = judge(
        write(tmp_path / "whole" / "history", [*rows, step(20, "queue-drained", None, (60, 61))]), Contract()
    )
    assert judged.verdict is Verdict.PASS, judged.unknown


def test_a_drain_of_unknown_outcome_may_have_taken_whatever_is_missing(tmp_path: Path) -> None:
    """A drain takes any number of elements, a dequeue takes one. If no element is missing, the drain took none."""
    added = [step(op, "queue-enqueue", op, (2 * op + 1, 2 * op + 2)) for op in range(5)]
    drained = step(20, "queue-drained", None, (60, 61))
    taken = [step(10 + op, "queue-dequeue", op, (40 + 2 * op, 41 + 2 * op)) for op in range(5)]
    given_up = step(21, "queue-drained", None, (30, None))

    def judged(name: str, *rows: Row) -> Judgement:
        return judge(write(tmp_path / name / "history", [*added, *rows]), Contract())

    assert judged("lost", drained).anomalies == {"queue-lost": 5}
    assert judged("dequeue", drained, step(21, "queue-dequeue", None, (30, None))).anomalies == {"queue-lost": 4}
    doubted = judged("drain", drained, given_up)
    assert (doubted.verdict, doubted.anomalies) == (Verdict.UNKNOWN, {})
    assert any("5 acknowledged elements were never dequeued, but a drain" in reason for reason in doubted.unknown)
    passed = judged("all", *taken, drained, given_up)
    assert passed.verdict is Verdict.PASS, passed.unknown
