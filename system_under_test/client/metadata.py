"""Metadata cache: the leaders of partitions, refreshed from any broker that answers.

- A refresh asks the known brokers and the bootstrap addresses in random order, and takes the first answer. In a fixed
  order, it could always get the old metadata of a broker that is cut off.
- Brokers that recently did not answer come last. Otherwise each call would wait for them while most of a cluster is
  down.
- Concurrent callers share one refresh.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from assay.system_under_test.client.connection import CallError
from assay.system_under_test.client.errors import ReadFailed
from assay.system_under_test.client.pool import Address, Bootstrap, ClientClosed, KnownBrokers, Pool
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.metadata import MetadataRequest, MetadataResponse


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker's id and address."""

    id: int
    address: Address


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition. ``leader`` is None if there is none, or if the queried broker does not know its address."""

    leader: BrokerNode | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: ErrorCode

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        """The out-of-sync replicas; the partition is under-replicated if there are any."""
        return tuple(replica for replica in self.replicas if replica not in self.isr)


@dataclass(frozen=True, slots=True)
class TopicView:
    error: ErrorCode
    partitions: Mapping[int, PartitionView]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as one broker knows it. ``controller`` is None if that broker knows none."""

    cluster_id: str | None
    controller: BrokerNode | None
    nodes: Mapping[int, BrokerNode]
    topics: Mapping[str, TopicView]


def to_cluster_view(response: MetadataResponse) -> ClusterView:
    """Converts a response and resolves broker ids."""
    nodes = {
        broker.node_id: BrokerNode(broker.node_id, Address(broker.host, broker.port))
        for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
    }
    topics = {
        topic.topic: TopicView(
            ErrorCode.of(topic.error_code),
            MappingProxyType(
                {
                    partition.partition: PartitionView(
                        nodes.get(partition.leader),
                        tuple(partition.replicas),
                        tuple(partition.isr),
                        ErrorCode.of(partition.error_code),
                    )
                    for partition in sorted(topic.partitions, key=lambda partition: partition.partition)
                }
            ),
        )
        for topic in response.topics
    }
    return ClusterView(
        response.cluster_id, nodes.get(response.controller_id), MappingProxyType(nodes), MappingProxyType(topics)
    )


METADATA_VERSION = 2

BACK_OFF = 0.05
"""Seconds between two lookups of a missing leader."""

ATTEMPT_TIMEOUT = 1.0
"""Seconds for one broker to answer before the next one is asked."""

SILENCE_SECONDS = 5.0
"""Seconds for which a broker that did not answer is asked after all other brokers."""

