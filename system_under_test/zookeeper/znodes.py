"""What the znodes say, as typed values: JSON in the forms of Kafka 0.10, plus ``isr_epochs`` and ``elr``."""

from typing import Generic, Literal, TypeVar

import msgspec
from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Create
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from assay.system_under_test.runtime import Watch, ZooKeeper

NO_LEADER = -1
MAX_ID = 2**31 - 1
"""Of a partition or a broker: what goes over the wire."""
EPHEMERAL, SEQUENCE = 1, 2  # flags of ZooKeeper's protocol

T = TypeVar("T")


class ZnodeError(Exception):
    """A znode's content is not what its path requires."""


class BrokerRegistration(msgspec.Struct, frozen=True):
    """/brokers/ids/N. The documents of 0.8 have no more than host, port, ``jmx_port`` and version, which is enough.

    ``clean_lives`` is ours (KIP-966): the registrations (czxid) of former lives since which this broker has always
    stopped cleanly, so that it still has all it had in any of them; none after an unclean start.
    """

    host: str
    port: int
    endpoints: list[str] = []
    timestamp: str = "0"
    clean_lives: list[int] = []
    listener_security_protocol_map: dict[str, str] = msgspec.field(default_factory=lambda: {"PLAINTEXT": "PLAINTEXT"})
    jmx_port: int = -1
    version: int = 4


class TopicAssignment(msgspec.Struct, frozen=True):
    """/brokers/topics/T: the assigned replicas of each partition, the preferred leader first."""

    partitions: dict[str, list[int]]
    version: int = 1


class PartitionState(msgspec.Struct, frozen=True):
    """/brokers/topics/T/partitions/P/state.

    ``isr_epochs`` holds the registration (czxid) under which each member of the ISR and of ``elr`` was admitted, by
    broker id as text (KIP-903); ``elr`` are the members that left while the ISR was too small for the high watermark
    to move on, which therefore still hold all that was acknowledged (KIP-966).
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
    """/config/changes/config_change_N: whose settings changed, in the form of version 2 or that of version 1."""

    version: int
    entity_path: str = ""
    """Version 2: ``topics/T``, ``clients/C``, ``users/U``, ``users/U/clients/C`` or ``brokers/N``."""
    entity_type: str = ""
    entity_name: str = ""

    def entity(self) -> tuple[str, str]:
        """``topics`` or ``brokers`` or another kind, and the name. Raises ``ValueError``."""
        if self.version == 1:
            kind, name = self.entity_type, self.entity_name
        elif self.version == 2:
            kind, _, name = self.entity_path.partition("/")
        else:
            raise ValueError(f"version {self.version}; known are 1 and 2")
        if kind not in ("topics", "clients", "users", "brokers") or not name or (kind == "topics" and "/" in name):
            raise ValueError(f"{kind!r}, {name!r} is nothing that has settings")
        return kind, name


class ChangedPartition(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class IsrChange(msgspec.Struct, frozen=True):
    """/isr_change_notification/isr_change_N."""

    partitions: list[ChangedPartition]
    version: int = 1


class ConsumerRegistration(msgspec.Struct, frozen=True):
    """/consumers/G/ids/C: each topic with its number of threads; with a filter, its expression in place of a topic."""

    subscription: dict[str, int]
    pattern: Literal["static", "white_list", "black_list"]
    timestamp: str = "0"
    version: int = 1


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of /admin/reassign_partitions: the replicas that a partition shall have, the preferred leader first.

    ``removing`` is ours: the replicas that it has no longer, and whose files are not known to be gone.
    """

    topic: str
    partition: int
    replicas: list[int]
    removing: list[int] = []


class Moves(msgspec.Struct, frozen=True):
    """/admin/reassign_partitions."""

    partitions: list[Move]
    version: int = 1


class Deletion(msgspec.Struct, frozen=True):
    """/admin/delete_topics/T, once replicas are asked to delete their files; before that it is empty, as in Kafka.

    ``czxid`` is the topic's: a later one of that name is another.
    """

    czxid: int
    version: int = 1


class ClusterId(msgspec.Struct, frozen=True):
    """/cluster/id."""

    id: str
    version: str = "1"


_JSON = msgspec.json.Encoder()
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises: text need not be UTF-8, and lists may be nested without end."""


def encode(value: msgspec.Struct) -> bytes:
    return _JSON.encode(value)


def decode(kind: type[T], path: str, data: bytes) -> T:
    """Raises ``ZnodeError`` naming the path."""
    try:
        return msgspec.json.decode(data, type=kind)
    except _UNREADABLE as error:
        raise ZnodeError(f"znode {path} holds {data[:120]!r}: {error}") from error


async def read(
    zookeeper: ZooKeeper, kind: type[T], path: str, watch: Watch | None = None
) -> tuple[T, ZnodeStat] | None:
    """Value and stat; None when there is no such znode. Raises ``ZnodeError``, and kazoo's errors."""
    try:
        data, stat = await zookeeper.get(path, watch)
    except NoNodeError:
        return None
    return decode(kind, path, data), stat


class _Entries(msgspec.Struct):
    partitions: list[msgspec.Raw]


def decode_entries(kind: type[T], path: str, data: bytes) -> tuple[list[T], list[str]]:
    """What ``partitions`` lists, and what is wrong with the entries that make no sense.

    Raises ``ZnodeError`` when there is no such list.
    """
    found: list[T] = []
    problems: list[str] = []
    for raw in decode(_Entries, path, data).partitions:
        try:
            found.append(msgspec.json.decode(raw, type=kind))
        except _UNREADABLE as error:
            problems.append(f"znode {path} holds {bytes(raw)[:120]!r}: {error}")
    return found, problems


def controller_id(data: bytes) -> int:
    """The holder named by /controller, also in the old plain-integer form; -1 when malformed, which means none."""
    try:
        found = msgspec.json.decode(data, type=ControllerClaim).brokerid
    except _UNREADABLE:
        try:
            found = int(data)
        except ValueError:
            return -1
    return found if 0 <= found <= MAX_ID else -1


class Versioned(msgspec.Struct, Generic[T], frozen=True):
    """A value with the znode version at which it was read or written."""

    value: T
    version: int


def versioned(kind: type[T], path: str, read: tuple[bytes, ZnodeStat]) -> Versioned[T]:
    return Versioned(decode(kind, path, read[0]), read[1].version)


def create(path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> Create:
    """The creation of a znode, as one of the operations of ``multi``."""
    return Create(path, value, OPEN_ACL_UNSAFE, EPHEMERAL * ephemeral + SEQUENCE * sequence)


async def watched(zookeeper: ZooKeeper, path: str, watch: Watch | None) -> tuple[bytes, ZnodeStat] | None:
    """Content and stat, None when there is no such znode; its change, or its creation, is watched."""
    while True:
        try:
            return await zookeeper.get(path, watch)
        except NoNodeError:
            if await zookeeper.exists(path, watch) is None:
                return None
