"""Mixes that add topics or enlarge the workload's topic; see ``assay.workloads.broker.mixes``."""

from dataclasses import replace
from typing import Final

import msgspec

from assay.checkers.judging.contract import Contract
from assay.cluster.system import System
from assay.harness.core.generator import Source, phases, stagger
from assay.harness.core.operation import Operation
from assay.harness.run.settings import Settings
from assay.harness.run.workload_mix import Shares, WorkloadMix
from assay.system_under_test.deployment import Broker, FirstTopic
from assay.workloads.broker import mixed_traffic, topic_changes
from assay.workloads.broker.group_drain import drain_after_growth
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import glance
from assay.workloads.broker.members import TOPICS
from assay.workloads.broker.topic_admin import CREATE
from assay.workloads.broker.topic_growth import Growth
from assay.workloads.broker.topic_recreation import TopicLives

LEDGER: Final = FirstTopic(
    "ledger",
    2,
    (
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("segment.bytes", "250"),
        ("file.delete.delay.ms", "100"),
        ("message.timestamp.type", "CreateTime"),  # a tombstone's number is its create time
        ("message.format.version", "0.10.2"),  # earlier formats have no create time
    ),
)
STRICT: Final = FirstTopic("strict", 3)
CROWD: Final = tuple(FirstTopic(f"crowd{number}", 1 + number % 3) for number in range(1, 9))
CROWD_KEYS: Final = tuple(key for topic in CROWD for key in topic.partition_keys)
SHARED: Final = CROWD[:4]
"""Topics to which group members subscribe as well, and which they drain."""
_SHARED_KEYS: Final = sum(topic.partitions for topic in SHARED)
NEW_PARTITIONS: Final = 2
LATE_PARTITIONS: Final = 2
"""Partitions added later, for a group that has settled."""
DRAIN_SECONDS: Final = 30.0
DAY_MS: Final = 24 * 3600 * 1000
SELDOM: Final = FirstTopic("seldom", 20)
GUST_SECONDS: Final = 0.25
"""Average time between two volleys."""
FULL_RATE_WEIGHT: Final = 30
"""Weight of a generator that sets its own pace."""


def require_broker(system: System) -> Broker:
    assert isinstance(system, Broker), f"a mix of the broker's workloads, on {system.name}"
    return system


def _create_ledger(system: System) -> System:
    broker = require_broker(system)
    return broker.with_topic(
        replace(LEDGER, configs=(*LEDGER.configs, ("min.insync.replicas", str(broker.min_insync))))
    )


def _add_ledger_traffic(system: System, settings: Settings) -> Shares:
    return [(80, mixed_traffic.use_compacted_partitions(LEDGER.partition_keys))]


def _close_with_ledger_reads(system: System, settings: Settings) -> Source:
    keys = LEDGER.partition_keys
    return phases(
        topic_changes.read_each_replica(keys, settings.nodes, require_broker(system).replication),
        drain(keys, seconds=DRAIN_SECONDS, keyed=True),
    )


def _adapt_contract_to_compaction(contract: Contract, system: System) -> Contract:
    lasting = require_broker(system).topic_config.delete_retention_ms >= DAY_MS
    return msgspec.structs.replace(
        contract, compacted=(*contract.compacted, *LEDGER.partition_keys), lasting_tombstones=lasting
    )


COMPACTION: Final = WorkloadMix(
    "compaction",
    "a compacted topic next to the workload's: keys again and again, tombstones, and a cleaner that hardly rests",
    adds=_add_ledger_traffic,
    closes=_close_with_ledger_reads,
    settings={"log.cleaner.backoff.ms": ("50", "300"), "delete.retention.ms": ("300", "86400000")},
    system=_create_ledger,
    contract=_adapt_contract_to_compaction,
)


def _add_topic_lives(system: System, settings: Settings) -> Shares:
    broker = require_broker(system)
    return [(60, TopicLives(broker.replication, broker.min_insync))]


LIVES: Final = WorkloadMix(
    "lives",
    "a topic that is deleted and created again under its name, and grows, while clients go on writing to it",
    adds=_add_topic_lives,
)


def _add_volleys(system: System, settings: Settings) -> Shares:
    broker = require_broker(system)
    configs = {"min.insync.replicas": str(broker.min_insync)}
    argument = {"partitions": SELDOM.partitions, "replication": broker.replication, "configs": configs}
    made = Operation(CREATE, SELDOM.name, argument)
    keys = SELDOM.partition_keys
    return [(FULL_RATE_WEIGHT, stagger(GUST_SECONDS, mixed_traffic.send_volleys(keys, made))), (5, glance(keys))]


