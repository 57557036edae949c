"""A group that never comes to rest, its nearest legal neighbours, and an oracle over random groups."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.groups.rebalance_churn import REBALANCE_CHURN, RESTLESS_GROUP
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding

from helpers.judging import opened
from helpers.log_histories import Row, effect, write
from helpers.looks import fault
from helpers.restless_histories import DEADLINE, Random, Rest

CONTRACT = Contract(group_deadline=DEADLINE)
S = 1_000_000_000


def found(folder: Path, rest: Rest, faults: Sequence[Row] = (), more: Sequence[Row] = ()) -> list[Finding]:
    history = write(folder / "history", [*rest.rows, *more], ops=rest.ops, faults=faults)
    with opened(history) as engine:
        assert engine.rows(REBALANCE_CHURN.applies)[0]["examined"]
        register_contract(engine, CONTRACT)
        create_views(engine, RESTLESS_GROUP.views)
        return read_findings(engine, RESTLESS_GROUP)


def restless(last: int = 16) -> Rest:
    """Two members, who enter a generation every two seconds."""
    made = Rest()
    for process in (0, 1):
        made.polls(0, last, process)
        for at in range(0, last, 2):
            made.enters(at, 5 + at // 2, process)
    return made


def test_a_group_that_rebalances_for_ever_is_found(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, restless())
    assert (finding.anomaly, finding.key) == ("restless-group", "g")
    assert finding.claim == (
        "Members of g were given 5 new generations, up to 12, from 6.300 s to 14.300 s, although no member had come or "
        "gone and no fault been in force for 6.200 s before; the contract's deadline is 10.000 s."
    )


def late_change(*kinds: str, outcome: str = "ok", process: int = 1) -> Callable[[Rest], None]:
    return lambda rest: rest.does(12.6, process, *kinds, outcome=outcome)


CHANGES: dict[str, Callable[[Rest], None]] = {
    "a member left": late_change("release"),
    "a member that owned nothing left, or was silent": late_change(),
    "a member died": late_change("lost"),
    "a member came": late_change("idle", process=2),
    "a member had no answer": late_change(outcome="info"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_member_that_comes_or_goes_is_a_reason(change: Callable[[Rest], None], tmp_path: Path) -> None:
    rest = restless()
    change(rest)
    assert found(tmp_path / "late", rest) == []
    early = restless(24)
    change(early)
    assert found(tmp_path / "early", early), "it did not come to rest after that"


def test_what_members_do_in_a_rebalance_is_none(tmp_path: Path) -> None:
    rest = restless()
    rest.does(12.6, 1, "lost", outcome="fail")
    rest.does(13.6, 1, "lost", "idle")
    assert found(tmp_path, rest)


@pytest.mark.parametrize(("kind", "is_reason"), [("partitions-add", True), ("topic-delete", True), ("setting", False)])
def test_a_topic_that_changes_is_a_reason(kind: str, is_reason: bool, tmp_path: Path) -> None:
    more = effect(9_000, 0, kind, "orders", 12 * S + 1, 12 * S + 2, process=90, value=8, name="a")
    assert bool(found(tmp_path, restless(), more=[more])) is not is_reason


@pytest.mark.parametrize(("healed", "accused"), [(1, True), (11, False), (None, False)])
def test_a_fault_is_a_reason(healed: int | None, accused: bool, tmp_path: Path) -> None:
    faults = fault([("injected", 0), *([("healed", healed)] if healed else [])])
    assert bool(found(tmp_path, restless(), faults)) is accused


def test_its_legal_neighbours_are_not_found(tmp_path: Path) -> None:
    def none(name: str, rest: Rest) -> None:
        assert found(tmp_path / name, rest) == [], name

    calm = Rest()
    calm.polls(0, 30)
    for at in range(5):
        calm.enters(at, at + 1)
    none("it settles", calm)
    once = Rest()
    once.polls(0, 30)
    once.enters(0, 1)
    once.enters(20, 2)
    none("one generation more", once)
    late = Rest()
    late.polls(0, 30)
    late.polls(0, 30, process=1)
    for at in range(4):
        late.enters(at, at + 1)
        late.enters(at + 20, at + 1, process=1)
    none("a member that learns late of generations that were known", late)
    none("cut short", restless(6))
    pause = restless(4)
    pause.polls(9, 20)
    pause.enters(15, 30)
    pause.enters(17, 31)
    assert found(tmp_path / "long enough after a pause", pause)
    short = restless(14)
    short.rows = [row for row in short.rows if not 4 * S <= row["call"] < 11 * S]
    short.ops = [op for op in short.ops if not 4 * S <= op["call"] < 11 * S]
    none("no one polled for a while", short)
    main = restless()
    for row in (*main.rows, *main.ops):
        row["phase"] = "main"
    none("while it works", main)


def test_random_groups_get_the_answers_of_a_loop(tmp_path: Path) -> None:
    groups = [Random(number, random.Random(number)) for number in range(300)]
    rows, ops = [row for one in groups for row in one.rows], [op for one in groups for op in one.ops]
    with opened(write(tmp_path / "history", rows, ops=ops)) as engine:
        register_contract(engine, CONTRACT)
        create_views(engine, RESTLESS_GROUP.views)
        by_sql = [row["key"] for row in engine.rows(f"select key from {RESTLESS_GROUP.found}")]
    assert sorted(by_sql) == sorted(one.group for one in groups if one.restless)
    assert 20 < len(by_sql) < 200
