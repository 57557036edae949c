"""Sets and queues are judged without a search, and the result is that of every order."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Final

import pytest

from assay.checkers.linearizability import MODELS, Limits
from assay.checkers.linearizability.encode import encode
from assay.checkers.linearizability.key_result import SEARCH
from assay.checkers.linearizability.key_search import LAYERS, PAIRS, search_history
from assay.checkers.linearizability.set_elements import ELEMENTS

from helpers.linearizability_histories import operation, table
from helpers.linearizability_oracle import MEANING, REFUSED, Op, linearizable

HISTORIES: Final = int(os.environ.get("ASSAY_OBJECT_HISTORIES", "800"))
"""Number of random histories for each shape. The value 50000 takes minutes."""
AMPLE: Final = Limits(seconds=None)

Ask = Callable[[random.Random, int], tuple[str, object]]


def ask_grow_only(rng: random.Random, number: int) -> tuple[str, object]:
    draw = rng.random()
    if draw < 0.5:
        return "add", rng.randint(1, 4)
    return ("read", None) if draw < 0.8 else ("contains", rng.randint(1, 4))


def ask_elements(rng: random.Random, number: int) -> tuple[str, object]:
    return rng.choice(["add", "remove", "contains", "contains"]), rng.randint(1, 2)


def ask_all(rng: random.Random, number: int) -> tuple[str, object]:
    f = rng.choice(["add", "add", "remove", "contains", "read", "read"])
    return f, None if f == "read" else rng.randint(1, 3)


def ask_queue(rng: random.Random, number: int) -> tuple[str, object]:
    return ("dequeue", None) if rng.random() < 0.55 else ("enqueue", number + 1)


def answer(state: list[int] | None, op: Op) -> object:
    there = state or []
    if op["f"] == "read":
        return there
    if op["f"] == "contains":
        return op["argument"] in there
    return (there[0] if there else None) if op["f"] == "dequeue" else None


def corrupt(op: Op, rng: random.Random) -> object:
    if op["f"] == "read":
        return sorted(rng.sample(range(1, 5), rng.randint(0, 3)))
    if op["f"] == "contains":
        return not op["result"]
    return rng.choice([None, *range(1, 8)]) if op["f"] == "dequeue" else None


def generate(model: str, ask: Ask, rng: random.Random, longest: int) -> list[Op]:
    """History of a correct object, of which half have answers that were changed. Times tie often."""
    state = None
    ops = []
    unknown = rng.choice([0.0, 0.1, 0.35])
    spread = rng.choice([2, 6, 14])
    for number in range(rng.randint(2, longest)):
        point = number * rng.randint(1, 3)
        f, argument = ask(rng, number)
        op = operation(f, argument, call=point - rng.randint(0, spread), ret=point + rng.randint(0, spread))
        op["result"] = answer(state, op)
        op["outcome"] = "info" if rng.random() < unknown else "fail" if rng.random() < 0.05 else "ok"
        after = MEANING[model](state, op)
        assert after is not REFUSED
        if op["outcome"] == "ok" or (op["outcome"] == "info" and rng.random() < 0.5):
            state = after
        ops.append(op)
    if rng.random() < 0.5:
        for op in rng.sample(ops, min(len(ops), rng.randint(1, 2))):
            op["result"] = corrupt(op, rng)
    for op in ops:
        if op["outcome"] == "info":
            op["ret"] = op["result"] = None
    rng.shuffle(ops)
    return ops


@pytest.mark.parametrize(
    ("model", "ask", "methods", "longest"),
    [
        ("set", ask_grow_only, {LAYERS}, 8),
        ("set", ask_elements, {LAYERS, ELEMENTS}, 8),
        ("set", ask_all, {LAYERS, ELEMENTS, SEARCH}, 7),
        ("fifo-queue", ask_queue, {PAIRS}, 9),
    ],
)
def test_the_result_is_that_of_every_order(model: str, ask: Ask, methods: set[str], longest: int) -> None:
    rng = random.Random(f"{ask.__name__}-objects")
    histories = [generate(model, ask, rng, longest) for _ in range(HISTORIES)]
    encoded = encode(table((str(number), ops) for number, ops in enumerate(histories)), MODELS[model])
    verdicts, seen = [], set()
    for number, key in enumerate(encoded.keys):
        ops = histories[int(str(key))]
        found = search_history(encoded.history(number), AMPLE)
        assert (found.finding is None) == linearizable(ops, MEANING[model]), ops
        assert found.unknown is None
        verdicts.append(found.finding is None)
        seen.add(found.method)
    assert seen == methods
    assert 0.1 < sum(verdicts) / len(verdicts) < 0.9
