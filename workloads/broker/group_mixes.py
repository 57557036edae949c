"""The mixes of workloads with consumer groups. ``assay.workloads.broker.mixes`` explains the fields of a mix.

A mix adds pairs of a weight and a generator (``WeightedSources``). ``pace(seconds, generator)`` is such a pair, whose
generator yields an operation every ``seconds`` on average.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from assay.checkers.groups import expiry
from assay.checkers.groups.split_views import SPLIT_VIEWS
from assay.checkers.judging.contract import Contract
from assay.cluster.system import System
from assay.harness.core.generator import Context, Generator, Source, mix, phases, sequence, stagger, time_limit, unfold
from assay.harness.core.operation import Operation
from assay.harness.run.experiment import experiment
from assay.harness.run.settings import Settings
from assay.harness.run.workload_mix import WeightedSources, WorkloadMix
from assay.workloads.broker import expiring_groups, mixed_traffic, topic_changes
from assay.workloads.broker.connector_client import CLASSIC
from assay.workloads.broker.expiring_groups import BRIEF
from assay.workloads.broker.group_drain import drain_after_deaths, drain_after_growth, drain_backlog
from assay.workloads.broker.group_member import ASSIGNOR, TOPICS
from assay.workloads.broker.group_operations import (
    OPERATION_SECONDS,
    WORKERS,
    CommitPositions,
    Die,
    FallSilent,
    LeaveGroup,
    PollGroup,
    Rewind,
    restrict_to_owners,
)
from assay.workloads.broker.mixed_traffic import ValueRange
from assay.workloads.broker.mixes import (
    BACKLOGS,
    CROWD,
    CROWD_KEYS,
    CROWDED,
    DRAIN_SECONDS,
    GROWTH,
    LOADING,
    NEW_PARTITIONS,
    PURSUIT_SECONDS,
    add_small_segments,
    build_backlog,
    build_closing_growth,
    close_with_growth,
    drain_topics,
    list_new_partitions,
    pace,
    require_broker,
    require_progress,
)
from assay.workloads.broker.offsets_client import (
    GUISES,
    MEMBERLESS,
    MEMBERLESS_RETENTION,
    MEMBERS,
    RETENTION,
    Commit,
    CommitAsNonMember,
)
from assay.workloads.broker.verbs import KEEPS

member_experiment = partial(experiment, client_nodes=True, operation_timeout=OPERATION_SECONDS)
"""An experiment whose clients live on nodes of their own, with an operation timeout that suits joins and leaves."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 8
STAYING: Final = "staying"
"""A second group, whose members stay until they die."""
LATECOMERS: Final = "latecomers"
"""A group whose members join when there is a large backlog."""
OFFSETS: Final = 1_000
MAX_REWIND: Final = 12
"""Maximum number of records to go back. A compressed set has up to eight."""
PAUSE_SECONDS: Final = 1.2
"""Seconds of a member's pause: less than a session, and less than the timeout of an operation."""
LEAVING_SECONDS: Final = 0.3
"""Average time between two members that leave."""
EXPIRY_SECONDS: Final = 8.0
"""Deadline for the expiry of an offset: several times the brokers' longest check interval."""
SHARED_TOPICS: Final = CROWD[:4]
"""Topics to which group members subscribe in addition, and which they drain."""
_SHARED_KEYS: Final = sum(topic.partitions for topic in SHARED_TOPICS)
"""Number of partitions of these topics, which are the first ones in ``CROWD_KEYS``."""
LATE_PARTITIONS: Final = 2
"""Partitions added later, for a group that has settled."""


def list_subscribed(system: System, settings: Settings) -> list[str]:
    """Returns the partitions that groups share from the beginning of a run with these settings."""
    return [*system.keys(), *(CROWD_KEYS[:_SHARED_KEYS] if CROWDED.name in settings.workload_mix else ())]


def list_owned(system: System, settings: Settings) -> list[str]:
    """Returns all partitions that a member may ever commit: :func:`list_subscribed` and those that ``GROWTH`` adds."""
    grows = GROWTH.name in settings.workload_mix
    late = list_new_partitions(require_broker(system), 0, NEW_PARTITIONS + LATE_PARTITIONS) if grows else ()
    return [*list_subscribed(system, settings), *late]


def find_coordinator_partition(group: str) -> str:
    """Returns the partition whose leader coordinates the group. Java's ``String.hashCode`` selects it."""
    code = 0
    for letter in group:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return f"{OFFSETS_TOPIC}-{(code & 0x7FFFFFFF) % OFFSETS_PARTITIONS}"


