"""The mixes of the broker's workloads, chosen by ``--workload-mix``; docs/cookbook/mixes.md has the purpose of each.

A mix ``adds`` weighted generators to the traffic, and ``closes`` the run with others. Each run draws one value of each
system setting (``settings``) and of each client option (``client``). ``system`` returns the system with more topics,
and ``contract`` returns the contract with changed promises.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

import msgspec

from assay.checkers.judging.contract import Contract
from assay.checkers.liveness.client_progress import PROGRESS
from assay.cluster.system import System
from assay.harness.core.generator import Generator, Source, limit, mix, phases, stagger, time_limit
from assay.harness.core.operation import Operation
from assay.harness.run.settings import Settings, derive_seed
from assay.harness.run.workload_mix import WeightedSources, WorkloadMix
from assay.system_under_test.client.producer import ENTRY_OVERHEAD
from assay.system_under_test.deployment import Broker, FirstTopic
from assay.workloads.broker import mixed_traffic, topic_changes
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import End, Glance, LookUp
from assay.workloads.broker.mixed_traffic import RANGE, ValueRange
from assay.workloads.broker.multi_fetch_operations import MultiPartitionFetch
from assay.workloads.broker.multi_partition_requests import MultiPartitionSend
from assay.workloads.broker.producer_profiles import PROFILES
from assay.workloads.broker.topic_admin import Create
from assay.workloads.broker.topic_growth import Growth
from assay.workloads.broker.topic_recreation import TopicIncarnations
from assay.workloads.broker.verbs import FETCH_BYTES, KEEPS

MAX_BYTES: Final = 1500
"""Maximum size of a message on disk."""
PADDINGS: Final = (0, 0, 60, 400, *(MAX_BYTES - ENTRY_OVERHEAD + more for more in (-60, -13, -12, 0, 12, 13)))
"""Bytes to which values are padded. The last six make messages just below, at or above ``MAX_BYTES``."""
LOADED_SETS: Final = 20
"""Number of sets in a backlog."""
LOADED_EACH: Final = 25
"""Messages in each set of a backlog. A broker may pack them into one message, which is within the size limit."""
LOADING: Final = 60
"""Weight of the backlog. It is high, so that the backlog is complete within seconds."""
PACED_WEIGHT: Final = 30
"""Weight of a generator that sets its own pace."""
SLOW_SECONDS: Final = 0.15
"""Average seconds between two polls of slow readers. Each client's slow polls are seconds apart."""
TAIL_THOUSANDTHS: Final = 300
"""Size of the last part of a log that is read, in thousandths of the log."""
TAIL_PADDINGS: Final = (0, 0, 30, 90, 250)
"""Bytes to which the values of records with acks=1 are padded."""
TAIL_STEPS: Final = 10
"""Number of fetches for one read of such a part."""
TURN_SECONDS: Final = 0.3
"""Seconds between two requests. Each change of a leader takes two requests: a move and an election."""
BULK_PADDINGS: Final = (0, 60, 200)
QUEUED_BYTES: Final = 1_500_000
"""A broker's memory for large requests. It suffices for sixteen requests of ``try_large_requests``."""
BREAKING_SECONDS: Final = 2.0
"""Average seconds between two broken-off requests. Their clients reconnect as new processes."""
BROKEN_EACH: Final = 24
"""Number of requests per partition that are broken off at the end of a run."""
WAITING_SECONDS: Final = 4.0
"""Seconds of the fetches that wait for records at the end of a run."""
PURSUIT_SECONDS: Final = 9.0
"""Seconds of the traffic that closes a run: more than the contract's ``progress_deadline`` and the changes."""
DRAIN_SECONDS: Final = 30.0
VOLLEY_SECONDS: Final = 0.25
"""Average seconds between two volleys. A volley is a few messages that are sent to one partition at once."""
NEW_PARTITIONS: Final = 2
DAY_MS: Final = 24 * 3600 * 1000

# A ``FirstTopic`` has a name, a number of partitions, and settings. Only ``SELDOM`` is created by an operation.
LEDGER: Final = FirstTopic(
    "ledger",
    2,
    (
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("segment.bytes", "250"),
        ("file.delete.delay.ms", "100"),
        ("message.timestamp.type", "CreateTime"),  # a tombstone's number is its create time
        ("message.format.version", "0.10.2"),  # earlier formats have no create times
    ),
)
STRICT: Final = FirstTopic("strict", 3)
SELDOM: Final = FirstTopic("seldom", 20)
CROWD: Final = tuple(FirstTopic(f"crowd{number}", 1 + number % 3) for number in range(1, 9))
CROWD_KEYS: Final = tuple(key for topic in CROWD for key in topic.partition_keys)


