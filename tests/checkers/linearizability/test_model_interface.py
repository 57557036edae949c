"""Steps with several next states, what a call tells its model, and locks whose owner matters."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.checkers.linearizability import MODELS, Action, Call, Limits, Model, ModelError, search
from assay.checkers.linearizability.encode import encode
from assay.checkers.linearizability.key_value import KeyValue
from assay.checkers.linearizability.locks import LeaseMutex, OwnerSemaphore, ReentrantMutex
from assay.checkers.linearizability.models import CasRegister, Register
from assay.checkers.linearizability.searcher import search_key

from helpers.linearizability_histories import OUTCOMES, history, operation, table
from helpers.linearizability_oracle import LASTS, LATEST, MEANING, REFUSED, Choices, Op, legal, linearizable

COUNT = int(os.environ.get("ASSAY_HISTORIES", "500"))
STATES = 4
Rows = tuple[tuple[int, ...], ...]
"""For each state, the next states of an action; none if the state does not allow it."""


class Automaton(Model):
    """A random automaton. The argument of an operation is its table of next states, and its flags."""

    name = "automaton"
    compiled = False

    def encode(self, call: Call) -> Action:
        rows, flags = call.argument
        return Action(0, tuple(map(tuple, rows)), **dict.fromkeys(flags, True))

    @staticmethod
    def step(state: int, f: int, x: Rows, y: int) -> tuple[bool, int] | list[int]:
        after = list(x[state])
        return after if len(after) != 1 else (True, after[0])


def true_flags(rows: Rows) -> list[str]:
    """The claims that hold for an action."""
    flags = ["reads"] if all(set(after) <= {state} for state, after in enumerate(rows)) else []
    if all(rows):
        flags.append("total")
        flags += ["blind"] * (len({tuple(sorted(after)) for after in rows}) == 1)
    return flags


def draw_action(rng: random.Random) -> tuple[Rows, list[str]]:
    kind = rng.random()
    if kind < 0.3:
        rows: Rows = tuple((state,) if rng.random() < 0.4 else () for state in range(STATES))
    elif kind < 0.5:
        rows = (tuple(rng.sample(range(STATES), rng.randint(1, 3))),) * STATES
    else:
        fewest = 1 if kind < 0.65 else 0
        rows = tuple(tuple(rng.sample(range(STATES), rng.randint(fewest, 2))) for _ in range(STATES))
    flags = true_flags(rows)
    return rows, flags if rng.random() < 0.7 else []


def automaton_history(rng: random.Random) -> list[Op]:
    actions = [draw_action(rng) for _ in range(4)]
    ops = []
    for number in range(rng.randint(2, 7)):
        point = number * rng.randint(1, 3)
        outcome = rng.choice(OUTCOMES)
        ret = None if outcome == "info" else point + rng.randint(0, 8)
        ops.append(operation("go", rng.choice(actions), call=point - rng.randint(0, 8), ret=ret, outcome=outcome))
    return ops


def apply_automaton(state: Any, op: Op) -> Any:
    after = op["argument"][0][state or 0]
    return Choices(after) if after else REFUSED


@pytest.mark.parametrize("beam_width", [2048, 1])
def test_a_step_may_return_several_next_states(beam_width: int) -> None:
    rng = random.Random(beam_width)
    histories = [automaton_history(rng) for _ in range(COUNT if beam_width > 1 else COUNT // 3)]
    flat = [op for ops in histories for op in ops]
    encoded = encode(table((str(number), ops) for number, ops in enumerate(histories)), Automaton())
    verdicts = []
    for number, key in enumerate(encoded.keys):
        ops = histories[int(str(key))]
        limits = Limits(seconds=None, beam_width=beam_width)
        found = search_key(encoded.history(number), limits, witness=True)
        verdicts.append(found.why is None)
        certain = [op for op in ops if op["outcome"] != "info" or "reads" not in op["argument"][1]]
        assert verdicts[-1] == linearizable(certain, apply_automaton), ops
        order = found.order if found.why is None else found.why.order
        assert order is not None
        assert legal([flat[index] for index in order], apply_automaton), ops
    assert min(verdicts.count(True), verdicts.count(False)) > len(verdicts) // 5


class Lease(Model):
    """A lock that its server frees ``LASTS`` after it was acquired. The exact moments are unknown."""

    name = "lease"
    compiled = False
    initial = None

    def encode(self, call: Call) -> Action:
        end = LATEST if call.return_time is None else call.return_time
        return Action(0, call.process, (call.call_time, end))

    @staticmethod
    def step(state: tuple[int, int] | None, f: int, x: int, y: tuple[int, int]) -> list[tuple[int, int]]:
        earliest = y[0] if state is None else max(y[0], state[1] + LASTS)
        return [(x, moment) for moment in range(earliest, y[1] + 1)]


def test_a_lease_expires_by_the_clock() -> None:
    """The example of the guide: each moment between call and return is a next state."""
    rng = random.Random(4)
    histories = []
    for _ in range(COUNT // 5):
        moments = [sum(rng.randint(1, 6) for _ in range(number + 1)) for number in range(4)]
        ends = [None if rng.random() < 0.2 else moment + rng.randint(0, 3) for moment in moments]
        histories.append(
            [
                operation("acquire", call=moment - rng.randint(0, 3), ret=end, outcome="info" if end is None else "ok",
                          process=number)
                for number, (moment, end) in enumerate(zip(moments, ends, strict=True))
            ]
        )  # fmt: skip
    encoded = encode(table((str(number), ops) for number, ops in enumerate(histories)), Lease())
    verdicts = set()
    for number, key in enumerate(encoded.keys):
        ops = histories[int(str(key))]
        expected = linearizable(ops, MEANING["lease-mutex"])
        verdicts.add(expected)
        assert (search_key(encoded.history(number), Limits(seconds=None)).why is None) == expected, ops
    assert verdicts == {True, False}


class Split(Automaton):
    """Its claims are false, or its states are no list."""

    name = "split"

    def encode(self, call: Call) -> Action:
        return Action(0, call.argument, **dict.fromkeys(["reads"] if call.f == "peek" else [], True))

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> Any:
        return {0: [state, state + 1], 1: "ab", 2: None, 3: iter([1]), 4: [[]]}[x]


@pytest.mark.parametrize(
    ("f", "x", "reported"),
    [
        ("peek", 0, "reads, but changed the state"),
        ("go", 1, "step of the model split returned 'ab'; it must return a pair"),
        ("go", 2, "step of the model split returned None"),
        ("go", 3, "step of the model split returned <list_iterator"),
        ("go", 4, "step: the model split raised TypeError: unhashable type: 'list'"),
    ],
)
def test_what_a_step_cannot_return_is_an_error(f: str, x: int, reported: str) -> None:
    with pytest.raises(ModelError, match=reported):
        search(table([("k", [operation(f, x, call=0, ret=1)])]), Split())


class Witness(Model):
    """Remembers what its calls tell it."""

    name = "witness"
    compiled = False

    def __init__(self, *parts: str) -> None:
        self.parts = parts

    def encode(self, call: Call) -> Action:
        asked = call.f == "ask"
        return Action(0, tuple(getattr(call, part) for part in self.parts if asked))

    @staticmethod
    def step(state: int, f: int, x: Any, y: int) -> tuple[bool, int]:
        return True, state


def test_a_call_tells_its_key_process_and_times() -> None:
    ops = [
        operation("ask", call=1, ret=2, process=7),
        operation("ask", call=3, ret=4, process=7),
        operation("ask", call=5, ret=None, outcome="info", process=8),
        operation("be", call=6, ret=7, process=9),
        operation("be", call=8, ret=9, process=7),
    ]

    def read_by(*parts: str) -> list[Any]:
        encoded = encode(table([("a", ops), ("b", ops)]), Witness(*parts))
        return [encoded.actions[number].x for number in encoded.action.tolist()]

    assert read_by() == [()] * 10
    assert read_by("key") == [("a",)] * 3 + [()] * 2 + [("b",)] * 3 + [()] * 2
    assert read_by("process") == ([(7,), (7,), (8,)] + [()] * 2) * 2
    assert read_by("call_time", "return_time") == ([(1, 2), (3, 4), (5, None)] + [()] * 2) * 2
    assert read_by("process", "return_time")[:3] == [(7, 2), (7, 4), (8, None)]


class Careful(Witness):
    """Reads the times of process 7 alone."""

    def encode(self, call: Call) -> Action:
        return Action(0, call.call_time if call.process == 7 else -1)


def test_a_fact_that_only_some_processes_read_divides_only_these() -> None:
    ops = [operation("be", call=call, ret=90, process=process) for call, process in ((1, 8), (2, 7), (3, 8), (4, 7))]
    encoded = encode(table([(None, ops)]), Careful())
    assert [encoded.actions[number].x for number in encoded.action.tolist()] == [-1, 2, -1, 4]
    assert len(encoded.actions) == 3


def by_clients(*calls: tuple[str, int, str | None]) -> list[Op]:
    """Operations of locks, one after the other: verb, process, and the client that its result names, or unknown."""
    return [
        operation(
            verb,
            f"uid-{at}",
            {"map": [[{"keyword": "client"}, client], [{"keyword": "fence"}, 0]]} if client else None,
            call=10 * at,
            ret=10 * at + 5 if client else None,
            outcome="ok" if client else "info",
            process=process,
        )
        for at, (verb, process, client) in enumerate(calls)
    ]


@pytest.mark.parametrize(
    ("model", "calls", "verdict"),
    [
        ("owner-mutex", [("acquire", 0, "n1"), ("release", 5, "n1")], Verdict.PASS),
        ("owner-mutex", [("acquire", 0, "n1"), ("release", 0, "n2")], Verdict.FAIL),
        # The process of the unknown acquire has named one client, so the lock belongs to this client.
        ("owner-mutex", [("acquire", 0, "n1"), ("release", 0, "n1"), ("acquire", 0, None), ("release", 5, "n1")],
         Verdict.PASS),
        ("owner-mutex", [("acquire", 0, "n1"), ("release", 0, "n1"), ("acquire", 0, None), ("release", 1, "n2")],
         Verdict.FAIL),
        # The client of process 3 is unknown, and may be any.
        ("owner-mutex", [("acquire", 0, "n1"), ("release", 0, "n1"), ("acquire", 3, None), ("release", 1, "n2")],
         Verdict.PASS),
        ("owner-semaphore", [("acquire", 0, "n1"), ("acquire", 1, "n2"), ("release", 3, None), ("acquire", 2, "n3"),
                             ("release", 2, "n3"), ("release", 1, "n2")], Verdict.PASS),
        ("owner-semaphore", [("acquire", 0, "n1"), ("acquire", 1, "n2"), ("release", 3, None), ("acquire", 2, "n3"),
                             ("release", 0, "n1"), ("release", 1, "n2")], Verdict.FAIL),
    ],
)  # fmt: skip
def test_the_owner_is_the_client_that_the_value_names(
    model: str, calls: list[tuple[str, int, str | None]], verdict: Verdict
) -> None:
    chosen = OwnerSemaphore(2) if model == "owner-semaphore" else MODELS[model]
    assert search(table([(None, by_clients(*calls))]), chosen).verdict is verdict


def test_a_lock_that_was_refused_proves_nothing() -> None:
    ops = [
        operation("acquire", call=0, ret=1, process=0),
        operation("acquire", None, False, call=2, ret=3, process=1),
        operation("release", call=4, ret=5, process=0),
    ]
    for name in ("mutex", "owner-mutex", "fenced-mutex"):
        assert search(table([(None, ops)]), MODELS[name]).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("model", "f", "argument", "result", "reported"),
    [
        (MODELS["fenced-mutex"], "acquire", None, "x", "the fence of an acquire must be a whole number, not 'x'"),
        (OwnerSemaphore(2), "acquire", 3, None, r"acquire of 3 permits: owner-semaphore\(2\) has 2"),
        (MODELS["owner-mutex"], "renew", None, None, "the model owner-mutex knows no operation 'renew'"),
    ],
)
def test_values_that_are_not_those_of_a_lock_are_errors(
    model: Model, f: str, argument: Any, result: Any, reported: str
) -> None:
    with pytest.raises(ModelError, match=reported):
        search(table([(None, [operation(f, argument, result, call=0, ret=1)])]), model)


@pytest.mark.parametrize("make", [lambda: ReentrantMutex(0), lambda: OwnerSemaphore(True), lambda: LeaseMutex(-1)])
def test_arguments_of_locks_are_validated(make: Any) -> None:
    with pytest.raises(ModelError, match=r"argument of|a lease lasts"):
        make()


@pytest.mark.parametrize("initial", [0, "a", [1], False])
def test_a_register_begins_with_its_initial_value(initial: Any) -> None:
    first = operation("read", None, initial, call=0, ret=1)
    again = [operation("write", 5, call=2, ret=3), operation("read", None, initial, call=4, ret=5)]
    for model in (Register(initial), CasRegister(initial)):
        assert search(table([("k", [first])]), model).verdict is Verdict.PASS
        assert search(table([("k", [first, *again])]), model).verdict is Verdict.FAIL
    assert search(table([("k", [first])]), Register()).verdict is Verdict.FAIL


BUILT: dict[str, Any] = {"register": Register, "cas-register": CasRegister, "kv": KeyValue}


@pytest.mark.parametrize("name", sorted(BUILT))
def test_initial_values_are_those_of_trying_every_order(name: str) -> None:
    rng = random.Random(name)
    possible = [None, "", "a", "ab", "cc"] if name == "kv" else [None, 1, 2, 7]
    initials = [rng.choice(possible) for _ in range(COUNT)]
    histories = [history(name, rng, initial=initial) for initial in initials]
    for initial in possible:
        chosen = [number for number, one in enumerate(initials) if one == initial]
        model = BUILT[name](initial)
        encoded = encode(table((str(number), histories[number]) for number in chosen), model)
        for number, key in enumerate(encoded.keys):
            found = search_key(encoded.history(number), Limits(seconds=None))
            ops = histories[int(str(key))]
            assert (found.why is None) == linearizable(ops, MEANING[name], initial), (initial, ops)
