"""The SQL's answers equal a brute-force oracle's on thousands of small histories; correct ones raise no alarm."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import create_views
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.log.family import LOG, LOG_TABLES

from helpers.judging import opened
from helpers.log_histories import Row, SimulatedLog, broken, write
from helpers.nightly import by_night
from helpers.oracle import Found, Judge

pytestmark = pytest.mark.slow

INSTANCE = {
    "inconsistent-offset": ("position",),
    "duplicate": ("value",),
    "aborted-read": ("value",),
    "phantom": ("value",),
    "lost-write": ("value", "position"),
    "vanished": ("value", "position"),
    "unseen": ("value", "position"),
    "real-time-order": ("place",),
    "nonmonotonic-send": ("op", "sub"),
    "send-skip": ("op", "sub"),
    "nonmonotonic-poll": ("op", "sub"),
    "poll-skip": ("op", "sub"),
    "high-watermark-regression": ("op", "sub"),
}

STEPS = 45


@pytest.fixture(params=[80, pytest.param(600, marks=pytest.mark.long)])
def count(request: pytest.FixtureRequest) -> int:
    """The number of histories. Twice as many of them are made if they are correct."""
    number: int = request.param
    return number


def simulated(seed: int, index: int, steps: int = STEPS) -> list[Row]:
    """History ``index``: a key and operation numbers of its own."""
    rng = random.Random(f"{seed}/{index}")
    compacted = index % 5 == 4
    log = SimulatedLog(f"{'c' if compacted else 't'}-{index}", rng, index * 10_000, compacted=compacted)
    return log.run(steps)


def contract_for(histories: list[list[Row]], *, linearizable_ends: bool) -> Contract:
    keys = {row["key"] for history in histories for row in history if row["key"].startswith("c-")}
    return Contract(linearizable_ends=linearizable_ends, compacted=tuple(sorted(keys)))


def by_sql(folder: Path, histories: list[list[Row]], contract: Contract) -> dict[str, Found]:
    """Returns what the checks find, by key."""
    write(folder, [row for history in histories for row in history])
    found: dict[str, Found] = {}
    with opened(folder) as engine:
        register_contract(engine, contract)
        create_views(engine, (*LOG.views, *LOG_TABLES))
        for check in LOG.checks:
            create_views(engine, check.views)
            columns = INSTANCE[check.anomaly]
            for row in engine.rows(f"select key, {', '.join(columns)} from {check.found}"):
                instance: Any = tuple(row[column] for column in columns)
                found.setdefault(row["key"], set()).add((check.anomaly, instance if len(columns) > 1 else instance[0]))
    return found


def by_oracle(history: list[Row], contract: Contract) -> Found:
    compacted = bool(history) and history[0]["key"] in contract.compacted
    return Judge(history, linearizable_ends=contract.linearizable_ends, compacted=compacted).found()


def assert_equal(histories: list[list[Row]], found: dict[str, Found], contract: Contract) -> Counter[str]:
    """Returns how many instances of each anomaly there were."""
    total: Counter[str] = Counter()
    for history in histories:
        if not history:
            continue
        expected, actual = by_oracle(history, contract), found.get(history[0]["key"], set())
        assert actual == expected, (history[0]["key"], sorted(map(str, actual ^ expected)), "(actual ^ expected)")
        total.update(anomaly for anomaly, _ in expected)
    return total


def test_a_correct_log_raises_no_alarm(tmp_path: Path, count: int) -> None:
    histories = [simulated(1, index) for index in range(2 * count)]
    contract = contract_for(histories, linearizable_ends=True)
    found = by_sql(tmp_path / "history", histories, contract)
    total = assert_equal(histories, found, contract)
    # An unfinished drain leaves values unseen; that is the only thing that may be found here.
    assert set(total) <= {"unseen"}
    for history in histories:
        if any(row["kind"] == "drained" for row in history):
            assert not found.get(history[0]["key"])


@pytest.mark.parametrize("linearizable_ends", [False, True])
def test_broken_histories_get_the_oracles_answers(tmp_path: Path, count: int, linearizable_ends: bool) -> None:
    rng = random.Random(7)
    histories = [broken(simulated(2, index), rng) for index in range(count)]
    contract = contract_for(histories, linearizable_ends=linearizable_ends)
    total = assert_equal(histories, by_sql(tmp_path / "history", histories, contract), contract)
    assert set(total) == set(LOG.anomalies)


@pytest.mark.parametrize("tried", [600, by_night(1000)])
def test_rule_u_agrees_with_trying_every_linearization(tmp_path: Path, tried: int) -> None:
    rng = random.Random(3)
    histories = []
    for index in range(tried):
        history = simulated(3, index * 5, steps=16)
        histories.append(broken(history, rng) if index % 2 else history)
    small = [h for h in histories if h and len(Judge(h, linearizable_ends=True).timeline()) <= 6]
    assert len(small) > tried // 5
    found = by_sql(tmp_path / "history", small, Contract(linearizable_ends=True))
    answers = Counter[bool]()
    for history in small:
        linearizable = Judge(history, linearizable_ends=True).linearizable()
        flagged = any(anomaly == "real-time-order" for anomaly, _ in found.get(history[0]["key"], ()))
        assert flagged is not linearizable, history[0]["key"]
        answers[linearizable] += 1
    assert min(answers[True], answers[False]) > tried // 100