PERMANENT_ERRORS = frozenset({ErrorCode.INVALID_TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Errors of a topic that waiting does not resolve."""

_UNKNOWN_TOPIC = TopicView(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})


class Metadata:
    """Metadata cache of one client. The caller closes ``pool``."""

    def __init__(self, bootstrap: Bootstrap, pool: Pool, random: Random) -> None:
        self._bootstrap = KnownBrokers.of(bootstrap)
        self._pool = pool
        self._random = random
        self._leaders: dict[tuple[str, int], BrokerNode] = {}
        self._partition_counts: dict[str, int] = {}
        self._nodes: dict[int, BrokerNode] = {}
        self._silent: dict[Address, float] = {}  # loop time of each broker's unanswered request
        self._topics: dict[str, None] = {}  # all topics that were ever requested, in order
        self._refresh_lock = asyncio.Lock()
        self._refreshes = 0  # number of refreshes begun
        self._view: ClusterView | None = None

    async def leader(self, topic: str, partition: int, deadline: float) -> BrokerNode:
        """Returns the last known leader, or looks it up until ``deadline`` (loop time). Raises ``ReadFailed``."""
        known = self._leaders.get((topic, partition))
        problem: ReadFailed | None = None
        while known is None:
            view = await self._refresh_topic(topic, deadline, problem)
            known = self._leaders.get((topic, partition))
            if known is None:
                error = view.error
                if error is ErrorCode.NONE:
                    missing = partition not in view.partitions
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else ErrorCode.LEADER_NOT_AVAILABLE
                problem = ReadFailed(f"{topic}-{partition} has no known leader ({error.name})", error=error)
                await self._pause_or_raise(problem, deadline)
        return known

    def get_cached_leader(self, topic: str, partition: int) -> BrokerNode | None:
        """Returns the last known leader, or None if it must be looked up."""
        return self._leaders.get((topic, partition))

    async def partitions(self, topic: str, deadline: float) -> int:
        """Returns the number of partitions of the topic. Raises ``ReadFailed``."""
        problem: ReadFailed | None = None
        while not (count := self._partition_counts.get(topic, 0)):
            view = await self._refresh_topic(topic, deadline, problem)
            if not view.partitions:
                error = view.error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                problem = ReadFailed(f"topic {topic} is not known ({error.name})", error=error)
                await self._pause_or_raise(problem, deadline)
        return count

    def forget(self, topic: str, partition: int) -> None:
        """Forgets the known leader of this partition, which turned out to be wrong."""
        self._leaders.pop((topic, partition), None)

    async def describe(self, topics: Sequence[str] | None, deadline: float) -> ClusterView:
        """Asks brokers until one answers; None means all topics, an empty list none. Raises ``ReadFailed``."""
        request = MetadataRequest(topics=None if topics is None else list(topics))
        loop = asyncio.get_running_loop()
        last_error: CallError | None = None
        while True:
            for address in self._list_candidates():
                left = deadline - loop.time()
                if left <= 0:
                    break
                self._silent[address] = loop.time()  # until it answers; the caller may be cancelled first
                try:
                    connection = await self._pool.get(address, min(left, ATTEMPT_TIMEOUT))
                    left = min(deadline - loop.time(), ATTEMPT_TIMEOUT)
                    view = to_cluster_view(await connection.call(request, METADATA_VERSION, left))
                except ClientClosed as error:
                    raise ReadFailed(str(error)) from error
                except CallError as error:
                    last_error = error
                    continue
                self._silent.pop(address, None)
                if view.nodes:
                    self._nodes = dict(view.nodes)
                    return view
            if loop.time() >= deadline:
                raise ReadFailed(f"no broker answered with its metadata in time; the last error: {last_error}")
            await asyncio.sleep(min(BACK_OFF, deadline - loop.time()))

    async def _refresh_topic(self, topic: str, deadline: float, problem: ReadFailed | None) -> TopicView:
        """Refreshes and returns the topic. Without an answer in time, raises ``problem`` or else ``ReadFailed``."""
        try:
            view = await self.refresh(topic, deadline)
        except ReadFailed:
            if problem is None:
                raise
            raise problem from None
        return view.topics.get(topic, _UNKNOWN_TOPIC)

    async def refresh(self, topic: str, deadline: float) -> ClusterView:
        """Requests and caches metadata of this topic and all topics requested before. Raises ``ReadFailed``."""
        self._topics.setdefault(topic)
        before = self._refreshes
        try:
            async with asyncio.timeout_at(deadline), self._refresh_lock:
                if self._refreshes > before and self._view is not None and topic in self._view.topics:
                    return self._view  # another caller's refresh, which began after this call
                self._refreshes += 1
                view = await self.describe(list(self._topics), deadline)
        except TimeoutError as error:
            raise ReadFailed(f"no broker answered in time with the leaders of {topic}") from error
        self._view = view
        for name, found in view.topics.items():
            self._cache_leaders(name, view)
            if found.partitions:
                self._partition_counts[name] = len(found.partitions)
        return view

    def _cache_leaders(self, topic: str, view: ClusterView) -> None:
        for index, partition in view.topics[topic].partitions.items():
            if partition.leader is None:
                self._leaders.pop((topic, index), None)
            else:
                self._leaders[topic, index] = partition.leader

    def _list_candidates(self) -> list[Address]:
        known = list(dict.fromkeys([*(node.address for node in self._nodes.values()), *self._bootstrap.addresses]))
        self._random.shuffle(known)
        recent = asyncio.get_running_loop().time() - SILENCE_SECONDS
        return sorted(known, key=lambda address: self._silent.get(address, recent) > recent)

    @staticmethod
    async def _pause_or_raise(problem: ReadFailed, deadline: float) -> None:
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0 or problem.error in PERMANENT_ERRORS:
            raise problem
        await asyncio.sleep(min(BACK_OFF, left))
