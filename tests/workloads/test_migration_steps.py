"""The steps of a migration, without a cluster: members that may own something are never in modes further apart."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from assay.harness.core.generator import Context, Invoke, OperationEvent
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.workloads.broker.migration import MEMBER_COUNT, MemberState, Migration, migration

KEYS = tuple(f"orders-{index}" for index in range(MEMBER_COUNT))
OPERATIONS = 1_500


@dataclass
class Member:
    """True state of a member. ``entering`` is the step that the operation under way makes it take on, at some time."""

    step: int | None = None
    entering: int | None = None
    under_way: Operation | None = None
    hold: int = 0
    """The number of the hold of its partition."""


def played(seed: int) -> int:
    """Members take different times, some answers are failures, and some never come. The last step."""
    rng, generator = random.Random(seed), migration(KEYS)
    members, processes, assignments = [Member() for _ in range(MEMBER_COUNT)], list(range(MEMBER_COUNT)), 0
    reached = 0
    for turn in range(OPERATIONS):
        busy = sum(1 << worker for worker, one in enumerate(members) if one.under_way is not None)
        every = (1 << MEMBER_COUNT) - 1
        context = Context(turn, every & ~busy, busy, every, tuple(processes), turn % MEMBER_COUNT, rng.getrandbits(64))
        if every & ~busy and rng.random() < 0.7:
            answer, following = generator.op(context)
            if isinstance(answer, Invoke):
                generator, one = following, members[answer.worker]
                one.under_way = answer.operation
                one.entering = answer.operation.argument["step"]
                reached = max(reached, one.entering or 0)
        elif busy:
            worker = rng.choice([worker for worker, one in enumerate(members) if one.under_way is not None])
            if worker == 1 and rng.random() < 0.5:
                continue  # a slow one
            assignments += 1
            generator = ended(rng, generator, members, processes, worker, context, assignments)
        possible = {step for one in members for step in (one.step, one.entering) if step is not None}
        assert max(possible, default=0) - min(possible, default=0) <= 1, f"turn {turn}: members are in {possible}"
    return reached


def ended(
    rng: random.Random,
    generator: Any,
    members: list[Member],
    processes: list[int],
    worker: int,
    context: Context,
    assignment: int,
) -> Any:
    one, chance = members[worker], rng.random()
    assert one.under_way is not None
    operation, ownership = one.under_way, []
    outcome = Outcome.FAIL if chance < 0.1 else Outcome.INFO if chance < 0.13 else Outcome.OK
    if outcome is Outcome.INFO:
        members[worker] = Member()  # another process begins as a member of nothing
    else:
        if one.step != one.entering and (outcome is Outcome.OK or rng.random() < 0.5):
            key, about = KEYS[worker], {"owner": "m", "generation": None}
            if one.hold:
                ownership.append({"kind": "release", "key": key, "assignment": one.hold, **about})
            ownership.append({"kind": "acquire", "key": key, "assignment": assignment, **about})
            one.step, one.hold = one.entering, assignment
        one.entering, one.under_way = None, None
    result = None if outcome is Outcome.INFO else {"ownership": ownership, "over": []}
    completed = Completed(1, processes[worker], "w", operation, Completion(outcome, result), 1, 2)
    event = OperationEvent(worker, processes[worker], operation, 2, completed)
    if outcome is Outcome.INFO:
        processes[worker] += MEMBER_COUNT
    return generator.update(context, event)


@pytest.mark.slow
def test_members_are_in_one_mode_or_in_two_that_follow_each_other() -> None:
    assert max(played(seed) for seed in range(60)) >= 8, "steps are taken"


def test_a_step_waits_for_partitions_that_were_added_and_held_since() -> None:
    """A member of the step before may have committed there to the store that the step after does not read."""
    every = (1 << MEMBER_COUNT) - 1
    members = {worker: MemberState(worker, 1) for worker in range(MEMBER_COUNT)}
    held = {key: {(worker, worker): 1} for worker, key in enumerate(KEYS)}

    def following(holds: dict[tuple[int, int], int]) -> set[int]:
        generator = Migration(KEYS, step=1, before=0, members=members, holders={**held, "orders-9": holds})
        steps = set()
        for chance in range(20):  # now and then the operator thinks better of it
            context = Context(1, every, 0, every, tuple(range(MEMBER_COUNT)), 0, chance)
            _, after = generator.op(context)
            assert isinstance(after, Migration)
            steps.add(after.step)
        return steps

    assert 2 not in following({})
    assert 2 not in following({(0, 7): 0})
    assert 2 in following({(0, 7): 1})
