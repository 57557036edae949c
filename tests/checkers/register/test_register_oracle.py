"""The register checks' verdict per key equals that of a search over every order, on thousands of small histories."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from assay.checkers.check import create_views
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.register.family import PREPARED, REGISTER, REGISTER_ANOMALIES, REGISTER_CAS

from helpers.judging import opened
from helpers.log_histories import Row, write
from helpers.register_histories import SimulatedRegister, broken
from helpers.register_oracle import linearizable

pytestmark = pytest.mark.slow


def simulated(seed: int, index: int, *, versions: bool = False) -> list[Row]:
    """History ``index``: a key and operation numbers of its own."""
    rng = random.Random(f"{seed}/{index}")
    return SimulatedRegister(f"r-{index}", rng, index * 1000, versions=versions).run(rng.randint(3, 14))


def by_sql(folder: Path, histories: list[list[Row]]) -> dict[str, set[str]]:
    """The anomalies of each key."""
    found: dict[str, set[str]] = {}
    with opened(write(folder, [row for history in histories for row in history])) as engine:
        register_contract(engine, Contract())
        create_views(engine, REGISTER.views)
        assert PREPARED(engine) == []
        for check in (*REGISTER.checks, *REGISTER_CAS.checks):
            create_views(engine, check.views)
            for row in engine.rows(f"select key from {check.found}"):
                found.setdefault(row["key"], set()).add(check.anomaly)
    return found


def all_versions_known(rows: list[Row]) -> bool:
    """Whether each value that took part has a version: then versions are judged to the full."""
    used = [row for row in rows if row["outcome"] == "ok" and row["value"] is not None]
    expected = {row["expected"] for row in used if row["kind"] == "register-cas"} - {None}
    known = {row["value"] for row in used if row["version"] is not None}
    infos = {row["expected"] for row in rows if row["kind"] == "register-cas" and row["outcome"] == "info"} - {None}
    return {row["value"] for row in used} | expected | infos <= known


@pytest.fixture(params=[200, pytest.param(1500, marks=pytest.mark.long)])
def count(request: pytest.FixtureRequest) -> int:
    """The number of histories. Twice as many of them are made if they are broken."""
    number: int = request.param
    return number


@pytest.mark.parametrize("versions", [False, True])
def test_a_correct_register_raises_no_alarm(tmp_path: Path, count: int, versions: bool) -> None:
    histories = [simulated(1, index, versions=versions) for index in range(count)]
    assert all(linearizable(history, versions=versions) for history in histories[::10])
    assert by_sql(tmp_path / "history", histories) == {}


def test_broken_histories_get_the_answer_of_the_search(tmp_path: Path, count: int) -> None:
    rng = random.Random(2)
    histories = [history for index in range(2 * count) if (history := broken(simulated(2, index), rng))]
    found = by_sql(tmp_path / "history", histories)
    total: Counter[str] = Counter()
    for history in histories:
        key = history[0]["key"]
        assert linearizable(history) is (key not in found), (key, found.get(key), history)
        total.update(found.get(key, {"linearizable"}))
    assert set(total) == {*REGISTER_ANOMALIES, "linearizable"}
    assert min(total.values()) > count // 40, total


def test_versions_get_the_answer_of_the_search_where_each_value_has_one(tmp_path: Path, count: int) -> None:
    rng = random.Random(3)
    histories = [history for index in range(2 * count) if (history := broken(simulated(3, index, versions=True), rng))]
    found = by_sql(tmp_path / "history", histories)
    answers: Counter[str] = Counter()
    for history in histories:
        key, good = history[0]["key"], linearizable(history, versions=True)
        if all_versions_known(history):
            assert good is (key not in found), (key, found.get(key), history)
            answers["only by versions"] += not good and linearizable(history)
        else:
            assert not good or key not in found, (key, found.get(key), history)
            answers["missed"] += not good and key not in found
    assert answers["only by versions"] > count // 30


def test_committed_offsets_get_the_answer_of_the_search_no_matter_who_commits(tmp_path: Path, count: int) -> None:
    """A commit is a write of its number, a fetch a read: by members, by those who are none, and by both."""
    rng = random.Random(4)
    histories = []
    for index in range(count):
        register = SimulatedRegister(f"g/t-{index}", random.Random(f"4/{index}"), index * 1000)
        register.weights = (5, 6, 0)
        members = rng.choice((0.0, 0.5, 1.0))
        history = register.run(rng.randint(3, 14))
        history = history if index % 3 == 0 else broken(history, rng)
        for row in history:
            row["group"] = "g"
            if row["kind"] == "register-write" and rng.random() < members:
                row["generation"] = 1
        if history and all(row["kind"] != "register-cas" for row in history):
            histories.append(history)
    reported = [
        [
            row
            | {"kind": {"register-write": "commit", "register-read": "fetched"}[row["kind"]]}
            | {"position": -1 if row["value"] is None else row["value"] % 3}
            for row in history
        ]
        for history in histories
    ]
    found = by_sql(tmp_path / "history", reported)
    answers = Counter(linearizable(history) for history in histories)
    for history in histories:
        assert linearizable(history) is (history[0]["key"] not in found), history
    assert min(answers.values()) > count // 30, answers
