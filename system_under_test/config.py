"""The settings of one broker and of topics, and the rules that make a wrong configuration one clear line.

Times are milliseconds, as in the configuration files of brokers of this kind. The defaults are those of a test
cluster (faults of seconds must show), not of a production one. docs/broker/running_the_broker.md has each.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from assay.system_under_test.defects import DEFECTS

MAX_BUFFERED_REQUEST_BYTES = 256 * 1024 * 1024
"""Of large requests being received or handled, over all connections: one that is larger could never be received."""
OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_TOPIC_PARTITIONS: Final = 8
"""Where a broker's configuration does not say it."""
"""Where the coordinators of groups keep them."""
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC})
"""Topics that brokers alone write."""


class ConfigError(Exception):
    """The configuration cannot be used; the message names the file, the field and what it may be."""


DELETE, COMPACT = "delete", "compact"
POLICIES = (DELETE, COMPACT)
"""Of which ``cleanup.policy`` is a list."""

PRODUCER = "producer"
CODECS: Final[Mapping[str, int | None]] = {PRODUCER: None, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3}
"""What ``compression.type`` may be, and its number in a message's attributes."""
_MAGICS = {"0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9.0": 0, "0.10.0": 1, "0.10.1": 1, "0.10.2": 1}
"""The format of messages of each version; what follows, as in ``0.10.0-IV1`` or ``0.9.0.1``, makes no difference."""

MAXIMUM = 2**63 - 1
"""Of every number."""


class TimestampType(StrEnum):
    """Whose time a message has: its producer's, or that of its append (KIP-32)."""

    CREATE = "CreateTime"
    APPEND = "LogAppendTime"


class TopicConfig(msgspec.Struct, frozen=True):
    """What a topic may set for itself; names as on the wire with dots for underscores (``min.insync.replicas``)."""

    min_insync_replicas: int = 1
    """With ``acks=all``, a record is acknowledged only while so many replicas are in sync."""
    unclean_leader_election_enable: bool = False
    """May a replica outside the in-sync set lead when no other is left?"""
    segment_bytes: int = 64 * 1024 * 1024
    """A segment is rolled before it grows larger."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """A segment is rolled this long after it was begun."""
    segment_jitter_ms: int = 0
    """By up to so much earlier a segment is rolled, each by its own share, so that not all logs roll at once."""
    segment_index_bytes: int = 10 * 1024 * 1024
    """A segment is rolled when its index is as large."""
    index_interval_bytes: int = 4096
    """One entry of the index for so many bytes of the log."""
    retention_ms: int = 7 * 24 * 3600 * 1000
    """How old a segment's youngest message may become; -1: of any age."""
    retention_bytes: int = -1
    """How many bytes of a partition are kept at least, a segment more or less; -1: all."""
    preallocate: bool = False
    """Has a new segment's file its whole size on the disk at once?"""
    file_delete_delay_ms: int = 60_000
    """For readers that are still in a segment that retention has taken out of the log."""
    max_message_bytes: int = 1_000_012
    """The size limit of a message or a compressed set, with its header."""
    flush_messages: int = 10_000
    """At most one less than this many records of a replica count without being on its disk; 1 or 0: none."""
    flush_ms: int = 1_000
    """How long what was appended may wait for its fsync; 0: it does not wait."""
    compression_type: str = PRODUCER
    """The codec of what is stored; ``producer``: that which each producer has chosen."""
    message_format_version: str = "0.10.2"
    """Below 0.10, messages are stored in format 0, which has no timestamps."""
    message_timestamp_type: TimestampType = TimestampType.CREATE
    """Whose time a message has: ``CreateTime``, its producer's, or ``LogAppendTime``."""
    message_timestamp_difference_max_ms: int = MAXIMUM
    """How far the time that a producer gives may lie from the leader's."""
    cleanup_policy: str = DELETE
    """``delete`` what is too old or too much, ``compact`` to the last value of each key, both, with a comma, or none.
    """
    min_cleanable_dirty_ratio: float = 0.5
    """Compaction waits until more than this part of the bytes that it may touch are new since the last one."""
    min_compaction_lag_ms: int = 0
    """A message stays at least this long, even if a later one has its key."""
    leader_replication_throttled_replicas: str = ""
    """Replicas (``partition:broker,...``, or ``*``) that send others no more than their brokers' rate."""
    follower_replication_throttled_replicas: str = ""
    """Those that copy no more than that."""
    delete_retention_ms: int = 24 * 3600 * 1000
    """How much time compaction leaves readers to see a key's null value once it has taken the values before it."""

    @property
    def magic(self) -> int:
        """The format of the messages that are stored."""
        return _MAGICS[self._format]

    @property
    def codec(self) -> int | None:
        """The number of the codec of what is stored; None: the producer's."""
        return CODECS[self.compression_type]

    @property
    def _format(self) -> str:
        return ".".join(self.message_format_version.split("-")[0].split(".")[:3])

    @property
    def append_time(self) -> bool:
        """Does the log give messages their time?"""
        return self.message_timestamp_type is TimestampType.APPEND and self.magic > 0

    @property
    def deletes(self) -> bool:
        """Does retention apply?"""
        return DELETE in _words(self.cleanup_policy)

    @property
    def compacts(self) -> bool:
        return COMPACT in _words(self.cleanup_policy)

    @property
    def fingerprint(self) -> int:
        """The same for the same settings, in every process."""
        return zlib.crc32(msgspec.json.encode(self))

    def override(self, settings: Mapping[str, str]) -> TopicConfig:
        """These settings on top of mine. Raises ``ConfigError`` for an unknown name or a wrong value."""
        known = {name.replace("_", "."): name for name in self.__struct_fields__}
        changes: dict[str, object] = {}
        for name, value in settings.items():
            if name not in known:
                raise ConfigError(f"unknown topic setting {name!r}; known are {', '.join(sorted(known))}")
            changes[known[name]] = _parsed(value, getattr(self, known[name]))
        try:
            config = msgspec.convert(msgspec.to_builtins(self) | changes, TopicConfig)
        except msgspec.ValidationError as error:
            raise ConfigError(f"topic settings {dict(settings)}: {error}") from error
        for problem in config._problems():
            raise ConfigError(f"topic settings {dict(settings)}: {problem}")
        return config

    def _problems(self) -> Iterator[str]:
        if not {*_words(self.cleanup_policy)} <= {*POLICIES}:
            yield f"cleanup.policy is a list of {' '.join(POLICIES)}"
        if self.compression_type not in CODECS:
            yield f"compression.type is one of {' '.join(CODECS)}"
        if self._format not in _MAGICS:
            yield f"message.format.version is one of {' '.join(_MAGICS)}"
        for text in (self.leader_replication_throttled_replicas, self.follower_replication_throttled_replicas):
            if not is_replicas(text):
                yield f"{text!r} is neither * nor partition:broker,..."
        if not 0 <= self.min_cleanable_dirty_ratio <= 1:
            yield "min.cleanable.dirty.ratio is from 0 to 1"
        for name, (least, most) in _LIMITS.items():
            if not least <= getattr(self, name) <= most:
                yield f"{name.replace('_', '.')} may be {least} to {most}"


