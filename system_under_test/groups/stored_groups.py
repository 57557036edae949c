"""The groups in one partition of the offsets topic, while this broker leads that partition.

The partition is *ready* when all records of former leaders are committed and loaded. A record takes effect when it is
committed, that is, when all in-sync replicas have it. If that takes too long, the outcome is unknown, and the record
may still take effect later.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from assay.system_under_test.clocks import Instant, read_clocks
from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups import records as formats
from assay.system_under_test.groups.group import Group, GroupError, Spawn
from assay.system_under_test.log.errors import CorruptLog, OffsetOutOfRange
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.groups import JoinGroupRequest, JoinGroupResponse
from assay.system_under_test.protocol.schema import ProtocolError
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import MessageTooLarge
from assay.system_under_test.records.produced import ValidatedSet, validate
from assay.system_under_test.replication.leader import LeaderTerm
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.replication.replica import PartitionError

_log = logging.getLogger("assay.groups")

CHUNK: int = 256 * 1024
"""Bytes read at a time while groups are loaded; other tasks run in between."""
BACK_OFF: Final = 0.1
"""Seconds before a failed deletion of offsets is repeated."""
_CLIENT_ERRORS = {
    ErrorCode.NOT_LEADER_FOR_PARTITION: ErrorCode.NOT_COORDINATOR_FOR_GROUP,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""Maps the error of an append to the client's error; any other error is GROUP_COORDINATOR_NOT_AVAILABLE."""


