"""The group coordinator: answers everything about the groups whose partition of the offsets topic this broker leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from kazoo.exceptions import KazooException, NoNodeError

from assay.system_under_test.config import OFFSETS_TOPIC, BrokerConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups import zookeeper_offsets
from assay.system_under_test.groups.draft.coordinator import DraftCoordinator
from assay.system_under_test.groups.draft.term import DraftTerm
from assay.system_under_test.groups.group import Group, GroupError, GroupState
from assay.system_under_test.groups.records import VALUE, OffsetRecord, OffsetValue
from assay.system_under_test.groups.routing import partition_of
from assay.system_under_test.groups.stored import StoredGroups
from assay.system_under_test.network.handler import Context, Handler
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.group_offsets import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)
from assay.system_under_test.protocol.groups import (
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    GroupCoordinatorRequest,
    GroupCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from assay.system_under_test.protocol.internal import LiveBroker
from assay.system_under_test.protocol.schema import Request
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.offsets import proven_end
from assay.system_under_test.replication.partition import LeaderTerm, Partition, PartitionError
from assay.system_under_test.runtime import Runtime, ZooKeeper
from assay.system_under_test.tasks import Background
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.groups")

NO_OFFSET: Final = -1
LATEST_TIME: Final = 2**63 - 1
LONGEST_CLIENT_ID: Final = 249
"""Characters of a member's own name that become part of its id, which is stored and sent to the others."""
BACK_OFF: Final = 0.1
"""Seconds before ZooKeeper is asked again."""
ZOOKEEPER_VERSION: Final = 0
"""Version 0 of OffsetCommit and OffsetFetch means ZooKeeper."""
CommitCodes = Mapping[tuple[str, int], ErrorCode]


class Cluster(Protocol):
    """What a coordinator asks of the cluster's metadata."""

    def leaders(self, topic: str) -> Mapping[int, LiveBroker | None]:
        """The live leader of each partition that is known; empty for a topic that is none."""
        ...


