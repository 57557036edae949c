"""The settings of a broker and of topics, and the checks of a configuration, which report each error in one line.

Times are milliseconds, as in the configuration files of brokers of this kind. The defaults are those of a test cluster
(faults of seconds must show), not of a production one. docs/broker/running_the_broker.md describes each setting.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from kazoo.hosts import collect_hosts

from assay.system_under_test.defects import DEFECTS

MAX_BUFFERED_REQUEST_BYTES = 256 * 1024 * 1024
"""Maximum total bytes of large requests that are received or handled at once. So no request may be larger, either."""
OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_TOPIC_PARTITIONS: Final = 8
"""The topic in which coordinators keep groups, and its number of partitions unless configured otherwise."""
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC})
"""Topics that only brokers write."""


class ConfigError(Exception):
    """The configuration is invalid; the message names the file, the field and its allowed values."""


DELETE, COMPACT = "delete", "compact"
POLICIES = (DELETE, COMPACT)
"""The values that ``cleanup.policy`` may list."""

PRODUCER = "producer"
CODECS: Final[Mapping[str, int | None]] = {PRODUCER: None, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3}
"""The values of ``compression.type``, and their numbers in a message's attributes."""
_MAGICS = {"0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9.0": 0, "0.10.0": 1, "0.10.1": 1, "0.10.2": 1}
"""The message format of each version; a suffix, as in ``0.10.0-IV1`` or ``0.9.0.1``, is ignored."""

MAX_LONG = 2**63 - 1
"""The maximum of a number without a smaller limit."""


class TimestampType(StrEnum):
    """Whether a message's timestamp is the producer's time or the time of the append (KIP-32)."""

    CREATE = "CreateTime"
    APPEND = "LogAppendTime"


