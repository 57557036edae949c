"""Sets and queues are judged without a search, and the result is that of every order."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from typing import Final

import pytest

from assay.checkers.linearizability import MODELS, Limits, Model, core, search, searcher
from assay.checkers.linearizability.encode import encode
from assay.checkers.linearizability.key_result import SEARCH
from assay.checkers.linearizability.key_search import LAYERS, PAIRS, VALUES, search_history
from assay.checkers.linearizability.set_elements import ELEMENTS
from assay.checkers.linearizability.sets import Set

from helpers.linearizability_histories import operation, table
from helpers.linearizability_oracle import MEANING, REFUSED, Choices, Op, linearizable

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


def ask_queue_of_two(rng: random.Random, number: int) -> tuple[str, object]:
    return ("dequeue", None) if rng.random() < 0.5 else ("enqueue", rng.randint(1, 2))


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
            state = rng.choice(after) if isinstance(after, Choices) else after
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
        ("unordered-queue", ask_queue, {VALUES}, 9),
        ("unordered-queue", ask_queue_of_two, {VALUES, SEARCH}, 8),
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


def add(element: object, call: int, ret: int | None = None) -> Op:
    return operation("add", element, call=call, ret=call + 1 if ret is None else ret)


def read(*elements: object, call: int, ret: int | None = None) -> Op:
    return operation("read", None, list(elements), call=call, ret=call + 1 if ret is None else ret)


def contains(element: object, found: bool, call: int) -> Op:
    return operation("contains", element, found, call=call, ret=call + 1)


def enqueue(value: object, call: int, ret: int | None = None) -> Op:
    return operation("enqueue", value, call=call, ret=call + 1 if ret is None else ret)


def dequeue(value: object, call: int, ret: int | None = None) -> Op:
    return operation("dequeue", None, value, call=call, ret=call + 1 if ret is None else ret)


def lost(op: Op) -> Op:
    return {**op, "ret": None, "result": None, "outcome": "info"}


@pytest.mark.parametrize(
    ("model", "ops", "involved", "words"),
    [
        ("set", [add(1, 0), read(1, 1, call=2)], [1], "returned an element twice"),
        ("set", [add(1, 0), read(1, 2, call=2)], [1], "returned 2, which no one added"),
        ("set", [contains(1, True, 0)], [0], "found 1, which no one added"),
        ("set", [contains(1, True, 0), add(1, 2)], [0, 1], "returned before its first add(1)"),
        ("set", [add(1, 0), contains(1, False, 2)], [1, 0], "did not find 1; yet add(1)"),
        (
            "set",
            [add(1, 0, 90), contains(1, True, 2), contains(1, False, 4)],
            [2, 1],
            "did not find 1; yet contains(1) = true .. , which had found it, had returned before it was called",
        ),
        ("set", [add(1, 0), read(call=2)], [1, 0], "read() = [] .. does not show 1; yet add(1)"),
        ("set", [read(1, call=0), add(1, 2)], [0, 1], "shows 1, and returned before its first add(1)"),
        (
            "set",
            [add(1, 0, 90), read(1, call=2), contains(1, False, 4)],
            [2, 1],
            "contains(1) = false .. did not find 1; yet read() = [1] .. , which showed it, had returned",
        ),
        (
            "set",
            [add(1, 0, 90), read(1, call=2), read(call=4)],
            [2, 1],
            "read() = [] .. does not show 1; yet read() = [1] .. , which showed it, had returned before it was",
        ),
        (
            "set",
            [add(1, 0, 90), add(2, 0, 90), read(1, call=2, ret=50), read(2, call=3, ret=50)],
            [2, 3],
            "shows 1 but not 2; yet read() = [2] .. shows 2 but not 1",
        ),
        (
            "set",
            [add(1, 0), add(2, 2), read(2, call=0, ret=50)],
            [2, 0, 1],
            "shows 2 but not 1; yet add(1) .. had returned before add(2) .. was called",
        ),
        ("fifo-queue", [dequeue(1, 0)], [0], "returned a value that no one enqueued"),
        ("fifo-queue", [dequeue(1, 0), enqueue(1, 2)], [0, 1], "returned before its value's enqueue(1)"),
        (
            "fifo-queue",
            [enqueue(1, 0), dequeue(1, 2), dequeue(1, 4)],
            [2, 1, 0],
            "returned the same value, which was enqueued once: enqueue(1)",
        ),
        (
            "fifo-queue",
            [enqueue(1, 0), enqueue(2, 2), dequeue(2, 4), dequeue(1, 6)],
            [2, 3, 0, 1],
            "dequeue() = 2 .. returned before dequeue() = 1 .. was called; yet enqueue(1) .. had",
        ),
        (
            "fifo-queue",
            [enqueue(1, 0), enqueue(2, 2), dequeue(2, 4)],
            [2, 0, 1],
            "a value whose enqueue(2) .. was called after enqueue(1) .. had returned; yet no dequeue",
        ),
        (
            "fifo-queue",
            [enqueue(1, 0), enqueue(2, 2), enqueue(3, 4), lost(dequeue(None, 0)), dequeue(3, 6)],
            [4, 1, 2, 0],
            "returned when 2 values that no dequeue returned had to be gone, .. only 1 dequeue of unknown outcome",
        ),
        (
            "fifo-queue",
            [enqueue(1, 0), dequeue(None, 2)],
            [1, 0],
            "found the queue empty; yet the queue held a value all the time: .. its value was never dequeued",
        ),
        (
            "fifo-queue",
            [enqueue(1, 0), dequeue(None, 2, 9), enqueue(2, 3), dequeue(1, 5), dequeue(2, 20)],
            [1, 0, 3, 2, 4],
            "one value after another was in the queue: enqueue(1) .. had returned, and dequeue() = 1 .. had not",
        ),
        (
            "fifo-queue",
            [enqueue(1, 0), enqueue(2, 0), lost(dequeue(None, 2)), dequeue(None, 4)],
            [3, 0, 1],
            "2 values that no dequeue returned had been enqueued .. 1 dequeue of unknown outcome cannot have removed",
        ),
        ("unordered-queue", [dequeue(1, 0)], [0], "returned a value that no one enqueued"),
        (
            "unordered-queue",
            [enqueue(2, 0), enqueue(2, 2), dequeue(1, 4)],
            [2],
            "returned a value that no one enqueued",
        ),
        (
            "unordered-queue",
            [enqueue(1, 0), enqueue(1, 9), dequeue(1, 2), dequeue(1, 4)],
            [3, 2, 0],
            "was the dequeue number 2 of its value to return; yet only 1 enqueue of the value had been called",
        ),
        (
            "unordered-queue",
            [enqueue(1, 0), enqueue(2, 2), dequeue(2, 4), dequeue(None, 6)],
            [3, 0],
            "found the queue empty; yet the queue held a value all the time: .. its value was never dequeued",
        ),
    ],
)
def test_a_finding_names_the_operations_that_contradict_each_other(
    model: str, ops: list[Op], involved: list[int], words: str
) -> None:
    encoded = encode(table([("k", ops)]), MODELS[model])
    found = search_history(encoded.history(0), AMPLE)
    assert not linearizable(ops, MEANING[model])
    assert found.finding is not None
    assert list(found.finding.operations) == involved
    assert re.search(".*".join(map(re.escape, words.split(" .. "))), found.finding.claim), found.finding.claim
    assert found.finding.claim.startswith("In k: ")
    assert found.method in (LAYERS, PAIRS, VALUES)


def test_an_element_that_contradicts_itself_is_named_and_explained() -> None:
    ops = [add(1, 0), operation("remove", 1, call=2, ret=3), add(2, 4), read(1, 2, call=6)]
    found = search_history(encode(table([(None, ops)]), MODELS["set"]).history(0), AMPLE)
    assert found.method == ELEMENTS
    assert found.finding is not None
    assert found.finding.operations[0] == 3
    assert "then the state can only be without 1" in found.finding.claim


class Multiset(Set):
    """With its own step: no algorithm for sets may judge it."""

    name = "multiset"

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        return True, state


class Renamed(Set):
    """A set in all but its name."""

    name = "renamed"


@pytest.mark.parametrize(("model", "method"), [(Multiset(), SEARCH), (Renamed(), LAYERS), (MODELS["set"], LAYERS)])
def test_a_subclass_with_its_own_step_is_searched(model: Model, method: str) -> None:
    encoded = encode(table([(None, [add(1, 0), read(call=2)])]), model)
    assert search_history(encoded.history(0), AMPLE).method == method


def test_a_value_that_is_enqueued_twice_needs_the_search() -> None:
    ops = [enqueue(1, 0), enqueue(1, 2), dequeue(1, 4), dequeue(1, 6)]
    found = search_history(encode(table([(None, ops)]), MODELS["fifo-queue"]).history(0), AMPLE)
    assert found.method == SEARCH
    assert found.finding is None


def test_each_algorithm_is_named_with_its_keys() -> None:
    keys = [("a", [add(1, 0)]), ("b", [add(1, 0), operation("remove", 1, call=2, ret=3)]), ("c", [add(1, 0)])]
    judged = search(table(keys), MODELS["set"])
    assert [one.note for one in judged.examined] == ["elements on 1 key", "layers of elements on 2 keys"]
    assert [one.rows for one in judged.examined] == [2, 2]


class Steps:
    """A clock that advances by a second whenever it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return float(self.asked)


