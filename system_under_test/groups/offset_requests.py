"""Requests to commit and fetch offsets.

Version 0 of both requests commits and fetches offsets in ZooKeeper, where consumers of the old design keep them. Any
client may commit there. Later versions use the offsets topic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from assay.system_under_test.config import OFFSETS_TOPIC, BrokerConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.draft.coordinator import DraftCoordinator
from assay.system_under_test.groups.group import Group, GroupError
from assay.system_under_test.groups.records import VALUE_VERSION, OffsetRecord, OffsetValue
from assay.system_under_test.groups.stored_groups import StoredGroups
from assay.system_under_test.groups.terms import GroupTerms
from assay.system_under_test.groups.traits import GroupTraits
from assay.system_under_test.network.handler import Handler, RequestContext
from assay.system_under_test.protocol import group_offsets, internal
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import Request
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.offsets import prove_end
from assay.system_under_test.replication.replica import PartitionError
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths

NO_OFFSET: Final = -1
LATEST_TIME: Final = 2**63 - 1
ZOOKEEPER_VERSION: Final = 0
"""Version 0 of OffsetCommit and OffsetFetch means ZooKeeper."""
CommitCodes = Mapping[tuple[str, int], ErrorCode]


class LeaderLookup(Protocol):
    """The part of the cluster's metadata that a coordinator needs."""

    def find_leaders(self, topic: str) -> Mapping[int, internal.LiveBroker | None]:
        """Returns the live leader of each known partition; empty for a topic that does not exist."""


