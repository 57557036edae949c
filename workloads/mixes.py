"""The mixes of the broker's workloads: ``--workload-mix`` chooses among them, docs/mixes.md says what each is for."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

import msgspec

from assay.checkers.contract import Contract
from assay.checkers.progress import PROGRESS
from assay.cluster.system import System
from assay.harness.core.generator import Source, limit, mix, phases, stagger, time_limit
from assay.harness.core.operation import Operation
from assay.harness.run.settings import Settings, derive
from assay.harness.run.workload_mix import Shares, WorkloadMix
from assay.system_under_test.client.producer import ENTRY_OVERHEAD
from assay.system_under_test.deployment import Broker, FirstTopic
from assay.workloads import mixed_traffic, topic_changes
from assay.workloads.group_drain import grown
from assay.workloads.log_client import FETCH_BYTES, KEEPS
from assay.workloads.log_drain import drain
from assay.workloads.log_operations import end, glance, walk
from assay.workloads.mixed_traffic import BROKEN, RANGE
from assay.workloads.send_habits import HABITS
from assay.workloads.topic_admin import CREATE
from assay.workloads.topic_growth import Growth
from assay.workloads.topic_lives import TopicLives

MOST_BYTES: Final = 1500
"""Of a message, on the disk."""
LEDGER: Final = FirstTopic(
    "ledger",
    2,
    (
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("segment.bytes", "250"),
        ("file.delete.delay.ms", "100"),
        ("message.timestamp.type", "CreateTime"),  # a tombstone's number is its create time
        ("message.format.version", "0.10.2"),  # before that there was none
    ),
)
STRICT: Final = FirstTopic("strict", 3)
CROWD: Final = tuple(FirstTopic(f"crowd{number}", 1 + number % 3) for number in range(1, 9))
CROWD_KEYS: Final = tuple(key for topic in CROWD for key in topic.partition_keys)
NEW_PARTITIONS: Final = 2
LATE_PARTITIONS: Final = 2
"""More of them, for a group that has settled."""
DRAIN_SECONDS: Final = 30.0
DAY_MS: Final = 24 * 3600 * 1000
LATELY: Final = 300
"""Thousandths of a log, from its end."""
TAIL_PADDINGS: Final = (0, 0, 30, 90, 250)
TAIL_STEPS: Final = 10
TURN_SECONDS: Final = 0.3
"""Between two orders to give a partition's lead on, which takes two."""
SELDOM: Final = FirstTopic("seldom", 20)
GUST_SECONDS: Final = 0.25
"""Between two volleys, on average."""
BULK_PADDINGS: Final = (0, 60, 200)
QUEUED_BYTES: Final = 1_500_000
"""Memory of a broker for large requests: some six of those that are broken off, sixteen of the others."""
BREAKING_SECONDS: Final = 2.0
"""Between two requests that are broken off, on average: their clients are other ones from then on."""
BROKEN_EACH: Final = 14
WAITING_SECONDS: Final = 4.0
PURSUIT_SECONDS: Final = 9.0
"""Longer than the contract's ``progress_deadline``, with what the changes take."""
EAGER: Final = 30
"""Weight of what keeps to a pace of its own."""


def _broker(system: System) -> Broker:
    assert isinstance(system, Broker), f"a mix of the broker's workloads, on {system.name}"
    return system


def _backlogs(system: System, settings: Settings) -> Shares:
    near = MOST_BYTES - ENTRY_OVERHEAD
    paddings = (0, 0, 60, 400, near - 60, near - 13, near - 12, near, near + 12, near + 13)
    return [(10, glance(system.keys())), (30, mixed_traffic.packed(system.keys(), paddings))]


