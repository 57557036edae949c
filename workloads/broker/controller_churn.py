"""Generators and client that create, use (``touch`` appends a record) and delete topics, and move partitions.

No topic name is used twice in a run, because a log that reappears under an old name would look like a log that has lost
all its records. The generator ignores the results of its operations. It deletes and touches some of the latest topics
whose creation it requested. They may not exist, so "no such topic" is a valid answer.
"""

from collections.abc import Sequence
from typing import Final

from assay.harness.core.generator import Context, Generator, unfold
from assay.harness.core.operation import Completion, Operation
from assay.system_under_test.client.config import ProducerConfig
from assay.workloads.broker.log_client import LogClient
from assay.workloads.broker.log_names import format_node
from assay.workloads.broker.topic_admin import Create, Delete, Describe, Elect, Move
from assay.workloads.broker.verbs import Verb, ok

TOUCH_SECONDS: Final = 2.0
"""Time limit of a touch. It is short, because most topics that reject writes were deleted, and retries are useless."""


class Touch(Verb):
    """Appends a record to a topic that may be deleted at any time, so that its leaders act in their epochs.

    Argument: ``{"partition", "value"}``; the key is a topic. Result: ``{"offset", "node"}``. The brokers' event logs
    show the append to the ownership checks. A touch has no effects, because the log checks must ignore it.
    """

    f = "touch"

    async def invoke(self, operation: Operation) -> Completion:
        assert operation.key is not None, f"{operation.f} without a topic"
        argument: dict[str, int] = operation.argument
        toucher = self.session.get_or_make(Touch, lambda: self.session.producer(ProducerConfig(timeout=TOUCH_SECONDS)))
        message = [(None, str(argument["value"]).encode())]
        result = await toucher.send_set(operation.key, argument["partition"], message)
        return ok({"offset": result.base_offset, "node": format_node(result.node)})


class ControllerClient(LogClient):
    """Client of a log that also touches topics."""

    verbs = (*LogClient.verbs, Touch)


WEIGHTS: Final = (Create.f, Create.f, Delete.f, Delete.f, Describe.f, Touch.f, Touch.f, Touch.f)
RECENT: Final = 4
"""Number of latest topics that are described and touched. Only older topics are deleted, so most of these exist."""
MAX_PARTITIONS: Final = 3
SHAPE: Final = {"replication": 2, "configs": {"min.insync.replicas": "1"}}


def churn() -> Generator:
    """Yields operations that create, delete, describe and touch topics, for ever."""

    def step(state: tuple[int, int], context: Context) -> tuple[Operation, tuple[int, int]]:
        created, value = state
        f = context.choose(WEIGHTS, salt=1)
        if f == Create.f or created == 0 or (f == Delete.f and created <= RECENT):
            argument = SHAPE | {"partitions": count_partitions(created)}
            return Operation(Create.f, format_name(created), argument), (created + 1, value)
        if f == Delete.f:
            older = min(created - RECENT, RECENT)
            return Operation(Delete.f, format_name(created - RECENT - 1 - context.random_below(older, salt=2))), state
        topic = created - 1 - context.random_below(min(created, RECENT), salt=3)
        if f == Describe.f:
            return Operation(Describe.f, format_name(topic)), state
        argument = {"partition": context.random_below(count_partitions(topic), salt=4), "value": value}
        return Operation(Touch.f, format_name(topic), argument), (created, value + 1)

    return unfold(step, (0, 0))


def moves(keys: Sequence[str], brokers: int, replication: int) -> Generator:
    """Yields moves of a partition to any of the brokers 1, 2, ..., and elections of its preferred leader, for ever.

    Most moves are rejected, because another move is in progress. The next request follows soon.
    """

    def step(number: int, context: Context) -> tuple[Operation, int]:
        key = context.choose(keys, salt=1)
        if context.random_below(3, salt=2) == 0:
            return Operation(Elect.f, key), number
        left = list(range(1, brokers + 1))
        replicas: list[int] = []
        while left and len(replicas) < replication:
            replicas.append(left.pop(context.random_below(len(left), salt=3 + len(replicas))))
        return Operation(Move.f, key, {"replicas": replicas}), number + 1

    return unfold(step, 0)


def format_name(number: int) -> str:
    """Returns a name such as ``churn-7``."""
    return f"churn-{number}"


def count_partitions(number: int) -> int:
    """Returns the number of partitions of topic ``number``, from 1 to ``MAX_PARTITIONS``."""
    return 1 + number % MAX_PARTITIONS
