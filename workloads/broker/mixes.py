"""The mixes of the broker's workloads, chosen by ``--workload-mix``; docs/cookbook/mixes.md has the purpose of each."""

from random import Random
from typing import Final

from assay.checkers.judging.contract import Contract
from assay.checkers.liveness.client_progress import PROGRESS
from assay.cluster.system import System
from assay.harness.core.generator import Generator, Source, limit, mix, phases, stagger, time_limit
from assay.harness.run.settings import Settings, derive_seed
from assay.harness.run.workload_mix import Shares, WorkloadMix
from assay.system_under_test.client.producer import ENTRY_OVERHEAD
from assay.workloads.broker import mixed_traffic, topic_changes
from assay.workloads.broker.log_client import FETCH_BYTES, KEEPS
from assay.workloads.broker.log_operations import end, glance, walk
from assay.workloads.broker.mixed_traffic import BROKEN, RANGE
from assay.workloads.broker.producer_profiles import HABITS
from assay.workloads.broker.topic_mixes import (
    COMPACTION,
    CROWDED,
    FULL_RATE_WEIGHT,
    GROWTH,
    LIVES,
    STRICTNESS,
    WRITTEN_SELDOM,
    require_broker,
)

MOST_BYTES: Final = 1500
"""Maximum size of a message on disk."""
LOADED_SETS: Final = 20
LOADED_EACH: Final = 25
"""Messages of each set; repacked as one, they are within the size limit."""
LOADING: Final = 60
"""Weight of the backlog, so that it is complete within seconds."""
SLOW_SECONDS: Final = 0.15
"""Average time between two polls of slow readers; each client's polls are seconds apart."""
TAIL_THOUSANDTHS: Final = 300
"""The last part of a log that is read, in thousandths of the log."""
TAIL_PADDINGS: Final = (0, 0, 30, 90, 250)
TAIL_STEPS: Final = 10
TURN_SECONDS: Final = 0.3
"""Time between two requests to move a partition's leadership, which takes two requests."""
BULK_PADDINGS: Final = (0, 60, 200)
QUEUED_BYTES: Final = 1_500_000
"""A broker's memory for large requests. It holds six complete requests to break off, or sixteen others."""
BREAKING_SECONDS: Final = 2.0
"""Average time between two broken-off requests; their clients reconnect as new processes."""
BROKEN_EACH: Final = 24
WAITING_SECONDS: Final = 4.0
PURSUIT_SECONDS: Final = 9.0
"""Longer than the contract's ``progress_deadline`` plus the changes."""


def add_small_segments(system: System, settings: Settings) -> Shares:
    near = MOST_BYTES - ENTRY_OVERHEAD
    paddings = (0, 0, 60, 400, near - 60, near - 13, near - 12, near, near + 12, near + 13)
    return [
        (10, glance(system.keys())),
        (30, mixed_traffic.send_all_codecs(system.keys(), paddings)),
        (FULL_RATE_WEIGHT, stagger(SLOW_SECONDS, mixed_traffic.poll_slowly(system.keys()))),
    ]


def build_backlog(system: System, settings: Settings) -> Generator:
    """A backlog in one of the partitions."""
    keys = system.keys()
    return mixed_traffic.send_backlog(keys[settings.seed % len(keys)], LOADED_SETS, LOADED_EACH)


BACKLOGS: Final = WorkloadMix(
    "backlogs",
    "messages of all codecs and formats up to the size limit, small segments, readers with small fetches or rare polls",
    adds=lambda system, settings: [*add_small_segments(system, settings), (LOADING, build_backlog(system, settings))],
    settings={
        "segment.bytes": ("512", "2048"),
        "index.interval.bytes": ("128", "1024"),
        "max.message.bytes": (str(MOST_BYTES),),
        "compression.type": ("producer", "producer", "uncompressed", "gzip", "snappy", "lz4"),
        "message.format.version": ("0.10.2", "0.10.2", "0.9.0"),
        "message.timestamp.type": ("CreateTime", "CreateTime", "LogAppendTime"),
        "preallocate": ("false", "true"),
    },
    client={FETCH_BYTES: (100, 700, 1 << 20)},
)


def _add_setting_changes(system: System, settings: Settings) -> Shares:
    return [(FULL_RATE_WEIGHT, stagger(0.25, topic_changes.change_settings(require_broker(system).topic)))]


def _close_with_looks(system: System, settings: Settings) -> Source:
    return topic_changes.look_at_topics(require_broker(system).topic)


SETTINGS: Final = WorkloadMix(
    "settings",
    "an administrator who changes settings under load, and sends requests that must be rejected",
    adds=_add_setting_changes,
    closes=_close_with_looks,
)


def _add_handovers(system: System, settings: Settings) -> Shares:
    return [(FULL_RATE_WEIGHT, stagger(0.4, topic_changes.hand_over(system.keys(), settings.nodes)))]


HANDOVERS: Final = WorkloadMix(
    "handovers",
    "partitions that are moved to other replicas and leaders, and back within a second",
    adds=_add_handovers,
    closes=_close_with_looks,
)


def _add_look_ups(system: System, settings: Settings) -> Shares:
    return [
        (20, mixed_traffic.send_out_of_order_times(system.keys())),
        (25, mixed_traffic.look_up_times(system.keys())),
    ]


