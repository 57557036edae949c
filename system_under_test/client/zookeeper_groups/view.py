"""What ZooKeeper has of a group: its members, what each wants, and how many partitions there are."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kazoo.exceptions import NoNodeError

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.zookeeper_groups.allotment import allot, thread_id
from assay.system_under_test.client.zookeeper_groups.subscription import StreamSubscription, subscription_of
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.zookeeper import paths
from assay.system_under_test.zookeeper.znodes import ConsumerRegistration, TopicAssignment, ZnodeError, decode

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
