"""Records of the offsets topic: a group's generation and members, and a partition's committed offset.

The formats are those of Kafka 0.10.2:

- A key begins with its version: 1 for an offset, 2 for a group.
- A value begins with its version, which is 1 for both.
- A record without a value deletes the entry of its key.
"""

import struct
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from assay.system_under_test.clocks import Instant
from assay.system_under_test.protocol.compiler import decode, encode_bytes
from assay.system_under_test.protocol.schema import Int16, Int32, Int64, ProtocolError, message

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
VALUE_VERSION: Final = 1
_VERSION = struct.Struct(">h")


@message
class OffsetKey:
    version: Int16
    group: str
    topic: str
    partition: Int32


@message
class GroupKey:
    version: Int16
    group: str


@message
class OffsetValue:
    """A committed offset. Times are in milliseconds of the coordinator's clock.

    The offset may be deleted at ``expire_timestamp``.
    """

    version: Int16
    offset: Int64
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Int64


@message
class StoredMember:
    """A member in a stored generation. Timeouts are in milliseconds."""

    member_id: str
    client_id: str
    client_host: str
    rebalance_timeout: Int32
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


@message
class GroupValue:
    """A generation. Assignments are empty until the group's leader has assigned."""

    version: Int16
    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    members: list[StoredMember]


@dataclass(frozen=True)
class OffsetRecord:
    group: str
    topic: str
    partition: int
    value: OffsetValue | None


@dataclass(frozen=True)
class GroupRecord:
    group: str
    value: GroupValue | None


class UnknownRecord(ValueError):
    """Raised for a record that is no valid offset or group, or has an unsupported version. The message says which."""


def encode_offset(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    """Encodes an offset's record; returns key and value."""
    key = OffsetKey(version=OFFSET_KEY_VERSION, group=record.group, topic=record.topic, partition=record.partition)
    return encode_bytes(key, 0), None if record.value is None else encode_bytes(record.value, 0)


def encode_group(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Encodes a group's record; returns key and value."""
    key = GroupKey(version=GROUP_KEY_VERSION, group=record.group)
    return encode_bytes(key, 0), None if record.value is None else encode_bytes(record.value, 0)


def parse(key: bytes | None, value: bytes | None) -> OffsetRecord | GroupRecord:
    """Decodes a record. Raises :class:`UnknownRecord`."""
    try:
        version = _read_version(key)
        assert key is not None, "it has a version"
        if value is not None and _read_version(value) != VALUE_VERSION:
            raise UnknownRecord(f"a value of version {_read_version(value)}")
        if version == OFFSET_KEY_VERSION:
            offset: OffsetKey = decode(OffsetKey, 0, key, 0)
            found = None if value is None else decode(OffsetValue, 0, value, 0)
            return OffsetRecord(offset.group, offset.topic, offset.partition, found)
        if version == GROUP_KEY_VERSION:
            group: GroupKey = decode(GroupKey, 0, key, 0)
            return GroupRecord(group.group, None if value is None else decode(GroupValue, 0, value, 0))
    except ProtocolError as error:
        raise UnknownRecord(str(error)) from error
    raise UnknownRecord(f"a key of version {version}")


def _read_version(data: bytes | None) -> int:
    if data is None or len(data) < _VERSION.size:
        raise UnknownRecord("a record without a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def compute_fingerprint(generations: Mapping[str, int], offsets: Mapping[tuple[str, str, int], int]) -> int:
    """Hashes the generation of each group, and the committed offset of each (group, topic, partition).

    The simulation compares the hash of a coordinator's state with that of its log (``invariants.coordinators``).
    """
    return crc32(repr((sorted(generations.items()), sorted(offsets.items()))).encode())


class CommittedOffsets:
    """Committed offsets of a group. ``values`` has the offsets that fetches return, by topic and partition.

    An offset expires at its ``expire_timestamp`` by the wall clock. If the wall clock is set forward, the offset must
    not expire early. So it is also kept, by the monotonic clock, for the time that remained when this coordinator
    committed or loaded it. If the wall clock was wrong at that time, the offset is kept too long, by its retention time
    at most.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], OffsetValue] = {}
        self._kept_until: dict[tuple[str, int], int] = {}
        """The earliest expiry of each offset by the monotonic clock, in milliseconds."""
        self._pending: Counter[tuple[str, int]] = Counter()
        """The number of commits of each key whose outcome is still open."""

    def __bool__(self) -> bool:
        """Returns whether any offset is committed or being committed."""
        return bool(self.values) or any(self._pending.values())

    def begin(self, records: Sequence[OffsetRecord]) -> None:
        """Notes that a commit of records begins. :meth:`resolve` must follow for the same records, however late."""
        self._pending.update((record.topic, record.partition) for record in records)

    def resolve(self, records: Sequence[OffsetRecord], committed: Instant | None) -> None:
        """Notes that a commit has ended. ``committed``: the current time, or None if the commit failed."""
        for record in records:
            self._pending[record.topic, record.partition] -= 1
            if committed is not None:
                self.put(record, committed)

    def put(self, record: OffsetRecord, now: Instant) -> None:
        key, value = (record.topic, record.partition), record.value
        if value is None:
            self.values.pop(key, None)
            self._kept_until.pop(key, None)
        else:
            self.values[key] = value
            remaining = min(value.expire_timestamp - now.wall_ms, value.expire_timestamp - value.commit_timestamp)
            self._kept_until[key] = now.monotonic_ms + max(remaining, 0)

    def find_topic_keys(self, topics: Collection[str]) -> list[tuple[str, int]]:
        """Returns the keys of these topics that are committed or being committed."""
        return [key for key in {**self.values, **+self._pending} if key[0] in topics]

    def is_unchanged(self, key: tuple[str, int], value: OffsetValue) -> bool:
        """Returns whether an offset is still the committed one, and no commit of its key is pending."""
        return self.values.get(key) is value and not self._pending[key]

    def list_expired(self, now: Instant) -> list[tuple[str, int]]:
        """Returns the keys of expired offsets without a pending commit."""
        return [
            key
            for key, value in self.values.items()
            if value.expire_timestamp <= now.wall_ms
            and self._kept_until[key] <= now.monotonic_ms
            and not self._pending[key]
        ]
