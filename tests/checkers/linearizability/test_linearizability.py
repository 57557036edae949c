"""The search finds a legal order exactly when there is one, and ends within its limits when it cannot tell."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.checkers.judging.verdict import Verdict
from assay.checkers.linearizability import MODELS, Action, Call, Limits, Model, ModelError, search, searcher
from assay.checkers.linearizability.encode import encode
from assay.checkers.linearizability.models import Register
from assay.checkers.linearizability.searcher import SearchResult, search_key
from assay.checkers.linearizability.zones import judge_zones

from helpers.examples import some_of
from helpers.linearizability_histories import LOCKS, SEMAPHORES, history, operation, table
from helpers.linearizability_models import TESTED, Mixer, Stack
from helpers.linearizability_oracle import MEANING, Op, legal, linearizable
from helpers.nightly import a_share_by_day

HISTORIES = int(os.environ.get("ASSAY_HISTORIES", "700"))
AMPLE = Limits(seconds=None)


def searched(
    histories: Sequence[Sequence[Op]], model: Model, limits: Limits = AMPLE, *, witness: bool = True
) -> dict[int, SearchResult]:
    """Each history's own answer; one without operations that count has none."""
    encoded = encode(table((str(number), ops) for number, ops in enumerate(histories)), model)
    return {
        int(str(key)): search_key(encoded.history(number), limits, witness=witness)
        for number, key in enumerate(encoded.keys)
    }


def check_against_oracle(model: str, histories: list[list[Op]], limits: Limits = AMPLE) -> None:
    """Verdicts, and the orders given as evidence: whole ones of legal histories, partial ones of the others."""
    flat = [op for ops in histories for op in ops]
    verdicts = set()
    for number, found in searched(histories, TESTED[model], limits).items():
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


@pytest.mark.parametrize("model", a_share_by_day(2, sorted(MODELS)))
def test_verdict_and_evidence_are_those_of_trying_every_order(model: str) -> None:
    rng = random.Random(f"{model}-1")
    spread = 5 if model == "lease-mutex" else 12
    count = HISTORIES // 2 if model in (*LOCKS, *SEMAPHORES) else HISTORIES
    check_against_oracle(model, [history(model, rng, spread=spread) for _ in range(count)])


@pytest.mark.parametrize("model", sorted(MODELS))
def test_a_set_that_was_cut_too_far_is_taken_up_again(model: str) -> None:
    rng = random.Random(f"{model}-2")
    check_against_oracle(model, [history(model, rng) for _ in range(150)], Limits(seconds=None, beam_width=1))


def test_zones_say_what_trying_every_order_says() -> None:
    rng = random.Random(3)
    histories = [history("register", rng) for _ in range(3 * HISTORIES)]
    encoded = encode(table((str(number), ops) for number, ops in enumerate(histories)), MODELS["register"])
    judged, rest = judge_zones(encoded, "nonlinearizable")
    assert len(judged) > HISTORIES
    assert rest
    for number, found in judged.items():
        ops = histories[int(str(encoded.keys[number]))]
        assert (found is None) == linearizable(ops, MEANING["register"]), ops
    assert {found is None for found in judged.values()} == {True, False}


def test_more_operations_are_pending_at_once_than_a_word_has_bits() -> None:
    writes = [operation("write", number % 5, call=number, ret=1000 - number) for number in range(150)]
    reads = [operation("read", None, number % 5, call=200 + number, ret=2000 + number) for number in range(90)]
    late = operation("read", None, 7, call=3000, ret=3001)
    found = searched([writes + reads, [*writes, *reads, late]], MODELS["register"])
    assert found[0].order is not None
    assert legal([(writes + reads)[index] for index in found[0].order], MEANING["register"])
    assert found[1].why is not None
    assert found[1].why.operation == 2 * len(writes + reads)
    assert found[1].why.concurrent == ()


