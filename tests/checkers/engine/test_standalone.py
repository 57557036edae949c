"""A standalone cluster of Spark, a master and two workers: it says what one process says, and both workers work."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from assay.checkers.engine import Engines
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.linearizability import MODELS, Limits
from assay.harness.stored.by_model import judge_by_model, open_stored_operations
from assay.harness.synthetic.generate import generate
from assay.harness.synthetic.plan import Plan

from helpers.judging import judge, without_times
from helpers.linearizability_histories import history, stored, table
from helpers.standalone import WORKERS, Cluster

PLANTED = ("queue-lost", "queue-duplicate")


def plain(judgement: Judgement) -> Judgement:
    """Apart from the engine's name and times."""
    return msgspec.structs.replace(without_times(judgement), engine="")


@pytest.mark.spark
@pytest.mark.long
def test_a_standalone_cluster_judges_as_duckdb_does_on_all_its_workers(tmp_path: Path, cluster: Cluster) -> None:
    folder = tmp_path / "made"
    made = generate("queue", Plan(operations=150_000, clients=20, keys=8, seed=3, plant=PLANTED), folder)
    assert made.effects > 140_000
    code, reported, done = cluster.asked("check", str(folder))
    judgement = msgspec.json.decode(reported, type=Judgement)
    assert (code, judgement.engine, judgement.verdict) == (1, "spark", Verdict.FAIL)
    assert set(PLANTED) <= set(judgement.anomalies)
    assert plain(judgement) == plain(judge(folder / "history", Contract()))
    assert len(done) == WORKERS, done


@pytest.mark.spark
@pytest.mark.long
def test_a_standalone_cluster_searches_as_one_process_does_on_all_its_workers(tmp_path: Path, cluster: Cluster) -> None:
    rng = random.Random("standalone")
    folder = stored(tmp_path / "history", table((str(number), history("kv", rng)) for number in range(200)))
    code, reported, done = cluster.asked("check", str(folder), "--model=kv")
    judgement = msgspec.json.decode(reported, type=Judgement)
    with Engines("duckdb") as engines:
        here = judge_by_model(open_stored_operations(folder), MODELS["kv"], engines, lambda *step: None, Limits())
    assert (code, judgement.verdict) == (1, Verdict.FAIL)
    assert judgement.anomalies["nonlinearizable"] > 20
    assert plain(judgement) == plain(here)
    assert len(done) == WORKERS, done
