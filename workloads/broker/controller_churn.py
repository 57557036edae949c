"""Topics that come and go: the generator of ``create``, ``delete``, ``describe`` and ``touch``; partitions that move.

Names are numbered by the generator's own count, so no name is used twice in a run: a log that comes back under a name
that was there before would look like one that has lost everything. The generator does not ask what became of its
operations. It deletes and touches topics among the latest it has meant to make, whether they exist or not; an answer
that there is no such topic is an answer, too.
"""

from collections.abc import Sequence
from typing import Final

from assay.harness.core.generator import Context, Generator, unfold
from assay.harness.core.operation import Operation
from assay.workloads.broker.controller_client import TOUCH
from assay.workloads.broker.topic_admin import CREATE, DELETE, DESCRIBE, ELECT, MOVE

WEIGHTS: Final = (CREATE, CREATE, DELETE, DELETE, DESCRIBE, TOUCH, TOUCH, TOUCH)
RECENT: Final = 4
"""The latest topics, which are described and touched; those before them are deleted, so that most are there."""
MOST_PARTITIONS: Final = 3
SHAPE: Final = {"replication": 2, "configs": {"min.insync.replicas": "1"}}


def churn() -> Generator:
    """For ever; as often a topic is made as one is removed."""

    def step(state: tuple[int, int], context: Context) -> tuple[Operation, tuple[int, int]]:
        made, value = state
        f = context.choose(WEIGHTS, salt=1)
        if f == CREATE or made == 0 or (f == DELETE and made <= RECENT):
            return Operation(CREATE, name(made), SHAPE | {"partitions": partitions(made)}), (made + 1, value)
        if f == DELETE:
            older = min(made - RECENT, RECENT)
            return Operation(DELETE, name(made - RECENT - 1 - context.below(older, salt=2))), state
        topic = made - 1 - context.below(min(made, RECENT), salt=3)
        if f == DESCRIBE:
            return Operation(DESCRIBE, name(topic)), state
        argument = {"partition": context.below(partitions(topic), salt=4), "value": value}
        return Operation(TOUCH, name(topic), argument), (made, value + 1)

    return unfold(step, (0, 0))


def moves(keys: Sequence[str], brokers: int, replication: int) -> Generator:
    """For ever: one of these partitions moves to any of the brokers 1, 2, ..., or its preferred leader is to lead.

    Most moves are rejected, as one is under way: what comes next is asked for soon enough.
    """

    def step(number: int, context: Context) -> tuple[Operation, int]:
        key = context.choose(keys, salt=1)
        if context.below(3, salt=2) == 0:
            return Operation(ELECT, key), number
        left = list(range(1, brokers + 1))
        replicas: list[int] = []
        while left and len(replicas) < replication:
            replicas.append(left.pop(context.below(len(left), salt=3 + len(replicas))))
        return Operation(MOVE, key, {"replicas": replicas}), number + 1

    return unfold(step, 0)


def name(number: int) -> str:
    """``churn-7``."""
    return f"churn-{number}"


def partitions(number: int) -> int:
    """How many topic ``number`` has, from 1 to ``MOST_PARTITIONS``."""
    return 1 + number % MOST_PARTITIONS
