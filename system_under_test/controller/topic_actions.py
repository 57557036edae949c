"""Changes of topics by request. The active controller queues them together with the changes that it notices
(``Trigger``), and handles them one by one."""

import random
from collections.abc import Mapping, Sequence

from kazoo.exceptions import BadVersionError, NodeExistsError
from kazoo.protocol.serialization import SetData

from assay.system_under_test.config import INTERNAL_TOPICS, BrokerConfig, ConfigError, TopicConfig
from assay.system_under_test.controller import assignments, topics
from assay.system_under_test.controller.active_term import ActiveTerm
from assay.system_under_test.controller.changes import ChangeHandlers
from assay.system_under_test.controller.topic_settings import read_settings
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.controller.work_queue import WorkQueue
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.topics import CreatableTopic
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes


class TopicActions:
    """Performs requests about topics. Each method raises ``TopicError``; see :meth:`WorkQueue.perform`."""

    def __init__(
        self, config: BrokerConfig, rng: random.Random, zookeeper: ZooKeeper, queue: WorkQueue, changes: ChangeHandlers
    ) -> None:
        self._config = config
        self._random = rng
        self._zookeeper = zookeeper
        self._queue = queue
        self._changes = changes

    async def create(self, topic: CreatableTopic, *, validate_only: bool) -> None:
        """Creates a topic; returns when every partition with a live replica has its first leader."""
        if topic.topic in INTERNAL_TOPICS:  # with other settings, committed offsets would expire
            raise TopicError(ErrorCode.INVALID_TOPIC, f"topic {topic.topic!r} is the brokers' own; they create it")

        async def act(active: ActiveTerm) -> None:
            if topic.topic in active.cluster.topics:
                raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.topic!r} exists")
            plan = topics.plan_topic(topic, sorted(active.cluster.brokers), self._config, self._random)
            if not validate_only:
                await active.writer.write(await topics.plan_creation(self._zookeeper, topic.topic, plan))
                await self._changes.handle_topics(active)

        await self._queue.perform(act)

    async def delete(self, name: str) -> None:
        """Deletes a topic; returns when every replica and the topic itself are gone."""
        if name in INTERNAL_TOPICS:
            raise TopicError(ErrorCode.INVALID_TOPIC, f"topic {name!r} is the brokers' own; it cannot be deleted")
        await self._changes.deletions.request(name)

    async def add_partitions(
        self, name: str, count: int, assigned: Sequence[Sequence[int]], *, validate_only: bool
    ) -> None:
        """Adds partitions; returns when every new partition with a live replica has its first leader."""

        async def act(active: ActiveTerm) -> None:
            await assignments.add_partitions(
                self._zookeeper, active, name, count, assigned, validate_only=validate_only
            )
            await self._changes.handle_assignments(active)

        await self._queue.perform(act)

    async def alter_settings(self, name: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        """Changes settings; returns when they are written. The brokers apply them later."""

        async def act(active: ActiveTerm) -> None:
            await _alter(self._zookeeper, active, name, changes, validate_only=validate_only)

        await self._queue.perform(act)

    async def read_settings(self, name: str) -> Mapping[str, str]:
        """Reads a topic's own settings from ZooKeeper."""

        async def act(active: ActiveTerm) -> Mapping[str, str]:
            if name not in active.cluster.topics:
                raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
            read = await read_settings(self._zookeeper, name, 0)
            return read.values if read is not None else {}

        return await self._queue.perform(act)


CONFIG_CHANGE_VERSION = 2


async def _alter(
    zookeeper: ZooKeeper, active: ActiveTerm, topic: str, changes: Mapping[str, str | None], *, validate_only: bool
) -> None:
    """Sets these settings; None means the brokers' default. Raises ``TopicError``.

    All other settings stay, even unknown ones, because other tools may have written them.
    """
    if topic not in active.cluster.topics:
        raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
    try:
        TopicConfig().override({name: value for name, value in changes.items() if value is not None})
    except ConfigError as error:
        raise TopicError(ErrorCode.INVALID_CONFIG, str(error)) from error
    path = paths.topic_config(topic)
    try:
        found = await znodes.read(zookeeper, znodes.TopicSettings, path)
    except znodes.ZnodeError as error:
        raise TopicError(ErrorCode.INVALID_CONFIG, f"{error}; repair or delete it first") from error
    values, version = ({}, None) if found is None else (found[0].config, found[1].version)
    wanted = {name: value for name, value in {**values, **changes}.items() if value is not None}
    if validate_only or wanted == values:
        return
    written = znodes.encode(znodes.TopicSettings(wanted))
    announcement = znodes.encode(znodes.ConfigChange(CONFIG_CHANGE_VERSION, f"topics/{topic}"))
    operations = [
        znodes.make_create(path, written) if version is None else SetData(path, written, version),
        znodes.make_create(paths.config_change(), announcement, sequence=True),
    ]
    try:
        await active.writer.write(operations)
    except (BadVersionError, NodeExistsError) as error:
        raise TopicError(ErrorCode.INVALID_REQUEST, f"settings of {topic!r} changed meanwhile; try again") from error
