"""Generators and client of topics that come and go (``create``, ``delete``, ``describe``, ``touch``), and of moves.

No topic name is used twice in a run, because a log that reappears under an old name would look like one that has lost
everything. The generator ignores the results of its operations. It deletes and touches topics among the latest that it
asked for, whether they exist or not; "no such topic" is a valid answer.

In addition to the operations on a log that stays, and an administrator's (``assay.workloads.broker.topic_admin``), the
client has

=========  ==========================  ==================================================
f          argument                    result
=========  ==========================  ==================================================
``touch``  ``{"partition", "value"}``  ``{"offset", "node"}``
=========  ==========================  ==================================================

``touch`` appends a record to a topic that may be deleted at any time, so that its leaders act in their epochs. The
ownership checks see this in the event log. The log checks must not, so a touch has no effects.
"""

from collections.abc import Sequence
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.generator import Context, Generator, unfold
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.config import ProducerConfig
from assay.system_under_test.client.errors import SendFailed, SendUnknown
from assay.system_under_test.client.producer import Producer
from assay.workloads.broker.log_client import LogClient
from assay.workloads.broker.log_names import describe_error, format_node
from assay.workloads.broker.topic_admin import CREATE, DELETE, DESCRIBE, ELECT, MOVE

TOUCH: Final = "touch"
TOUCH_SECONDS: Final = 2.0
"""Short, because most topics that reject writes are gone, and the library would retry for ever."""


class ControllerClient(LogClient):
    """Client of a log as above, with ``touch``."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        await super().open(endpoint, runtime)
        self._toucher = Producer(list(endpoint.all), ProducerConfig(timeout=TOUCH_SECONDS), runtime=runtime)

    async def close(self) -> None:
        await super().close()
        await self._toucher.close()

    async def invoke(self, operation: Operation) -> Completion:
        if operation.f != TOUCH:
            return await super().invoke(operation)
        assert operation.key is not None, f"{operation.f} without a topic"
        argument: dict[str, int] = operation.argument
        message = [(None, str(argument["value"]).encode())]
        try:
            result = await self._toucher.send_set(operation.key, argument["partition"], message)
        except SendFailed as error:
            return Completion(Outcome.FAIL, error=describe_error(error))
        except SendUnknown as error:
            return Completion(Outcome.INFO, error=describe_error(error))
        return Completion(Outcome.OK, {"offset": result.base_offset, "node": format_node(result.node)})

    @classmethod
    def effects(cls, completed: Completed) -> Sequence[Effect]:
        return () if completed.operation.f == TOUCH else super().effects(completed)


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
            return Operation(DELETE, format_name(made - RECENT - 1 - context.random_below(older, salt=2))), state
        topic = made - 1 - context.random_below(min(made, RECENT), salt=3)
        if f == DESCRIBE:
            return Operation(DESCRIBE, format_name(topic)), state
        argument = {"partition": context.random_below(count_partitions(topic), salt=4), "value": value}
        return Operation(TOUCH, format_name(topic), argument), (made, value + 1)

    return unfold(step, (0, 0))


def moves(keys: Sequence[str], brokers: int, replication: int) -> Generator:
    """Moves a partition to any of the brokers 1, 2, ..., or elects its preferred leader, for ever.

    Most moves are rejected, because another one is in progress; the next request follows soon.
    """

    def step(number: int, context: Context) -> tuple[Operation, int]:
        key = context.choose(keys, salt=1)
        if context.random_below(3, salt=2) == 0:
            return Operation(ELECT, key), number
        left = list(range(1, brokers + 1))
        replicas: list[int] = []
        while left and len(replicas) < replication:
            replicas.append(left.pop(context.random_below(len(left), salt=3 + len(replicas))))
        return Operation(MOVE, key, {"replicas": replicas}), number + 1

    return unfold(step, 0)


def format_name(number: int) -> str:
    """Returns a name such as ``churn-7``."""
    return f"churn-{number}"


def count_partitions(number: int) -> int:
    """Returns the number of partitions of topic ``number``, from 1 to ``MOST_PARTITIONS``."""
    return 1 + number % MOST_PARTITIONS