def require_broker(system: System) -> Broker:
    assert isinstance(system, Broker), f"a mix of the broker's workloads, on {system.name}"
    return system


def add_topics(*topics: FirstTopic, in_sync: Callable[[Broker], int]) -> Callable[[System], System]:
    """Returns a function that adds topics to a system. ``in_sync``: the number of replicas that a record needs."""

    def add(system: System) -> System:
        broker = require_broker(system)
        more = ("min.insync.replicas", str(in_sync(broker)))
        for topic in topics:
            broker = broker.with_topic(replace(topic, configs=(*topic.configs, more)))
        return broker

    return add


def pace(seconds: float, generator: Source) -> tuple[int, Generator]:
    """Returns a weighted generator that yields an operation every ``seconds`` on average."""
    return PACED_WEIGHT, stagger(seconds, generator)


def drain_topics(*keys: str) -> Callable[[System, Settings], Source]:
    return lambda system, settings: drain(keys, seconds=DRAIN_SECONDS)


def add_small_segments(system: System, settings: Settings) -> WeightedSources:
    keys = system.keys()
    return [
        (10, Glance.draw(keys)),
        (30, mixed_traffic.send_all_codecs(keys, PADDINGS)),
        pace(SLOW_SECONDS, mixed_traffic.poll_slowly(keys)),
    ]


def build_backlog(system: System, settings: Settings) -> Generator:
    """Sends a backlog to one of the partitions."""
    keys = system.keys()
    return mixed_traffic.send_backlog(keys[settings.seed % len(keys)], LOADED_SETS, LOADED_EACH)


BACKLOGS: Final = WorkloadMix(
    "backlogs",
    "messages of all codecs and formats up to the size limit, small segments, readers with small fetches or rare polls",
    adds=lambda system, settings: [*add_small_segments(system, settings), (LOADING, build_backlog(system, settings))],
    settings={
        "segment.bytes": ("512", "2048"),
        "index.interval.bytes": ("128", "1024"),
        "max.message.bytes": (str(MAX_BYTES),),
        "compression.type": ("producer", "producer", "uncompressed", "gzip", "snappy", "lz4"),
        "message.format.version": ("0.10.2", "0.10.2", "0.9.0"),
        "message.timestamp.type": ("CreateTime", "CreateTime", "LogAppendTime"),
        "preallocate": ("false", "true"),
    },
    client={FETCH_BYTES: (100, 700, 1 << 20)},
)


def _close_with_descriptions(system: System, settings: Settings) -> Source:
    return topic_changes.describe_topics_at_end(require_broker(system).topic)


SETTINGS: Final = WorkloadMix(
    "settings",
    "an administrator who changes settings under load, and sends requests that must be rejected",
    adds=lambda system, settings: [pace(0.25, topic_changes.change_settings(require_broker(system).topic))],
    closes=_close_with_descriptions,
)

HANDOVERS: Final = WorkloadMix(
    "handovers",
    "partitions that are moved to other replicas and leaders, and back within a second",
    adds=lambda system, settings: [pace(0.4, topic_changes.move_and_revert(system.keys(), settings.nodes))],
    closes=_close_with_descriptions,
)

LOOK_UPS: Final = WorkloadMix(
    "look-ups",
    "create times out of order, and look-ups of offsets by time",
    adds=lambda system, settings: [
        (20, mixed_traffic.send_out_of_order_times(system.keys())),
        (25, LookUp.draw(system.keys())),
    ],
    settings={"segment.bytes": ("512", "4096"), "index.interval.bytes": ("1", "256")},
)

RETENTION: Final = WorkloadMix(
    "retention",
    "old segments are deleted within seconds, by age and by size, while readers are still in them",
    adds=lambda system, settings: [
        (10, Glance.draw(system.keys())),
        pace(SLOW_SECONDS, mixed_traffic.poll_slowly(system.keys())),
    ],
    closes=lambda system, settings: topic_changes.end_retention(require_broker(system).topic),
    settings={
        "retention.ms": ("1500", "4000"),
        "retention.bytes": ("-1", "1500"),
        "segment.bytes": ("256", "1024", "8192"),
        "segment.ms": ("700", "604800000"),
        "file.delete.delay.ms": ("0", "1000"),
        "log.retention.check.interval.ms": ("200", "1000"),
    },
    client={FETCH_BYTES: (60, 150)},
)


