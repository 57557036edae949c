"""The group coordinator: answers requests about groups whose partition of the offsets topic this broker leads.

A term is the time for which this broker leads one of these partitions. This module begins and ends the terms. A term
consists of a ``StoredGroups`` object, which has the groups of Kafka's final design, and a ``DraftTerm`` object for
groups of the earlier draft. ``group_requests`` and ``offset_requests`` answer the other requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.system_under_test.clocks import read_clocks
from assay.system_under_test.config import OFFSETS_TOPIC, BrokerConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.draft.coordinator import DraftCoordinator
from assay.system_under_test.groups.draft.term import DraftTerm
from assay.system_under_test.groups.group import Group, GroupError
from assay.system_under_test.groups.group_requests import GroupRequests
from assay.system_under_test.groups.offset_requests import LeaderLookup, OffsetRequests
from assay.system_under_test.groups.records import OffsetRecord
from assay.system_under_test.groups.stored_groups import StoredGroups
from assay.system_under_test.groups.terms import GroupTerms, find_partition
from assay.system_under_test.groups.traits import CORRECT, GroupTraits
from assay.system_under_test.network.handler import Handler, RequestContext
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.groups import GroupCoordinatorRequest, GroupCoordinatorResponse
from assay.system_under_test.protocol.schema import Request
from assay.system_under_test.replication.leader import LeaderTerm
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.runtime import Runtime, ZooKeeper
from assay.system_under_test.tasks import BackgroundTasks

BACK_OFF: Final = 0.1
"""Seconds between two checks whether the offsets topic's number of partitions is known."""


class Coordinator:
    """Entry point of the group coordinator. ``make_topic`` creates the offsets topic if it is missing."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        zookeeper: ZooKeeper,
        manager: ReplicaManager,
        cluster: LeaderLookup,
        events: EventLog,
        background: BackgroundTasks,
        make_topic: Callable[[], Awaitable[None]],
        traits: GroupTraits = CORRECT,
    ) -> None:
        self._config = config
        self._wall_clock = runtime.wall_clock
        self._cluster = cluster
        self._events = events
        self._background = background
        self._make_topic = make_topic
        self._traits = traits
        self._terms = terms = GroupTerms(zookeeper)
        self._draft = draft = DraftCoordinator(
            config, runtime, zookeeper, events, background, terms.get_stored_groups, self._find_coordinator
        )
        self._requests = GroupRequests(config, runtime.random, terms, draft)
        clock = runtime.wall_clock
        self._offsets = OffsetRequests(config, clock, zookeeper, manager, cluster, events, terms, draft, traits)
        self._expiry = OffsetExpiry(config, clock, events, terms, draft, traits)

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {
            GroupCoordinatorRequest: self._find_coordinator,
            **self._requests.handlers(),
            **self._offsets.handlers(),
            **self._draft.handlers(),
        }

    def start(self) -> None:
        self._background.spawn(self._expiry.run(), "expiry of offsets")
        self._background.spawn(
            self._terms.watch_partition_count(self._draft.update_partition_count), "partitions of the offsets topic"
        )

    def lead(self, partition: Partition, term: LeaderTerm) -> None:
        """Starts to coordinate the groups of a partition that this broker leads until ``term.ended``."""
        if partition.topic != OFFSETS_TOPIC:
            return
        stored = self._traits.stored_groups(
            partition, term, self._config, self._events, self._background.spawn, self._wall_clock
        )
        self._terms.begin(stored)
        draft = self._draft.lead(partition.index, term.epoch, partition.incarnation)
        term.ended.add_done_callback(lambda _: self._end(stored, draft))
        self._background.spawn(self._load(stored, draft), f"loading {partition.key}")

    def delete_topics(self, topics: Collection[str]) -> None:
        """Deletes the committed offsets of deleted topics, as Kafka 0.10.2 does (KAFKA-2000).

        Otherwise a group would skip the first records of a new topic of that name. The controller waits for this call
        before it removes the topic, because a consumer must not commit offsets of the new topic earlier.
        """
        for stored in self._terms:
            if stored.ready:
                self._delete_offsets(stored, topics)
            else:
                stored.deleted_topics.update(topics)

    def _delete_offsets(self, stored: StoredGroups, topics: Collection[str]) -> None:
        for group in list(stored.groups.values()):
            if group.offsets.find_topic_keys(topics):
                deletion = stored.delete_offsets(group, topics)
                self._background.spawn(deletion, f"offsets of deleted topics in {group.group_id}")

    async def _load(self, stored: StoredGroups, draft: DraftTerm) -> None:
        """Loads the groups of a partition once the partition certainly belongs to the present offsets topic."""
        while not self._terms.is_current(stored):
            if stored.ended:
                return
            await asyncio.sleep(BACK_OFF)
        draft.begin(self._terms.partitions or 0)
        await stored.load()
        if stored.ready:
            self._delete_offsets(stored, stored.deleted_topics)

    def _end(self, stored: StoredGroups, draft: DraftTerm) -> None:
        self._draft.end(draft)
        self._terms.end(stored)

    async def _find_coordinator(self, request: GroupCoordinatorRequest, _: RequestContext) -> GroupCoordinatorResponse:
        partitions = self._terms.partitions
        if partitions == 0:
            await self._make_topic()
        leaders = self._cluster.find_leaders(OFFSETS_TOPIC)
        found = leaders.get(find_partition(request.group_id, partitions)) if partitions else None
        if found is None:
            return GroupCoordinatorResponse(error_code=ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
        return GroupCoordinatorResponse(
            error_code=ErrorCode.NONE, coordinator_id=found.broker_id, host=found.host, port=found.port
        )


@dataclass
class OffsetExpiry:
    """Deletes expired offsets and empty groups. ``wall_clock`` returns seconds since 1970."""

    config: BrokerConfig
    wall_clock: Callable[[], float]
    events: EventLog
    terms: GroupTerms
    draft: DraftCoordinator
    traits: GroupTraits

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            for stored in self.terms:
                if stored.ready:
                    for group in list(stored.groups.values()):
                        await self._delete_expired(stored, group)
                if stored.ready:  # again, because the term may have ended meanwhile
                    await self.draft.delete_empty_groups(stored)

    async def _delete_expired(self, stored: StoredGroups, group: Group) -> None:
        """Deletes expired offsets of a group without members, then the group if nothing is left."""
        try:
            has_members = self.draft.find_active_group(stored.index, group.group_id) is not None
        except GroupError:
            return  # the partition is still loading
        if has_members or not self.traits.may_expire(group):
            return
        now = read_clocks(self.wall_clock)
        old = [OffsetRecord(group.group_id, *key, None) for key in group.offsets.list_expired(now)]
        if old:
            code = await stored.commit(group, old)
            self.events.emit("offsets-expired", key=group.group_id, value=len(old), detail={"code": code})
        if group.deletable and stored.groups.get(group.group_id) is group:
            await stored.delete(group)
