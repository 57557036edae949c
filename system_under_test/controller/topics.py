"""Creates and removes topics: validation, placement of replicas, and the znodes.

If a client's request creates a topic on demand, the broker that got the request writes the znodes, as in Kafka 0.10.
The controller sees them in ZooKeeper.
"""

import logging
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.serialization import Delete, SetData

from assay.system_under_test.config import BrokerConfig, ConfigError, TopicConfig
from assay.system_under_test.controller.cluster_state import PartitionId
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.topics import ConfigEntry, CreatableTopic, is_topic_name
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.controller")

MAX_PARTITIONS = 1_000
"""Limit of one request. Each replica has three open files, and an assignment must fit into one znode (1 MB)."""


class TopicError(Exception):
    """A topic cannot be created or changed. ``code`` is Kafka's error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class TopicPlan:
    """A topic to create: replicas by partition, the preferred leader first, and settings as text."""

    assignment: Mapping[int, Sequence[int]]
    settings: Mapping[str, str]


def plan_topic(topic: CreatableTopic, brokers: Sequence[int], config: BrokerConfig, rng: random.Random) -> TopicPlan:
    """Plans a new topic. Raises ``TopicError`` if it is invalid."""
    if not is_topic_name(topic.topic):
        raise TopicError(
            ErrorCode.INVALID_TOPIC, f"{topic.topic!r} is not a topic name: 1 to 249 of a-z A-Z 0-9 . _ -, not . or .."
        )
    settings = {entry.name: entry.value or "" for entry in topic.configs}
    try:
        config.topic.override(settings)
    except ConfigError as error:
        raise TopicError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if topic.replica_assignment:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise TopicError(ErrorCode.INVALID_REQUEST, "give either numbers or an assignment, not both")
        return TopicPlan(_parse_assignment(topic, brokers), settings)
    if topic.num_partitions < 1:
        raise TopicError(ErrorCode.INVALID_PARTITIONS, f"{topic.num_partitions} partitions; at least 1")
    if not 1 <= topic.replication_factor <= len(brokers):
        raise TopicError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor} with {len(brokers)} live brokers",
        )
    start, shift = rng.randrange(len(brokers)), rng.randrange(len(brokers))
    assignment = spread_replicas(range(topic.num_partitions), topic.replication_factor, brokers, start, shift)
    return TopicPlan(assignment, settings)


def _parse_assignment(topic: CreatableTopic, brokers: Sequence[int]) -> Mapping[int, Sequence[int]]:
    assignment = {entry.partition: entry.replicas for entry in topic.replica_assignment}
    factors = {len(replicas) for replicas in assignment.values()}
    if (
        sorted(assignment) != list(range(len(topic.replica_assignment)))
        or len(factors) != 1
        or 0 in factors
        or not all(is_placeable(replicas, len(replicas), brokers) for replicas in assignment.values())
    ):
        raise TopicError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions must be numbered from 0 without gaps, each with the same number of distinct live replicas",
        )
    return assignment


def is_placeable(replicas: Sequence[int], replication: int, brokers: Collection[int]) -> bool:
    """Returns whether these are ``replication`` distinct live brokers."""
    return len(replicas) == len(set(replicas)) == replication and set(replicas) <= set(brokers)


def spread_replicas(
    partitions: range, replication: int, brokers: Sequence[int], start: int, shift: int
) -> Mapping[int, Sequence[int]]:
    """Assigns replicas as Kafka does: leaders round-robin from ``start``, followers shifted by one more each round.

    ``shift``: the number of brokers between a leader and its first follower in the first round.
    """
    count = len(brokers)
    assignment = {}
    for partition in partitions:
        first = start + partition
        step = shift + partition // count
        followers = [brokers[(first + 1 + (step + extra) % (count - 1)) % count] for extra in range(replication - 1)]
        assignment[partition] = [brokers[first % count], *followers]
    return assignment


async def plan_creation(zookeeper: ZooKeeper, name: str, plan: TopicPlan) -> list[Any]:
    """Returns the writes that create a topic. They replace settings that a former topic of that name has left."""
    assignment = znodes.TopicAssignment({str(i): list(r) for i, r in plan.assignment.items()})
    operations: list[Any] = []
    settings, path = znodes.encode(znodes.TopicSettings(dict(plan.settings))), paths.topic_config(name)
    old_settings = await zookeeper.exists(path)
    if old_settings is not None:
        operations.append(SetData(path, settings, old_settings.version))
    elif plan.settings:
        operations.append(znodes.make_create(path, settings))
    operations.append(znodes.make_create(paths.topic(name), znodes.encode(assignment)))
    return operations


async def has_deletion_begun(zookeeper: ZooKeeper, name: str, czxid: int) -> bool:
    """Returns whether the deletion of this topic has begun, so that some replicas may have deleted their files."""
    path = paths.delete_topic(name)
    try:
        data, _ = await zookeeper.get(path)
        return data != b"" and znodes.decode(znodes.TopicDeletion, path, data).czxid == czxid
    except NoNodeError:
        return False
    except znodes.ZnodeError as error:
        _log.error("%s; the topic's deletion counts as not begun", error)
        return False


async def plan_removal(zookeeper: ZooKeeper, name: str, partitions: Sequence[PartitionId]) -> list[Any]:
    """Returns the writes that remove a topic whose replicas are gone.

    Children come before parents. The request to delete the topic comes last.
    """
    candidates = [paths.partition_state(*partition) for partition in partitions]
    candidates += [paths.partition(*partition) for partition in partitions]
    candidates += [paths.partitions(name), paths.topic(name), paths.topic_config(name), paths.delete_topic(name)]
    operations = []
    for path in candidates:
        try:
            _, stat = await zookeeper.get(path)
        except NoNodeError:
            continue
        operations.append(Delete(path, stat.version))
    return operations


def make_default_topic_request(name: str, config: BrokerConfig, brokers: Sequence[int]) -> CreatableTopic:
    """Returns the request to create a topic with the default numbers of partitions and replicas."""
    return CreatableTopic(
        topic=name,
        num_partitions=config.default_partitions,
        replication_factor=min(config.default_replication, max(1, len(brokers))),
    )


def make_offsets_topic_request(name: str, config: BrokerConfig) -> CreatableTopic:
    """Returns the request to create the internal topic of groups: compacted, with min.insync.replicas of 2 if possible.

    A group is one record with all its members and their assignments. So a lower limit of message sizes that is
    configured for the cluster does not apply here.
    """
    replication = config.offsets_topic_replication_factor
    largest = max(config.topic.max_message_bytes, TopicConfig().max_message_bytes)
    return CreatableTopic(
        topic=name,
        num_partitions=config.offsets_topic_partitions,
        replication_factor=replication,
        configs=[
            ConfigEntry(name="cleanup.policy", value="compact"),
            ConfigEntry(name="min.insync.replicas", value=str(min(2, replication))),
            ConfigEntry(name="max.message.bytes", value=str(largest)),
        ],
    )


async def auto_create(
    zookeeper: ZooKeeper, config: BrokerConfig, wanted: CreatableTopic, brokers: Sequence[int], rng: random.Random
) -> ErrorCode:
    """Creates a topic on demand. Returns LEADER_NOT_AVAILABLE, because it has no leader yet, or the error."""
    name = wanted.topic
    try:
        plan = plan_topic(wanted, sorted(brokers), config, rng)
        await zookeeper.multi(await plan_creation(zookeeper, name, plan))
    except TopicError as error:
        return error.code
    except KazooException as error:  # the topic exists already, or the outcome is unknown; the client retries
        _log.info("creating topic %s on demand: %r", name, error)
    return ErrorCode.LEADER_NOT_AVAILABLE