def _add_staying_group(system: System, settings: Settings) -> WeightedSources:
    shifts = topic_changes.move_and_revert([find_coordinator_partition(STAYING)], settings.nodes)
    return [
        (40, PollGroup.draw(STAYING)),
        (20, restrict_to_owners(STAYING, CommitPositions.draw(STAYING, list_owned(system, settings)))),
        pace(0.6, shifts),
        pace(2.0, lambda context: Operation(Die.f, argument={"group": STAYING})),
    ]


def _close_with_deaths(system: System, settings: Settings) -> Source:
    """Lets so many members die that at least one of them owns a partition: some members own none."""
    return drain_after_deaths(
        list_subscribed(system, settings),
        seconds=DRAIN_SECONDS,
        group=STAYING,
        dying=settings.concurrency - settings.concurrency // 3,
        meanwhile=topic_changes.change_leaders([find_coordinator_partition(STAYING)], settings.nodes, back=True),
    )


def _add_latecomers(system: System, settings: Settings) -> WeightedSources:
    """Adds a group whose members join when there is a backlog."""
    work = mix(
        PollGroup.draw(LATECOMERS),
        restrict_to_owners(LATECOMERS, CommitPositions.draw(LATECOMERS, list_owned(system, settings))),
        weights=(2, 1),
    )
    return [*add_small_segments(system, settings), (LOADING, sequence(build_backlog(system, settings), work))]


FAR_BEHIND: Final = replace(
    BACKLOGS,
    adds=_add_latecomers,
    closes=lambda system, settings: drain_backlog(
        list_subscribed(system, settings), seconds=DRAIN_SECONDS, group=LATECOMERS
    ),
)
"""``BACKLOGS`` for workloads with groups: an additional group starts far behind and must reach the end."""


SHARED_CROWD: Final = replace(
    CROWDED,
    closes=drain_topics(*CROWD_KEYS[_SHARED_KEYS:]),
    client={TOPICS: (tuple(topic.name for topic in SHARED_TOPICS),)},
)
"""``CROWDED`` for workloads with groups, whose members subscribe to some of the additional topics."""


def adapt_growth(group: str) -> WorkloadMix:
    """Returns ``GROWTH`` for workloads with a polling ``group``: the topic also grows after the group has settled."""

    def closes(system: System, settings: Settings) -> Source:
        broker = require_broker(system)
        known = (*list_subscribed(system, settings), *list_new_partitions(broker, 0, NEW_PARTITIONS))
        late = list_new_partitions(broker, NEW_PARTITIONS, LATE_PARTITIONS)
        growth = build_closing_growth(broker, NEW_PARTITIONS, LATE_PARTITIONS)
        settled = drain_after_growth(known, late, seconds=DRAIN_SECONDS, group=group, growth=growth)
        return phases(close_with_growth(system, settings), settled)

    return replace(GROWTH, closes=closes)


def adapt_to_groups(mixes: Sequence[WorkloadMix], group: str | None = None) -> tuple[WorkloadMix, ...]:
    """Returns the mixes in their variants for groups. ``group``: a group whose members poll all the time."""
    others = {BACKLOGS.name: FAR_BEHIND, CROWDED.name: SHARED_CROWD}
    others |= {} if group is None else {GROWTH.name: adapt_growth(group)}
    return tuple(others.get(one.name, one) for one in mixes)


NEIGHBOURS: Final = WorkloadMix(
    "neighbours",
    "a second group, whose members stay until they die, while its coordinator changes from broker to broker",
    adds=_add_staying_group,
    closes=_close_with_deaths,
)


def rewinds(group: str, keys: Sequence[str]) -> Generator:
    """Yields commits of positions before the read ones, and rewinds, which read records again, for ever."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        records = 1 + context.random_below(MAX_REWIND, salt=54)
        if context.random_below(2, salt=55):
            return Operation(Rewind.f, argument={"group": group, "back": records}), number
        argument = {"group": group, "number": number, "keys": list(keys), "behind": records}
        return Operation(CommitPositions.f, argument=argument), number + 1

    return unfold(step, ValueRange.REWOUND)


REWINDS: Final = WorkloadMix(
    "rewinds",
    "members that go back and read again, and commit positions inside compressed sets",
    adds=lambda system, settings: [
        (20, mixed_traffic.send_compressed_sets(system.keys())),
        (25, rewinds(WORKERS, list_owned(system, settings))),
    ],
)


def _add_coordinator_changes(system: System, settings: Settings) -> WeightedSources:
    groups = tuple(dict.fromkeys(find_coordinator_partition(group) for group in (MEMBERS, MEMBERLESS)))
    return [pace(0.7, topic_changes.move_and_revert(groups, settings.nodes))]


COORDINATORS: Final = WorkloadMix(
    "coordinators",
    "the groups' coordinators change from broker to broker, and back within seconds",
    adds=_add_coordinator_changes,
)


def strangers(partitions: Sequence[str]) -> Generator:
    """Yields commits by clients that are not members, for ever."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        argument = {
            "number": number,
            "offset": context.random_below(OFFSETS, salt=51),
            "guise": context.choose(GUISES, salt=52),
        }
        return Operation(CommitAsNonMember.f, f"{MEMBERS}/{context.choose(partitions, salt=53)}", argument), number + 1

    return unfold(step, ValueRange.FOREIGN)


