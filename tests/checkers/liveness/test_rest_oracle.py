"""Random clusters at rest: both engines find what loops over the looks find."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import create_views
from assay.checkers.engine import Engine, SQLite
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract, register_history
from assay.checkers.liveness.family import LIVENESS, LIVENESS_ANOMALIES

from helpers.log_histories import write
from helpers.nightly import by_night
from helpers.rest_oracle import Found, random_looks, unended

DEADLINES = dict(zip(LIVENESS_ANOMALIES, (4, 5, 5, 6, 6, 6, 6, 6, 7, 3, 6), strict=True))
CONTRACT = Contract(move_deadline=4, rejoin_deadline=5, obedience_deadline=6, deletion_deadline=7, retention_deadline=3)
SECONDS = 12


def by(engine: Engine, folder: Path) -> set[Found]:
    register_history(engine, folder)
    register_contract(engine, CONTRACT)
    create_views(engine, LIVENESS.views)
    found = set()
    for check in LIVENESS.checks:
        create_views(engine, check.views)
        rows = engine.rows(f"select * from {check.found}")
        found |= {(check.anomaly, row["key"], row.get("node")) for row in rows}
    return found


def clusters(folder: Path, count: int, seed: int) -> tuple[Path, set[Found]]:
    looks = random_looks(random.Random(seed), count, SECONDS)
    expected = unended(looks, DEADLINES)
    assert set(Counter(anomaly for anomaly, _, _ in expected)) == set(LIVENESS_ANOMALIES)
    return write(folder / "history", [], looks=looks), expected


@pytest.mark.parametrize(("count", "seed"), [(60, 6), by_night(120, 7)])
def test_random_clusters_get_the_answers_of_loops(tmp_path: Path, count: int, seed: int) -> None:
    folder, expected = clusters(tmp_path, count, seed)
    with SQLite() as engine:
        assert by(engine, folder) == expected
    assert min(Counter(anomaly for anomaly, _, _ in expected).values()) > 1


@pytest.mark.spark
@pytest.mark.long
def test_both_engines_agree(tmp_path: Path, application: Any) -> None:
    folder, expected = clusters(tmp_path, 160, 15)
    with application.engine(effects=160) as spark:
        assert by(spark, folder) == expected
