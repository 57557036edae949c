"""Deployment of this broker by a tester: satisfies ``assay.cluster.system.System`` without importing it.

The deployment queries brokers over its own connections (``broker_rpc``); the workloads use ``client``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from assay.system_under_test import broker_rpc, cluster_snapshot, disk_inspection
from assay.system_under_test.broker import run_broker
from assay.system_under_test.config import (
    MAX_BUFFERED_REQUEST_BYTES,
    OFFSETS_TOPIC,
    OFFSETS_TOPIC_PARTITIONS,
    BrokerConfig,
    ConfigError,
    TopicConfig,
    join_host_port,
)
from assay.system_under_test.defects import DEFECTS, Defect
from assay.system_under_test.disk_inspection import DATA
from assay.system_under_test.groups.kill_points import DRAFT_FAILOVER_POINTS, FAILOVER_POINTS
from assay.system_under_test.groups.terms import find_partition
from assay.system_under_test.inspection import AcknowledgementInspection
from assay.system_under_test.invariants.invariant_set import InvariantSet
from assay.system_under_test.log.directory import LOCK
from assay.system_under_test.network.connection import CallError, ask
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.metadata import MetadataResponse
from assay.system_under_test.protocol.topics import ConfigEntry, CreatableTopic, CreateTopicsRequest

CREATE_TIMEOUT = 6.0
CREATE_TOPICS_VERSION = 1
EXISTS_CODES = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


@dataclass(frozen=True)
class FirstTopic:
    """A topic to create at set-up. ``configs``: the settings in which it differs from the defaults."""

    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...] = ()

    @property
    def partition_keys(self) -> Sequence[str]:
        return [f"{self.name}-{index}" for index in range(self.partitions)]


def has_leaders(answer: MetadataResponse, topics: Sequence[FirstTopic]) -> bool:
    """Returns whether this broker knows a leader for each partition of the topics."""
    known = {topic.topic: [partition.error_code for partition in topic.partitions] for topic in answer.topics}
    return all(known.get(topic.name) == [ErrorCode.NONE] * topic.partitions for topic in topics)


async def create_first_topics(
    host: str, port: int, topics: Sequence[FirstTopic], replication: int, connect_timeout: float
) -> tuple[bool, str]:
    """Asks the controller at this address to create the topics; returns whether they exist, and the errors."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                topic=topic.name,
                num_partitions=topic.partitions,
                replication_factor=replication,
                configs=[ConfigEntry(name=name, value=value) for name, value in topic.configs],
            )
            for topic in topics
        ],
        timeout_ms=5_000,
    )
    try:
        response = await ask(
            host, port, request, CREATE_TOPICS_VERSION, CREATE_TIMEOUT, connect_timeout=connect_timeout
        )
    except CallError as error:
        return False, str(error)
    rejected = [result for result in response.topics if result.error_code not in EXISTS_CODES]
    reasons = [f"{one.topic}: {one.error_message or ErrorCode(one.error_code).name}" for one in rejected]
    return not rejected, ", ".join(reasons)


__all__ = [
    "BROKER",
    "ZOOKEEPER",
    "ZOOKEEPER_PORT",
    "Broker",
    "BrokerSetUpError",
    "Cluster",
    "FirstTopic",
    "Node",
    "format_zookeepers",
    "list_brokers",
    "list_possible_brokers",
]

BROKER = "broker"
ZOOKEEPER = "zookeeper"
ZOOKEEPER_PORT = 2181


class Node(Protocol):
    """A machine."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def address(self) -> str: ...


class Cluster(Protocol):
    """The machines of a run."""

    @property
    def nodes(self) -> Sequence[Any]: ...
    @property
    def spares(self) -> Sequence[Any]:
        """Machines that may become brokers."""


def list_brokers(cluster: Cluster) -> list[Any]:
    """Returns the brokers that the cluster starts with."""
    return [node for node in cluster.nodes if node.role == BROKER]


def list_possible_brokers(cluster: Cluster) -> list[Any]:
    """Returns the initial brokers, and the spares, which may have joined."""
    return [*list_brokers(cluster), *cluster.spares]


def format_zookeepers(cluster: Cluster) -> str:
    """Returns ZooKeeper's ``address:port,...``."""
    return ",".join(join_host_port(node.address, ZOOKEEPER_PORT) for node in cluster.nodes if node.role == ZOOKEEPER)