def _parsed(text: str, present: object) -> object:
    """A value of the type of the ``present`` one, as Kafka's ``ConfigDef`` reads it; the text where that is none."""
    text = text.strip()
    match present:
        case bool() if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case int() if not isinstance(present, bool) and re.fullmatch("[+-]?[0-9]{1,19}", text):  # of 64 bits
            return int(text)
        case float():
            with contextlib.suppress(ValueError):
                return float(text)
    return text


def _words(text: str) -> list[str]:
    """Of a list; none of an empty one."""
    return re.split(r"\s*,\s*", text) if text else []


def is_replicas(text: str) -> bool:
    """Is it the text of a setting that names throttled replicas?"""
    words = [word.strip().split(":") for word in text.split(",")]
    return text.strip() in ("", "*") or all(len(pair) == 2 and all(one.isdigit() for one in pair) for pair in words)


_INT, _LONG = 2**31 - 1, MAXIMUM
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
"""Kafka's, where a value outside would also be of no use."""


class BrokerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One broker's configuration file (JSON)."""

    zookeeper: str
    """``host:port,host:port``."""
    host: str
    """The address that is registered, where peers and clients reach this broker."""
    broker_id: int = -1
    """-1: the one of the data directory, else one is generated."""
    reserved_broker_max_id: int = 1000
    """Generated ids are greater, configured ones are not."""
    port: int = 9092
    """1 to 65535."""
    data_dir: str = "var/lib/assay/data"
    """Where the logs are; from the root of the file system, with or without ``/`` in front. One broker each."""
    session_timeout_ms: int = 3_000
    """How long a broker may be silent until its ZooKeeper session is over; the server may grant less or more."""
    connect_timeout_ms: int = 15_000
    """How long a start waits for its first session with ZooKeeper."""
    request_timeout_ms: int = 2_000
    """How long a broker waits for another one's answer, and for ZooKeeper's where a client waits for it."""
    replica_lag_time_max_ms: int = 2_000
    """A follower that has not caught up for this long leaves the in-sync set."""
    replica_fetch_wait_max_ms: int = 250
    """How long a follower's fetch waits at the leader for new records."""
    replica_fetch_max_bytes: int = 1_048_576
    """How much one fetch of a follower returns of one partition; a larger message comes alone."""
    checkpoint_interval_ms: int = 1_000
    """How often high watermarks and recovery points are written."""
    retention_check_interval_ms: int = 60_000
    """How often logs are looked at for segments that retention takes out."""
    controlled_shutdown_max_ms: int = 5_000
    """How long a broker that is to stop tries to have others lead what it leads; 0: it does not try."""
    cleaner_backoff_ms: int = 1_000
    """How often logs are looked at for one that is due to be compacted."""
    cleaner_max_keys: int = 500_000
    """How many keys one pass over a log looks at, which bounds its memory (some 200 bytes each)."""
    default_partitions: int = 1
    """How many partitions a topic gets that is created because a client asked about it."""
    default_replication: int = 1
    """How many replicas such a topic gets; fewer if fewer brokers live."""
    connections_max_idle_ms: int = 600_000
    """A connection that brings no whole request, or does not take its response, is closed after this time."""
    max_connections: int = 2_000
    """Of all addresses together; beyond it the one that was idle for longest is closed."""
    max_connections_per_ip: int = 2**31 - 1
    """Further ones from the same address are rejected."""
    socket_request_max_bytes: int = 100 * 1024 * 1024
    """A connection that announces a larger request is closed."""
    queued_max_request_bytes: int = MAX_BUFFERED_REQUEST_BYTES
    """Bytes of large requests being received or handled, over all connections. A request that is larger than all of
    them is too large."""
    auto_leader_rebalance_enable: bool = True
    """Does the controller give the lead back, at intervals, to the replicas that are first in the assignment?"""
    leader_imbalance_per_broker_percentage: int = 10
    """Percentage of the partitions that a broker should lead that may be led by others."""
    leader_imbalance_check_interval_seconds: int = 300
    """How often the controller checks the balance of leaders."""
    auto_create_topics_enable: bool = False
    """Does a question about a topic that does not exist create it, with the defaults above?"""
    offsets_topic_partitions: int = OFFSETS_TOPIC_PARTITIONS
    """How many partitions ``__consumer_offsets`` gets when it is created."""
    offsets_topic_replication_factor: int = 3
    """The offsets topic is made when a client first asks for a coordinator and so many brokers live."""
    offsets_commit_timeout_ms: int = 5_000
    """How long a commit waits for its replicas."""
    offsets_retention_ms: int = 24 * 3600 * 1000
    """How long an offset of a group without members is kept, unless its committer says."""
    offsets_retention_check_interval_ms: int = 600_000
    """How often expired offsets are looked for."""
    offset_metadata_max_bytes: int = 4096
    """The longest text that a client may commit with an offset."""
    group_min_session_timeout_ms: int = 500
    """A member that asks for less is rejected."""
    group_max_session_timeout_ms: int = 300_000
    """A member that asks for more is rejected."""
    topic: TopicConfig = TopicConfig()
    """Defaults of all topics: an object of the settings below, with ``_`` in their names (``{"min_insync_replicas":
    2}``)."""
    hold: list[str] = []
    """Events after which the process stops itself (SIGSTOP), so that a tester decides what happens next."""
    hold_file: str | None = None
    """A file with more of them, which is read after each event: a line each, ``event`` or ``event key``."""
    defects: list[str] = []
    """Historic defects to switch on, by name; see ``assay.system_under_test.defects``."""


