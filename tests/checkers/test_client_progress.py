"""Clients that go on failing: by hand, their nearest legal neighbours, and many small histories by looking at all."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.checkers.check import LONG_STANDSTILL, create_views, read_findings
from assay.checkers.engine import DuckDB, Engine, SQLite
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.history_views import register_contract, register_history
from assay.checkers.judging.verdict import Finding, Verdict
from assay.checkers.liveness.client_progress import MIN_TRIES, PROGRESS, STUCK_CLIENT

from helpers.judging import TABLES, Opens, judge, opened
from helpers.log_histories import Row, effect, write

S = 1_000_000_000
DEADLINE = 5.0
FOREVER = float("inf")
Tries = list[tuple[float, str, bool]]
"""Call in seconds, the worker, whether it succeeded; each lasts half a second."""
LASTS = 0.5


def tries(*some: tuple[float, str, bool], name: str = "regular", key: str = "orders-0", first: int = 0) -> list[Row]:
    return [
        effect(op, 0, "tried", key, int(call * S), int((call + LASTS) * S), client=name, worker=worker, process=op,
               outcome="ok" if done else "fail")
        for op, (call, worker, done) in enumerate(some, first)
    ]  # fmt: skip


def fault(injected: float, healed: float | None, recovered: float | None, *, dead: bool, clients: bool = False) -> list:
    times = {"intended": injected, "injected": injected, "healed": healed, "recovered": recovered}
    return [
        {"id": int(injected * 1000), "fault": "any", "targets": "[]", "phase": phase, "time": int(time * S),
         "detail": "{}", "ends_process": dead, "on_clients": clients}
        for phase, time in times.items() if time is not None
    ]  # fmt: skip


def aimed(rows: list[Row], *targets: str) -> list[Row]:
    """As they are written: only from its injection on a fault has targets, which clients may live on or not."""
    return [
        row | ({"on_clients": False} if row["phase"] == "intended" else {"targets": json.dumps(targets)})
        for row in rows
    ]


def missed(stage: str) -> list[Row]:
    """A fault that failed."""
    known = {"id": 1, "fault": "any", "targets": "[]", "detail": "{}", "ends_process": False, "on_clients": False}
    return [{**known, "phase": "intended", "time": 0}, {**known, "phase": "failed", "time": S, "stage": stage}]


def later(not_before: int) -> list[Row]:
    """A fault after the last try, that was not to begin before this second; its intention is written down at once."""
    rows = fault(9, 10, 11, dead=False)
    return [{**rows[0], "time": 0, "not_before": not_before * S}, *rows[1:]]


def found(folder: Path, rows: Sequence[Row], faults: Sequence[Row] = ()) -> list[Finding]:
    with opened(write(folder / "history", rows, faults=faults)) as engine:
        register_contract(engine, Contract(progress_deadline=DEADLINE))
        create_views(engine, STUCK_CLIENT.views)
        return read_findings(engine, STUCK_CLIENT)


STUCK: Tries = [(call, "w1", False) for call in (0, 2, 4, 6, 7)]
SERVED: Tries = [(call, "w2", True) for call in (1, 3, 5)]

HAVE: dict[str, tuple[Sequence[Row], Sequence[Row]]] = {
    "while nothing is wrong": (tries(*STUCK, *SERVED), []),
    "while a server is gone": (tries(*STUCK, *SERVED), fault(0.5, 20, 21, dead=True)),
    "after all is healed": (
        tries(*STUCK, *[(call, "w1", False) for call in (9, 11, 13)], *SERVED, (7, "w2", True), (12, "w2", True)),
        fault(0.5, 4, 6, dead=False),
    ),
    "while a server is gone, which was no target yet when that was intended": (
        tries(*STUCK, *SERVED), aimed(fault(0.5, 20, 21, dead=True), "n1"),
    ),
    "a fault found no target": (tries(*STUCK, *SERVED), missed("target")),
    "a fault is not to begin before it is over": (tries(*STUCK, *SERVED), later(8)),
    "while its own worker's newcomers succeed": (
        tries(*STUCK) + tries(*[(call, "w1", True) for call, _, _ in SERVED], name="newcomer", first=10), [],
    ),
}  # fmt: skip
HAVE_NOT: dict[str, tuple[Sequence[Row], Sequence[Row]]] = {
    "it succeeded once": (tries(*STUCK, (4.5, "w1", True), *SERVED), []),
    "no one else does": (tries(*STUCK), []),
    "others succeed at something else": (tries(*STUCK) + tries(*SERVED, key="orders-1", first=10), []),
    "others do no more": (tries(*STUCK, (1, "w2", True), (3, "w2", True)), []),
    "not for long enough": (tries(*[(call, "w1", False) for call in (0, 2, 4, 6)], *SERVED), []),
    "others can do it only now": (tries(*STUCK, (5, "w2", True)), []),
    "it tried too seldom": (tries((0, "w1", False), (1.2, "w1", False), (7, "w1", False), *SERVED), []),
    "links are cut": (tries(*STUCK, *SERVED), fault(0.5, 20, 21, dead=False)),
    "a fault may have begun although it failed": (tries(*STUCK, *SERVED), missed("inject")),
    "a fault may have begun before it was written down": (tries(*STUCK, *SERVED), later(6)),
    "a client is gone": (tries(*STUCK, *SERVED), fault(0.5, 20, 21, dead=True, clients=True)),
    "a client is gone, which was no target yet when that was intended": (
        tries(*STUCK, *SERVED),
        aimed(fault(0.5, 20, 21, dead=True, clients=True)),
    ),
    "ZooKeeper is gone": (tries(*STUCK, *SERVED), aimed(fault(0.5, 20, 21, dead=True), "zk1")),
    "a server is gone, and one of ZooKeeper's too": (
        tries(*STUCK, *SERVED),
        aimed(fault(0.5, 20, 21, dead=True), "n1", "zk12"),
    ),
    "the server came back meanwhile": (tries(*STUCK, *SERVED), fault(0.5, 3, 4, dead=True)),
    "the server went in the middle": (tries(*STUCK, *SERVED), fault(2.5, 20, 21, dead=True)),
}


@pytest.mark.parametrize(("rows", "faults"), HAVE.values(), ids=HAVE)
def test_it_is_found(rows: list[Row], faults: list[Row], tmp_path: Path) -> None:
    assert [finding.anomaly for finding in found(tmp_path, rows, faults)] == ["stuck-client"]


@pytest.mark.parametrize(("rows", "faults"), HAVE_NOT.values(), ids=HAVE_NOT)
def test_its_neighbour_is_not(rows: list[Row], faults: list[Row], tmp_path: Path) -> None:
    assert found(tmp_path, rows, faults) == []


def test_a_tester_that_stood_still_accuses_no_one_of_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "history", tries(*STUCK, *SERVED))
    contract = msgspec.structs.replace(forbid("stuck-client"), progress_deadline=DEADLINE)
    families = (*TABLES, PROGRESS)
    assert judge(folder, contract, families=families, stood_still=LONG_STANDSTILL - 0.1).verdict is Verdict.FAIL
    judged = judge(folder, contract, families=families, stood_still=LONG_STANDSTILL)
    assert (judged.verdict, judged.anomalies) == (Verdict.UNKNOWN, {"stuck-client": 1})


def test_a_finding_names_the_last_try_and_the_first_success_of_another(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, tries(*STUCK, *SERVED))
    assert finding.operations == (4, 5)
    assert finding.claim == (
        "All 4 tries of a regular client of w1 at orders-0 failed from 1.500 s to 7.000 s, the last by process 4, "
        "though 3 tries of others succeeded in that time, the first by process 5; the contract's deadline is 5.000 s."
    )


def wrong(some: Tries) -> bool:
    """By looking at every run of failures of every worker."""
    for worker in {worker for _, worker, _ in some}:
        own = sorted(one for one in some if one[1] == worker)
        for first in range(len(own)):
            for last in range(first, len(own)):
                streak = own[first : last + 1]
                if any(done for _, _, done in streak):
                    break
                whole = (first == 0 or own[first - 1][2]) and (last + 1 == len(own) or own[last + 1][2])
                if whole and _overdue(streak, [one for one in some if one[1] != worker and one[2]]):
                    return True
    return False


def _overdue(streak: Tries, others: Tries) -> bool:
    end = streak[-1][0]
    calls = [call for call, _, _ in others if streak[0][0] <= call <= end]
    if not calls:
        return False
    served = min(calls) + LASTS
    seen = [call for call, _, _ in streak if call >= served]
    return end - served >= DEADLINE and max(calls) >= end - DEADLINE / 2 and len(seen) >= MIN_TRIES


def many() -> tuple[list[Row], set[str]]:
    """Histories of one key each, and the keys at which a client is stuck."""
    rows: list[Row] = []
    expected = set()
    for number in range(200):
        rng = random.Random(number)
        likely = {"w1": rng.choice((0.0, 0.1, 0.9)), "w2": rng.random(), "w3": rng.random()}
        some: Tries = []
        for call in sorted(rng.sample(range(160), 24)):
            worker = rng.choice(sorted(likely))
            some.append((call / 10, worker, rng.random() < likely[worker]))
        key = f"orders-{number}"
        rows += tries(*some, key=key, first=len(rows))
        if wrong(some):
            expected.add(key)
    return rows, expected


def judged(engine: Engine, folder: Path) -> list[dict[str, Any]]:
    register_history(engine, folder)
    register_contract(engine, Contract(progress_deadline=DEADLINE))
    create_views(engine, STUCK_CLIENT.views)
    return engine.rows(f"select * from {STUCK_CLIENT.found} order by key, worker, last_call")


def test_it_says_what_looking_at_every_client_says(tmp_path: Path) -> None:
    rows, expected = many()
    assert 20 < len(expected) < 180
    with SQLite() as engine:
        assert {row["key"] for row in judged(engine, write(tmp_path / "history", rows))} == expected


def test_two_engines_say_the_same(tmp_path: Path, other: Opens) -> None:
    rows, expected = many()
    folder = write(tmp_path / "history", rows, faults=fault(4.0, 9.0, 9.5, dead=True))
    with other(len(rows)) as second, DuckDB() as duck:
        by_other, by_duck = (judged(engine, folder) for engine in (second, duck))
    assert by_other == by_duck
    assert 0 < len(by_duck) < len(expected)