WRITTEN_SELDOM: Final = WorkloadMix(
    "seldom",
    "partitions that are written to for a moment, and then left alone for the rest of the run",
    adds=_add_volleys,
    closes=lambda system, settings: drain(SELDOM.partition_keys, seconds=DRAIN_SECONDS, silent=True),
)


def _create_crowd(system: System) -> System:
    broker = require_broker(system)
    for topic in CROWD:
        broker = broker.with_topic(replace(topic, configs=(("min.insync.replicas", str(broker.min_insync)),)))
    return broker


CROWDED: Final = WorkloadMix(
    "crowd",
    "many topics of few partitions next to the workload's own",
    adds=lambda system, settings: [(80, mixed_traffic.send_and_poll(CROWD_KEYS, mixed_traffic.CROWDED))],
    closes=lambda system, settings: drain(CROWD_KEYS, seconds=DRAIN_SECONDS),
    system=_create_crowd,
)


def _create_strict(system: System) -> System:
    """Requires all replicas in sync, so that each replica that leaves the set stays eligible (KIP-966)."""
    broker = require_broker(system)
    return broker.with_topic(replace(STRICT, configs=(("min.insync.replicas", str(broker.replication)),)))


STRICTNESS: Final = WorkloadMix(
    "strict",
    "a topic that takes records only while all of its replicas are in sync, next to the workload's own",
    adds=lambda system, settings: [(50, mixed_traffic.send_and_poll(STRICT.partition_keys, mixed_traffic.STRICTLY))],
    closes=lambda system, settings: drain(STRICT.partition_keys, seconds=DRAIN_SECONDS),
    system=_create_strict,
)


def _list_new_partitions(broker: Broker, first: int, count: int) -> tuple[str, ...]:
    """Returns ``count`` partitions of the workload's topic, from the ``first`` one that it lacks in the beginning."""
    return tuple(f"{broker.topic}-{broker.partitions + first + more}" for more in range(count))


def _build_closing_growth(broker: Broker, first: int, count: int) -> Growth:
    """Adds ``count`` partitions at the end of a run."""
    have = broker.partitions + first
    return Growth(broker.topic, have, have + count, closing=True, later=0)


def _add_growth(system: System, settings: Settings) -> Shares:
    broker = require_broker(system)
    return [(50, Growth(broker.topic, broker.partitions, broker.partitions + NEW_PARTITIONS))]


def _close_with_growth(system: System, settings: Settings) -> Source:
    broker = require_broker(system)
    rest = _build_closing_growth(broker, 0, NEW_PARTITIONS)
    return phases(rest, drain(_list_new_partitions(broker, 0, NEW_PARTITIONS), seconds=DRAIN_SECONDS))


GROWTH: Final = WorkloadMix(
    "growth",
    "partitions added to the workload's topic, with traffic on them from then on",
    adds=_add_growth,
    closes=_close_with_growth,
)


def adapt_growth(group: str) -> WorkloadMix:
    """Returns ``GROWTH`` for workloads whose members of ``group`` poll: it also grows after they have settled."""

    def closes(system: System, settings: Settings) -> Source:
        broker = require_broker(system)
        known = (*list_subscribed(system, settings), *_list_new_partitions(broker, 0, NEW_PARTITIONS))
        late = _list_new_partitions(broker, NEW_PARTITIONS, LATE_PARTITIONS)
        growth = _build_closing_growth(broker, NEW_PARTITIONS, LATE_PARTITIONS)
        settled = drain_after_growth(known, late, seconds=DRAIN_SECONDS, group=group, growth=growth)
        return phases(_close_with_growth(system, settings), settled)

    return replace(GROWTH, closes=closes)


SHARED_CROWD: Final = replace(
    CROWDED,
    closes=lambda system, settings: drain(CROWD_KEYS[_SHARED_KEYS:], seconds=DRAIN_SECONDS),
    client={TOPICS: (tuple(topic.name for topic in SHARED),)},
)
"""``CROWDED`` for workloads with groups, whose members subscribe to some of the additional topics."""


def list_subscribed(system: System, settings: Settings) -> list[str]:
    """Returns the partitions that groups share from the beginning of such a run."""
    return [*system.keys(), *(CROWD_KEYS[:_SHARED_KEYS] if CROWDED.name in settings.workload_mix else ())]


def list_owned(system: System, settings: Settings) -> list[str]:
    """Returns all partitions that a member may ever commit: :func:`subscribed` and the additions of ``GROWTH``."""
    grows = GROWTH.name in settings.workload_mix
    late = _list_new_partitions(require_broker(system), 0, NEW_PARTITIONS + LATE_PARTITIONS) if grows else ()
    return [*list_subscribed(system, settings), *late]