_POSITIVE = {
    "connections_max_idle_ms": 2**63 - 1,
    "max_connections": 2**31 - 1,
    "max_connections_per_ip": 2**31 - 1,
    "socket_request_max_bytes": MAX_BUFFERED_REQUEST_BYTES,
    "queued_max_request_bytes": 2**63 - 1,
}
"""Up to which value each may go."""

_ONE_OR_MORE = (
    "leader_imbalance_check_interval_seconds",
    "checkpoint_interval_ms",
    "retention_check_interval_ms",
    "cleaner_backoff_ms",
    "cleaner_max_keys",
)


def parse(data: bytes, source: str) -> BrokerConfig:
    """Raises ``ConfigError`` naming ``source`` and the field."""
    try:
        config = msgspec.json.decode(data, type=BrokerConfig)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"configuration {source}: {error}") from error
    for problem in _problems(config):
        raise ConfigError(f"configuration {source}: {problem}")
    return msgspec.structs.replace(config, data_dir=config.data_dir.lstrip("/"))  # storage begins at the root


def _problems(config: BrokerConfig) -> Iterator[str]:
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
    if not config.data_dir.strip("/") or ".." in config.data_dir.split("/") or "\0" in config.data_dir:
        yield f"data_dir is {config.data_dir!r}; it must be the path of a folder below /, without .."
    for name, most in _POSITIVE.items():
        if not 0 < getattr(config, name) <= most:
            yield f"{name} is {getattr(config, name)}; it must be between 1 and {most}"
    if config.leader_imbalance_per_broker_percentage < 0:
        yield "leader_imbalance_per_broker_percentage must not be negative"
    for name in _ONE_OR_MORE:
        if getattr(config, name) < 1:
            yield f"{name} is {getattr(config, name)}; it must be 1 or more"
    for unknown in sorted(set(config.defects) - set(DEFECTS)):
        yield f"unknown defect {unknown!r}; known are {', '.join(DEFECTS)}"
