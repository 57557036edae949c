"""The workloads of sets, queues and ids, on stores in memory: a right one passes, and a wrong one is named."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from assay import ID_ANOMALIES, SET_ANOMALIES, forbid
from assay.checkers.judging.verdict import Verdict
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.workloads.generic import queues, sets, unique_ids

from helpers.in_memory import judged


class Elements:
    """A set; ``forgets`` one element that it acknowledged."""

    def __init__(self, forgets: int | None = None) -> None:
        self._there, self._forgets = set[int](), forgets

    def __call__(self, operation: Operation) -> Any:
        if operation.f == sets.READ:
            return sorted(self._there)
        if operation.argument != self._forgets:
            self._there.add(operation.argument)
        return None


def test_a_set_that_keeps_what_it_acknowledged_passes(tmp_path: Path) -> None:
    judgement = judged(tmp_path, sets.traffic(), sets.effects, Elements(), forbid(*SET_ANOMALIES))
    assert (judgement.verdict, judgement.anomalies, judgement.unknown) == (Verdict.PASS, {}, ())


def test_a_set_that_forgets_is_named(tmp_path: Path) -> None:
    judgement = judged(tmp_path, sets.traffic(), sets.effects, Elements(forgets=7), forbid(*SET_ANOMALIES))
    assert (judgement.verdict, judgement.anomalies) == (Verdict.FAIL, {"set-lost": 1})


def test_several_sets_are_judged_each_by_itself(tmp_path: Path) -> None:
    class Sets:
        """By key; the elements of one are shown as another's, if ``mixed_up``."""

        def __init__(self, mixed_up: bool) -> None:
            self.there, self.mixed_up = {"a": Elements(), "b": Elements()}, mixed_up

        def __call__(self, operation: Operation) -> Any:
            key = (
                {"a": "b", "b": "a"}[str(operation.key)]
                if self.mixed_up and operation.f == sets.READ
                else operation.key
            )
            return self.there[str(key)](operation)

    traffic, promised = sets.traffic(["a", "b"]), forbid(*SET_ANOMALIES)
    right = judged(tmp_path / "right", traffic, sets.effects, Sets(mixed_up=False), promised)
    assert (right.verdict, right.anomalies, right.unknown) == (Verdict.PASS, {}, ())
    wrong = judged(tmp_path / "wrong", traffic, sets.effects, Sets(mixed_up=True), promised)
    assert wrong.verdict is Verdict.FAIL
    assert wrong.anomalies["set-lost"] > 100, "both sets lack all that was added to them"


class Queue:
    """Queue whose keyword arguments name an element and say how the queue, or its client, mishandles it.

    It ``loses`` or ``repeats`` the element, or ``hides`` it in a take of unknown outcome. Or it ``breaks`` the
    connection after a take of that element.
    """

    def __init__(self, **slips: int) -> None:
        self._waiting, self._slips = deque[int](), slips

    def __call__(self, operation: Operation) -> Any:
        if operation.f == queues.ENQUEUE:
            if operation.argument != self._slips.get("loses"):
                self._waiting.append(operation.argument)
            return None
        if operation.f == queues.DRAIN:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken
        if not self._waiting:
            return []
        taken = [self._waiting.popleft()]
        if taken == [self._slips.get("repeats")]:
            self._waiting.append(self._slips.pop("repeats"))
        if taken == [self._slips.get("hides")]:
            return Completion(Outcome.INFO, error="timeout")
        if taken == [self._slips.get("breaks")]:
            return Completion(Outcome.INFO, taken, error="StreamLostError")
        return taken


def judged_as(folder: Path, **slips: int) -> tuple[Verdict, dict[str, int]]:
    judgement = judged(folder, queues.traffic("q"), queues.effects, Queue(**slips), queues.build_contract())
    assert judgement.unknown == ()
    return judgement.verdict, dict(judgement.anomalies)


def first_enqueued() -> int:
    """Not the first number: half of the operations dequeue."""
    from assay.harness.core.generator import simulate, split_phases

    events = simulate(split_phases(queues.traffic("q"))[0], most=50)
    return next(event.operation.argument for event in events if event.operation.f == queues.ENQUEUE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slip", "verdict", "anomalies"),
    [
        ("", Verdict.PASS, {}),
        ("loses", Verdict.FAIL, {"queue-lost": 1}),
        ("repeats", Verdict.PASS, {"queue-duplicate": 1}),
        ("hides", Verdict.PASS, {}),
        ("breaks", Verdict.PASS, {}),
    ],
)
def test_a_queue_is_judged_by_what_its_clients_took(
    tmp_path: Path, slip: str, verdict: Verdict, anomalies: dict[str, int]
) -> None:
    assert judged_as(tmp_path, **({slip: first_enqueued()} if slip else {})) == (verdict, anomalies)