def traffic(rng: random.Random, length: int, clients: int, lost: float) -> list[Op]:
    """A correct register of five values under steady load; some operations end info, half of those without effect."""
    state, free, ops = None, [0] * clients, []
    for number in range(length):
        client = min(range(clients), key=free.__getitem__)
        call = free[client]
        point, ret = call + rng.randint(1, 50), call + rng.randint(51, 100)
        free[client] = ret + 1
        info = rng.random() < lost
        op = (
            operation("read", call=point, ret=number)
            if rng.random() < 0.5
            else operation("write", number % 5, call=point, ret=0)
        )
        ops.append(op | {"begin": call, "end": ret, "outcome": "info" if info else "ok"})
    for op in sorted(ops, key=lambda op: op["call"]):
        if op["f"] == "read":
            op["result"] = state if op["outcome"] == "ok" else None
        elif op["outcome"] == "ok" or rng.random() < 0.5:
            state = op["argument"]
    return [op | {"call": op["begin"], "ret": op["end"] if op["outcome"] == "ok" else None} for op in ops]


def test_operations_that_stay_open_do_not_make_the_set_grow() -> None:
    ops = traffic(random.Random(5), 3000, 10, 0.05)
    assert sum(op["outcome"] == "info" for op in ops) > 100
    found = searched([ops], MODELS["register"])[0]
    assert found.order is not None
    assert found.most_configurations < 1000
    assert found.bytes < 1000 * len(ops)


def test_appends_of_many_clients_are_placed_by_what_is_read_later() -> None:
    """Thirty pending appends have 30! orders; a read some time later leaves one."""
    ops, text = [], ""
    for start in range(0, 3000, 300):
        tokens = [f"<{start + number}>" for number in range(30)]
        ops += [operation("append", token, call=start + at, ret=start + 100 + at) for at, token in enumerate(tokens)]
        text += "".join(reversed(tokens))
        ops.append(operation("get", None, text, call=start + 200, ret=start + 210))
    found = searched([ops, [*ops, operation("get", None, text[:-5], call=9000, ret=9001)]], MODELS["kv"])
    assert found[0].order is not None
    assert found[0].most_configurations <= 30
    assert found[1].why is not None


