"""The content of the znodes as typed values: JSON in the formats of Kafka 0.10, plus ``isr_epochs`` and ``elr``."""

from typing import Generic, Literal, TypeVar

import msgspec
from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Create
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from assay.system_under_test.runtime import Watch, ZooKeeper

NO_LEADER = -1
MAX_ID = 2**31 - 1
"""The highest id of a partition or broker that the wire format can carry."""
EPHEMERAL, SEQUENCE = 1, 2  # flags of ZooKeeper's protocol

T = TypeVar("T")


class ZnodeError(Exception):
    """A znode's content is not what its path requires."""


class BrokerRegistration(msgspec.Struct, frozen=True):
    """/brokers/ids/N. All fields except host and port have defaults, because brokers of 0.8 write fewer fields.

    ``clean_registrations``, in JSON ``clean_lives``, is an addition to Kafka's format (KIP-966): the czxids of the
    broker's earlier registrations since its last unclean start. The broker still has all records that it had under
    these registrations.
    """

    host: str
    port: int
    endpoints: list[str] = []
    timestamp: str = "0"
    clean_registrations: list[int] = msgspec.field(name="clean_lives", default_factory=list)
    listener_security_protocol_map: dict[str, str] = msgspec.field(default_factory=lambda: {"PLAINTEXT": "PLAINTEXT"})
    jmx_port: int = -1
    version: int = 4


class TopicAssignment(msgspec.Struct, frozen=True):
    """/brokers/topics/T: the assigned replicas of each partition, the preferred leader first."""

    partitions: dict[str, list[int]]
    version: int = 1


class PartitionState(msgspec.Struct, frozen=True):
    """/brokers/topics/T/partitions/P/state.

    - ``isr_epochs``: by broker id as text, the registration (czxid) under which each member of the ISR and of ``elr``
      was admitted (KIP-903)
    - ``elr``: the eligible leader replicas (KIP-966). They have left the ISR while it was too small for the high
      watermark to advance, so they have all acknowledged records
    """

    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: list[int]
    isr_epochs: dict[str, int] = {}
    elr: list[int] = []
    version: int = 1


class ControllerClaim(msgspec.Struct, frozen=True):
    """/controller."""

    brokerid: int
    timestamp: str = "0"
    version: int = 1


class TopicSettings(msgspec.Struct, frozen=True):
    """/config/topics/T, and /config/brokers/N."""

    config: dict[str, str]
    version: int = 1


class ConfigChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """/config/changes/config_change_N: the topic or broker whose settings changed, in the format of version 1 or 2."""

    version: int
    entity_path: str = ""
    """Version 2: ``topics/T``, ``clients/C``, ``users/U``, ``users/U/clients/C`` or ``brokers/N``."""
    entity_type: str = ""
    entity_name: str = ""

    def entity(self) -> tuple[str, str]:
        """Returns the kind, such as ``topics`` or ``brokers``, and the name. Raises ``ValueError``."""
        if self.version == 1:
            kind, name = self.entity_type, self.entity_name
        elif self.version == 2:
            kind, _, name = self.entity_path.partition("/")
        else:
            raise ValueError(f"version {self.version} is unknown; use 1 or 2")
        if kind not in ("topics", "clients", "users", "brokers") or not name or (kind == "topics" and "/" in name):
            raise ValueError(f"{kind!r}, {name!r} cannot have settings")
        return kind, name


class ChangedPartition(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class IsrChange(msgspec.Struct, frozen=True):
    """/isr_change_notification/isr_change_N."""

    partitions: list[ChangedPartition]
    version: int = 1


class ConsumerRegistration(msgspec.Struct, frozen=True):
    """/consumers/G/ids/C: the number of threads for each topic, or for each regular expression of topic names."""

    subscription: dict[str, int]
    pattern: Literal["static", "white_list", "black_list"]
    timestamp: str = "0"
    version: int = 1


class ReassignmentEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of /admin/reassign_partitions: the target replicas of a partition, the preferred leader first.

    ``removing`` is not Kafka's: former replicas whose files may still exist.
    """

    topic: str
    partition: int
    replicas: list[int]
    removing: list[int] = []


class ReassignmentList(msgspec.Struct, frozen=True):
    """/admin/reassign_partitions."""

    partitions: list[ReassignmentEntry]
    version: int = 1


class TopicDeletion(msgspec.Struct, frozen=True):
    """/admin/delete_topics/T after the deletion has begun. A requested deletion has an empty znode, as in Kafka.

    ``czxid`` is the topic's, which distinguishes it from a later topic of that name.
    """

    czxid: int
    version: int = 1


class ClusterId(msgspec.Struct, frozen=True):
    """/cluster/id."""

    id: str
    version: str = "1"


_JSON = msgspec.json.Encoder()
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors for content that is not JSON of the right type, not UTF-8, or nested too deep."""


def encode(value: msgspec.Struct) -> bytes:
    return _JSON.encode(value)


def decode(kind: type[T], path: str, data: bytes) -> T:
    """Decodes a znode's content. Raises ``ZnodeError``, which names the path."""
    try:
        return msgspec.json.decode(data, type=kind)
    except _DECODE_ERRORS as error:
        raise ZnodeError(f"znode {path} holds {data[:120]!r}: {error}") from error


async def read(
    zookeeper: ZooKeeper, kind: type[T], path: str, watch: Watch | None = None
) -> tuple[T, ZnodeStat] | None:
    """Returns value and stat; None if there is no such znode. Raises ``ZnodeError``, and kazoo's errors."""
    try:
        data, stat = await zookeeper.get(path, watch)
    except NoNodeError:
        return None
    return decode(kind, path, data), stat


class _Entries(msgspec.Struct):
    partitions: list[msgspec.Raw]


def decode_entries(kind: type[T], path: str, data: bytes) -> tuple[list[T], list[str]]:
    """Returns the valid entries of the list ``partitions``, and the problems of the invalid ones.

    Raises ``ZnodeError`` if the content has no such list.
    """
    found: list[T] = []
    problems: list[str] = []
    for raw in decode(_Entries, path, data).partitions:
        try:
            found.append(msgspec.json.decode(raw, type=kind))
        except _DECODE_ERRORS as error:
            problems.append(f"znode {path} holds {bytes(raw)[:120]!r}: {error}")
    return found, problems


def parse_controller_id(data: bytes) -> int:
    """Returns the id in /controller, also in the old plain-integer format; -1 for malformed content."""
    try:
        found = msgspec.json.decode(data, type=ControllerClaim).brokerid
    except _DECODE_ERRORS:
        try:
            found = int(data)
        except ValueError:
            return -1
    return found if 0 <= found <= MAX_ID else -1


class Versioned(msgspec.Struct, Generic[T], frozen=True):
    """A value with the znode version at which it was read or written."""

    value: T
    version: int


def decode_versioned(kind: type[T], path: str, answer: tuple[bytes, ZnodeStat]) -> Versioned[T]:
    return Versioned(decode(kind, path, answer[0]), answer[1].version)


def make_create(path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> Create:
    """Returns the creation of a znode, as an operation of ``multi``."""
    return Create(path, value, OPEN_ACL_UNSAFE, EPHEMERAL * ephemeral + SEQUENCE * sequence)


async def read_watched(zookeeper: ZooKeeper, path: str, watch: Watch | None) -> tuple[bytes, ZnodeStat] | None:
    """Returns content and stat, or None if there is no such znode. Watches its next change, or its creation."""
    while True:
        try:
            return await zookeeper.get(path, watch)
        except NoNodeError:
            if await zookeeper.exists(path, watch) is None:
                return None