def _close_with_leader_changes(system: System, settings: Settings) -> Source:
    """Changes all leaders once more, after the last heal. Clients must find the new leaders."""
    keys = system.keys()
    changes = topic_changes.change_leaders(keys, settings.nodes)
    sends = mixed_traffic.send_as_regular_and_newcomer(keys, closing=True)
    return time_limit(PURSUIT_SECONDS, mix(changes, stagger(0.05, sends)))


def require_progress(contract: Contract, system: System) -> Contract:
    """Adds the check that long-lived clients succeed if new clients do."""
    return contract.need(*PROGRESS.anomalies)


KEPT_CONNECTIONS: Final = WorkloadMix(
    "clinging",
    "clients that keep connections and metadata, even after an unknown outcome, compared with new clients",
    adds=lambda system, settings: [(60, mixed_traffic.send_as_regular_and_newcomer(system.keys()))],
    closes=_close_with_leader_changes,
    client={KEEPS: (0.5, 1.0)},  # the probability that a client keeps its connections
    contract=require_progress,
)


def _add_tails(system: System, settings: Settings) -> WeightedSources:
    keys, replication = system.keys(), require_broker(system).replication
    return [
        (80, mixed_traffic.send_leader_only(keys, TAIL_PADDINGS)),
        (20, Glance.draw(keys, steps=TAIL_STEPS, last=TAIL_THOUSANDTHS)),
        pace(TURN_SECONDS, topic_changes.rotate_leaders(keys, settings.nodes, replication)),
    ]


LEADER_ONLY_TAILS: Final = WorkloadMix(
    "tails",
    "records with acks=1, so that an isolated leader must truncate many of them later; each replica leads in turn",
    adds=_add_tails,
    closes=lambda system, settings: topic_changes.read_each_replica(
        system.keys(), settings.nodes, require_broker(system).replication
    ),
)