def exploding(count: int, f: str) -> list[Op]:
    """Each value twice, so that nothing can be foreseen of a queue."""
    return [operation(f, number // 2 + 1, call=number, ret=100 + number) for number in range(count)]


@pytest.mark.parametrize(("model", "f"), [(Mixer(), "mix"), (MODELS["fifo-queue"], "enqueue")])
def test_a_history_that_explodes_ends_unknown_within_its_memory(model: Model, f: str) -> None:
    limit = 2_000_000
    found = searched([exploding(12, f)], model, Limits(seconds=None, bytes=limit))[0]
    assert found.why is None
    assert found.unknown is not None
    assert found.unknown.startswith("key 0: the memory limit (")
    assert f"bytes of {limit}" in found.unknown
    assert limit / 4 < found.bytes <= limit


def test_a_history_that_explodes_ends_unknown_when_its_time_is_over() -> None:
    judged = search(
        table([("slow", exploding(12, "mix")), ("quick", exploding(1, "mix"))]), Mixer(), limits=Limits(seconds=0)
    )
    assert judged.verdict is Verdict.UNKNOWN
    assert judged.unknown == ("key slow: the time limit of 0 s was reached when 0 of 12 operations had returned",)


class Account(Model):
    """A balance that never falls below zero: a user's own model, compiled."""

    name = "account"

    def encode(self, call: Call) -> Action | None:
        if call.f == "balance":
            return Action(0, call.result, reads=True) if call.known else None
        return Action(1, call.argument if call.f == "deposit" else -call.argument)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == 0:
            return state == x, state
        return state + x >= 0, state + x


@pytest.mark.parametrize(
    ("model", "before", "good", "bad"),
    [
        (Account(), [("deposit", 5), ("withdraw", 3)], ("balance", 2), ("balance", 3)),
        (Stack(), [("push", "a"), ("push", "b")], ("pop", "b"), ("pop", "a")),
    ],
)
def test_users_bring_their_own_models(
    model: Model, before: list[tuple[str, Any]], good: tuple[str, Any], bad: tuple[str, Any]
) -> None:
    ops = [operation(f, x, call=10 * at, ret=10 * at + 5) for at, (f, x) in enumerate(before)]
    for (f, result), verdict in ((good, Verdict.PASS), (bad, Verdict.FAIL)):
        judged = search(table([("k", [*ops, operation(f, None, result, call=50, ret=60)])]), model)
        assert judged.verdict is verdict
    (reported,) = judged.findings
    assert reported.operations[0] == 2
    assert "has no place" in reported.claim
    assert reported.claim.startswith(f"In k: {bad[0]}() = ")


class Liar(Account):
    """Says of a deposit what is not so."""

    name = "liar"

    def encode(self, call: Call) -> Action:
        return Action(1, call.argument, reads=call.f == "peek", blind=call.f == "put")


@pytest.mark.parametrize(("f", "claim"), [("peek", "reads, but changed the state"), ("put", "is not blind")])
def test_a_model_is_held_to_its_claims(f: str, claim: str) -> None:
    ops = [operation(f, 1, call=0, ret=10), operation("deposit", 2, call=0, ret=10), operation(f, 1, call=20, ret=30)]
    with pytest.raises(ModelError, match=claim):
        search(table([("k", ops)]), Liar())


class Strict(Account):
    """Knows deposits alone, and says so by raising: a share of what is there, or a withdrawal."""

    name = "strict"

    def encode(self, call: Call) -> Action:
        return Action(("deposit", "share", "withdraw").index(call.f), call.argument)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == 1:
            return True, state // x
        if f == 2:
            raise ValueError("no one withdraws")
        return True, state + x


@pytest.mark.parametrize(
    ("op", "raised"),
    [(("share", 0), "ZeroDivisionError"), (("withdraw", 1), "ValueError: no one withdraws .*test_linearizability.py")],
)
def test_what_a_step_raises_is_an_error_also_where_it_is_compiled(op: tuple[str, int], raised: str) -> None:
    """Numba lets nothing be raised through its callbacks: the action would count as one that cannot be."""
    ops = [operation("deposit", 4, call=0, ret=10), operation("share", 2, call=20, ret=30)]
    assert search(table([("k", ops)]), Strict()).verdict is Verdict.PASS
    with pytest.raises(ModelError, match=f"step: the model strict raised {raised}"):
        search(table([("k", [*ops, operation(*op, call=40, ret=50)])]), Strict())


LIST: Any = [1]
"""It cannot be hashed."""


class Own(Stack):
    """A stack of which a test breaks one part."""

    name = "own"


class Halving(Account):
    """Its states are no integers: half of one is left."""

    name = "halving"

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == 0:
            return state == x, state
        return True, (state + x) / 2  # type: ignore[return-value]


def own(**parts: Any) -> Model:
    """An own model with other parts."""
    made: Model = type("Own", (Own,), parts)()
    return made


@pytest.mark.parametrize(
    ("model", "reported"),
    [
        (
            own(encode=lambda self, call: Action(0, LIST)),
            "operation 0: the model own returned .*x=.1., .*cannot be hashed",
        ),
        (own(encode=lambda self, call: (0, 1)), "operation 0: the model own returned .0, 1., which is no Action"),
        (own(initial=[]), "the model own returned .., which cannot be hashed"),
        (own(lost=[]), "the model own returned .., which cannot be hashed"),
        (own(step=staticmethod(lambda state, f, x, y: (True, [*state, x]))), "step: the model own raised TypeError"),
        (own(foresee=lambda self, actions, call, ret: actions[:1]), "own foresaw 1 actions for 2 operations"),
        (own(foresee=lambda self, actions, call, ret: [Action(0, LIST)] * 2), "own returned .*which cannot be hashed"),
        (Halving(), "step returns Tuple.bool, float64.; a compiled step returns .* an integer"),
    ],
)
def test_what_the_search_cannot_use_of_a_model_is_an_error_that_says_so(model: Model, reported: str) -> None:
    """A half that is rounded unnoticed would be judged, and wrongly."""
    ops = [operation("push", 1, call=0, ret=10), operation("push", 2, call=20, ret=30)]
    with pytest.raises(ModelError, match=reported):
        search(table([("k", ops)]), model)


@pytest.mark.parametrize(("amount", "fits"), [(2**63 - 1, True), (2**63, False)])
def test_what_has_no_place_in_64_bits_is_an_error(amount: int, fits: bool) -> None:
    ops = [operation("deposit", amount, call=0, ret=10), operation("balance", None, amount, call=20, ret=30)]
    if fits:
        assert search(table([("k", ops)]), Account()).verdict is Verdict.PASS
    else:
        with pytest.raises(ModelError, match=r"operation 0: the compiled model account returned .* 64-bit integers"):
            search(table([("k", ops)]), Account())


def test_a_state_that_cannot_be_described_hides_no_finding() -> None:
    ops = [operation("push", "a", call=0, ret=5), operation("pop", None, "b", call=10, ret=15)]
    judged = search(table([("k", ops)]), own(describe=lambda self, state, values: state[7]))
    assert judged.verdict is Verdict.FAIL
    assert "the state can only be ('\"a\"',) (describe raised IndexError: tuple index out of range)." in (
        judged.findings[0].claim
    )


@pytest.mark.parametrize("shown", [0, False, []])
def test_a_read_of_strings_that_shows_none_is_no_empty_string(shown: Any) -> None:
    for result in (None, ""):
        ops = [operation("put", "", call=0, ret=1), operation("get", None, result, call=4, ret=5)]
        assert search(table([("k", ops)]), MODELS["kv"]).verdict is Verdict.PASS
    with pytest.raises(ModelError, match=r"operation 1: the values of kv must be strings; get has"):
        search(table([("k", [ops[0], {**ops[1], "result": shown}])]), MODELS["kv"])


def test_the_algorithm_fits_the_key_and_is_named() -> None:
    unique = [operation("write", 1, call=0, ret=1), operation("read", None, 1, call=2, ret=3)]
    again = [*unique, operation("write", 1, call=4, ret=5)]
    judged = search(table([("a", unique), ("b", again)]), MODELS["register"])
    assert judged.verdict is Verdict.PASS
    notes = [str(one.note) for one in judged.examined]
    assert notes[0] == "zones on 1 key"
    assert notes[1].startswith("search on 1 key; at most ")
    assert [one.rows for one in judged.examined] == [2, 3]
    stale = [*unique, operation("write", 2, call=4, ret=5), operation("read", None, 1, call=6, ret=7)]
    judged = search(table([(None, stale)]), MODELS["register"])
    assert judged.anomalies == {"nonlinearizable": 1}
    assert judged.findings[0].operations[:2] == (3, 2)


class Seven(Register):
    """A register that holds 7 at first; values are numbers themselves."""

    name = "seven"
    initial = 7

    def encode(self, call: Call) -> Action:
        return Action(0, call.result, reads=True) if call.f == "read" else Action(1, call.argument, blind=True)


class Sticky(Register):
    """A register that keeps what was written first."""

    name = "sticky"

    def encode(self, call: Call) -> Action | None:
        action = super().encode(call)
        return None if action is None else action._replace(blind=False)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == 0:
            return state == x, state
        return True, x if state == 0 else state


@pytest.mark.parametrize(
    ("model", "written", "read", "verdict"),
    [
        (Seven(), [], 7, Verdict.PASS),
        (Seven(), [], 0, Verdict.FAIL),
        (Sticky(), [1, 2], 1, Verdict.PASS),
        (Sticky(), [1, 2], 2, Verdict.FAIL),
        (MODELS["register"], [1, 2], 2, Verdict.PASS),
        (MODELS["cas-register"], [1, 2], 1, Verdict.FAIL),
    ],
)
def test_what_is_made_of_a_register_is_none_without_saying_so(
    model: Model, written: list[int], read: int, verdict: Verdict
) -> None:
    ops = [operation("write", value, call=10 * value, ret=10 * value + 5) for value in written]
    judged = search(table([("k", [*ops, operation("read", None, read, call=50, ret=60)])]), model)
    assert judged.verdict is verdict
    assert (judged.examined[0].note == "zones on 1 key") == (model in MODELS.values())


def test_nothing_to_look_at_proves_nothing() -> None:
    judged = search(table([("k", [operation("read", call=0, ret=None, outcome="info")])]), MODELS["register"])
    assert judged.verdict is Verdict.UNKNOWN
    assert judged.unknown == ("no operation says anything about the model",)


@pytest.mark.parametrize(
    ("op", "reported"),
    [
        (operation("pop", call=0, ret=1), "operation 0: the model register knows no operation 'pop'"),
        (operation("read", None, 1, call=5, ret=1), "operation 0 ended before it began"),
        (operation("read", None, 1, call=5, ret=None), "operation 0 ended ok at no known time"),
    ],
)
def test_what_does_not_fit_is_named(op: Op, reported: str) -> None:
    with pytest.raises(ModelError, match=reported):
        search(table([("k", [op])]), MODELS["register"])


def test_one_operation_of_a_claim_is_singular() -> None:
    (found,) = search(
        table(
            [("k", [operation("acquire", call=0, ret=1), operation("acquire", call=2, ret=4),
                    operation("release", call=5, ret=6), operation("acquire", call=3, ret=5)])]
        ),
        MODELS["mutex"],
    ).findings  # fmt: skip
    assert (
        "has no place in any order: 1 operation can be placed before it, with 1 other operation pending" in found.claim
    )


# -- writes of unknown outcome that the search leaves out ------------------------------------------------------------


def draw_register_history(draw: st.DrawFn) -> list[Op]:
    """Few values and many writes of unknown outcome, so that some values are read, and others never."""
    ops: list[Op] = []
    for _ in range(draw(st.integers(1, 8))):
        f = draw(st.sampled_from(["write", "write", "read", "cas"]))
        outcome = draw(st.sampled_from(["ok", "info", "info"] if f != "read" else ["ok"]))
        value = st.integers(0, 3)
        argument = None if f == "read" else [draw(value), draw(value)] if f == "cas" else draw(value)
        result = draw(st.none() | value) if f == "read" else draw(st.booleans()) if f == "cas" else None
        call = draw(st.integers(0, 20))
        ret = call + draw(st.integers(0, 10)) if outcome == "ok" else None
        ops.append(operation(f, argument, result if outcome == "ok" else None, call=call, ret=ret, outcome=outcome))
    return ops


@settings(max_examples=some_of(600), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ops=st.composite(draw_register_history)())
def test_writes_that_are_left_out_change_no_verdict_and_no_explanation(
    ops: list[Op], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = linearizable(ops, MEANING["cas-register"])
    found = searched([ops], MODELS["cas-register"]).get(0)
    with monkeypatch.context() as patch:
        patch.setattr(searcher, "find_unread_writes", lambda model, actions, action, ret: None)
        whole = searched([ops], MODELS["cas-register"]).get(0)
    if found is None or whole is None:
        assert expected
        return
    assert (found.why is None) == (whole.why is None) == expected
    if found.why is not None and whole.why is not None:
        assert found.why.operation == whole.why.operation
        assert (found.why.states, found.why.possible) == (whole.why.states, whole.why.possible)
        assert found.why.concurrent == whole.why.concurrent
        assert legal([ops[index] for index in found.why.order], MEANING["cas-register"])
