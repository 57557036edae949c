"""Generations of groups: each anomaly, its nearest legal neighbour, and every pair of many small histories."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.groups.family import GENERATIONS, GROUP_ANOMALIES
from assay.checkers.groups.generations import GENERATION_REUSE, ZOMBIE_COMMIT
from assay.checkers.groups.ownership_intervals import DOUBLE_OWNERSHIP, HOLD_VIEWS
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding

from helpers.group_histories import group_history, owned_twice, zombies
from helpers.judging import judge, opened
from helpers.log_histories import Row, effect, write

S = 1_000_000_000


def acquire(op: int, generation: int, owner: str, when: tuple[int, int | None], *keys: str, **given: Any) -> list[Row]:
    call, ret = when[0] * S, None if when[1] is None else when[1] * S
    outcome = {"outcome": "ok" if ret is not None else "info"} | given
    return [
        effect(op, sub, "acquire", key, call, ret, group="g", generation=generation, owner=owner, process=op, **outcome)
        for sub, key in enumerate(keys or ("g",))
    ]


def commit(op: int, generation: int | None, when: tuple[int, int | None], outcome: str = "ok") -> Row:
    call, ret = when[0] * S, None if when[1] is None else when[1] * S
    return effect(
        op, 0, "commit", "g/t-0", call, ret, group="g", generation=generation, value=op, process=op, outcome=outcome
    )


def fetched(op: int, value: int, when: tuple[int, int]) -> Row:
    return effect(op, 0, "fetched", "g/t-0", when[0] * S, when[1] * S, group="g", value=value, process=op)


def stored(node: str, generation: int, seq: int = 1) -> Row:
    return {"time": seq, "node": node, "incarnation": 1, "seq": seq, "event": "group-generation", "key": "g",
            "epoch": generation, "detail": "{}"}  # fmt: skip


def found(folder: Path, rows: list[Row], events: list[Row] | None = None) -> list[Finding]:
    with opened(write(folder / "history", rows, events=events or [])) as engine:
        register_contract(engine, Contract())
        reported = []
        for family in GENERATIONS:
            if family.prepare is not None:
                family.prepare(engine)
            for check in family.checks:
                create_views(engine, check.views)
                reported += read_findings(engine, check)
        return reported


HAVE = [
    ("zombie-commit", [*acquire(1, 2, "a", (1, 5)), commit(2, 1, (6, 7))],
     [*acquire(1, 2, "a", (1, 5)), commit(2, 1, (4, 7))],
     "process 2 committed to generation 1 of g, called at 6.000 s, although process 1 had been in"),
    ("zombie-commit", [*acquire(1, 2, "a", (1, 5)), commit(2, 1, (6, None), "info"), fetched(3, 2, (8, 9))],
     [*acquire(1, 2, "a", (1, 5)), commit(2, 1, (6, None), "info"), fetched(3, 7, (8, 9))],
     "process 1 had been in generation 2 by 5.000 s; process 3 fetched it."),
    ("zombie-commit", [commit(1, 2, (1, 9)), fetched(3, 1, (3, 5)), commit(2, 1, (6, 7))],
     [commit(1, 2, (1, 9)), fetched(3, 1, (3, 6)), commit(2, 1, (6, 7))],
     "although process 1 had committed to generation 2, which process 3 had fetched by 5.000 s."),
    ("zombie-commit", [commit(1, 2, (1, 5)), commit(2, 1, (6, 7))],
     [commit(1, 2, (1, 5)), commit(2, 1, (6, 7), "fail")], "process 2 committed"),
    ("zombie-commit", [*acquire(1, 2, "a", (1, 5)), commit(2, 1, (6, 7))],
     [*acquire(1, 2, "a", (1, 5)), *acquire(2, 1, "b", (6, 7))], "process 2 committed to generation 1"),
    ("zombie-commit", [*acquire(1, 2, "a", (1, 5)), commit(2, 1, (6, 7))],
     [*acquire(1, 2, "a", (1, None)), commit(2, 1, (6, 7))], "process 2 committed"),
    ("zombie-commit", [*acquire(1, 2, "a", (1, 5)), commit(2, 1, (6, 7))],
     [*acquire(1, 2, "a", (1, 5)), commit(2, None, (6, 7))], "process 2 committed"),
    ("double-ownership", [*acquire(1, 2, "a", (1, 5), "t-0", "t-1"), *acquire(2, 2, "b", (1, 6), "t-1")],
     [*acquire(1, 2, "a", (1, 5), "t-0", "t-1"), *acquire(2, 3, "b", (1, 6), "t-1")],
     "t-1 of g had two owners in generation 2: a (process 1) and b (process 2)"),
    ("double-ownership", [*acquire(1, 2, "a", (1, 5), "t-0"), *acquire(2, 2, "b", (1, 6), "t-0")],
     [*acquire(1, 2, "a", (1, 5), "t-0"), *acquire(2, 2, "a", (7, 8), "t-0"), *acquire(3, 2, "b", (1, 6))],
     "t-0 of g had"),
]  # fmt: skip


@pytest.mark.parametrize(("anomaly", "bad", "good", "words"), HAVE, ids=[f"{i}-{h[0]}" for i, h in enumerate(HAVE)])
def test_it_is_found_and_its_neighbour_is_not(
    tmp_path: Path, anomaly: str, bad: list[Row], good: list[Row], words: str
) -> None:
    reported = found(tmp_path / "bad", bad)
    assert [one.anomaly for one in reported] == [anomaly]
    assert words in reported[0].claim
    assert found(tmp_path / "good", good) == []


def test_a_generation_that_was_stored_twice_is_found(tmp_path: Path) -> None:
    reported = found(tmp_path / "bad", [], [stored("n1", 3), stored("n2", 3)])
    assert [(one.anomaly, one.claim) for one in reported] == [
        ("generation-reuse", "Generation 3 of g was stored 2 times, by n1 and by n2.")
    ]
    assert found(tmp_path / "good", [], [stored("n1", 3), stored("n2", 4), stored("n1", 5, seq=2)]) == []


def test_a_group_that_was_forgotten_begins_again(tmp_path: Path) -> None:
    forgotten = stored("n1", 3, seq=2) | {"event": "group-forgotten"}
    rows = [*acquire(1, 2, "a", (1, 5)), commit(2, 1, (6, 7))]
    assert found(tmp_path / "history", rows, [stored("n1", 3), forgotten, stored("n2", 3, seq=9)]) == []
    (thrice,) = found(tmp_path / "thrice", rows, [*(stored(f"n{n}", 3, n) for n in (1, 2, 3)), forgotten])
    assert thrice.claim == (
        "Generation 3 of g was stored 3 times, by n1 and by n3, although the group began again no more than 1 times."
    )
    other = forgotten | {"key": "another"}
    reported = found(tmp_path / "other", rows, [stored("n1", 3), other, stored("n2", 3, seq=9)])
    assert {one.anomaly for one in reported} == {"zombie-commit", "generation-reuse"}


def test_every_pair_of_many_histories(tmp_path: Path) -> None:
    histories = {
        f"g{number}": group_history(f"g{number}", random.Random(number), number * 100) for number in range(600)
    }
    rows = [row for history in histories.values() for row in history]
    with opened(write(tmp_path / "history", rows)) as engine:
        create_views(engine, (*HOLD_VIEWS, *ZOMBIE_COMMIT.views, *DOUBLE_OWNERSHIP.views))
        late = {(row["key"], row["place"]) for row in engine.rows("select key, place from found_zombie_commit")}
        twice = {
            (row["group_name"], row["key"], row["term"])
            for row in engine.rows("select group_name, key, term from found_double_ownership")
        }
    assert late == {instance for history in histories.values() for instance in zombies(history)}
    assert twice == {instance for history in histories.values() for instance in owned_twice(history)}
    assert late
    assert twice
    assert len({key for key, _ in late}) < len(histories), "some are right"


def test_a_history_of_a_group_is_judged_by_all_that_applies(tmp_path: Path) -> None:
    rows = [*acquire(1, 2, "a", (1, 5), "t-0"), commit(2, 2, (6, 7)), fetched(3, 2, (8, 9))]
    judged = judge(write(tmp_path / "history", rows, events=[stored("n1", 2)]), forbid(*GROUP_ANOMALIES, "stale-read"))
    assert {one.check for one in judged.examined} >= {*GROUP_ANOMALIES, "stale-read", "missing-writer"}
    assert not judged.anomalies
    assert not any("no data" in reason for reason in judged.unknown)


def test_a_commit_that_goes_back_is_a_stale_read(tmp_path: Path) -> None:
    rows = [commit(1, 1, (1, 2)), commit(2, 1, (3, 4)), fetched(3, 1, (5, 6))]
    assert set(judge(write(tmp_path / "history", rows), forbid("stale-read")).anomalies) == {"stale-read"}
    rows = [commit(1, 1, (1, 2)), commit(2, 1, (3, 4)), fetched(3, 2, (5, 6))]
    assert not judge(write(tmp_path / "good", rows), forbid("stale-read")).anomalies


def test_generation_reuse_is_of_a_family_of_its_own() -> None:
    assert GENERATION_REUSE.anomaly in GROUP_ANOMALIES
