"""Creates, changes, deletes and describes topics. Changes go to the controller, wherever that is at the moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from system_under_test.client.cluster_view import ClusterView
from system_under_test.client.connection import CallError, Connection, NotSent, Unknown
from system_under_test.client.errors import TOPIC_CHANGE_NOT_DONE, ClientError, Outcome, ReadFailed, outcome
from system_under_test.client.metadata import BACK_OFF, Metadata
from system_under_test.client.pool import Pool
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.topic_changes import (
    AlterConfigsRequest,
    AlteredTopic,
    CreatePartitionsRequest,
    DescribeConfigsRequest,
    GrowingTopic,
    NewReplicas,
    TopicChangeResponse,
)
from system_under_test.protocol.topics import (
    ConfigEntry,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ReplicaAssignment,
)
from system_under_test.runtime import Runtime

CREATE_TOPICS_VERSION = 1
DELETE_TOPICS_VERSION = 0
PRIVATE_VERSION = 0

BROKER_SHARE = 0.8
"""Of the time left that the controller may take, so that its answer comes before we give up."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Either ``partitions`` and ``replication``, or an ``assignment`` of partitions to brokers' ids."""

    name: str
    partitions: int = -1
    replication: int = -1
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """What is known of the change of one topic. ``error`` is None where no broker spoke of it."""

    outcome: Outcome
    error: ErrorCode | None = None
    message: str | None = None


_Answers = Mapping[str, tuple[ErrorCode, str | None]]
_Call = Callable[[Connection, list[str], float], Awaitable[_Answers]]


