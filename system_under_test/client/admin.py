"""Admin client: creates, changes, deletes and describes topics, moves replicas, and elects preferred leaders.

Requests for changes go to the current controller.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from assay.system_under_test.client import errors
from assay.system_under_test.client.connection import CallError, Connection, NotSent, UnknownOutcome
from assay.system_under_test.client.metadata import BACK_OFF, ClusterView, Metadata
from assay.system_under_test.client.pool import Pool
from assay.system_under_test.protocol import control
from assay.system_under_test.protocol import topics as messages
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Runtime

CREATE_TOPICS_VERSION = 1
DELETE_TOPICS_VERSION = 0
PRIVATE_VERSION = 0
"""Version of the APIs that Kafka 0.10 does not have."""

BROKER_SHARE = 0.8
"""Fraction of the remaining time that the controller may use, so that its response arrives before the deadline."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Has either ``partitions`` and ``replication``, or an ``assignment`` to broker ids."""

    name: str
    partitions: int = -1
    replication: int = -1
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """Outcome of the change of one topic or partition. ``error`` is None if no broker reported one."""

    outcome: errors.Certainty
    error: ErrorCode | None = None
    message: str | None = None


Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""


class MoveState(enum.StrEnum):
    """Progress of a reassignment, in the words of Kafka's tool."""

    DONE = "done"
    IN_PROGRESS = "in progress"
    FAILED = "failed"
    """The reassignment is not in progress, and the replicas differ: it was rejected, or replaced by a later one."""


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment: current replicas, target replicas, and old replicas whose deletion is not confirmed yet."""

    replicas: tuple[int, ...]
    target: tuple[int, ...]
    removing: tuple[int, ...]


_Target = TypeVar("_Target", str, Partition)
"""The target of a change: a topic or a partition."""
_Answers = Mapping[_Target, tuple[ErrorCode, str | None]]
"""Error code and message of each target."""
_Call = Callable[[Connection, list[_Target], float], Awaitable[_Answers[_Target]]]
"""Sends the request for some targets to the controller, within some seconds."""


class Admin:
    """Admin client. ``bootstrap`` is ``host:port,...`` of any brokers; ``timeout`` (seconds) limits each call."""

    def __init__(
        self, bootstrap: str | Sequence[str], *, runtime: Runtime, timeout: float = 10.0, client_id: str = "assay-admin"
    ) -> None:
        self._timeout = timeout
        self._pool = Pool(client_id)
        self._metadata = Metadata(bootstrap, self._pool, runtime.random)

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, TopicOutcome]:
        """Creates topics and returns the outcome of each. Retries if the controller has changed.

        Done means that every partition with a live replica has elected its first leader.
        """
        specifications = {topic.name: _to_creatable_topic(topic) for topic in topics}

        async def call(connection: Connection, names: list[str], seconds: float) -> _Answers[str]:
            request = messages.CreateTopicsRequest(
                topics=[specifications[name] for name in names], timeout_ms=_to_broker_timeout(seconds)
            )
            response = await connection.call(request, CREATE_TOPICS_VERSION, seconds)
            return {entry.topic: (ErrorCode.of(entry.error_code), entry.error_message) for entry in response.topics}

        return await self._ask_controller(list(specifications), call)

    async def delete_topics(self, names: Sequence[str]) -> dict[str, TopicOutcome]:
        """Deletes topics and returns the outcome of each.

        Done means that every replica has deleted its files, even one on a broker that was dead. ``__consumer_offsets``
        is rejected (17), because it belongs to the brokers.
        """

        async def call(connection: Connection, names: list[str], seconds: float) -> _Answers[str]:
            request = messages.DeleteTopicsRequest(topics=names, timeout_ms=_to_broker_timeout(seconds))
            response = await connection.call(request, DELETE_TOPICS_VERSION, seconds)
            codes = {entry.topic: ErrorCode.of(entry.error_code) for entry in response.topics}
            return {name: (code, _explain_undeletable(name) if code is ErrorCode.INVALID_TOPIC else None)
                    for name, code in codes.items()}  # fmt: skip

        return await self._ask_controller(list(names), call)

    async def create_partitions(
        self, topic: str, count: int, assignments: Sequence[Sequence[int]] = ()
    ) -> TopicOutcome:
        """Raises the number of partitions to ``count``.

        ``assignments`` has the replicas of the new partitions; if it is empty, they are spread over the brokers. Done
        means that every new partition with a live replica has elected its first leader.

        A topic that already has ``count`` partitions is rejected with ``INVALID_PARTITIONS``. So a retry after an
        unknown outcome shows whether the first try succeeded.
        """

        async def call(connection: Connection, names: list[str], seconds: float) -> _Answers[str]:
            growing = messages.GrowingTopic(
                topic=topic, count=count, assignments=[messages.NewReplicas(replicas=list(r)) for r in assignments]
            )
            request = messages.CreatePartitionsRequest(
                topics=[growing], timeout_ms=_to_broker_timeout(seconds), validate_only=False
            )
            return _read_topic_answers(await connection.call(request, PRIVATE_VERSION, seconds))

        return (await self._ask_controller([topic], call))[topic]

    async def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> TopicOutcome:
        """Changes settings of the topic; None restores the brokers' default. All other settings stay.

        Done means stored: each broker applies the settings when it learns of them.
        """
        configs = [messages.ConfigEntry(name=name, value=value) for name, value in sorted(changes.items())]

        async def call(connection: Connection, names: list[str], seconds: float) -> _Answers[str]:
            altered = messages.AlteredTopic(topic=topic, configs=configs)
            request = messages.AlterConfigsRequest(
                topics=[altered], timeout_ms=_to_broker_timeout(seconds), validate_only=False
            )
            return _read_topic_answers(await connection.call(request, PRIVATE_VERSION, seconds))

        return (await self._ask_controller([topic], call))[topic]

    async def describe_config(self, topic: str) -> dict[str, str]:
        """Returns the topic's own settings, as stored. Raises ``ReadFailed``."""
        found: dict[str, str] = {}

        async def call(connection: Connection, names: list[str], seconds: float) -> _Answers[str]:
            request = messages.DescribeConfigsRequest(topics=[topic], timeout_ms=_to_broker_timeout(seconds))
            (described,) = (await connection.call(request, PRIVATE_VERSION, seconds)).topics
            found.update((entry.name, entry.value or "") for entry in described.configs)
            return {topic: (ErrorCode.of(described.error_code), described.error_message)}

        _require_done((await self._ask_controller([topic], call))[topic], f"settings of topic {topic}")
        return found

    async def describe(self, topics: Sequence[str] | None = None) -> ClusterView:
        """Returns brokers, controller and topics (None: all), as the first answering broker knows them.

        A missing topic in ``topics`` may be created, if the brokers are configured to do so. Raises ``ReadFailed``.
        """
        return await self._metadata.describe(topics, asyncio.get_running_loop().time() + self._timeout)

    async def elect_preferred(self, partitions: Sequence[Partition]) -> dict[Partition, TopicOutcome]:
        """Makes each partition's preferred replica the leader. Not done if that replica is not in sync (error 5)."""

        async def call(connection: Connection, targets: list[Partition], seconds: float) -> _Answers[Partition]:
            request = messages.ElectPreferredRequest(
                partitions=_to_partition_names(targets), timeout_ms=_to_broker_timeout(seconds)
            )
            return _read_partition_answers(await connection.call(request, PRIVATE_VERSION, seconds))

        return await self._ask_controller(list(dict.fromkeys(partitions)), call, errors.ELECTION_NOT_DONE)

    async def reassign(self, moves: Mapping[Partition, Sequence[int]]) -> dict[Partition, TopicOutcome]:
        """Moves partitions to these replicas, the preferred leader first. All of them must be alive.

        Done means recorded: the controller and its successors will carry out the move. :meth:`verify` reports the
        progress. A partition that is moving to other replicas is rejected (42). A repeated request for the same move is
        harmless, so the caller may retry after an unknown outcome.
        """

        async def call(connection: Connection, targets: list[Partition], seconds: float) -> _Answers[Partition]:
            wanted = [
                messages.NewAssignment(topic=topic, partition=index, replicas=list(moves[topic, index]))
                for topic, index in targets
            ]
            request = messages.ReassignRequest(partitions=wanted, timeout_ms=_to_broker_timeout(seconds))
            return _read_partition_answers(await connection.call(request, PRIVATE_VERSION, seconds))

        return await self._ask_controller(list(moves), call)

    async def reassignments(self) -> dict[Partition, Reassignment]:
        """Returns the reassignments in progress, as the controller knows them. Raises ``ReadFailed``."""
        moving = (await self._describe_reassignments([])).moving
        return {_read_partition(entry): _read_reassignment(entry) for entry in moving}

    async def verify(self, moves: Mapping[Partition, Sequence[int]]) -> dict[Partition, MoveState]:
        """Returns the progress of each reassignment. Raises ``ReadFailed``."""
        response = await self._describe_reassignments(list(moves))
        targets = {_read_partition(entry): entry.target for entry in response.moving}
        settled = {_read_partition(entry): entry.replicas for entry in response.settled}
        return {
            partition: MoveState.IN_PROGRESS
            if targets.get(partition) == list(replicas)
            else MoveState.DONE
            if settled.get(partition) == list(replicas)
            else MoveState.FAILED
            for partition, replicas in moves.items()
        }

    async def _describe_reassignments(self, partitions: list[Partition]) -> messages.DescribeReassignmentsResponse:
        found: list[messages.DescribeReassignmentsResponse] = []

        async def call(connection: Connection, targets: list[str], seconds: float) -> _Answers[str]:
            request = messages.DescribeReassignmentsRequest(
                partitions=_to_partition_names(partitions), timeout_ms=_to_broker_timeout(seconds)
            )
            response = await connection.call(request, PRIVATE_VERSION, seconds)
            found.append(response)
            return {name: (ErrorCode.of(response.error_code), response.error_message) for name in targets}

        _require_done((await self._ask_controller(["reassignments"], call))["reassignments"], "reassignments")
        return found[-1]

    async def close(self) -> None:
        """Closes the connections. Pending calls end with an unknown outcome."""
        await self._pool.close()

    async def _ask_controller(
        self, names: list[_Target], call: _Call[_Target], not_done: Collection[ErrorCode] = errors.TOPIC_CHANGE_NOT_DONE
    ) -> dict[_Target, TopicOutcome]:
        """Sends a request about ``names`` to the controller, and returns the outcome of each.

        Repeats the request for names whose request reached no controller.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        outcomes = {
            name: TopicOutcome(errors.Certainty.NOT_DONE, None, "no controller was found in time") for name in names
        }
        remaining = names
        while remaining and loop.time() < deadline:
            attempted = await self._attempt(remaining, call, deadline, not_done)
            outcomes |= attempted
            remaining = [name for name in remaining if _should_retry(attempted[name])]
            if remaining:
                await asyncio.sleep(min(BACK_OFF, max(0.0, deadline - loop.time())))
        return outcomes

    async def _attempt(
        self, names: list[_Target], call: _Call[_Target], deadline: float, not_done: Collection[ErrorCode]
    ) -> dict[_Target, TopicOutcome]:
        loop = asyncio.get_running_loop()
        try:
            view = await self._metadata.describe([], deadline)
            if view.controller is None:
                raise NotSent("no broker is known to be the controller")
            connection = await self._pool.get(view.controller.address, deadline - loop.time())
            answers = await call(connection, names, deadline - loop.time())
        except UnknownOutcome as error:
            return dict.fromkeys(names, TopicOutcome(errors.Certainty.UNKNOWN, None, str(error)))
        except (errors.ClientError, CallError) as error:
            return dict.fromkeys(names, TopicOutcome(errors.Certainty.NOT_DONE, None, str(error)))
        return {name: _to_outcome(answers.get(name), not_done) for name in names}


def _to_broker_timeout(seconds: float) -> int:
    """Returns the controller's share of the remaining time, in milliseconds."""
    return int(seconds * 1000 * BROKER_SHARE)