def _add_producer_profiles(system: System, settings: Settings) -> WeightedSources:
    """Adds traffic of a third of all profiles, drawn for each run. Each profile costs a client many connections."""
    profiles = Random(derive_seed(settings.seed, "habits")).sample(sorted(PROFILES), len(PROFILES) // 3)
    keys = system.keys()
    return [
        (
            25,
            mixed_traffic.send_by_profile(
                keys, profiles, partition_count_is_fixed=GROWTH.name not in settings.workload_mix
            ),
        ),
        (15, MultiPartitionSend.draw(keys, ValueRange.WIDELY)),
        (25, MultiPartitionFetch.draw(keys)),
    ]


PRODUCER_PROFILES: Final = WorkloadMix(
    "habits",
    "producers with various settings and their reports on messages, multi-partition requests, old protocol versions",
    adds=_add_producer_profiles,
    closes=lambda system, settings: time_limit(WAITING_SECONDS, mixed_traffic.wait_at_end(system.keys())),
)


def _close_with_broken_requests(system: System, settings: Settings) -> Source:
    """Breaks off many requests. If each leaked its memory, brokers could read no further requests."""
    keys = system.keys()
    # The range's first quarter is for the requests that are broken off during the run.
    broken = limit(BROKEN_EACH * len(keys), mixed_traffic.break_off_requests(keys, ValueRange.BROKEN + RANGE // 4))
    tries = mixed_traffic.try_large_requests(keys, ValueRange.BROKEN + RANGE // 2)
    return phases(broken, time_limit(PURSUIT_SECONDS, tries))


BULK: Final = WorkloadMix(
    "bulk",
    "message sets much larger than a follower's fetch, requests for log ends, large requests that are broken off",
    adds=lambda system, settings: [
        (12, mixed_traffic.send_large_sets(system.keys(), BULK_PADDINGS)),
        (40, End.draw(system.keys())),
        pace(BREAKING_SECONDS, mixed_traffic.break_off_requests(system.keys(), ValueRange.BROKEN)),
    ],
    closes=_close_with_broken_requests,
    settings={"replica.fetch.max.bytes": ("512", "2048"), "queued.max.request.bytes": (str(QUEUED_BYTES),)},
    contract=require_progress,
)


def _close_with_ledger_reads(system: System, settings: Settings) -> Source:
    keys = LEDGER.partition_keys
    return phases(
        topic_changes.read_each_replica(keys, settings.nodes, require_broker(system).replication),
        drain(keys, seconds=DRAIN_SECONDS, keyed=True),
    )


def _adapt_contract_to_compaction(contract: Contract, system: System) -> Contract:
    lasting = require_broker(system).topic_config.delete_retention_ms >= DAY_MS
    compacted = (*contract.compacted, *LEDGER.partition_keys)
    return msgspec.structs.replace(contract, compacted=compacted, lasting_tombstones=lasting)


COMPACTION: Final = WorkloadMix(
    "compaction",
    "a compacted topic next to the workload's: keys again and again, tombstones, and a cleaner that hardly rests",
    adds=lambda system, settings: [(80, mixed_traffic.use_compacted_partitions(LEDGER.partition_keys))],
    closes=_close_with_ledger_reads,
    settings={"log.cleaner.backoff.ms": ("50", "300"), "delete.retention.ms": ("300", "86400000")},
    system=add_topics(LEDGER, in_sync=lambda broker: broker.min_insync),
    contract=_adapt_contract_to_compaction,
)


def _add_topic_incarnations(system: System, settings: Settings) -> WeightedSources:
    broker = require_broker(system)
    return [(60, TopicIncarnations(broker.replication, broker.min_insync))]


RECREATION: Final = WorkloadMix(
    "lives",
    "a topic that is deleted and created again under its name, and grows, while clients go on writing to it",
    adds=_add_topic_incarnations,
)


def _add_volleys(system: System, settings: Settings) -> WeightedSources:
    broker, keys = require_broker(system), SELDOM.partition_keys
    configs = {"min.insync.replicas": str(broker.min_insync)}
    argument = {"partitions": SELDOM.partitions, "replication": broker.replication, "configs": configs}
    creation = Operation(Create.f, SELDOM.name, argument)
    return [pace(VOLLEY_SECONDS, mixed_traffic.send_volleys(keys, creation)), (5, Glance.draw(keys))]


WRITTEN_SELDOM: Final = WorkloadMix(
    "seldom",
    "partitions that are written to for a moment, and then left alone for the rest of the run",
    adds=_add_volleys,
    closes=lambda system, settings: drain(SELDOM.partition_keys, seconds=DRAIN_SECONDS, silent=True),
)

CROWDED: Final = WorkloadMix(
    "crowd",
    "many topics of few partitions next to the workload's own",
    adds=lambda system, settings: [(80, mixed_traffic.send_and_poll(CROWD_KEYS, ValueRange.CROWDED))],
    closes=drain_topics(*CROWD_KEYS),
    system=add_topics(*CROWD, in_sync=lambda broker: broker.min_insync),
)

STRICTNESS: Final = WorkloadMix(
    "strict",
    "a topic that takes records only while all of its replicas are in sync, next to the workload's own",
    adds=lambda system, settings: [(50, mixed_traffic.send_and_poll(STRICT.partition_keys, ValueRange.STRICTLY))],
    closes=drain_topics(*STRICT.partition_keys),
    # If all replicas must be in sync, each replica that leaves the in-sync set stays eligible as a leader (KIP-966).
    system=add_topics(STRICT, in_sync=lambda broker: broker.replication),
)


def list_new_partitions(broker: Broker, first: int, count: int) -> tuple[str, ...]:
    """Returns ``count`` partitions that a run may add to the workload's topic. ``first``: how many to skip."""
    return tuple(f"{broker.topic}-{broker.partitions + first + more}" for more in range(count))


def build_closing_growth(broker: Broker, first: int, count: int) -> Growth:
    """Adds ``count`` partitions at the end of a run, without delay. ``first``: how many were added before."""
    have = broker.partitions + first
    return Growth(broker.topic, have, have + count, closing=True, later=0)


def _add_growth(system: System, settings: Settings) -> WeightedSources:
    broker = require_broker(system)
    return [(50, Growth(broker.topic, broker.partitions, broker.partitions + NEW_PARTITIONS))]


def close_with_growth(system: System, settings: Settings) -> Source:
    broker = require_broker(system)
    rest = build_closing_growth(broker, 0, NEW_PARTITIONS)
    return phases(rest, drain(list_new_partitions(broker, 0, NEW_PARTITIONS), seconds=DRAIN_SECONDS))


GROWTH: Final = WorkloadMix(
    "growth",
    "partitions added to the workload's topic, with traffic on them from then on",
    adds=_add_growth,
    closes=close_with_growth,
)

LOG_MIXES: Final = (
    BACKLOGS, SETTINGS, HANDOVERS, LEADER_ONLY_TAILS, LOOK_UPS, RETENTION, RECREATION, COMPACTION, STRICTNESS, CROWDED,
    GROWTH, KEPT_CONNECTIONS, PRODUCER_PROFILES, BULK, WRITTEN_SELDOM,
)  # fmt: skip
"""Mixes for workloads whose clients support all operations on a log."""
OLD_GROUP_MIXES: Final = tuple(one for one in LOG_MIXES if one is not RETENTION)
"""``LOG_MIXES`` without ``RETENTION``: consumers of the old design do not report resets of positions out of range."""
