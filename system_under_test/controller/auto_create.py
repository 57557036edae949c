"""Topics that are made because a client asked for them, as in Kafka 0.10: by the broker that was asked, which
writes them to ZooKeeper; the controller sees them there.
"""

import logging
import random
from collections.abc import Sequence

from kazoo.exceptions import KazooException

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller import topics
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.topics import ConfigEntry, CreatableTopic
from assay.system_under_test.runtime import ZooKeeper

_log = logging.getLogger("assay.controller")


def with_defaults(name: str, config: BrokerConfig, brokers: Sequence[int]) -> CreatableTopic:
    """The defaults for a topic of which only the name is known."""
    return CreatableTopic(
        topic=name,
        num_partitions=config.default_partitions,
        replication_factor=min(config.default_replication, max(1, len(brokers))),
    )


def offsets_topic(name: str, config: BrokerConfig) -> CreatableTopic:
    """The topic that keeps groups: compacted, and no record counts that only one broker has."""
    replication = config.offsets_topic_replication_factor
    return CreatableTopic(
        topic=name,
        num_partitions=config.offsets_topic_partitions,
        replication_factor=replication,
        configs=[
            ConfigEntry(name="cleanup.policy", value="compact"),
            ConfigEntry(name="min.insync.replicas", value=str(min(2, replication))),
        ],
    )


async def auto_create(
    zookeeper: ZooKeeper, config: BrokerConfig, wanted: CreatableTopic, brokers: Sequence[int], rng: random.Random
) -> ErrorCode:
    """5 when it is made, or another was faster: its leader comes later. Otherwise why there can be no such topic."""
    name = wanted.topic
    try:
        await zookeeper.multi(topics.creation(name, topics.plan(wanted, sorted(brokers), config, rng)))
    except topics.TopicError as error:
        return error.code
    except KazooException as error:  # it is there already, or that is unknown; the client asks again
        _log.info("topic %s, asked for: %r", name, error)
    return ErrorCode.LEADER_NOT_AVAILABLE