def test_an_interrupted_take_excuses_one_loss_unless_it_has_its_element() -> None:
    """The request may have been served and its answer lost. A client that knows better says that it failed."""

    def outcomes(f: str, completion: Completion) -> list[tuple[str, int | None, Outcome | None]]:
        completed = Completed(0, 0, "w0", Operation(f, "q"), completion, 0, None)
        return [(one.kind, one.value, one.outcome) for one in queues.effects(completed)]

    for completion in (Completion(Outcome.INFO, []), Completion(Outcome.INFO), Completion(Outcome.OK, [])):
        assert outcomes(queues.DEQUEUE, completion) == [("queue-dequeue", None, None)], "the operation's outcome"
    assert outcomes(queues.DEQUEUE, Completion(Outcome.INFO, [3])) == [("queue-dequeue", 3, Outcome.OK)]
    assert outcomes(queues.DRAIN, Completion(Outcome.OK, [3]))[1:] == [("queue-drained", None, None)]
    assert outcomes(queues.DRAIN, Completion(Outcome.FAIL, [])) == [("queue-dequeue", None, None)]


def test_what_a_drain_took_that_broke_off_accuses_no_one() -> None:
    """A drain that the harness gave up may have taken any number. A drain that says what it took may have had another
    element on its way, which is given out again when others have found the end."""

    def kinds(completion: Completion) -> list[tuple[str, int | None, Outcome | None]]:
        completed = Completed(0, 0, "w0", Operation(queues.DRAIN, "q"), completion, 0, None)
        return [(one.kind, one.value, one.outcome) for one in queues.effects(completed)]

    assert kinds(Completion(Outcome.INFO)) == [("queue-drained", None, None)]
    assert kinds(Completion(Outcome.INFO, [3])) == [("queue-dequeue", 3, Outcome.OK), ("queue-dequeue", None, None)]


class Ids:
    """``nodes`` that count by themselves, each its own numbers; ``apart``: a number has its node's name before it."""

    def __init__(self, nodes: int, *, apart: bool) -> None:
        self._next, self._turn, self._apart = [0] * nodes, 0, apart

    def __call__(self, operation: Operation) -> Any:
        node = self._turn % len(self._next)
        self._turn, self._next[node] = self._turn + 1, self._next[node] + 1
        return f"n{node}-{self._next[node]}" if self._apart else self._next[node]


@pytest.mark.parametrize("ids", [Ids(1, apart=False), Ids(3, apart=True)], ids=["one counts", "each has its own name"])
def test_ids_that_differ_pass(tmp_path: Path, ids: Ids) -> None:
    judgement = judged(tmp_path, unique_ids.traffic(), unique_ids.effects, ids, forbid(*ID_ANOMALIES))
    assert (judgement.verdict, judgement.anomalies, judgement.unknown) == (Verdict.PASS, {}, ())


def test_ids_of_two_that_count_from_the_same_number_are_named(tmp_path: Path) -> None:
    ids = Ids(2, apart=False)
    judgement = judged(tmp_path, unique_ids.traffic(), unique_ids.effects, ids, forbid(*ID_ANOMALIES))
    assert (judgement.verdict, judgement.anomalies) == (Verdict.FAIL, {"id-duplicate": 175})


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, -(2**127)])
def test_a_number_of_any_length_is_an_id(tmp_path: Path, number: int) -> None:
    judgement = judged(tmp_path, unique_ids.traffic(), unique_ids.effects, lambda _: number, forbid(*ID_ANOMALIES))
    assert judgement.anomalies == {"id-duplicate": 1}
    assert str(number) in judgement.findings[0].claim


def test_an_id_that_did_not_arrive_was_handed_out_to_no_one() -> None:
    lost = Completed(0, 0, "w0", Operation(unique_ids.GENERATE), Completion(Outcome.INFO, 7), 0, None)
    assert [(one.value, one.name) for one in unique_ids.effects(lost)] == [(None, None)]
