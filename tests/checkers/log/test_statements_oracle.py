"""The checks of statements answer as brute force does, on small histories, right and wrong ones."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import create_views
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.log.family import LOG, LOG_TABLES, STATEMENT_TABLES, STATEMENTS

from helpers.judging import opened
from helpers.log_histories import Row, SimulatedLog, broken, write
from helpers.nightly import by_night
from helpers.statement_oracle import Witness, recorded

pytestmark = pytest.mark.slow

INSTANCE = {
    "misplaced-ack": ("value", "position"),
    "offset-hole": ("position",),
    "position-jump": ("op", "sub"),
    "altered-record": ("value", "position"),
    "log-start-regression": ("op", "sub"),
    "end-too-low": ("op", "sub"),
    "time-look-up": ("op", "late"),
    "look-up-order": ("op", "sub"),
    "answer-beyond-log": ("op", "sub"),
}


def history(index: int) -> list[Row]:
    rng, compacted = random.Random(f"statements/{index}"), index % 7 == 6
    rows = SimulatedLog(f"{'c' if compacted else 't'}-{index}", rng, index * 10_000, compacted=compacted).run(45)
    for row in rows:
        row["process"] += 10_000 * index
    rows = broken(rows, rng) if index % 3 else rows
    return recorded(rows, rng, index) if rows else []


@pytest.mark.parametrize("count", [170, by_night(500)])
@pytest.mark.parametrize("linearizable_ends", [False, True])
def test_the_checks_answer_as_brute_force_does(tmp_path: Path, linearizable_ends: bool, count: int) -> None:
    histories = [rows for index in range(count) if (rows := history(index))]
    keys = tuple(sorted({rows[0]["key"] for rows in histories if rows[0]["key"].startswith("c-")}))
    contract = Contract(
        linearizable_ends=linearizable_ends, dense_offsets=True, retention_ms=-1, retention_bytes=-1, compacted=keys
    )
    write(tmp_path / "history", [row for rows in histories for row in rows])
    found: dict[str, set[tuple[str, Any]]] = {}
    with opened(tmp_path / "history") as engine:
        register_contract(engine, contract)
        create_views(engine, (*LOG.views, *LOG_TABLES))
        create_views(engine, STATEMENT_TABLES)
        for check in STATEMENTS.checks:
            if check.anomaly not in INSTANCE:
                continue
            create_views(engine, check.views)
            columns = INSTANCE[check.anomaly]
            for row in engine.rows(f"select * from {check.found}"):
                instance: Any = tuple(row[column] for column in columns)
                found.setdefault(row["key"], set()).add((check.anomaly, instance if len(columns) > 1 else instance[0]))
    total: Counter[str] = Counter()
    for rows in histories:
        key = rows[0]["key"]
        expected = Witness(rows, linearizable_ends=linearizable_ends, compacted=key in keys).statements()
        assert found.get(key, set()) == expected, key
        total.update(anomaly for anomaly, _ in expected)
    assert set(total) == set(INSTANCE) - {"end-too-low" if linearizable_ends else "answer-beyond-log"}
    assert min(total.values()) > count // 100, total