def _read_topic_answers(response: messages.TopicChangeResponse) -> _Answers[str]:
    return {entry.topic: (ErrorCode.of(entry.error_code), entry.error_message) for entry in response.topics}


def _to_partition_names(partitions: Sequence[Partition]) -> list[control.PartitionName]:
    return [control.PartitionName(topic=topic, partition=index) for topic, index in partitions]


def _read_partition(
    entry: messages.MovingPartition | messages.NewAssignment | messages.PartitionChangeResult,
) -> Partition:
    return entry.topic, entry.partition


def _read_reassignment(entry: messages.MovingPartition) -> Reassignment:
    return Reassignment(tuple(entry.replicas), tuple(entry.target), tuple(entry.removing))


def _read_partition_answers(response: messages.PartitionChangeResponse) -> _Answers[Partition]:
    return {
        _read_partition(entry): (ErrorCode.of(entry.error_code), entry.error_message) for entry in response.partitions
    }


def _to_creatable_topic(topic: NewTopic) -> messages.CreatableTopic:
    return messages.CreatableTopic(
        topic=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication,
        replica_assignment=[
            messages.ReplicaAssignment(partition=partition, replicas=list(replicas))
            for partition, replicas in sorted(topic.assignment.items())
        ],
        configs=[messages.ConfigEntry(name=name, value=value) for name, value in sorted(topic.configs.items())],
    )


def _to_outcome(answer: tuple[ErrorCode, str | None] | None, not_done: Collection[ErrorCode]) -> TopicOutcome:
    if answer is None:
        return TopicOutcome(errors.Certainty.UNKNOWN, None, "the controller's response does not contain it")
    error, message = answer
    return TopicOutcome(errors.classify_error(error, not_done), error, message)


def _should_retry(outcome: TopicOutcome) -> bool:
    return outcome.outcome is errors.Certainty.NOT_DONE and outcome.error in (None, ErrorCode.NOT_CONTROLLER)


def _require_done(outcome: TopicOutcome, subject: str) -> None:
    """Raises ``ReadFailed`` unless the request of a read was answered."""
    if outcome.outcome is not errors.Certainty.DONE:
        raise errors.ReadFailed(f"{subject}: {outcome.message or outcome.error}", error=outcome.error)


def _explain_undeletable(topic: str) -> str:
    """Explains ``INVALID_TOPIC`` for a deletion, because the response has no field for a text."""
    return f"topic {topic!r} is the brokers' own; it cannot be deleted"