class Admin:
    """``bootstrap`` is ``host:port,...`` of any brokers; ``timeout`` (seconds) bounds each call as a whole."""

    def __init__(
        self, bootstrap: str | Sequence[str], *, runtime: Runtime, timeout: float = 10.0, client_id: str = "assay-admin"
    ) -> None:
        self._timeout = timeout
        self._pool = Pool(client_id)
        self._metadata = Metadata(bootstrap, self._pool, runtime.random)

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, TopicOutcome]:
        """What became of each. A refusal because of a change of controllers is tried again at the new one."""
        specifications = {topic.name: _creatable(topic) for topic in topics}

        async def call(connection: Connection, names: list[str], left: float) -> _Answers:
            request = CreateTopicsRequest(topics=[specifications[name] for name in names], timeout_ms=_share(left))
            response = await connection.call(request, CREATE_TOPICS_VERSION, left)
            return {entry.topic: (ErrorCode.of(entry.error_code), entry.error_message) for entry in response.topics}

        return await self._change(list(specifications), call)

    async def delete_topics(self, names: Sequence[str]) -> dict[str, TopicOutcome]:
        """What became of each."""

        async def call(connection: Connection, names: list[str], left: float) -> _Answers:
            request = DeleteTopicsRequest(topics=names, timeout_ms=_share(left))
            response = await connection.call(request, DELETE_TOPICS_VERSION, left)
            return {entry.topic: (ErrorCode.of(entry.error_code), None) for entry in response.topics}

        return await self._change(list(names), call)

    async def create_partitions(
        self, topic: str, count: int, assignments: Sequence[Sequence[int]] = ()
    ) -> TopicOutcome:
        """Has the topic grow to ``count`` partitions; ``assignments`` places the new ones, else they are spread.

        Refused, with ``INVALID_PARTITIONS``, when it has as many already: so a second try of one whose outcome was
        unknown tells, too.
        """

        async def call(connection: Connection, names: list[str], left: float) -> _Answers:
            growing = GrowingTopic(
                topic=topic, count=count, assignments=[NewReplicas(replicas=list(r)) for r in assignments]
            )
            request = CreatePartitionsRequest(topics=[growing], timeout_ms=_share(left), validate_only=False)
            return _answers(await connection.call(request, PRIVATE_VERSION, left))

        return (await self._change([topic], call))[topic]

    async def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> TopicOutcome:
        """Changes settings of the topic; None goes back to the brokers' default, what is not named stays.

        Done means written: each broker follows as soon as it hears of it.
        """
        configs = [ConfigEntry(name=name, value=value) for name, value in sorted(changes.items())]

        async def call(connection: Connection, names: list[str], left: float) -> _Answers:
            altered = AlteredTopic(topic=topic, configs=configs)
            request = AlterConfigsRequest(topics=[altered], timeout_ms=_share(left), validate_only=False)
            return _answers(await connection.call(request, PRIVATE_VERSION, left))

        return (await self._change([topic], call))[topic]

    async def describe_config(self, topic: str) -> dict[str, str]:
        """The settings that the topic has of its own, as written. Raises ``ReadFailed``."""
        found: dict[str, str] = {}

        async def call(connection: Connection, names: list[str], left: float) -> _Answers:
            request = DescribeConfigsRequest(topics=[topic], timeout_ms=_share(left))
            (described,) = (await connection.call(request, PRIVATE_VERSION, left)).topics
            found.update((entry.name, entry.value or "") for entry in described.configs)
            return {topic: (ErrorCode.of(described.error_code), described.error_message)}

        known = (await self._change([topic], call))[topic]
        if known.outcome is not Outcome.DONE:
            raise ReadFailed(f"settings of topic {topic}: {known.message or known.error}", error=known.error)
        return found

    async def describe(self, topics: Sequence[str] | None = None) -> ClusterView:
        """Brokers, controller and topics (None: all) as the first broker that answers sees them.

        Raises ``ReadFailed``. Naming a topic that does not exist may create it, if the brokers are configured so.
        """
        return await self._metadata.describe(topics, asyncio.get_running_loop().time() + self._timeout)

    async def close(self) -> None:
        """Calls that still wait for an answer end with outcome unknown."""
        await self._pool.close()

    async def _change(self, names: list[str], call: _Call) -> dict[str, TopicOutcome]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        outcomes = {name: TopicOutcome(Outcome.NOT_DONE, None, "no controller was found in time") for name in names}
        left = names
        while left and loop.time() < deadline:
            known = await self._attempt(left, call, deadline)
            outcomes |= known
            left = [name for name in left if _try_again(known[name])]
            if left:
                await asyncio.sleep(min(BACK_OFF, max(0.0, deadline - loop.time())))
        return outcomes

    async def _attempt(self, names: list[str], call: _Call, deadline: float) -> dict[str, TopicOutcome]:
        loop = asyncio.get_running_loop()
        try:
            view = await self._metadata.describe([], deadline)
            if view.controller is None:
                raise NotSent("no broker is known to be the controller")
            connection = await self._pool.get(view.controller.address, deadline - loop.time())
            answers = await call(connection, names, deadline - loop.time())
        except Unknown as error:
            return dict.fromkeys(names, TopicOutcome(Outcome.UNKNOWN, None, str(error)))
        except (ClientError, CallError) as error:
            return dict.fromkeys(names, TopicOutcome(Outcome.NOT_DONE, None, str(error)))
        return {name: _judge(answers.get(name)) for name in names}


def _share(left: float) -> int:
    """Milliseconds for the controller."""
    return int(left * 1000 * BROKER_SHARE)


def _answers(response: TopicChangeResponse) -> _Answers:
    return {entry.topic: (ErrorCode.of(entry.error_code), entry.error_message) for entry in response.topics}


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        topic=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication,
        replica_assignment=[
            ReplicaAssignment(partition=partition, replicas=list(replicas))
            for partition, replicas in sorted(topic.assignment.items())
        ],
        configs=[ConfigEntry(name=name, value=value) for name, value in sorted(topic.configs.items())],
    )


def _judge(answer: tuple[ErrorCode, str | None] | None) -> TopicOutcome:
    if answer is None:
        return TopicOutcome(Outcome.UNKNOWN, None, "the controller's answer does not name the topic")
    error, message = answer
    return TopicOutcome(outcome(error, TOPIC_CHANGE_NOT_DONE), error, message)


def _try_again(known: TopicOutcome) -> bool:
    return known.outcome is Outcome.NOT_DONE and known.error in (None, ErrorCode.NOT_CONTROLLER)
