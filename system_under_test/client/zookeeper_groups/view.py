"""What ZooKeeper has of a group, from which every member computes who gets which partitions."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kazoo.exceptions import NoNodeError

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.pool import Address
from assay.system_under_test.client.zookeeper_groups.subscription import StreamSubscription, subscription_of
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.zookeeper import paths
from assay.system_under_test.zookeeper.znodes import (
    BrokerRegistration,
    ConsumerRegistration,
    TopicAssignment,
    ZnodeError,
    decode,
)


def thread_id(consumer_id: str, index: int) -> str:
    """What an owner's znode holds."""
    return f"{consumer_id}-{index}"


def allot(partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Iterable[str]]) -> dict[Partition, str]:
    """From each topic's partitions and each topic's thread ids to the thread that owns each partition.

    As ``RangeAssignor`` of Kafka 0.8 - 0.10: of each topic a contiguous range to each consumer thread.
    Threads sort as strings, ``c-10`` before ``c-2``. With n = partitions div threads each gets n in a row, and the
    first (partitions mod threads) of them one more; threads that are left over get none.
    """
    owners: dict[Partition, str] = {}
    for topic, indexes in partitions.items():
        takers = sorted(threads.get(topic, ()))
        if not takers:
            continue
        waiting = iter(sorted(indexes))
        each, more = divmod(len(indexes), len(takers))
        for rank, taker in enumerate(takers):
            for _ in range(each + (rank < more)):
                owners[topic, next(waiting)] = taker
    return owners


_log = logging.getLogger("assay.client")


@dataclass(frozen=True)
class GroupView:
    """``members``: consumer id to what it wants; ``partitions``: of every topic that one of them may want."""

    members: Mapping[str, StreamSubscription]
    partitions: Mapping[str, tuple[int, ...]]

    def allotted_to(self, consumer_id: str) -> dict[Partition, str]:
        """Partition to thread id, of those that are for this member."""
        mine: set[tuple[str, str]] = set()
        threads: dict[str, list[str]] = {}
        for member, wanted in self.members.items():
            for topic, count in wanted.threads(self.partitions).items():
                names = [thread_id(member, index) for index in range(count)]
                threads.setdefault(topic, []).extend(names)
                if member == consumer_id:
                    mine.update((topic, name) for name in names)
        owners = allot(self.partitions, threads)
        return {(topic, index): owner for (topic, index), owner in owners.items() if (topic, owner) in mine}


async def read_view(zookeeper: ZooKeeper, group: str, mine: StreamSubscription, watch: Watch) -> GroupView:
    """Reads it all, and has ``watch`` called at the first change of members, brokers, topics or partitions.

    A member whose registration makes no sense is left out, by all members alike. Raises kazoo's errors.
    """
    await zookeeper.get_children(paths.BROKER_IDS, watch)
    names = mine.threads(await zookeeper.get_children(paths.TOPICS, watch))
    partitions: dict[str, tuple[int, ...]] = {}
    for topic in names:
        path = paths.topic(topic)
        try:
            data, _ = await zookeeper.get(path, watch)
            partitions[topic] = tuple(sorted(int(index) for index in decode(TopicAssignment, path, data).partitions))
        except NoNodeError:
            continue  # it was deleted; the watch on all topics fires
        except (ValueError, ZnodeError) as error:
            _log.warning("group %s: %s", group, error)
    members: dict[str, StreamSubscription] = {}
    for member in await zookeeper.get_children(paths.consumer_ids(group), watch):
        path = paths.consumer(group, member)
        try:
            data, _ = await zookeeper.get(path)
            members[member] = subscription_of(path, decode(ConsumerRegistration, path, data))
        except NoNodeError:
            continue  # it left; the watch on all members fires
        except ZnodeError as error:
            _log.warning("group %s: %s", group, error)
    return GroupView(members, partitions)


async def registered_brokers(zookeeper: ZooKeeper) -> list[Address]:
    """Where the brokers that are registered now are reached. Raises kazoo's errors."""
    found = []
    for name in await zookeeper.get_children(paths.BROKER_IDS):
        path = f"{paths.BROKER_IDS}/{name}"
        try:
            data, _ = await zookeeper.get(path)
            registration = decode(BrokerRegistration, path, data)
            found.append(Address(registration.host, registration.port))
        except NoNodeError:
            continue  # it has gone; the watch on all brokers fires
        except ZnodeError as error:
            _log.warning("%s", error)
    return found