LOOK_UPS: Final = WorkloadMix(
    "look-ups",
    "create times out of order, and look-ups of offsets by time",
    adds=_add_look_ups,
    settings={"segment.bytes": ("512", "4096"), "index.interval.bytes": ("1", "256")},
)


RETENTION: Final = WorkloadMix(
    "retention",
    "old segments are deleted within seconds, by age and by size, while readers are still in them",
    adds=lambda system, settings: [
        (10, glance(system.keys())),
        (FULL_RATE_WEIGHT, stagger(SLOW_SECONDS, mixed_traffic.poll_slowly(system.keys()))),
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
    """Changes all leaders once more, without a fault. Clients must find the new leaders."""
    keys = system.keys()
    changes = topic_changes.change_leaders(keys, settings.nodes)
    return time_limit(
        PURSUIT_SECONDS, mix(changes, stagger(0.05, mixed_traffic.send_as_regular_and_newcomer(keys, closing=True)))
    )


def require_progress(contract: Contract, system: System) -> Contract:
    """Adds the check that long-lived clients succeed if newcomers do."""
    return contract.need(*PROGRESS.anomalies)


KEPT_CONNECTIONS: Final = WorkloadMix(
    "clinging",
    "clients that keep connections and metadata, even after an unknown outcome, compared with new clients",
    adds=lambda system, settings: [(60, mixed_traffic.send_as_regular_and_newcomer(system.keys()))],
    closes=_close_with_leader_changes,
    client={KEEPS: (0.5, 1.0)},
    contract=require_progress,
)


def _add_tails(system: System, settings: Settings) -> Shares:
    keys = system.keys()
    return [
        (80, mixed_traffic.send_leader_only(keys, TAIL_PADDINGS)),
        (20, walk(keys, steps=TAIL_STEPS, last=TAIL_THOUSANDTHS)),
        (
            FULL_RATE_WEIGHT,
            stagger(
                TURN_SECONDS, topic_changes.rotate_leaders(keys, settings.nodes, require_broker(system).replication)
            ),
        ),
    ]


LEADER_ONLY_TAILS: Final = WorkloadMix(
    "tails",
    "records with acks=1, so that an isolated leader must truncate many of them later; each replica leads in turn",
    adds=_add_tails,
    closes=lambda system, settings: topic_changes.read_each_replica(
        system.keys(), settings.nodes, require_broker(system).replication
    ),
)


def _add_habits(system: System, settings: Settings) -> Shares:
    """Chooses a third of all habits for each run, because each habit costs a client many connections."""
    habits = Random(derive_seed(settings.seed, "habits")).sample(sorted(HABITS), len(HABITS) // 3)
    keys = system.keys()
    return [
        (25, mixed_traffic.send_by_habit(keys, habits, settled=GROWTH.name not in settings.workload_mix)),
        (15, mixed_traffic.produce_to_many(keys)),
        (25, mixed_traffic.fetch_from_many(keys)),
    ]


PRODUCER_PROFILES: Final = WorkloadMix(
    "habits",
    "producers with various settings and their reports on messages, multi-partition requests, old protocol versions",
    adds=_add_habits,
    closes=lambda system, settings: time_limit(WAITING_SECONDS, mixed_traffic.wait_at_end(system.keys())),
)


def _add_bulk(system: System, settings: Settings) -> Shares:
    keys = system.keys()
    return [
        (12, mixed_traffic.send_large_sets(keys, BULK_PADDINGS)),
        (40, end(keys)),
        (FULL_RATE_WEIGHT, stagger(BREAKING_SECONDS, mixed_traffic.break_off_requests(keys, BROKEN))),
    ]


def _close_with_broken_requests(system: System, settings: Settings) -> Source:
    """Breaks off so many requests that brokers could read no more requests if each one leaked its memory."""
    keys = system.keys()
    broken = limit(BROKEN_EACH * len(keys), mixed_traffic.break_off_requests(keys, BROKEN + RANGE // 4))
    tries = mixed_traffic.try_large_requests(keys, BROKEN + RANGE // 2)
    return phases(broken, time_limit(PURSUIT_SECONDS, tries))


BULK: Final = WorkloadMix(
    "bulk",
    "message sets much larger than a follower's fetch, requests for log ends, large requests that are broken off",
    adds=_add_bulk,
    closes=_close_with_broken_requests,
    settings={"replica.fetch.max.bytes": ("512", "2048"), "queued.max.request.bytes": (str(QUEUED_BYTES),)},
    contract=require_progress,
)


LOG_MIXES: Final = (
    BACKLOGS, SETTINGS, HANDOVERS, LEADER_ONLY_TAILS, LOOK_UPS, RETENTION, LIVES, COMPACTION, STRICTNESS, CROWDED,
    GROWTH, KEPT_CONNECTIONS, PRODUCER_PROFILES, BULK, WRITTEN_SELDOM,
)  # fmt: skip
"""For workloads whose clients support all operations on a log."""
OLD_GROUP_MIXES: Final = tuple(one for one in LOG_MIXES if one is not RETENTION)
"""Without ``RETENTION``: consumers of the old design do not report that a position was out of range and reset."""