class TopicConfig(msgspec.Struct, frozen=True):
    """A topic's settings; the wire names have dots instead of underscores (``min.insync.replicas``)."""

    min_insync_replicas: int = 1
    """With ``acks=all``, a record is acknowledged only while at least this many replicas are in sync."""
    unclean_leader_election_enable: bool = False
    """Whether a replica outside the in-sync set may lead when no member of the set is left."""
    segment_bytes: int = 64 * 1024 * 1024
    """A segment is rolled before it would grow beyond this size."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """A segment is rolled this long after its first append."""
    segment_jitter_ms: int = 0
    """Each segment is rolled earlier by up to this time, so that not all logs roll at once."""
    segment_index_bytes: int = 10 * 1024 * 1024
    """A segment is rolled when its index has this size."""
    index_interval_bytes: int = 4096
    """The index has one entry for about this many bytes of the log."""
    retention_ms: int = 7 * 24 * 3600 * 1000
    """The maximum age of a segment's youngest message; -1: unlimited."""
    retention_bytes: int = -1
    """The bytes of a partition that retention keeps, rounded up to whole segments; -1: all."""
    preallocate: bool = False
    """Whether a new segment's file takes up its whole size on disk at once."""
    file_delete_delay_ms: int = 60_000
    """Time from the removal of a segment by retention to the deletion of its files, for readers that still use it."""
    max_message_bytes: int = 1_000_012
    """The size limit of a message or a compressed set, with its header."""
    flush_messages: int = 10_000
    """A replica's unsynced records count as replicated while they are fewer than this; 1 or 0: they never count."""
    flush_ms: int = 1_000
    """How long an append may wait for its fsync; 0: not at all."""
    compression_type: str = PRODUCER
    """The codec of stored messages; ``producer``: each producer's own choice."""
    message_format_version: str = "0.10.2"
    """Below 0.10, messages are stored in format 0, which has no timestamps."""
    message_timestamp_type: TimestampType = TimestampType.CREATE
    """The timestamp of a stored message: the producer's (``CreateTime``) or that of the append (``LogAppendTime``)."""
    message_timestamp_difference_max_ms: int = MAX_LONG
    """The maximum difference between a producer's time and the leader's."""
    cleanup_policy: str = DELETE
    """``delete`` by age or size; ``compact`` to the last value of each key; ``delete,compact``; empty: neither."""
    min_cleanable_dirty_ratio: float = 0.5
    """Compaction waits until more than this share of the eligible bytes is new since the last one."""
    min_compaction_lag_ms: int = 0
    """A message stays at least this long, even if a later one has its key."""
    leader_replication_throttled_replicas: str = ""
    """Leader replicas (``partition:broker,...``, or ``*``) whose sends to followers their brokers throttle."""
    follower_replication_throttled_replicas: str = ""
    """Follower replicas, in the same form, whose fetches their brokers throttle."""
    delete_retention_ms: int = 24 * 3600 * 1000
    """How long a key's null value stays readable after compaction has removed the values before it."""

    @property
    def magic(self) -> int:
        """The format of stored messages."""
        return _MAGICS[self._format]

    @property
    def codec(self) -> int | None:
        """The number of the codec of stored messages; None: the producer's."""
        return CODECS[self.compression_type]

    @property
    def _format(self) -> str:
        return ".".join(self.message_format_version.split("-")[0].split(".")[:3])

    @property
    def append_time(self) -> bool:
        """Whether messages get the time of their append."""
        return self.message_timestamp_type is TimestampType.APPEND and self.magic > 0

    @property
    def deletes(self) -> bool:
        """Whether retention applies."""
        return DELETE in _split_list(self.cleanup_policy)

    @property
    def compacts(self) -> bool:
        return COMPACT in _split_list(self.cleanup_policy)

    @property
    def fingerprint(self) -> int:
        """A hash of the settings that is equal in every process."""
        return zlib.crc32(msgspec.json.encode(self))

    def override(self, settings: Mapping[str, str]) -> TopicConfig:
        """Returns a copy with these settings. Raises ``ConfigError`` for an unknown name or a wrong value."""
        known = {name.replace("_", "."): name for name in self.__struct_fields__}
        changes: dict[str, object] = {}
        for name, value in settings.items():
            if name not in known:
                raise ConfigError(f"unknown topic setting {name!r}; known are {', '.join(sorted(known))}")
            changes[known[name]] = _parse_value(value, getattr(self, known[name]))
        try:
            config = msgspec.convert(msgspec.to_builtins(self) | changes, TopicConfig)
        except msgspec.ValidationError as error:
            raise ConfigError(f"topic settings {dict(settings)}: {error}") from error
        for problem in config._problems():
            raise ConfigError(f"topic settings {dict(settings)}: {problem}")
        return config

    def _problems(self) -> Iterator[str]:
        if not {*_split_list(self.cleanup_policy)} <= {*POLICIES}:
            yield f"cleanup.policy is a list of {' '.join(POLICIES)}"
        if self.compression_type not in CODECS:
            yield f"compression.type is one of {' '.join(CODECS)}"
        if self._format not in _MAGICS:
            yield f"message.format.version is one of {' '.join(_MAGICS)}"
        for text in (self.leader_replication_throttled_replicas, self.follower_replication_throttled_replicas):
            if not is_replica_list(text):
                yield f"{text!r} is neither * nor partition:broker,..."
        if not 0 <= self.min_cleanable_dirty_ratio <= 1:
            yield "min.cleanable.dirty.ratio is from 0 to 1"
        for name, (least, most) in _LIMITS.items():
            if not least <= getattr(self, name) <= most:
                yield f"{name.replace('_', '.')} may be {least} to {most}"


def _parse_value(text: str, current: object) -> object:
    """Parses a value to the type of ``current``, as Kafka's ``ConfigDef`` does; returns the text if that fails."""
    text = text.strip()
    match current:
        case bool() if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case int() if not isinstance(current, bool) and re.fullmatch("[+-]?[0-9]{1,19}", text):  # of 64 bits
            return int(text)
        case float():
            with contextlib.suppress(ValueError):
                return float(text)
    return text


def _split_list(text: str) -> list[str]:
    """Splits a list at its commas; an empty text is an empty list."""
    return re.split(r"\s*,\s*", text) if text else []


def is_replica_list(text: str) -> bool:
    """Returns whether the text is valid for a setting that names throttled replicas."""
    words = [word.strip().split(":") for word in text.split(",")]
    numbers = text.isascii() and all(len(pair) == 2 and all(one.isdigit() for one in pair) for pair in words)
    return text.strip() in ("", "*") or numbers