@dataclass(eq=False)
class StoredGroups:
    """The groups of one partition, during one term of this broker as their coordinator.

    ``wall_clock`` returns seconds since the epoch. The owner must call :meth:`end`.
    """

    partition: Partition
    term: LeaderTerm
    config: BrokerConfig
    events: EventLog
    spawn: Spawn
    wall_clock: Callable[[], float]
    groups: dict[str, Group] = field(default_factory=dict)
    ready: bool = False
    """Whether all groups are loaded, and the term has not ended."""
    ended: bool = False
    deleted_topics: set[str] = field(default_factory=set)
    """The topics that were deleted while the groups were being loaded."""

    @property
    def index(self) -> int:
        return self.partition.index

    # -- load and end --------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Waits until all records of former leaders are committed, and loads them."""
        partition, term = self.partition, self.term
        while partition.high_watermark < term.start_offset:
            if partition.leader is not term:
                return
            advanced = asyncio.get_running_loop().create_future()
            partition.commit_readers.add(advanced)  # done when the high watermark advances
            await advanced
        try:
            found = await self._read(partition.log.start_offset, term.start_offset)
        except (CorruptLog, OffsetOutOfRange, OSError) as damage:
            if isinstance(damage, OSError) and damage.errno != errno.EIO:
                raise  # the log handles EIO as damage; any other error is unexpected
            _log.error("%s: its groups cannot be loaded: %s", partition.key, damage)
            return
        if partition.leader is not term:
            return
        now = read_clocks(self.wall_clock)
        for record in found.values():
            self._restore(record, now)
        self.ready = True
        self.events.emit(
            "groups-loaded",
            key=partition.key,
            epoch=term.epoch,
            value=len(self.groups),
            detail={"fingerprint": self._fingerprint()},
        )

    async def _read(self, first: int, end: int) -> dict[bytes | None, formats.GroupRecord | formats.OffsetRecord]:
        """Reads the log between two offsets, and returns the last record of each key."""
        log = self.partition.log
        found: dict[bytes | None, formats.GroupRecord | formats.OffsetRecord] = {}
        offset = first
        while offset < end and self.partition.leader is self.term:
            data = log.read(offset, CHUNK, limit=end).read()
            messages = message_set.decode(data)
            if not messages:
                break
            for message in messages:
                try:
                    found.pop(message.key, None)
                    found[message.key] = formats.parse(message.key, message.value)
                except formats.UnknownRecord as error:
                    _log.error("%s at %d: %s; it is ignored", self.partition.key, message.offset, error)
            offset = messages[-1].offset + 1
            await asyncio.sleep(0)
        return found

    def _restore(self, record: formats.GroupRecord | formats.OffsetRecord, now: Instant) -> None:
        if record.value is None:
            return
        group = self.get_or_create_group(record.group)
        if isinstance(record, formats.OffsetRecord):
            group.offsets.put(record, now)
        else:
            assert isinstance(record, formats.GroupRecord)
            assert record.value is not None
            group.load(record.value)

    def _fingerprint(self) -> int:
        offsets = {
            (name, *partition): value.offset
            for name, group in self.groups.items()
            for partition, value in group.offsets.values.items()
        }
        return formats.compute_fingerprint({name: group.generation for name, group in self.groups.items()}, offsets)

    def end(self) -> None:
        """Ends the term. Waiting clients must look for the new coordinator."""
        self.ready, self.ended = False, True
        self.end_groups(list(self.groups))

    def end_groups(self, names: Sequence[str]) -> None:
        """Ends these groups. Waiting clients must look for the new coordinator."""
        for group_id in names:
            self.groups.pop(group_id).end(ErrorCode.NOT_COORDINATOR_FOR_GROUP)

    # -- groups ----------------------------------------------------------------------------------------------------

    def require_serving(self) -> None:
        """Raises :class:`GroupError` unless the groups can be served.

        The error is GROUP_LOAD_IN_PROGRESS while loading, and NOT_COORDINATOR_FOR_GROUP after the end of the term.
        """
        if self.partition.leader is not self.term:
            raise GroupError(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        if not self.ready:
            raise GroupError(ErrorCode.GROUP_LOAD_IN_PROGRESS)

    def get_or_create_group(self, group_id: str) -> Group:
        """Returns the group, and creates it if there is none."""
        if group_id not in self.groups:
            self.groups[group_id] = self._make_group(group_id)
        return self.groups[group_id]

    def _make_group(self, group_id: str) -> Group:
        return Group(group_id, self._store_group, self.events, self.spawn)

    async def join(self, request: JoinGroupRequest, client_id: str, client_host: str, new_id: str) -> JoinGroupResponse:
        """Joins a group as :meth:`Group.join` does. Creates the group unless its first member is rejected."""
        if sum(len(protocol.metadata) for protocol in request.protocols) > self.partition.config.max_message_bytes:
            raise GroupError(ErrorCode.UNKNOWN)  # the metadata is too large to be stored
        group = self.groups.get(request.group_id) or self._make_group(request.group_id)
        response = group.join(request, client_id, client_host, new_id)
        self.groups.setdefault(request.group_id, group)
        return await response

    async def commit(self, group: Group, records: Sequence[formats.OffsetRecord]) -> ErrorCode:
        """Commits offsets. Fetches return them when all in-sync replicas have their records.

        That may be after this call has timed out.
        """
        group.offsets.begin(records)

        def resolve(code: ErrorCode) -> None:
            group.offsets.resolve(records, None if code else read_clocks(self.wall_clock))

        return await self._append([formats.encode_offset(record) for record in records], resolve)

    async def delete_offsets(self, group: Group, topics: Collection[str]) -> None:
        """Deletes the offsets that a group has committed in deleted topics.

        Repeats a failed deletion while this term lasts. A commit that has begun meanwhile may belong to a new topic of
        that name. So no deletion is appended after such a commit, and its offset stays.
        """
        offsets = group.offsets
        due = offsets.find_topic_keys(topics)
        left = {key: value for key in due if (value := offsets.values.get(key)) is not None}
        while not self.ended:
            if due:
                code = await self.commit(group, [formats.OffsetRecord(group.group_id, *key, None) for key in due])
                if not code:
                    self.events.emit("offsets-expired", key=group.group_id, value=len(due), detail={"code": code})
            left = {key: value for key, value in left.items() if offsets.values.get(key) is value}
            if not left:
                return
            await asyncio.sleep(BACK_OFF)
            due = [key for key, value in left.items() if offsets.is_unchanged(key, value)]

    async def delete(self, group: Group) -> None:
        """Deletes a group in memory and in the offsets topic. The generations of a later group of this name restart."""
        del self.groups[group.group_id]
        self.events.emit("group-forgotten", key=group.group_id, epoch=group.generation)
        await self._append([formats.encode_group(formats.GroupRecord(group.group_id, None))])

    async def _store_group(self, record: formats.GroupRecord) -> ErrorCode:
        try:
            encoded = formats.encode_group(record)
        except ProtocolError as error:
            _log.error("group %s cannot be stored: %s", record.group, error)
            return ErrorCode.UNKNOWN
        code = await self._append([encoded])
        return ErrorCode.UNKNOWN if code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE else code

    # -- the log -----------------------------------------------------------------------------------------------------

    async def _append(
        self, records: Sequence[tuple[bytes, bytes | None]], on_outcome: Callable[[ErrorCode], None] = lambda code: None
    ) -> ErrorCode:
        """Appends records, waits until all in-sync replicas have them, and returns the error for the client.

        ``on_outcome`` is called once with the final outcome, even if that is known only after the call has timed out.
        """
        partition = self.partition
        now = int(self.wall_clock() * 1000)
        data = message_set.build([(key, value, now) for key, value in records])
        try:
            if partition.leader is not self.term:
                raise PartitionError(ErrorCode.NOT_LEADER_FOR_PARTITION)
            produced = _validate(data, partition.config.max_message_bytes)
            _, last_offset, _ = partition.require_leader().append(produced, wait_for_all=True)
        except PartitionError as error:
            on_outcome(error.code)
            return _to_client_error(error.code)
        except OSError as error:
            _log.error("%s: %s", partition.key, error)
            on_outcome(ErrorCode.UNKNOWN)
            return ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
        future = partition.wait_for_commit(last_offset)
        self._report_final_outcome(future, last_offset, on_outcome)
        await asyncio.wait([future], timeout=self.config.offsets_commit_timeout_ms / 1000)
        return _to_client_error(future.result()) if future.done() else ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE

    def _report_final_outcome(
        self, future: asyncio.Future[ErrorCode], last_offset: int, on_outcome: Callable[[ErrorCode], None]
    ) -> None:
        """Reports the final outcome. While too few replicas are in sync, the outcome stays open."""

        def on_done(_: asyncio.Future[ErrorCode]) -> None:
            code = ErrorCode.NOT_LEADER_FOR_PARTITION if future.cancelled() else future.result()
            waits = code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            if waits and self.partition.leader is self.term:
                self._report_final_outcome(self.partition.wait_for_commit(last_offset), last_offset, on_outcome)
            else:
                on_outcome(code)

        future.add_done_callback(on_done)


def _validate(data: bytes, max_message_bytes: int) -> ValidatedSet:
    try:
        return validate(data, max_message_bytes)
    except MessageTooLarge as error:
        raise PartitionError(ErrorCode.MESSAGE_TOO_LARGE) from error


def _to_client_error(code: ErrorCode) -> ErrorCode:
    return code if code is ErrorCode.NONE else _CLIENT_ERRORS.get(code, ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