PORT = 9092
CONFIG_FILE = "/etc/assay/broker.json"
EVENT_LOG = "/var/log/assay/events.jsonl"
HOLD_FILE = "/etc/assay/hold"
SET_UP_TIMEOUT = 20.0
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
MIN_INSYNC = "min.insync.replicas"
ZOOKEEPER_TICK_MS = 500
BROKER_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        SESSION_TIMEOUT: "session_timeout_ms",
        "request.timeout.ms": "request_timeout_ms",
        "replica.lag.time.max.ms": "replica_lag_time_max_ms",
        "replica.fetch.wait.max.ms": "replica_fetch_wait_max_ms",
        "replica.fetch.max.bytes": "replica_fetch_max_bytes",
        "checkpoint.interval.ms": "checkpoint_interval_ms",
        "offsets.retention.ms": "offsets_retention_ms",
        "offsets.retention.check.interval.ms": "offsets_retention_check_interval_ms",
        "max.connections": "max_connections",
        "queued.max.request.bytes": "queued_max_request_bytes",
        "controlled.shutdown.max.ms": "controlled_shutdown_max_ms",
        "log.retention.check.interval.ms": "retention_check_interval_ms",
        "log.cleaner.backoff.ms": "cleaner_backoff_ms",
    }
)
"""Settings of brokers, not of topics. The value is the field name in ``Broker`` and in ``BrokerConfig``."""


_TOPIC_DEFAULTS = TopicConfig()


class BrokerSetUpError(Exception):
    """The topics were not ready in time; the message has the controller's last answer."""