@dataclass
class OffsetRequests:
    """Handles offset commits and fetches. ``wall_clock`` returns seconds since the epoch."""

    config: BrokerConfig
    wall_clock: Callable[[], float]
    zookeeper: ZooKeeper
    manager: ReplicaManager
    cluster: LeaderLookup
    events: EventLog
    terms: GroupTerms
    draft: DraftCoordinator
    traits: GroupTraits

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {group_offsets.OffsetCommitRequest: self._commit, group_offsets.OffsetFetchRequest: self._fetch}

    async def _commit(
        self, request: group_offsets.OffsetCommitRequest, context: RequestContext
    ) -> group_offsets.OffsetCommitResponse:
        if context.api_version == ZOOKEEPER_VERSION:
            codes = await _commit_to_zookeeper(self.zookeeper, request, self._check_offset)
        else:
            codes = await self._commit_to_topic(request)
        return group_offsets.OffsetCommitResponse(
            topics=[
                group_offsets.OffsetCommitTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        group_offsets.OffsetCommitPartitionResponse(
                            partition=wanted.partition, error_code=codes[topic.topic, wanted.partition]
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _check_offset(self, topic: str, partition: int, metadata: str | None) -> ErrorCode:
        if partition not in self.cluster.find_leaders(topic):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if metadata is not None and len(metadata.encode()) > self.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    async def _commit_to_topic(self, request: group_offsets.OffsetCommitRequest) -> CommitCodes:
        """Commits to the offsets topic. All valid offsets of a request are one append: all are committed, or none."""
        now = int(self.wall_clock() * 1000)
        retention = self.config.offsets_retention_ms if request.retention_time_ms < 0 else request.retention_time_ms
        codes: dict[tuple[str, int], ErrorCode] = {}
        records = []
        for (topic, partition), wanted in _select_last(request).items():
            codes[topic, partition] = self._check_offset(topic, partition, wanted.metadata)
            if codes[topic, partition]:
                continue
            committed = now if wanted.timestamp < 0 else wanted.timestamp
            value = OffsetValue(
                version=VALUE_VERSION,
                offset=wanted.offset,
                metadata=wanted.metadata or "",
                commit_timestamp=committed,
                expire_timestamp=min(committed + retention, LATEST_TIME),
            )
            records.append(OffsetRecord(request.group_id, topic, partition, value))
        code = await self._commit_records(request, records)
        return {key: found or code for key, found in codes.items()}

    async def _commit_records(
        self, request: group_offsets.OffsetCommitRequest, records: Sequence[OffsetRecord]
    ) -> ErrorCode:
        """Appends the records of one request. Returns the error code of all its offsets."""
        try:
            stored = self.terms.get_stored_groups(request.group_id)
            self._check_commit(stored, request)
            group = stored.get_or_create_group(request.group_id)
        except GroupError as error:
            return error.code
        if not records:
            return ErrorCode.NONE
        code = await stored.commit(group, records)
        if not code:
            self.events.emit(
                "offset-commit",
                key=request.group_id,
                epoch=request.generation_id,
                owner=request.member_id,
                detail={
                    "offsets": {
                        f"{record.topic}-{record.partition}": record.value.offset for record in records if record.value
                    }
                },
            )
        return code

    def _check_commit(self, stored: StoredGroups, request: group_offsets.OffsetCommitRequest) -> None:
        """Raises :class:`GroupError` if the group rejects the commit.

        If the group has members, the rules are those of their design: the draft or Kafka's final design.
        """
        group = stored.groups.get(request.group_id)
        if group is None or request.member_id not in group.members:
            draft = self.draft.find_active_group(stored.index, request.group_id)
            if draft is not None:
                draft.check_commit(request.member_id, request.generation_id)
                return
        if group is not None:
            self.traits.check_commit(group, request.member_id, request.generation_id)
        elif request.generation_id >= 0:
            raise GroupError(ErrorCode.ILLEGAL_GENERATION)  # the group and its generation have been deleted

    async def _fetch(
        self, request: group_offsets.OffsetFetchRequest, context: RequestContext
    ) -> group_offsets.OffsetFetchResponse:
        if context.api_version == ZOOKEEPER_VERSION:
            return await _fetch_from_zookeeper(self.zookeeper, request, self._check_offset)
        group: Group | None = None
        code = ErrorCode.NONE
        try:
            stored = self.terms.get_stored_groups(request.group_id)
            await self._require_latest_coordinator(stored)
            group = stored.groups.get(request.group_id)
        except GroupError as error:
            code = error.code
        known = {} if group is None else group.offsets.values
        wanted = [(topic.topic, partition) for topic in request.topics or () for partition in topic.partitions]
        if request.topics is None:
            wanted = sorted(known)
        topics: dict[str, list[group_offsets.OffsetFetchPartitionResponse]] = {}
        for key in wanted:
            value = known.get(key)
            answer = group_offsets.OffsetFetchPartitionResponse(
                partition=key[1],
                offset=NO_OFFSET if value is None else value.offset,
                metadata="" if value is None else value.metadata,
                error_code=code,
            )
            topics.setdefault(key[0], []).append(answer)
        return group_offsets.OffsetFetchResponse(
            topics=[
                group_offsets.OffsetFetchTopicResponse(topic=topic, partitions=parts) for topic, parts in topics.items()
            ],
            error_code=code,
        )

    async def _require_latest_coordinator(self, stored: StoredGroups) -> None:
        """Raises :class:`GroupError` if a newer coordinator, with later commits, may exist.

        The error is GROUP_COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR_FOR_GROUP.
        """
        try:
            await prove_end(self.manager, self.zookeeper, OFFSETS_TOPIC, stored.index)
        except PartitionError as error:
            if error.code is ErrorCode.LEADER_NOT_AVAILABLE:
                raise GroupError(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE) from error
            raise GroupError(ErrorCode.NOT_COORDINATOR_FOR_GROUP) from error
        stored.require_serving()


def _select_last(
    request: group_offsets.OffsetCommitRequest,
) -> Mapping[tuple[str, int], group_offsets.OffsetCommitPartition]:
    """Returns what the request commits, by topic and partition.

    If it names a partition twice, the last entry counts, as in Kafka. Both entries get its error code.
    """
    return {(topic.topic, wanted.partition): wanted for topic in request.topics for wanted in topic.partitions}


Check = Callable[[str, int, str | None], ErrorCode]


async def _commit_to_zookeeper(
    zookeeper: ZooKeeper, request: group_offsets.OffsetCommitRequest, check: Check
) -> Mapping[tuple[str, int], ErrorCode]:
    """Commits offsets and returns the error code of each partition. UNKNOWN may mean that the outcome is unknown."""
    codes = {}
    for (topic, partition), wanted in _select_last(request).items():
        code = _check_group(request.group_id) or check(topic, partition, wanted.metadata)
        if not code:
            path = paths.consumer_offset(request.group_id, topic, partition)
            code = await _write_offset(zookeeper, path, str(wanted.offset).encode())
        codes[topic, partition] = code
    return codes


def _check_group(group_id: str) -> ErrorCode:
    """Checks that the group id can be the name of a znode."""
    fits = group_id.isprintable() and group_id not in ("", ".", "..") and "/" not in group_id
    return ErrorCode.NONE if fits else ErrorCode.INVALID_GROUP_ID


async def _write_offset(zookeeper: ZooKeeper, path: str, data: bytes) -> ErrorCode:
    try:
        try:
            await zookeeper.set(path, data)
        except NoNodeError:
            try:
                await zookeeper.create(path, data, makepath=True)
            except NodeExistsError:
                await zookeeper.set(path, data)
    except KazooException:
        return ErrorCode.UNKNOWN
    return ErrorCode.NONE


async def _fetch_from_zookeeper(
    zookeeper: ZooKeeper, request: group_offsets.OffsetFetchRequest, check: Check
) -> group_offsets.OffsetFetchResponse:
    """Fetches offsets. UNKNOWN_TOPIC_OR_PARTITION also means that no offset was committed, as in Kafka 0.10.2."""
    topics = []
    for topic in request.topics or ():
        parts = [
            await _read_offset(
                zookeeper,
                request.group_id,
                topic.topic,
                partition,
                _check_group(request.group_id) or check(topic.topic, partition, None),
            )
            for partition in topic.partitions
        ]
        topics.append(group_offsets.OffsetFetchTopicResponse(topic=topic.topic, partitions=parts))
    return group_offsets.OffsetFetchResponse(topics=topics)


async def _read_offset(
    zookeeper: ZooKeeper, group_id: str, topic: str, partition: int, code: ErrorCode
) -> group_offsets.OffsetFetchPartitionResponse:
    offset = -1
    if not code:
        path = paths.consumer_offset(group_id, topic, partition)
        try:
            await zookeeper.sync(path)
            data, _ = await zookeeper.get(path)
            offset = int(data)
        except NoNodeError:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except (KazooException, ValueError):
            code = ErrorCode.UNKNOWN
    return group_offsets.OffsetFetchPartitionResponse(partition=partition, offset=offset, metadata="", error_code=code)