class Coordinator:
    """See the module. ``make_topic`` sees to it that the offsets topic comes into being."""

    stored_class: ClassVar[type[StoredGroups]] = StoredGroups
    """A defect has another."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        zookeeper: ZooKeeper,
        manager: ReplicaManager,
        cluster: Cluster,
        events: EventLog,
        background: Background,
        make_topic: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._zookeeper = zookeeper
        self._manager = manager
        self._cluster = cluster
        self._events = events
        self._background = background
        self._make_topic = make_topic
        self._led: dict[int, StoredGroups] = {}
        self._partitions = 0
        """Of the offsets topic; 0 while that is not known. Groups belong to one of them by this number, which never
        changes: what the brokers' metadata knows of a topic may be a part of it.
        """
        self._draft = DraftCoordinator(config, runtime, zookeeper, events, background, self._stored, self._find)

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {
            GroupCoordinatorRequest: self._find,
            JoinGroupRequest: self._join,
            HeartbeatRequest: self._heartbeat,
            LeaveGroupRequest: self._leave,
            SyncGroupRequest: self._sync,
            DescribeGroupsRequest: self._describe,
            ListGroupsRequest: self._list,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
            **self._draft.handlers(),
        }

    # -- what this broker coordinates --------------------------------------------------------------------------------

    def start(self) -> None:
        self._background.spawn(self._tidy_now_and_then(), "expiry of offsets")

    def lead(self, partition: Partition, term: LeaderTerm) -> None:
        """This broker leads a partition, until ``term.ended``."""
        if partition.topic != OFFSETS_TOPIC:
            return
        stored = self.stored_class(
            partition, term, self._config, self._events, self._background.spawn, self._runtime.wall_clock
        )
        self._led[partition.index] = stored
        draft = self._draft.lead(partition.index, term.epoch)
        term.ended.add_done_callback(lambda _: self._end(stored, draft))
        self._background.spawn(self._load(stored, draft), f"loading {partition.key}")

    async def _load(self, stored: StoredGroups, draft: DraftTerm) -> None:
        while not (partitions := await self._count_partitions()):
            if stored.ended:
                return
            await asyncio.sleep(BACK_OFF)
        draft.begin(partitions)
        await stored.load()

    async def _count_partitions(self) -> int:
        """How many the offsets topic has; 0 when there is none, or that cannot be told now."""
        if not self._partitions:
            path = paths.topic(OFFSETS_TOPIC)
            try:
                data, _ = await self._zookeeper.get(path)
                self._partitions = len(znodes.decode(znodes.TopicAssignment, path, data).partitions)
            except NoNodeError:
                return 0
            except (KazooException, znodes.ZnodeError) as error:
                _log.info("partitions of %s: %r", OFFSETS_TOPIC, error)
        return self._partitions

    def _end(self, stored: StoredGroups, draft: DraftTerm) -> None:
        self._draft.end(draft)
        stored.end()
        if self._led.get(stored.index) is stored:
            del self._led[stored.index]

    def _stored(self, group_id: str) -> StoredGroups:
        """Raises :class:`GroupError`: 14, 15, 16."""
        if not self._partitions:
            raise GroupError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
        stored = self._led.get(partition_of(group_id, self._partitions))
        if stored is None:
            raise GroupError(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        stored.serving()
        return stored

    def _member_of(self, group_id: str) -> Group:
        """The group of somebody who says to be a member. Raises :class:`GroupError`: 14, 15, 16, 25."""
        group = self._stored(group_id).groups.get(group_id)
        if group is None:
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    async def _find(self, request: GroupCoordinatorRequest, _: Context) -> GroupCoordinatorResponse:
        partitions = await self._count_partitions()
        if not partitions:
            await self._make_topic()
        leaders = self._cluster.leaders(OFFSETS_TOPIC)
        found = leaders.get(partition_of(request.group_id, partitions)) if partitions else None
        if found is None:
            code = ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
            return GroupCoordinatorResponse(error_code=code, coordinator_id=-1, host="", port=-1)
        return GroupCoordinatorResponse(
            error_code=ErrorCode.NONE, coordinator_id=found.broker_id, host=found.host, port=found.port
        )

    # -- membership ----------------------------------------------------------------------------------------------------

    async def _join(self, request: JoinGroupRequest, context: Context) -> JoinGroupResponse:
        try:
            self._check_join(request)
            stored = self._stored(request.group_id)
            if request.member_id and request.group_id not in stored.groups:
                raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
            if not request.member_id and self._draft.known(stored.index, request.group_id) is not None:
                raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            client_id = (context.client_id or "")[:LONGEST_CLIENT_ID]
            new_id = f"{client_id}-{self._runtime.random.getrandbits(128):032x}"
            host = context.peer.rpartition(":")[0]
            return await stored.join(request, client_id, f"/{host}", new_id)
        except GroupError as error:
            return JoinGroupResponse(
                error_code=error.code,
                generation_id=-1,
                protocol="",
                leader_id="",
                member_id=request.member_id,
                members=[],
            )

    def _check_join(self, request: JoinGroupRequest) -> None:
        if not request.group_id:
            raise GroupError(ErrorCode.INVALID_GROUP_ID)
        config = self._config
        limits = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not limits[0] <= request.session_timeout_ms <= limits[1]:
            raise GroupError(ErrorCode.INVALID_SESSION_TIMEOUT)

    async def _sync(self, request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
        try:
            if sum(len(given.assignment) for given in request.assignments) > self._config.topic.max_message_bytes:
                raise GroupError(ErrorCode.UNKNOWN)  # it could never be stored
            answer = await self._member_of(request.group_id).sync(request)
        except GroupError as error:
            answer = SyncGroupResponse(error_code=error.code, assignment=b"")
        if answer.error_code == ErrorCode.NONE:
            context.after_response(partial(self._has_assignment, request))
        elif answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            context.after_response(partial(self._was_called, request))
        return answer

    async def _heartbeat(self, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        try:
            self._member_of(request.group_id).heartbeat(request.member_id, request.generation_id)
        except GroupError as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                context.after_response(partial(self._was_called, request))
            return HeartbeatResponse(error_code=error.code)
        return HeartbeatResponse(error_code=ErrorCode.NONE)

    def _was_called(self, request: SyncGroupRequest | HeartbeatRequest) -> None:
        """Told to join again: the answer was handed to its connection."""
        with suppress(GroupError):  # no longer the coordinator
            self._member_of(request.group_id).was_called(request.member_id, request.generation_id)

    def _has_assignment(self, request: SyncGroupRequest) -> None:
        with suppress(GroupError):
            self._member_of(request.group_id).has_assignment(request.member_id, request.generation_id)

    async def _leave(self, request: LeaveGroupRequest, _: Context) -> LeaveGroupResponse:
        try:
            self._member_of(request.group_id).leave(request.member_id)
        except GroupError as error:
            return LeaveGroupResponse(error_code=error.code)
        return LeaveGroupResponse(error_code=ErrorCode.NONE)

    async def _describe(self, request: DescribeGroupsRequest, _: Context) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[self._described(name) for name in dict.fromkeys(request.group_ids)])

    def _described(self, group_id: str) -> DescribedGroup:
        answer = DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            state=GroupState.DEAD,
            protocol_type="",
            protocol="",
            members=[],
        )
        try:
            group = self._stored(group_id).groups.get(group_id)
        except GroupError as error:
            answer.error_code, answer.state = error.code, ""
            return answer
        if group is None:
            return answer
        answer.state, answer.protocol_type = group.state, group.protocol_type
        if group.state is GroupState.STABLE:
            answer.protocol = group.protocol or ""
        answer.members = [
            DescribedMember(
                member_id=member.member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.protocols.get(answer.protocol, b""),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ]
        return answer

    async def _list(self, _: ListGroupsRequest, __: Context) -> ListGroupsResponse:
        loading = any(not stored.ready for stored in self._led.values())
        groups = [
            ListedGroup(group_id=group.group_id, protocol_type=group.protocol_type)
            for stored in self._led.values()
            for group in stored.groups.values()
        ]
        code = ErrorCode.GROUP_LOAD_IN_PROGRESS if loading else ErrorCode.NONE
        return ListGroupsResponse(error_code=code, groups=groups)

    # -- offsets -------------------------------------------------------------------------------------------------------

    async def _commit(self, request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
        if context.api_version == ZOOKEEPER_VERSION:
            codes = await zookeeper_offsets.commit(self._zookeeper, request, self._check_offset)
        else:
            codes = await self._commit_here(request)
        return OffsetCommitResponse(
            topics=[
                OffsetCommitTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        OffsetCommitPartitionResponse(
                            partition=wanted.partition, error_code=codes[topic.topic, wanted.partition]
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _check_offset(self, topic: str, partition: int, metadata: str | None) -> ErrorCode:
        if partition not in self._cluster.leaders(topic):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if metadata is not None and len(metadata.encode()) > self._config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    async def _commit_here(self, request: OffsetCommitRequest) -> CommitCodes:
        """The offsets of one request are one append: all of them count, or none."""
        now = int(self._runtime.wall_clock() * 1000)
        retention = self._config.offsets_retention_ms if request.retention_time_ms < 0 else request.retention_time_ms
        codes: dict[tuple[str, int], ErrorCode] = {}
        records = []
        for topic in request.topics:
            for wanted in topic.partitions:
                key = topic.topic, wanted.partition
                codes[key] = self._check_offset(topic.topic, wanted.partition, wanted.metadata)
                if codes[key]:
                    continue
                committed = now if wanted.timestamp < 0 else wanted.timestamp
                value = OffsetValue(
                    version=VALUE,
                    offset=wanted.offset,
                    metadata=wanted.metadata or "",
                    commit_timestamp=committed,
                    expire_timestamp=min(committed + retention, LATEST_TIME),
                )
                records.append(OffsetRecord(request.group_id, topic.topic, wanted.partition, value))
        code = await self._commit_records(request, records)
        return {key: found or code for key, found in codes.items()}

    async def _commit_records(self, request: OffsetCommitRequest, records: Sequence[OffsetRecord]) -> ErrorCode:
        try:
            stored = self._stored(request.group_id)
            self._may_commit(stored, request)
            group = stored.group(request.group_id)
        except GroupError as error:
            return error.code
        if not records:
            return ErrorCode.NONE
        code = await stored.commit(group, records)
        if not code:
            self._events.emit(
                "offset-commit",
                key=request.group_id,
                epoch=request.generation_id,
                owner=request.member_id,
                offsets={
                    f"{record.topic}-{record.partition}": record.value.offset for record in records if record.value
                },
            )
        return code

    def _may_commit(self, stored: StoredGroups, request: OffsetCommitRequest) -> None:
        """By the rules of the design whose members the group has. Raises :class:`GroupError`."""
        group = stored.groups.get(request.group_id)
        if group is None or request.member_id not in group.members:
            draft = self._draft.known(stored.index, request.group_id)
            if draft is not None:
                draft.may_commit(request.member_id, request.generation_id)
                return
        if group is not None:
            group.may_commit(request.member_id, request.generation_id)
        elif request.generation_id >= 0:
            raise GroupError(ErrorCode.ILLEGAL_GENERATION)  # its members are forgotten, and so is its generation

    async def _fetch(self, request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
        if context.api_version == ZOOKEEPER_VERSION:
            return await zookeeper_offsets.fetch(self._zookeeper, request, self._check_offset)
        group: Group | None = None
        code = ErrorCode.NONE
        try:
            stored = self._stored(request.group_id)
            await self._prove(stored)
            group = stored.groups.get(request.group_id)
        except GroupError as error:
            code = error.code
        known = {} if group is None else group.offsets
        wanted = [(topic.topic, partition) for topic in request.topics or () for partition in topic.partitions]
        if request.topics is None:
            wanted = sorted(known)
        topics: dict[str, list[OffsetFetchPartitionResponse]] = {}
        for key in wanted:
            value = known.get(key)
            answer = OffsetFetchPartitionResponse(
                partition=key[1],
                offset=NO_OFFSET if value is None else value.offset,
                metadata="" if value is None else value.metadata,
                error_code=code,
            )
            topics.setdefault(key[0], []).append(answer)
        return OffsetFetchResponse(
            topics=[OffsetFetchTopicResponse(topic=topic, partitions=parts) for topic, parts in topics.items()],
            error_code=code,
        )

    async def _prove(self, stored: StoredGroups) -> None:
        """That there is no newer coordinator, else it may know of later commits. Raises :class:`GroupError`: 15, 16."""
        try:
            await proven_end(self._manager, self._zookeeper, OFFSETS_TOPIC, stored.index)
        except PartitionError as error:
            if error.code is ErrorCode.LEADER_NOT_AVAILABLE:
                raise GroupError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE) from error
            raise GroupError(ErrorCode.NOT_COORDINATOR_FOR_GROUP) from error
        stored.serving()

    # -- upkeep --------------------------------------------------------------------------------------------------------

    async def _tidy_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for stored in list(self._led.values()):
                if stored.ready:
                    for group in list(stored.groups.values()):
                        await self._tidy(stored, group)
                if stored.ready:  # still: the term may be over by now
                    await self._draft.tidy(stored)

    async def _tidy(self, stored: StoredGroups, group: Group) -> None:
        """Offsets go when their time is over, but never while the group has members; then the group, too."""
        try:
            has_members = self._draft.known(stored.index, group.group_id) is not None
        except GroupError:
            return  # it is not known yet
        if has_members or not self.may_expire(group):
            return
        now = int(self._runtime.wall_clock() * 1000)
        old = [
            OffsetRecord(group.group_id, topic, partition, None)
            for (topic, partition), value in group.offsets.items()
            if value.expire_timestamp <= now and not group.pending[topic, partition]
        ]
        if old:
            code = await stored.commit(group, old)
            self._events.emit("offsets-expired", key=group.group_id, value=len(old), code=code)
        if group.deletable and stored.groups.get(group.group_id) is group:
            await stored.forget(group)

    def may_expire(self, group: Group) -> bool:
        """A defect replaces this method."""
        return group.state is GroupState.EMPTY
