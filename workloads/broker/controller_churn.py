"""Generators of topics that come and go (``create``, ``delete``, ``describe``, ``touch``), and of partition moves.

No topic name is used twice in a run, because a log that reappears under an old name would look like one that has lost
everything. The generator ignores the results of its operations. It deletes and touches topics among the latest that it
asked for, whether they exist or not; "no such topic" is a valid answer.
"""

from collections.abc import Sequence
from typing import Final

from assay.harness.core.generator import Context, Generator, unfold
from assay.harness.core.operation import Operation
from assay.workloads.broker.controller_client import TOUCH
from assay.workloads.broker.topic_admin import CREATE, DELETE, DESCRIBE, ELECT, MOVE

WEIGHTS: Final = (CREATE, CREATE, DELETE, DELETE, DESCRIBE, TOUCH, TOUCH, TOUCH)
RECENT: Final = 4
"""Number of latest topics, which are described and touched. Only older ones are deleted, so most topics exist."""
MOST_PARTITIONS: Final = 3
SHAPE: Final = {"replication": 2, "configs": {"min.insync.replicas": "1"}}


def churn() -> Generator:
    """Creates and deletes topics equally often, for ever."""

    def step(state: tuple[int, int], context: Context) -> tuple[Operation, tuple[int, int]]:
        made, value = state
        f = context.choose(WEIGHTS, salt=1)
        if f == CREATE or made == 0 or (f == DELETE and made <= RECENT):
            return Operation(CREATE, format_name(made), SHAPE | {"partitions": count_partitions(made)}), (
                made + 1,
                value,
            )
        if f == DELETE:
            older = min(made - RECENT, RECENT)
            return Operation(DELETE, format_name(made - RECENT - 1 - context.below(older, salt=2))), state
        topic = made - 1 - context.below(min(made, RECENT), salt=3)
        if f == DESCRIBE:
            return Operation(DESCRIBE, format_name(topic)), state
        argument = {"partition": context.below(count_partitions(topic), salt=4), "value": value}
        return Operation(TOUCH, format_name(topic), argument), (made, value + 1)

    return unfold(step, (0, 0))


def moves(keys: Sequence[str], brokers: int, replication: int) -> Generator:
    """Moves a partition to any of the brokers 1, 2, ..., or elects its preferred leader, for ever.

    Most moves are rejected, because another one is in progress; the next request follows soon.
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


def format_name(number: int) -> str:
    """Returns a name such as ``churn-7``."""
    return f"churn-{number}"


def count_partitions(number: int) -> int:
    """Returns the number of partitions of topic ``number``, from 1 to ``MOST_PARTITIONS``."""
    return 1 + number % MOST_PARTITIONS
