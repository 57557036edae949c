"""Tests the plants of each model on small legal histories: an oracle and the search must both find them illegal."""

from __future__ import annotations

import json
import random
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest

from assay.checkers.engine import Engines
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.sensitivity import Sensitivity
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.linearizability import MODELS, Model, search
from assay.checkers.linearizability.key_result import NONLINEARIZABLE
from assay.checkers.linearizability.models import Register
from assay.harness.run.judging import judge_run
from assay.harness.run.registry import Registry
from assay.harness.sensitivity import measure as measuring
from assay.harness.sensitivity.measure import measure
from assay.harness.sensitivity.model_plants import find_model_plant, to_operation_row
from assay.harness.sensitivity.plant import Claim, Plant, Row, Rows

from helpers.linearizability_histories import history, operation, stored, table
from helpers.linearizability_models import TESTED
from helpers.linearizability_oracle import MEANING, Op, linearizable
from helpers.nightly import a_share_by_day

pytestmark = pytest.mark.slow

HISTORIES: Final = 600
SPREADS: Final = {"lease-mutex": 1}
"""Short operations, because a lease of the oracle lasts 4 ns."""
DRAWN_AS: Final = {"unordered-queue": "fifo-queue"}
"""Models with the operations of another one."""
MOST: Final = 100
"""Exposed claims that are planted."""
FEWEST: Final = 20
"""Exposed claims into which each plant must have been planted."""
each_model = pytest.mark.parametrize("model", a_share_by_day(2, sorted(MODELS)))


def to_ops(rows: Rows) -> list[Op]:
    """Returns the operations as the oracle reads them."""
    texts = ("argument", "result")
    return [{**row, **{name: None if row[name] is None else json.loads(row[name]) for name in texts}} for row in rows]


def is_legal(rows: Rows, model: str) -> bool:
    return linearizable(to_ops(rows), MEANING[model])


@cache
def legal_histories(model: str) -> list[list[Row]]:
    made = []
    for number in range(HISTORIES):
        rng = random.Random(f"{model}/{number}/plants")
        drawn = history(DRAWN_AS.get(model, model), rng, spread=SPREADS.get(model, 4))
        ops = table([("k", drawn)]).to_pylist()
        rows = [to_operation_row(row) for row in ops]
        if is_legal(rows, model):
            made.append(rows)
    return made


def plant_of(model: str) -> Plant:
    plant = find_model_plant(TESTED[model])
    assert plant is not None
    return plant


def claims_of(model: str) -> list[tuple[list[Row], Claim]]:
    plant = plant_of(model)
    return [(rows, claim) for rows in legal_histories(model) for claim in plant.find_claims(rows, -1)]


def is_found(rows: Rows, model: Model) -> bool:
    ops = table([]).from_pylist([dict(row) for row in rows], schema=table([]).schema)
    return NONLINEARIZABLE in search(ops, model).anomalies


def test_every_built_in_model_has_a_plant() -> None:
    assert [name for name in MODELS if find_model_plant(MODELS[name]) is None] == []


@each_model
def test_a_wrong_answer_to_an_exposed_claim_is_illegal_and_found(model: str) -> None:
    exposed = [(rows, claim) for rows, claim in claims_of(model) if claim.exposed]
    assert len(exposed) >= FEWEST
    for rows, claim in exposed[:MOST]:
        edited = plant_of(model).edit(rows, claim)
        assert list(edited) != rows
        assert not is_legal(edited, model), claim
        assert is_found(edited, TESTED[model]), claim


@each_model
def test_a_claim_that_is_not_exposed_changes_nothing(model: str) -> None:
    others = [(rows, claim) for rows, claim in claims_of(model) if not claim.exposed]
    assert others
    assert all(list(plant_of(model).edit(rows, claim)) == rows for rows, claim in others)


@each_model
def test_an_edit_keeps_operations_and_times(model: str) -> None:
    kept = ("index", "process", "f", "key", "argument", "call", "ret", "phase")
    for rows, claim in claims_of(model):
        before = json.dumps(rows)
        edited = plant_of(model).edit(rows, claim)
        assert json.dumps(rows) == before
        assert [[row[name] for name in kept] for row in edited] == [[row[name] for name in kept] for row in rows]


def measured(folder: Path, contract: Contract, registry: Registry) -> Sensitivity:
    opened, engines = open_history(stored(folder, table([("k", reads_and_writes())]))), Engines()
    judgement = judge_run(opened, contract, engines, registry)
    assert judgement.verdict == "pass", judgement.unknown
    model = registry.model(contract.model)
    return measure(opened, contract, judgement, engines, families=registry.families, model=model)


def promise(model: str) -> Contract:
    return Contract(forbidden=(), model=model, minimum_operations=1)


def reads_and_writes() -> list[Op]:
    ops: list[dict[str, Any]] = [operation("read", call=0, ret=1)]
    for value in range(5):
        at = 10 * value + 2
        ops += [operation("write", value, call=at, ret=at + 1), operation("read", None, value, call=at + 2, ret=at + 3)]
    return ops


def test_a_run_with_a_model_is_measured(tmp_path: Path) -> None:
    found = measured(tmp_path / "history", promise("register"), Registry.standard())
    (share,) = found.shares
    assert (share.anomaly, share.claims, share.exposed, share.planted, share.caught) == (NONLINEARIZABLE, 6, 5, 6, 5)
    assert share.missed is not None
    assert share.missed.endswith("no write had ended before it, or its value may have been written back")
    assert (found.escaped, [one.anomaly for one in found.not_planted]) == ((), [])


def test_a_copy_without_an_answer_is_not_counted_as_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(ops: pa.Table, model: Model, **of_the_run: Any) -> Judgement:
        if of_the_run:
            return search(ops, model, **of_the_run)
        return msgspec.structs.replace(search(ops, model), verdict=Verdict.UNKNOWN, anomalies={}, findings=())

    monkeypatch.setattr(sys.modules["assay.checkers.linearizability.search"], "search", give_up)
    (share,) = measured(tmp_path / "history", promise("register"), Registry.standard()).shares
    assert (share.exposed, share.planted_exposed, share.escaped) == (5, 0, ())
    assert (share.planted, share.caught) == (1, 0)


class Another(Register):
    name = "another"


def test_a_model_of_your_own_has_no_plant(tmp_path: Path) -> None:
    found = measured(tmp_path / "history", promise("another"), Registry.extended(models=[Another()]))
    assert found.shares == ()
    assert [(one.anomaly, one.reason) for one in found.not_planted] == [(NONLINEARIZABLE, measuring.OWN_MODEL)]