STRANGERS: Final = WorkloadMix(
    "strangers",
    "commits by no one, by members that do not exist, and by members of another group",
    adds=lambda system, settings: [(20, strangers(list(system.keys())))],
)


def committers(partitions: Sequence[str], *, closing: bool = False) -> Generator:
    """Yields commits by long-lived and by new clients that are not members, for ever.

    ``closing``: takes the numbers of commits from another range, for the end of the run.
    """

    def make_commit(number: int, key: str, client: str) -> Operation:
        return Operation(Commit.f, key, {"number": number, "offset": number % OFFSETS, "client": client})

    keys = [f"{MEMBERLESS}/{partition}" for partition in partitions]
    return mixed_traffic.try_as_regular_and_newcomer(keys, make_commit, closing=closing)


def _close_with_coordinator_change(system: System, settings: Settings) -> Source:
    """Changes the coordinator once more. All clients must find the new coordinator."""
    shifts = topic_changes.change_leaders([find_coordinator_partition(MEMBERLESS)], settings.nodes)
    return time_limit(PURSUIT_SECONDS, mix(shifts, stagger(0.05, committers(system.keys(), closing=True))))


COMMITTERS: Final = WorkloadMix(
    "committers",
    "clients that commit without being members, and go on with their connections, next to newcomers",
    adds=lambda system, settings: [(40, committers(system.keys()))],
    closes=_close_with_coordinator_change,
    client={KEEPS: (0.5, 1.0)},
    contract=require_progress,
)


def _add_expiring_groups(system: System, settings: Settings) -> WeightedSources:
    traffic = expiring_groups.traffic(list(system.keys())[:2], require_broker(system).offsets_retention_ms)
    shifts = topic_changes.move_and_revert([find_coordinator_partition(group) for group in BRIEF], settings.nodes)
    renewed = expiring_groups.renewals(list(system.keys()))
    return [(100, traffic), (100, renewed), pace(1.0, shifts)]


def _adapt_contract_to_expiry(contract: Contract, system: System) -> Contract:
    needed = contract.need(*expiry.EXPIRY.anomalies)
    return msgspec.structs.replace(needed, retention_deadline=EXPIRY_SECONDS).tolerate_under(
        "early-expiry",
        "overdue-offset",
        faults=["clock"],
        because="the time of an offset is that of its coordinators' wall clocks",
    )


EXPIRY: Final = WorkloadMix(
    "expiry",
    "groups that come and go, whose offsets are kept for a moment only, while their coordinators change",
    adds=_add_expiring_groups,
    closes=lambda system, settings: expiring_groups.leave_and_look(list(system.keys())[:2]),
    settings={
        "offsets.retention.ms": ("500", "1200"),
        "offsets.retention.check.interval.ms": ("10", "30", "100", "400", "2500"),
    },
    contract=_adapt_contract_to_expiry,
    # Groups whose members may all be absent for a moment must not lose offsets.
    client={RETENTION: (MEMBERLESS_RETENTION,)},
)


SHARES: Final = WorkloadMix(
    "shares", "partitions that are shared out in turn, not in ranges", client={ASSIGNOR: ("roundrobin",)}
)


PAUSES: Final = WorkloadMix(
    "pauses",
    "members that do nothing for a while, and hold on to partitions that others claim",
    adds=lambda system, settings: [
        pace(0.2, lambda context: Operation(FallSilent.f, argument={"group": WORKERS, "seconds": PAUSE_SECONDS}))
    ],
)


def _tolerate_split_views(contract: Contract, system: System) -> Contract:
    return contract.tolerate(
        SPLIT_VIEWS.checks[0].anomaly,
        because=(
            "members of the old design agree on nothing: each claims by what it has read of its group, which may have "
            "changed by then, while others have claimed by the new state"
        ),
    )


CLASSICS: Final = WorkloadMix(
    "classic",
    "members of the old design that let go of everything at each change, claim by what they have read, and often leave",
    adds=lambda system, settings: [
        pace(LEAVING_SECONDS, lambda context: Operation(LeaveGroup.f, argument={"group": WORKERS}))
    ],
    client={CLASSIC: (True,)},
    contract=_tolerate_split_views,
)

ZOOKEEPER_MIXES: Final = (PAUSES, CLASSICS)
GROUP_MIXES: Final = (NEIGHBOURS, REWINDS, SHARES)
OFFSETS_MIXES: Final = (COORDINATORS, STRANGERS, COMMITTERS, EXPIRY)