BACKLOGS: Final = WorkloadMix(
    "backlogs",
    "messages of all codecs and formats up to the limit, small segments, readers that take little at a time",
    adds=_backlogs,
    settings={
        "segment.bytes": ("512", "2048"),
        "index.interval.bytes": ("128", "1024"),
        "max.message.bytes": (str(MOST_BYTES),),
        "compression.type": ("producer", "producer", "uncompressed", "gzip", "snappy", "lz4"),
        "message.format.version": ("0.10.2", "0.10.2", "0.9.0"),
        "message.timestamp.type": ("CreateTime", "CreateTime", "LogAppendTime"),
    },
    client={FETCH_BYTES: (100, 700, 1 << 20)},
)


def _settings(system: System, settings: Settings) -> Shares:
    return [(EAGER, stagger(0.25, topic_changes.settings(_broker(system).topic)))]


def _look(system: System, settings: Settings) -> Source:
    return topic_changes.looks(_broker(system).topic)


SETTINGS: Final = WorkloadMix(
    "settings",
    "an administrator who changes settings under load, and asks for what must be rejected",
    adds=_settings,
    closes=_look,
)


def _handovers(system: System, settings: Settings) -> Shares:
    return [(EAGER, stagger(0.4, topic_changes.handovers(system.keys(), settings.nodes)))]


HANDOVERS: Final = WorkloadMix(
    "handovers",
    "partitions given to other replicas and other leaders, and taken back within a second",
    adds=_handovers,
    closes=_look,
)


def _look_ups(system: System, settings: Settings) -> Shares:
    return [(20, mixed_traffic.stamped(system.keys())), (25, mixed_traffic.look_ups(system.keys()))]


LOOK_UPS: Final = WorkloadMix(
    "look-ups",
    "create times out of order, and look-ups of offsets by time",
    adds=_look_ups,
    settings={"segment.bytes": ("512", "4096"), "index.interval.bytes": ("1", "256")},
)