_INT, _LONG = 2**31 - 1, MAX_LONG
_LIMITS = {
    "min_insync_replicas": (1, _INT),
    "segment_bytes": (14, _INT),
    "segment_ms": (0, _LONG),
    "segment_jitter_ms": (0, _LONG),
    "segment_index_bytes": (8, _INT),
    "index_interval_bytes": (0, _INT),
    "retention_ms": (-1, _LONG),
    "retention_bytes": (-1, _LONG),
    "file_delete_delay_ms": (0, _LONG),
    "max_message_bytes": (0, _INT),
    "flush_messages": (0, _LONG),
    "flush_ms": (0, _LONG),
    "message_timestamp_difference_max_ms": (0, _LONG),
    "min_compaction_lag_ms": (0, _LONG),
    "delete_retention_ms": (0, _LONG),
}
"""Kafka's minimum and maximum of each setting for which other values would be useless here, too."""


class BrokerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A broker's configuration file (JSON)."""

    zookeeper: str
    """``host:port,host:port``."""
    host: str
    """The registered address, at which peers and clients reach this broker."""
    broker_id: int = -1
    """-1: the id of the data directory, or else a generated one."""
    reserved_broker_max_id: int = 1000
    """Generated ids are greater, configured ones are not."""
    port: int = 9092
    """1 to 65535."""
    data_dir: str = "/var/lib/assay/data"
    """The absolute path of the folder of the logs; one per broker."""
    session_timeout_ms: int = 3_000
    """How long a broker may be silent until its ZooKeeper session is over; the server may grant less or more."""
    connect_timeout_ms: int = 15_000
    """How long a start waits for its first session with ZooKeeper."""
    request_timeout_ms: int = 2_000
    """How long a broker waits for another broker's answer, or for ZooKeeper's answer while a client waits."""
    replica_lag_time_max_ms: int = 2_000
    """A follower that has not caught up for this long leaves the in-sync set."""
    replica_fetch_wait_max_ms: int = 250
    """How long a follower's fetch waits at the leader for new records."""
    replica_fetch_max_bytes: int = 1_048_576
    """Maximum bytes of one partition in a fetch by a follower; a larger message comes alone."""
    checkpoint_interval_ms: int = 1_000
    """How often high watermarks and recovery points are written."""
    retention_check_interval_ms: int = 60_000
    """How often retention checks the logs."""
    controlled_shutdown_max_ms: int = 5_000
    """How long a stopping broker tries to hand over its leadership; 0: it does not try."""
    cleaner_backoff_ms: int = 1_000
    """How often the cleaner looks for logs that are due for compaction."""
    cleaner_max_keys: int = 500_000
    """Maximum number of keys in one pass over a log. Each needs some 200 bytes of memory."""
    default_partitions: int = 1
    """Number of partitions of a topic that is created automatically (``auto_create_topics_enable``)."""
    default_replication: int = 1
    """Number of replicas of an automatically created topic; fewer if fewer brokers live."""
    connections_max_idle_ms: int = 600_000
    """A connection that sends no complete request, or does not take its response, is closed after this time."""
    max_connections: int = 2_000
    """Limit over all addresses; beyond it, the connection that has been idle longest is closed."""
    max_connections_per_ip: int = 2**31 - 1
    """Further connections from the same address are rejected."""
    socket_request_max_bytes: int = 100 * 1024 * 1024
    """A connection that announces a larger request is closed."""
    queued_max_request_bytes: int = MAX_BUFFERED_REQUEST_BYTES
    """Bytes of large requests being received or handled, over all connections. A larger request is rejected."""
    auto_leader_rebalance_enable: bool = True
    """Whether the controller periodically returns leadership to the first replicas of the assignment."""
    leader_imbalance_per_broker_percentage: int = 10
    """Percentage of a broker's preferred partitions that other brokers may lead before the controller acts."""
    leader_imbalance_check_interval_seconds: int = 300
    """How often the controller checks the balance of leaders."""
    auto_create_topics_enable: bool = False
    """Whether a request for the metadata of a missing topic creates it, with the defaults above."""
    offsets_topic_partitions: int = OFFSETS_TOPIC_PARTITIONS
    """How many partitions ``__consumer_offsets`` gets when it is created."""
    offsets_topic_replication_factor: int = 3
    """The offsets topic is created when a client first asks for a coordinator and this many brokers live."""
    offsets_commit_timeout_ms: int = 5_000
    """How long a commit waits for its replicas."""
    offsets_retention_ms: int = 24 * 3600 * 1000
    """How long offsets of a group without members are kept, unless the commit sets another time."""
    offsets_retention_check_interval_ms: int = 600_000
    """How often the coordinator looks for expired offsets."""
    offset_metadata_max_bytes: int = 4096
    """The maximum length of the text that a client commits with an offset."""
    group_min_session_timeout_ms: int = 500
    """A member that requests a shorter session timeout is rejected."""
    group_max_session_timeout_ms: int = 300_000
    """A member that requests a longer session timeout is rejected."""
    topic: TopicConfig = TopicConfig()
    """Defaults of all topics: an object with fields of ``TopicConfig``, such as ``{"min_insync_replicas": 2}``."""
    hold: list[str] = []
    """Events after which the process stops itself (SIGSTOP), so that a tester decides what happens next."""
    hold_file: str | None = None
    """A file with more events for ``hold``, read after each event: one ``event`` or ``event key`` per line."""
    defects: list[str] = []
    """Historic defects to switch on, by name; see ``assay.system_under_test.defects``."""