@dataclass(frozen=True)
class Broker:
    """The broker of this package as a system under test, with one topic for the workload; none with 0 partitions."""

    partitions: int = 4
    replication: int = 3
    min_insync: int = 2
    topic: str = "orders"
    topic_config: TopicConfig = _TOPIC_DEFAULTS
    active_defects: tuple[str, ...] = ()
    auto_create_topics: bool = False
    auto_create_partitions: int = 1
    """Partitions of a topic that is created because a client asked for it."""
    session_timeout_ms: int = 3_000
    """ZooKeeper grants from 1 to 10 s."""
    request_timeout_ms: int = 2_000
    replica_lag_time_max_ms: int = 2_000
    replica_fetch_wait_max_ms: int = 250
    replica_fetch_max_bytes: int = 1_048_576
    checkpoint_interval_ms: int = 1_000
    groups: tuple[str, ...] = ()
    """Groups of consumers that the workload uses, for faults of their coordinators."""
    offsets_retention_ms: int = 24 * 3600 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    max_connections: int = 2_000
    queued_max_request_bytes: int = MAX_BUFFERED_REQUEST_BYTES
    retention_check_interval_ms: int = 60_000
    cleaner_backoff_ms: int = 1_000
    controlled_shutdown_max_ms: int = 5_000
    further_topics: tuple[FirstTopic, ...] = ()

    name = "broker"
    roles = (ZOOKEEPER, BROKER)
    source = ("assay/system_under_test",)

    @property
    def defects(self) -> Sequence[str]:
        return tuple(DEFECTS)

    def with_defect(self, name: str) -> Broker:
        """Returns the same system with one historic defect switched on."""
        return replace(self, active_defects=(name,))

    @property
    def described_defects(self) -> Sequence[Defect]:
        return tuple(DEFECTS.values())

    def standalone(self, partitions: int) -> Broker:
        """Returns the same system without the workload's topic; topics are created on demand."""
        return replace(self, partitions=0, auto_create_topics=True, auto_create_partitions=partitions)

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """The values that a run may vary.

        Settings changed by the workload are left out: its contract may depend on them.
        """
        values = {
            "flush.messages": ("1", "10", "2..1000"),
            "flush.ms": ("0", "50..3000"),
            "segment.bytes": ("2048", "65536", "1024..262144"),
            "index.interval.bytes": ("64..8192",),
            # Makes failovers two or three times as fast, so that a short run has several.
            SESSION_TIMEOUT: ("1000", "1000..2000"),
            "replica.lag.time.max.ms": ("1000..3000",),
            "request.timeout.ms": ("1000..3000",),
            "replica.fetch.wait.max.ms": ("50..500",),
            "replica.fetch.max.bytes": ("512..1048576",),
            "checkpoint.interval.ms": ("300..3000",),
        }
        defaults = Broker()
        return {name: some for name, some in values.items() if self._read_setting(name) == defaults._read_setting(name)}

    def _read_setting(self, name: str) -> Any:
        if name in BROKER_SETTINGS:
            return getattr(self, BROKER_SETTINGS[name])
        return getattr(self.topic_config, name.replace(".", "_"))

    def with_setting(self, name: str, value: str) -> Broker:
        """Returns a copy with a changed setting: one of ``BROKER_SETTINGS``, or Kafka's name of a topic setting.

        A topic setting applies to the workload's topic. Raises ``ValueError``.
        """
        if name in BROKER_SETTINGS:
            if not value.isascii() or not value.isdigit() or not int(value):
                raise ValueError(
                    f"{name} takes {'milliseconds' if name.endswith('.ms') else 'a number'}, not {value!r}"
                )
            changes: dict[str, Any] = {BROKER_SETTINGS[name]: int(value)}
            return replace(self, **changes)
        try:
            config = self.topic_config.override({name: value})
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if name != MIN_INSYNC:
            return replace(self, topic_config=config)
        if config.min_insync_replicas > self.replication:
            raise ValueError(f"{name} is {value}, but each partition has {self.replication} replicas")
        return replace(self, min_insync=config.min_insync_replicas)

    @property
    def retention_ms(self) -> int:
        """The initial retention of the workload's topic."""
        return self.topic_config.retention_ms

    @property
    def retention_bytes(self) -> int:
        return self.topic_config.retention_bytes

    @property
    def failover(self) -> float:
        """Seconds until a dead server's session expires; ZooKeeper checks once per tick.

        A slow follower may delay sends for longer (``replica.lag.time.max.ms``); reads continue meanwhile.
        """
        return (self.session_timeout_ms + ZOOKEEPER_TICK_MS) / 1000

    def with_topic(self, topic: FirstTopic) -> Broker:
        """Returns the same system with one more topic at set-up. Raises ``ValueError`` for its settings."""
        try:
            self.topic_config.override(dict(topic.configs))
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return replace(self, further_topics=(*self.further_topics, topic))

    def port(self, role: str) -> int:
        return PORT

    def keys(self) -> Sequence[str]:
        return [f"{self.topic}-{index}" for index in range(self.partitions)]

    # -- a node's process ----------------------------------------------------------------------------------------

    def argv(self, node: Node) -> Sequence[str]:
        return ["python3", "-m", "assay.system_under_test", "broker", "--config", CONFIG_FILE, "--event-log", EVENT_LOG]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        config = BrokerConfig(
            broker_id=node.index,
            zookeeper=format_zookeepers(cluster),
            host=node.address,
            port=PORT,
            topic=self.topic_config,
            data_dir=DATA,
            hold_file=HOLD_FILE,
            defects=list(self.active_defects),
            auto_create_topics_enable=self.auto_create_topics,
            default_partitions=self.auto_create_partitions,
            offsets_topic_replication_factor=min(3, len(list_brokers(cluster))),
            **{field: getattr(self, field) for field in BROKER_SETTINGS.values()},
        )
        return {CONFIG_FILE: msgspec.json.format(msgspec.json.encode(config), indent=2)}

    def event_log(self, node: Node) -> str:
        return EVENT_LOG

    def logs(self, node: Node) -> Sequence[str]:
        """None beyond the process's own output: events are in the history."""
        return []

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        return await run_broker(runtime, argv[3:])  # without ``python3 -m MODULE``

    zookeeper_client = "assay.system_under_test.zookeeper.adapter:KazooZooKeeper"

    # -- for faults -------------------------------------------------------------------------------------------------

    start_events = ("registered", "recovered", "became-follower")
    turning_points = (
        "became-leader",
        "became-follower",
        "became-controller",
        "isr-change",
        "truncated",
        "groups-loaded",
    )
    strike_points = MappingProxyType({**FAILOVER_POINTS, **DRAFT_FAILOVER_POINTS})
    """Events of a rebalance at which a tester may kill the coordinator, each with its meaning."""

    def hold_file(self, node: Node) -> str:
        return HOLD_FILE

    def data_folder(self, node: Node) -> str:
        return DATA

    def lock_files(self, node: Node) -> Sequence[str]:
        return [f"{DATA}/{LOCK}"]

    def data_files(self, node: Node) -> Sequence[str]:
        """Returns the logs that the workload writes, including its groups'.

        The last file by name in a partition's folder is the active segment.
        """
        topic = [f"{self.topic}-{index}" for index in range(self.partitions)]
        groups = {f"{OFFSETS_TOPIC}-{find_partition(group, OFFSETS_TOPIC_PARTITIONS)}" for group in self.groups}
        return [f"{DATA}/{partition}/*.log" for partition in (*topic, *sorted(groups))]

    async def durable_size(self, node: Any, path: str) -> int:
        """Returns the bytes of a log file that an unclean start keeps.

        Records that were fsynced but not checkpointed do not count: such a start scans and may truncate them.
        """
        return await disk_inspection.compute_durable_size(node, path)

    async def alone_with(self, cluster: Cluster, node: Node, away: Collection[Node]) -> str | None:
        """Returns a partition whose in-sync members are all on ``node`` or ``away``, if any.

        The leaders report who is in sync; a partition without an answering leader is unknown.
        """
        led = await disk_inspection.read_led_partitions(list_possible_brokers(cluster), PORT, high_watermarks=False)
        mine = {key: one for key, one in sorted(led.items()) if node.index in one.assigned}
        absent = {node.index, *(one.index for one in away)}
        return next((key for key, one in mine.items() if not {*one.in_sync} - absent), None)

    async def replicas(self, cluster: Cluster) -> Iterator[Mapping[str, Any]]:
        replicas = await disk_inspection.read_stored_replicas(list_possible_brokers(cluster), PORT)
        return (vars(record) for replica in replicas for record in replica)

    async def look(self, cluster: Cluster, runtime: Any) -> Sequence[Mapping[str, Any]]:
        source = cluster_snapshot.SnapshotSource(
            list_brokers(cluster), format_zookeepers(cluster), PORT, CONFIG_FILE, DATA
        )
        return [vars(one) for one in await cluster_snapshot.take_snapshot(source, runtime)]

    def inspector(self, cluster: Any) -> AcknowledgementInspection | None:
        if cluster.kind != "sim":
            return None
        brokers = {node.index: node for node in list_possible_brokers(cluster)}
        flushes = self.topic_config.flush_messages <= 1
        return AcknowledgementInspection(brokers, cluster.zookeeper.tree, DATA, cluster.epoch, flushes)

    def invariants(self, cluster: Any) -> InvariantSet | None:
        inspection = self.inspector(cluster)
        return None if inspection is None else InvariantSet(inspection)

    def unsettled(self, seen: Sequence[Mapping[str, Any]], wall_ms: int) -> int:
        return cluster_snapshot.count_unsettled([cluster_snapshot.SnapshotRow(**one) for one in seen], wall_ms)

    async def replicas_of(self, cluster: Cluster, key: str) -> Sequence[Any] | None:
        """Returns the controller's answer; None during a reassignment, or if no controller answers."""
        controller = await self.find(cluster, "controller")
        topic, _, index = key.rpartition("-")
        found = (
            None if controller is None else await broker_rpc.ask_replicas(controller.address, PORT, topic, int(index))
        )
        nodes = {node.index: node for node in list_possible_brokers(cluster)}
        return None if found is None else [nodes[broker] for broker in found]

    async def move(self, cluster: Cluster, key: str, nodes: Sequence[Node]) -> str | None:
        """Requests a reassignment from the controller; returns None once the request is stored, else the problem."""
        controller = await self.find(cluster, "controller")
        if controller is None:
            return "no controller is known"
        topic, _, index = key.rpartition("-")
        return await broker_rpc.request_reassignment(
            controller.address, PORT, topic, int(index), [node.index for node in nodes]
        )

    def moved(self, line: Mapping[str, Any]) -> tuple[str, Sequence[int]] | None:
        """Returns the partition and its replicas if this is the event of a completed reassignment, else None."""
        return (line["key"], line["replicas"]) if line.get("event") == "reassignment-ended" else None

    async def standing(self, cluster: Cluster) -> broker_rpc.ReplicaPlacement | None:
        controller = await self.find(cluster, "controller")
        return None if controller is None else await broker_rpc.ask_placement(controller.address, PORT)

    def handed_over(self, line: Mapping[str, Any]) -> tuple[int, Mapping[str, str]] | None:
        """Recognizes the event that ends a controlled shutdown, before the broker closes its sockets.

        Returns how many partitions the broker led, and for each one that it still leads, the reason. Returns None for
        any other event.
        """
        if line.get("event") != "shutdown-handed-over":
            return None
        return line["detail"]["led"], line["detail"]["kept"]

    # -- questions to the running system ---------------------------------------------------------------------------

    async def ready(self, node: Node) -> bool:
        """Returns whether the broker answers, and knows a controller."""
        metadata = await broker_rpc.ask_metadata(node.address, PORT)
        return metadata is not None and metadata.controller_id >= 0 and bool(metadata.brokers)

    async def set_up(self, cluster: Cluster) -> None:
        """Creates the topics, and waits until every broker knows a leader for each partition."""
        brokers = list_brokers(cluster)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SET_UP_TIMEOUT
        answer = "nothing yet"
        created = not self._topics
        while True:
            answers = [await broker_rpc.ask_metadata(node.address, PORT) for node in brokers]
            if all(
                metadata is not None
                and len(metadata.brokers) == len(brokers)
                and (not created or has_leaders(metadata, self._topics))
                for metadata in answers
            ):
                if created:
                    return
                created, answer = await self._create(brokers, answers)
            if loop.time() > deadline:
                raise BrokerSetUpError(
                    f"topic {self.topic} was not ready on all of {', '.join(n.name for n in brokers)} within "
                    f"{SET_UP_TIMEOUT:.0f} s; the controller said: {answer}"
                )
            await asyncio.sleep(0.1)

    @property
    def _topics(self) -> Sequence[FirstTopic]:
        own = ((MIN_INSYNC, str(self.min_insync)),)
        return [*([FirstTopic(self.topic, self.partitions, own)] if self.partitions else []), *self.further_topics]

    async def _create(self, brokers: Sequence[Node], answers: Sequence[MetadataResponse | None]) -> tuple[bool, str]:
        """Creates the first topics if all brokers name one controller. Returns whether they exist, and the errors."""
        controllers = {answer.controller_id for answer in answers if answer is not None}
        chosen = [node for node in brokers if controllers == {node.index}]
        if not chosen:
            return False, f"the brokers name controllers {sorted(controllers)}"
        return await create_first_topics(
            chosen[0].address, PORT, self._topics, self.replication, broker_rpc.ASK_TIMEOUT
        )

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Any | None:
        """Returns the node that most brokers name; None if no broker names one, or after a tie."""
        brokers = list_brokers(cluster)
        match what:
            case "coordinator":
                group = key or next(iter(self.groups), None)
                if group is None:
                    return None
                asked = [broker_rpc.ask_coordinator(node.address, PORT, group) for node in brokers]
            case "leader":
                led = key or next(iter(self.keys()), None)
                if led is None:
                    return None
                asked = [broker_rpc.ask_leader(node.address, PORT, led) for node in brokers]
            case "controller":
                asked = [broker_rpc.ask_controller(node.address, PORT) for node in brokers]
            case _:
                return None
        found = await broker_rpc.find_majority(asked)
        return next((node for node in list_possible_brokers(cluster) if node.index == found), None)