RETENTION: Final = WorkloadMix(
    "retention",
    "old segments are deleted within seconds, by age and by size, while readers are still in them",
    adds=lambda system, settings: [(10, glance(system.keys()))],
    closes=lambda system, settings: topic_changes.keeping(_broker(system).topic),
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


def _with_ledger(system: System) -> System:
    broker = _broker(system)
    return broker.with_topic(
        replace(LEDGER, configs=(*LEDGER.configs, ("min.insync.replicas", str(broker.min_insync))))
    )


def _compaction(system: System, settings: Settings) -> Shares:
    return [(80, mixed_traffic.ledger(LEDGER.partition_keys))]


def _audit(system: System, settings: Settings) -> Source:
    keys = LEDGER.partition_keys
    return phases(
        topic_changes.turns(keys, settings.nodes, _broker(system).replication),
        drain(keys, seconds=DRAIN_SECONDS, keyed=True),
    )


def _compacted(contract: Contract, system: System) -> Contract:
    lasting = _broker(system).topic_config.delete_retention_ms >= DAY_MS
    return msgspec.structs.replace(
        contract, compacted=(*contract.compacted, *LEDGER.partition_keys), lasting_tombstones=lasting
    )


COMPACTION: Final = WorkloadMix(
    "compaction",
    "a compacted topic next to the workload's: keys again and again, tombstones, and a cleaner that hardly rests",
    adds=_compaction,
    closes=_audit,
    settings={"log.cleaner.backoff.ms": ("50", "300"), "delete.retention.ms": ("300", "86400000")},
    system=_with_ledger,
    contract=_compacted,
)


def _lives(system: System, settings: Settings) -> Shares:
    broker = _broker(system)
    return [(60, TopicLives(broker.replication, broker.min_insync))]


LIVES: Final = WorkloadMix(
    "lives",
    "a topic that is deleted and created again under its name, and grows, while clients go on writing to it",
    adds=_lives,
)


def _pursuit(system: System, settings: Settings) -> Source:
    """All leaders change once more, none of them dies, and clients have to follow them."""
    keys = system.keys()
    changes = topic_changes.changeover(keys, settings.nodes)
    return time_limit(PURSUIT_SECONDS, mix(changes, stagger(0.05, mixed_traffic.loyal_sends(keys, closing=True))))


def progressing(contract: Contract, system: System) -> Contract:
    """Clients that live on get what others get."""
    return contract.need(*PROGRESS.anomalies)


CLINGING: Final = WorkloadMix(
    "clinging",
    "clients that go on with their connections and their metadata, after an unknown outcome too, next to newcomers",
    adds=lambda system, settings: [(60, mixed_traffic.loyal_sends(system.keys()))],
    closes=_pursuit,
    client={KEEPS: (0.5, 1.0)},
    contract=progressing,
)


def _tails(system: System, settings: Settings) -> Shares:
    keys = system.keys()
    return [
        (80, mixed_traffic.hasty(keys, TAIL_PADDINGS)),
        (20, walk(keys, steps=TAIL_STEPS, last=LATELY)),
        (EAGER, stagger(TURN_SECONDS, topic_changes.rotations(keys, settings.nodes, _broker(system).replication))),
    ]


TAILS: Final = WorkloadMix(
    "tails",
    "records that the leader alone acknowledges, so that one cut off has much to cut; each replica leads in turn",
    adds=_tails,
    closes=lambda system, settings: topic_changes.turns(system.keys(), settings.nodes, _broker(system).replication),
)


def _habits(system: System, settings: Settings) -> Shares:
    """A third of all habits in each run: a client of one of them has many connections."""
    habits = Random(derive(settings.seed, "habits")).sample(sorted(HABITS), len(HABITS) // 3)
    keys = system.keys()
    return [
        (25, mixed_traffic.habitual(keys, habits, settled=GROWTH.name not in settings.workload_mix)),
        (15, mixed_traffic.wide(keys)),
        (25, mixed_traffic.sweeps(keys)),
    ]


HABITUAL: Final = WorkloadMix(
    "habits",
    "producers of other settings and what they say of each message, requests about many partitions, old versions",
    adds=_habits,
    closes=lambda system, settings: time_limit(WAITING_SECONDS, mixed_traffic.waits(system.keys())),
)


def _bulk(system: System, settings: Settings) -> Shares:
    keys = system.keys()
    return [
        (12, mixed_traffic.bulky(keys, BULK_PADDINGS)),
        (40, end(keys)),
        (EAGER, stagger(BREAKING_SECONDS, mixed_traffic.broken_off(keys, BROKEN))),
    ]


def _largest(system: System, settings: Settings) -> Source:
    """So many requests are broken off that their brokers could read no more, did they keep memory for one of them."""
    keys = system.keys()
    broken = limit(BROKEN_EACH * len(keys), mixed_traffic.broken_off(keys, BROKEN + RANGE // 4))
    tries = mixed_traffic.bulky_tries(keys, BROKEN + RANGE // 2)
    return phases(broken, time_limit(PURSUIT_SECONDS, tries))


BULK: Final = WorkloadMix(
    "bulk",
    "sets many times as large as a follower's fetch, looks at where partitions end, large requests that are broken off",
    adds=_bulk,
    closes=_largest,
    settings={"replica.fetch.max.bytes": ("512", "2048"), "queued.max.request.bytes": (str(QUEUED_BYTES),)},
    contract=progressing,
)


def _seldom(system: System, settings: Settings) -> Shares:
    broker = _broker(system)
    configs = {"min.insync.replicas": str(broker.min_insync)}
    argument = {"partitions": SELDOM.partitions, "replication": broker.replication, "configs": configs}
    made = Operation(CREATE, SELDOM.name, argument)
    keys = SELDOM.partition_keys
    return [(EAGER, stagger(GUST_SECONDS, mixed_traffic.gusts(keys, made))), (5, glance(keys))]


WRITTEN_SELDOM: Final = WorkloadMix(
    "seldom",
    "partitions that are written to for a moment, and then left alone for the rest of the run",
    adds=_seldom,
    closes=lambda system, settings: drain(SELDOM.partition_keys, seconds=DRAIN_SECONDS, silent=True),
)


def _with_crowd(system: System) -> System:
    broker = _broker(system)
    for topic in CROWD:
        broker = broker.with_topic(replace(topic, configs=(("min.insync.replicas", str(broker.min_insync)),)))
    return broker


CROWDED: Final = WorkloadMix(
    "crowd",
    "many topics of few partitions next to the workload's own",
    adds=lambda system, settings: [(80, mixed_traffic.usual(CROWD_KEYS, mixed_traffic.CROWDED))],
    closes=lambda system, settings: drain(CROWD_KEYS, seconds=DRAIN_SECONDS),
    system=_with_crowd,
)


def _with_strict(system: System) -> System:
    """Fewer than all replicas are never enough, so that each one that goes stays eligible (KIP-966)."""
    broker = _broker(system)
    return broker.with_topic(replace(STRICT, configs=(("min.insync.replicas", str(broker.replication)),)))


STRICTNESS: Final = WorkloadMix(
    "strict",
    "a topic that takes records only while all of its replicas are in sync, next to the workload's own",
    adds=lambda system, settings: [(50, mixed_traffic.usual(STRICT.partition_keys, mixed_traffic.STRICTLY))],
    closes=lambda system, settings: drain(STRICT.partition_keys, seconds=DRAIN_SECONDS),
    system=_with_strict,
)


def _beyond(broker: Broker, first: int, count: int) -> tuple[str, ...]:
    """So many partitions of the workload's topic, from the ``first`` that it has not got in the beginning."""
    return tuple(f"{broker.topic}-{broker.partitions + first + more}" for more in range(count))


def _growing(broker: Broker, first: int, count: int) -> Growth:
    """As many more, at the end of a run."""
    have = broker.partitions + first
    return Growth(broker.topic, have, have + count, closing=True, later=0)


def _growth(system: System, settings: Settings) -> Shares:
    broker = _broker(system)
    return [(50, Growth(broker.topic, broker.partitions, broker.partitions + NEW_PARTITIONS))]


def _all_grown(system: System, settings: Settings) -> Source:
    broker = _broker(system)
    rest = _growing(broker, 0, NEW_PARTITIONS)
    return phases(rest, drain(_beyond(broker, 0, NEW_PARTITIONS), seconds=DRAIN_SECONDS))


GROWTH: Final = WorkloadMix(
    "growth",
    "partitions added to the workload's topic, with traffic on them from then on",
    adds=_growth,
    closes=_all_grown,
)


def growing_for(group: str) -> WorkloadMix:
    """The same for a workload whose members of ``group`` poll: at last its topic grows when they have settled."""

    def closes(system: System, settings: Settings) -> Source:
        broker = _broker(system)
        known = (*system.keys(), *_beyond(broker, 0, NEW_PARTITIONS))
        late = _beyond(broker, NEW_PARTITIONS, LATE_PARTITIONS)
        growth = _growing(broker, NEW_PARTITIONS, LATE_PARTITIONS)
        settled = grown(known, late, seconds=DRAIN_SECONDS, group=group, growth=growth)
        return phases(_all_grown(system, settings), settled)

    return replace(GROWTH, closes=closes)


LOG_MIXES: Final = (
    BACKLOGS, SETTINGS, HANDOVERS, TAILS, LOOK_UPS, RETENTION, LIVES, COMPACTION, STRICTNESS, CROWDED, GROWTH,
    CLINGING, HABITUAL, BULK, WRITTEN_SELDOM,
)  # fmt: skip
"""For workloads whose clients do what is done to a log."""
OLD_GROUP_MIXES: Final = tuple(one for one in LOG_MIXES if one is not RETENTION)
"""A consumer of the old design does not say when its place was gone, and it began elsewhere."""


def with_members(mixes: Sequence[WorkloadMix], group: str) -> tuple[WorkloadMix, ...]:
    """The same mixes, of a workload with members of ``group``."""
    return tuple(growing_for(group) if one is GROWTH else one for one in mixes)