def remove(value: object, call: int) -> Op:
    return operation("remove", value, call=call, ret=call + 1)


UNFINISHED: Final[dict[str, tuple[str, list[Op], str]]] = {
    "elements": (
        "set",
        [*(add(n, 2 * n) for n in range(99)), remove(0, 198), read(*range(1, 99), call=200)],
        "before all elements were judged",
    ),
    "one element": (
        "set",
        [one for n in range(99) for one in (add(1, 8 * n), read(1, call=8 * n + 2), remove(1, 8 * n + 4))],
        "before all elements were judged",
    ),
    "layers": (
        "set", [one for n in range(99) for one in (add(n, 4 * n), read(*range(n + 1), call=4 * n + 2))],
        "before all reads were compared",
    ),
    "empty answers": (
        "fifo-queue",
        [one for n in range(99) for one in (enqueue(n, 8 * n), dequeue(n, 8 * n + 2), dequeue(None, 8 * n + 4))],
        "before all answers that the queue is empty were judged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNFINISHED)
def test_each_algorithm_asks_for_the_time_limit(case: str) -> None:
    model, ops, when = UNFINISHED[case]
    clock = Steps()
    found = search_history(encode(table([("k", ops)]), MODELS[model]).history(0), Limits(seconds=20, clock=clock))
    assert found.unknown == f"key k: the time limit of 20 s was reached {when}"
    assert found.out_of_time
    assert clock.asked < 30


def test_the_search_asks_for_the_time_limit_within_one_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight adds of unknown outcome before an add that returned have 256 states, which each later read divides."""
    adds = [operation("add", n, call=n, ret=None, outcome="info") for n in range(8)]
    reads = [operation("contains", 99, False, call=20 + 2 * n, ret=21 + 2 * n) for n in range(60)]
    history = encode(table([(None, [*adds, add(8, 10), *reads])]), Multistate()).history(0)
    clock = Steps()
    monkeypatch.setattr(searcher, "BUDGET", 20)
    monkeypatch.setattr(searcher, "PLAIN_BUDGET", 20)
    found = search_history(history, Limits(seconds=1e9, clock=clock))
    assert found.most_configurations >= 256
    assert found.finding is None
    assert clock.asked > 60 * 256 // 20


class Multistate(Set):
    """A set that no algorithm for sets may judge."""

    name = "multistate"
    exact = None


def test_loading_the_compiled_search_compiles_all_that_a_key_needs() -> None:
    """Otherwise the first key's time limit would include the time to compile."""
    pytest.importorskip("numba")
    searcher._load_compiled()
    known = list(core.advance.signatures)  # type: ignore[attr-defined]
    assert known
    for model, op in (("kv", operation("put", "a", call=0, ret=1)), ("fifo-queue", enqueue(1, 0))):
        encoded = encode(table([(None, [op])]), MODELS[model])
        assert searcher.search_key(encoded.history(0), AMPLE, witness=True).order == (0,)
    assert list(core.advance.signatures) == known  # type: ignore[attr-defined]
