"""The search finds a legal order exactly when there is one, and ends within its limits when it cannot tell."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from linearizability_histories import history, operation, table
from linearizability_oracle import MEANING, Op, legal, linearizable

from checkers.linearizability import MODELS, Limits, Model, search
from checkers.linearizability.encode import encode
from checkers.linearizability.searcher import Searched, Searcher
from checkers.verdict import Verdict

HISTORIES = 700
AMPLE = Limits(seconds=None)


def searched(
    histories: Sequence[Sequence[Op]], model: Model, limits: Limits = AMPLE, *, witness: bool = True
) -> dict[int, Searched]:
    """Each history's own answer; one without operations that count has none."""
    encoded = encode(table((str(number), ops) for number, ops in enumerate(histories)), model)
    searcher = Searcher(encoded, limits)
    return {int(str(key)): searcher.search(key, where, witness=witness) for key, where in encoded.by_key()}


def check_against_oracle(model: str, histories: list[list[Op]], limits: Limits = AMPLE) -> None:
    """Verdicts, and the orders given as evidence: whole ones of legal histories, partial ones of the others."""
    flat = [op for ops in histories for op in ops]
    verdicts = set()
    for number, found in searched(histories, MODELS[model], limits).items():
        ops, apply = histories[number], MEANING[model]
        expected = linearizable(ops, apply)
        verdicts.add(expected)
        assert found.unknown is None
        assert (found.why is None) == expected, ops
        given = found.order if found.why is None else found.why.order
        assert given is not None
        assert len(set(given)) == len(given)
        placed = [flat[index] for index in given]
        assert legal(placed, apply), (ops, placed)
        if found.why is None:
            assert sum(op["outcome"] == "ok" for op in placed) == sum(op["outcome"] == "ok" for op in ops)
        else:
            assert found.why.operation not in given
    assert verdicts == {True, False}


@pytest.mark.parametrize("model", sorted(MODELS))
def test_verdict_and_evidence_are_those_of_trying_every_order(model: str) -> None:
    rng = random.Random(f"{model}-1")
    check_against_oracle(model, [history(model, rng) for _ in range(HISTORIES)])
