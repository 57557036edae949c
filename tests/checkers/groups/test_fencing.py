"""Fencing tokens: each way of breaking them, its nearest legal neighbour, and every pair of many small histories."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import create_views
from assay.checkers.groups.family import FENCING
from assay.checkers.groups.fencing import FENCING_VIOLATION
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding, Verdict

from helpers.fencing_histories import lease_history, violations
from helpers.judging import TABLES, judge, opened
from helpers.log_histories import Row, effect, write
from helpers.nightly import by_night

S = 1_000_000_000
ANOMALY = FENCING_VIOLATION.anomaly


def step(op: int, kind: str, token: int, when: tuple[int, int | None], **given: Any) -> Row:
    ret = None if when[1] is None else when[1] * S
    outcome = {"outcome": "info" if ret is None else "ok", "owner": f"o{token}"} | given
    return effect(op, 0, kind, "lock", when[0] * S, ret, token=token, process=op, **outcome)


def stale(op: int, token: int, when: tuple[int, int], kind: str = "guarded", error: str = "stale-epoch") -> Row:
    return step(op, kind, token, when, outcome="fail", error=error)


def found(folder: Path, rows: list[Row], contract: Contract | None = None) -> list[Finding]:
    judged = judge(write(folder / "history", rows), contract or forbid(ANOMALY), families=(*TABLES, FENCING))
    reported = [finding for finding in judged.findings if finding.anomaly == ANOMALY]
    assert judged.anomalies.get(ANOMALY, 0) == len(reported), "each that is counted is reported"
    return reported


HAVE = [
    ([step(1, "acquire", 4, (1, 5)), step(2, "guarded", 3, (6, 7))],
     [step(1, "acquire", 4, (1, 5)), step(2, "guarded", 3, (4, 7))],
     "lock: process 2 has had something accepted under token 3 in an operation called at 6.000 s, although process 1 "
     "had been given token 4 by 5.000 s."),
    ([step(1, "guarded", 4, (1, 5)), step(2, "guarded", 3, (6, 7))],
     [step(1, "guarded", 4, (1, 5)), step(2, "guarded", 4, (6, 7))], "process 1 had had something accepted under"),
    ([step(1, "guarded", 4, (1, 5)), step(2, "guarded", 3, (6, 7))],
     [step(1, "guarded", 4, (1, None)), step(2, "guarded", 3, (6, 7))], "process 2 has had something accepted"),
    ([step(1, "guarded", 4, (1, 5)), step(2, "guarded", 3, (6, 7))],
     [step(1, "guarded", 4, (1, 5)), step(2, "guarded", 3, (6, None))], "in an operation called at 6.000 s"),
    ([stale(1, 3, (1, 5)), step(2, "guarded", 3, (6, 7))],
     [stale(1, 3, (1, 5), error="no-such-lease"), step(2, "guarded", 3, (6, 7))],
     "although process 1 had learned by 5.000 s that token 3 is stale."),
    ([stale(1, 3, (1, 5)), step(2, "guarded", 2, (6, 7))],
     [stale(1, 3, (1, 5)), step(2, "guarded", 4, (6, 7))], "under token 2"),
    ([step(1, "guarded", 4, (1, 5)), step(2, "acquire", 3, (6, 7))],
     [step(1, "guarded", 4, (1, 5)), stale(2, 3, (6, 7))], "process 2 has been given token 3"),
    ([step(1, "acquire", 4, (1, 5)), step(2, "renew", 3, (6, 7)), step(3, "guarded", 5, (8, 9))],
     [step(1, "acquire", 4, (1, 5)), stale(2, 3, (6, 7), "renew"), step(3, "guarded", 5, (8, 9))],
     "process 2 has had its lease renewed under token 3"),
    ([step(1, "guarded", 3, (1, 2)), step(2, "acquire", 3, (3, 4))],
     [step(0, "acquire", 3, (0, 1)), step(1, "guarded", 3, (2, 3)), step(2, "acquire", 3, (4, 5))],
     "process 2 has been given token 3 in an operation called at 3.000 s"),
    ([step(1, "guarded", 4, (1, 5), group="a"), step(2, "guarded", 3, (6, 7), group="a")],
     [step(1, "guarded", 4, (1, 5), group="a"), step(2, "guarded", 3, (6, 7), group="b")], "under token 3"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "good", "words"), HAVE)
def test_it_is_found_and_its_neighbour_is_not(tmp_path: Path, bad: list[Row], good: list[Row], words: str) -> None:
    reported = found(tmp_path / "bad", bad)
    assert len(reported) == 1
    assert words in reported[0].claim
    assert found(tmp_path / "good", good) == []


def test_a_guard_that_learns_by_requests_cannot_know_of_an_acquire(tmp_path: Path) -> None:
    contract = Contract(forbidden=(ANOMALY,), fenced_by_requests=True)
    rows = [step(1, "acquire", 4, (1, 5)), step(2, "guarded", 3, (6, 7)), step(3, "guarded", 4, (8, 9))]
    assert found(tmp_path / "good", rows, contract) == []
    rows.append(step(4, "guarded", 3, (10, 11)))
    (reported,) = found(tmp_path / "bad", rows, contract)
    assert reported.operations == (4, 3)


def test_nothing_is_owed_where_nothing_is_guarded(tmp_path: Path) -> None:
    judged = judge(write(tmp_path / "history", [step(1, "acquire", 4, (1, 5))]), Contract())
    assert ANOMALY not in {one.check for one in judged.examined}
    judged = judge(write(tmp_path / "guarded", [step(1, "guarded", 4, (1, 5))]), forbid(ANOMALY))
    assert {one.check: one.rows for one in judged.examined}[ANOMALY] == 1
    assert judged.verdict is Verdict.UNKNOWN, "one operation is not enough"


@pytest.mark.parametrize("count", [700, by_night(2500)])
@pytest.mark.parametrize("by_requests", [False, True])
def test_every_pair_of_many_histories(tmp_path: Path, by_requests: bool, count: int) -> None:
    histories = [lease_history(f"l{n}", random.Random(f"leases/{n}"), n * 100) for n in range(count)]
    with opened(write(tmp_path / "history", [row for one in histories for row in one])) as engine:
        register_contract(engine, Contract(fenced_by_requests=by_requests))
        create_views(engine, FENCING_VIOLATION.views)
        reported = {
            (row["key"], row["place"]) for row in engine.rows(f"select key, place from {FENCING_VIOLATION.found}")
        }
    assert reported == {instance for one in histories for instance in violations(one, by_requests)}
    assert count // 25 < len({key for key, _ in reported}) < count - count // 25