_POSITIVE_LIMITS = {
    "connections_max_idle_ms": 2**63 - 1,
    "max_connections": 2**31 - 1,
    "max_connections_per_ip": 2**31 - 1,
    "socket_request_max_bytes": MAX_BUFFERED_REQUEST_BYTES,
    "queued_max_request_bytes": 2**63 - 1,
}
"""Settings that must be above 0, with the maximum of each."""

_AT_LEAST_ONE = (
    "leader_imbalance_check_interval_seconds",
    "checkpoint_interval_ms",
    "retention_check_interval_ms",
    "cleaner_backoff_ms",
    "cleaner_max_keys",
)


def parse_config(data: bytes, source: str) -> BrokerConfig:
    """Parses a configuration. Raises ``ConfigError`` naming ``source`` and the field."""
    try:
        config = msgspec.json.decode(data, type=BrokerConfig)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"configuration {source}: {error}") from error
    for problem in _find_problems(config):
        raise ConfigError(f"configuration {source}: {problem}")
    return config


def join_host_port(host: str, port: int) -> str:
    """Returns ``10.0.0.11:9092`` or ``[fd00::11]:9092``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _find_problems(config: BrokerConfig) -> Iterator[str]:
    if config.reserved_broker_max_id < 0:
        yield "reserved_broker_max_id must not be negative"
    if not -1 <= config.broker_id <= config.reserved_broker_max_id:
        yield (
            f"broker_id is {config.broker_id}; it must be between 0 and reserved_broker_max_id, "
            f"{config.reserved_broker_max_id}, or -1 to have one generated"
        )
    if not 0 < config.port < 65536:
        yield f"port is {config.port}; it must be between 1 and 65535"
    if not config.zookeeper or not config.host:
        yield "zookeeper and host must not be empty"
    if "/" in config.zookeeper:
        yield f"zookeeper {config.zookeeper!r}: a path after the addresses is not supported; leave it out"
    try:
        collect_hosts(config.zookeeper)
    except ValueError as error:
        yield (
            f"zookeeper {config.zookeeper!r}: {error}; give host:port,host:port, with brackets around an IPv6 address"
        )
    root = config.data_dir
    if not root.startswith("/") or not root.strip("/") or ".." in root.split("/") or "\0" in root:
        yield f"data_dir is {root!r}; it must be the absolute path of a folder, such as /srv/data, without .."
    for name, most in _POSITIVE_LIMITS.items():
        if not 0 < getattr(config, name) <= most:
            yield f"{name} is {getattr(config, name)}; it must be between 1 and {most}"
    if config.leader_imbalance_per_broker_percentage < 0:
        yield "leader_imbalance_per_broker_percentage must not be negative"
    for name in _AT_LEAST_ONE:
        if getattr(config, name) < 1:
            yield f"{name} is {getattr(config, name)}; it must be 1 or more"
    for unknown in sorted(set(config.defects) - set(DEFECTS)):
        yield f"unknown defect {unknown!r}; known are {', '.join(DEFECTS)}"
