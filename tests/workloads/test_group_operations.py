"""Tests what members of groups are asked to do, and the effects that they leave in a history."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.core.generator import Context, Invoke, OperationEvent
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase
from assay.harness.core.timestamps import NANOSECONDS
from assay.workloads.broker.group_client import GroupClient
from assay.workloads.broker.group_drain import catch_up, drain
from assay.workloads.broker.group_operations import CommitPositions, restrict_to_owners, traffic

from helpers.imagined_run import ImaginedRun

KEYS = ("orders-0", "orders-1")
HELD = {"key": "orders-1", "generation": 7, "owner": "m", "assignment": 4}
POLL = Operation("poll", argument={"group": "g"})
COMMIT = Operation("commit", argument={"group": "g", "number": 5, "keys": list(KEYS)})


def rows(operation: Operation, outcome: Outcome, result: Any = None) -> list[Effect]:
    ret = None if outcome is Outcome.INFO else 20
    return list(GroupClient.effects(Completed(41, 3, "w3", operation, Completion(outcome, result), 10, ret)))


def test_traffic_has_everything_in_it_and_numbers_are_unique() -> None:
    generator: Any = traffic(KEYS)
    made = []
    for number in range(3_000):
        chance = number * 0x9E3779B97F4A7C15 % 2**64
        answer, generator = generator.op(Context(number * NANOSECONDS // 100, 1, 0, 1, (0,), random=chance))
        assert isinstance(answer, Invoke)
        made.append(answer.operation)
    count = Counter(operation.f for operation in made)
    assert count.keys() == {"send", "poll", "commit", "end", "leave", "die", "silence"}
    assert 10 <= count["leave"] + count["die"] + count["silence"] <= 40, "by the clock, whatever the rate: 30 s of it"
    assert min(count["leave"], count["die"], count["silence"]) > 0
    numbers = [operation.argument["number"] for operation in made if operation.f == "commit"]
    assert len(numbers) == len(set(numbers))


def heard(generator: Any, worker: int, operation: Operation, result: Any, outcome: Outcome = Outcome.OK) -> Any:
    completed = Completed(1, worker, "w", operation, Completion(outcome, result), 10, 20)
    event = OperationEvent(worker, worker, operation, 20, completed)
    return generator.update(Context(20, 0b111, 0, 0b111, (0, 1, 2)), event)


def takers(generator: Any, least: int = 40) -> set[int | None]:
    """Who gets it more often than that in 400 draws, with three workers free; None: no one."""
    contexts = [Context(20, 0b111, 0, 0b111, (0, 1, 2), cursor=n % 3, random=n * 0x9E3779B97F4A7C15 % 2**64)
                for n in range(400)]  # fmt: skip
    answers = [generator.op(context)[0] for context in contexts]
    found = Counter(answer.worker if isinstance(answer, Invoke) else None for answer in answers)
    return {worker for worker, count in found.items() if count > least}


def test_owners_commit_until_they_own_nothing_any_more() -> None:
    polled, parted = POLL, Operation("leave", argument={"group": "g"})
    reads = {"reads": [{"key": "orders-0"}], "ownership": []}
    idle = restrict_to_owners("g", CommitPositions.draw("g", KEYS))
    assert takers(idle) == {None}, "they wait"
    owned = heard(idle, 1, polled, reads)
    assert takers(owned) == {1}
    assert takers(heard(owned, 2, polled, reads)) == {1, 2}
    for worker, operation, result, outcome in (
        (1, polled, {"reads": [], "ownership": []}, Outcome.OK),
        (1, parted, {"ownership": []}, Outcome.OK),
        (1, COMMIT, None, Outcome.INFO),
    ):
        assert takers(heard(owned, worker, operation, result, outcome)) == {None}
    for worker, operation, result, outcome in (
        (1, polled, None, Outcome.FAIL),
        (1, Operation("silence", argument={"group": "g", "seconds": 3.0}), None, Outcome.OK),
        (1, Operation("poll", argument={"group": "other"}), {"reads": []}, Outcome.OK),
        (0, parted, {"ownership": []}, Outcome.OK),
        (1, Operation("poll", key="orders-0", argument={}), {"reads": []}, Outcome.OK),
    ):
        assert takers(heard(owned, worker, operation, result, outcome)) == {1}
    assert takers(idle, least=10) > {None}, "sometimes one that owns nothing tries"


def test_an_acquired_partition_is_a_hold_and_a_look_at_what_was_committed() -> None:
    note = {"kind": "acquire", **HELD, "begin": 100, "offset": 100, "number": 3}
    for outcome, result in ((Outcome.OK, {"ownership": [note], "reads": []}), (Outcome.FAIL, {"ownership": [note]})):
        about = {"group": "g", "outcome": Outcome.OK}
        assert rows(POLL, outcome, result) == [
            Effect("acquire", "orders-1", generation=7, owner="m", assignment=4, **about),  # type: ignore[arg-type]
            Effect("fetched", "g/orders-1", position=100, value=3, **about),  # type: ignore[arg-type]
            Effect("seek", "orders-1", position=100, assignment=4, **about),  # type: ignore[arg-type]
        ]


def test_owning_nothing_in_a_generation_is_reported_by_the_group_s_name() -> None:
    note = {"kind": "acquire", **HELD, "key": None}
    (row,) = rows(POLL, Outcome.OK, {"ownership": [note], "reads": []})
    assert (row.kind, row.key, row.generation, row.owner) == ("acquire", "g", 7, "m")


@pytest.mark.parametrize(("f", "kind"), [("poll", "lost"), ("leave", "release"), ("die", "lost")])
def test_what_is_owned_no_more_ends_its_hold(f: str, kind: str) -> None:
    operation = Operation(f, argument={"group": "g"})
    (row,) = rows(operation, Outcome.OK, {"ownership": [{"kind": kind, **HELD}]})
    assert (row.kind, row.key, row.generation, row.owner, row.assignment) == (kind, "orders-1", 7, "m", 4)


def test_a_poll_with_nothing_to_tell_says_that_the_member_is_there() -> None:
    (row,) = rows(POLL, Outcome.OK, {"ownership": [], "reads": []})
    assert (row.kind, row.key, row.group, row.outcome) == ("idle", "g", "g", Outcome.OK)
    assert rows(POLL, Outcome.INFO, {}) == []


def test_what_was_read_lies_between_begin_and_end() -> None:
    read = {"key": "orders-0", "begin": 10, "records": [[10, 5], [11, 6]], "end": 12, "assignment": 3}
    found = rows(POLL, Outcome.OK, {"ownership": [], "reads": [read]})
    assert [(row.kind, row.position, row.value) for row in found] == [
        ("observe-begin", 10, None),
        ("observe", 10, 5),
        ("observe", 11, 6),
        ("observe-end", 12, None),
    ]
    assert {(row.key, row.assignment, row.group) for row in found} == {("orders-0", 3, "g")}


def test_a_place_that_is_gone_is_no_poll() -> None:
    read = {"key": "orders-0", "reset": 0, "from": 4, "assignment": 9}
    found = rows(POLL, Outcome.OK, {"ownership": [], "reads": [read]})
    assert [(row.kind, row.position, row.assignment) for row in found] == [
        ("out-of-range", 4, None),
        ("start", 0, None),
        ("reset", 0, 9),
    ]


def test_only_the_drain_past_its_sentinel_has_drained() -> None:
    read = {"key": "orders-0", "begin": 10, "records": [], "end": 12, "assignment": 3}
    for sentinel, phase, drained in ((11, Phase.DRAIN, [12]), (12, Phase.DRAIN, []), (11, Phase.MAIN, [])):
        operation = Operation("poll", argument={"group": "g", "until": {"orders-0": sentinel}}, phase=phase)
        found = rows(operation, Outcome.OK, {"ownership": [], "reads": [read]})
        assert [row.position for row in found if row.kind == "drained"] == drained


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_commit_is_a_write_of_each_position_in_its_generation(outcome: Outcome) -> None:
    found = rows(COMMIT, outcome, {"generation": 7, "owner": "m", "positions": [["orders-1", 12, 4]]})
    assert found == [
        Effect("commit", "g/orders-1", position=12, value=5, generation=7, owner="m", group="g", assignment=4)
    ]


def test_a_commit_of_which_nothing_is_known_may_be_of_any_partition() -> None:
    found = rows(COMMIT, Outcome.INFO)
    assert [(row.kind, row.key, row.value, row.position, row.generation) for row in found] == [
        ("commit", "g/orders-0", 5, None, None),
        ("commit", "g/orders-1", 5, None, None),
    ]
    assert rows(COMMIT, Outcome.FAIL) == [], "it owned nothing"


class ImaginedGroup:
    """Each process owns by chance this or that partition, for a few polls, and reads it from its beginning."""

    def __init__(self, luck: random.Random, trouble: float, stuck: str | None = None) -> None:
        self.luck = luck
        self.stuck = stuck
        self.trouble = trouble
        self.logs = {key: [7, 8, 9] for key in KEYS}
        self.holds: dict[tuple[int, str], int] = {}
        self.asked: list[tuple[str, str]] = []

    def answer(self, process: int, operation: Operation) -> Completion:
        if self.luck.random() < self.trouble:
            return Completion(self.luck.choice((Outcome.FAIL, Outcome.INFO)), error="trouble")
        if operation.f == "send":
            assert operation.key is not None
            self.logs[operation.key].extend(operation.argument)
            return Completion(Outcome.OK, {"offset": len(self.logs[operation.key]) - 1})
        self.asked.append((operation.f, operation.argument["group"]))
        if operation.f == "leave":
            return Completion(Outcome.OK, {"ownership": []})
        reads = []
        for key, log in self.logs.items():
            if self.luck.random() < 0.3:
                self.holds.pop((process, key), None)
                continue
            begin = self.holds.get((process, key), 0)
            end = self.holds[process, key] = begin if key == self.stuck else min(begin + 2, len(log))
            records = [[offset, log[offset]] for offset in range(begin, end)]
            reads.append({"key": key, "begin": begin, "records": records, "end": end, "assignment": 1})
        return Completion(Outcome.OK, {"ownership": [], "reads": reads})


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2, 0.6]))
def test_the_drain_goes_past_every_sentinel_of_any_owner(seed: int, trouble: float) -> None:
    group = ImaginedGroup(random.Random(seed), trouble)
    completed = ImaginedRun(drain(KEYS, seconds=1_000), group.answer, random.Random(seed + 1)).run()
    found = [(done, effect) for done in completed for effect in GroupClient.effects(done)]
    for key in KEYS:
        sentinels = [
            effect.position
            for done, effect in found
            if (effect.kind, effect.key, done.completion.outcome) == ("append", key, Outcome.OK)
        ]
        assert len(sentinels) == 1, "one acknowledged sentinel, and no further attempt"
        assert {effect.position for _, effect in found if (effect.kind, effect.key) == ("drained", key)} == {
            (sentinels[0] or 0) + 1
        }
        seen = {effect.position for _, effect in found if (effect.kind, effect.key) == ("observe", key)}
        assert seen >= set(range((sentinels[0] or 0) + 1))
    assert set(group.asked) == {("poll", "drain")}


@pytest.mark.slow
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2, 0.6]), st.sampled_from([None, KEYS[1]]))
def test_who_worked_must_reach_sentinels_of_their_own(seed: int, trouble: float, stuck: str | None) -> None:
    """When a member has left, the others find out. They, or no one, read the sentinels that are sent then."""
    group = ImaginedGroup(random.Random(seed), trouble, stuck)
    run = ImaginedRun(catch_up(KEYS, seconds=20), group.answer, random.Random(seed + 1))
    completed = run.run()
    assert [rank for rank, done in enumerate(completed) if done.operation.f == "leave"] == [0]
    first = next(done for done in completed if done.operation.f == "send")
    assert first.ret is not None
    assert first.ret > 3 * NANOSECONDS, "settled by then"
    assert {name for _, name in group.asked} <= {"workers"}
    assert Phase.MAIN not in {done.operation.phase for done in completed}
    sent = [value for done in completed if done.operation.f == "send" for value in done.operation.argument]
    assert max(sent) < -1_000, "none that a drain has sent"
    reached = {effect.key for done in completed for effect in GroupClient.effects(done) if effect.kind == "drained"}
    assert reached == {key for key in KEYS if key != stuck}


def test_a_group_that_is_dead_is_given_up_at_the_deadline() -> None:
    run = ImaginedRun(drain(KEYS, seconds=3), lambda *_: Completion(Outcome.FAIL, error="x"), random.Random(1))
    completed = run.run()
    assert 2.5 * NANOSECONDS < run.time <= 3.5 * NANOSECONDS
    assert 3 < len(completed) < 40
    assert all(done.operation.phase is Phase.SENTINEL for done in completed)
