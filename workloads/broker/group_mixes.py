"""The mixes of workloads with consumer groups; see ``assay.workloads.broker.mixes``."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from assay.checkers.groups import expiry
from assay.checkers.groups.views import SPLITS
from assay.checkers.judging.contract import Contract
from assay.cluster.system import System
from assay.harness.core.generator import Context, Generator, Source, mix, sequence, stagger, time_limit, unfold
from assay.harness.core.operation import Operation
from assay.harness.run.experiment import experiment
from assay.harness.run.settings import Settings
from assay.harness.run.workload_mix import Shares, WorkloadMix
from assay.system_under_test.deployment import Broker
from assay.workloads.broker import expiring_groups, mixed_traffic, topic_changes
from assay.workloads.broker.connector_client import CLASSIC
from assay.workloads.broker.expiring_groups import BRIEF
from assay.workloads.broker.group_client import ASSIGNOR
from assay.workloads.broker.group_drain import drain_after_deaths, drain_backlog
from assay.workloads.broker.group_operations import (
    COMMIT,
    DIE,
    LEAVE,
    OPERATION_SECONDS,
    REWIND,
    SILENCE,
    WORKERS,
    commit,
    poll,
    restrict_to_owners,
)
from assay.workloads.broker.log_client import KEEPS
from assay.workloads.broker.mixed_traffic import FOREIGN, REWOUND
from assay.workloads.broker.mixes import (
    BACKLOGS,
    LOADING,
    PURSUIT_SECONDS,
    add_small_segments,
    build_backlog,
    require_progress,
)
from assay.workloads.broker.offsets_client import GUISES, MEMBERS, RETENTION, STRANGER, TOOLS, TOOLS_RETENTION
from assay.workloads.broker.topic_mixes import CROWDED, GROWTH, SHARED_CROWD, adapt_growth, list_owned, list_subscribed

member_experiment = partial(experiment, client_nodes=True, operation_timeout=OPERATION_SECONDS)
"""An experiment whose clients live on nodes of their own, with an operation timeout that suits joins and leaves."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 8
STAYING: Final = "staying"
"""A second group, whose members stay until they die."""
LATECOMERS: Final = "latecomers"
"""A group that starts with a large backlog."""
OFFSETS: Final = 1_000
MOST_AGAIN: Final = 12
"""Maximum records to go back; a compressed set has up to eight."""
EAGER: Final = 30
DRAIN_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 1.2
"""Shorter than a session, and than the time of an operation."""
LEAVING_SECONDS: Final = 0.3
EXPIRY_SECONDS: Final = 8.0
"""Deadline for the expiry of an offset: several times the brokers' longest check interval."""


def find_coordinator_partition(group: str) -> str:
    """Returns the partition whose leader coordinates the group, by Java's ``String.hashCode``."""
    code = 0
    for letter in group:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return f"{OFFSETS_TOPIC}-{(code & 0x7FFFFFFF) % OFFSETS_PARTITIONS}"


def _add_staying_group(system: System, settings: Settings) -> Shares:
    shifts = topic_changes.hand_over([find_coordinator_partition(STAYING)], settings.nodes)
    return [
        (40, poll(STAYING)),
        (20, restrict_to_owners(STAYING, commit(STAYING, list_owned(system, settings)))),
        (EAGER, stagger(0.6, shifts)),
        (EAGER, stagger(2.0, lambda context: Operation(DIE, argument={"group": STAYING}))),
    ]


def _close_with_deaths(system: System, settings: Settings) -> Source:
    """Most members die, because only some of them own a partition."""
    return drain_after_deaths(
        list_subscribed(system, settings),
        seconds=DRAIN_SECONDS,
        group=STAYING,
        dying=settings.concurrency - settings.concurrency // 3,
        meanwhile=topic_changes.change_leaders([find_coordinator_partition(STAYING)], settings.nodes, back=True),
    )


def _add_latecomers(system: System, settings: Settings) -> Shares:
    """The group's members join when there is a backlog."""
    work = mix(
        poll(LATECOMERS),
        restrict_to_owners(LATECOMERS, commit(LATECOMERS, list_owned(system, settings))),
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
"""``BACKLOGS`` for workloads with groups: one more group, which starts far behind and must reach the end."""


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
    """Commits of positions before those read, and rewinds that read records again, for ever."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        records = 1 + context.random_below(MOST_AGAIN, salt=54)
        if context.random_below(2, salt=55):
            return Operation(REWIND, argument={"group": group, "back": records}), number
        argument = {"group": group, "number": number, "keys": list(keys), "behind": records}
        return Operation(COMMIT, argument=argument), number + 1

    return unfold(step, REWOUND)


def _add_rewinds(system: System, settings: Settings) -> Shares:
    return [
        (20, mixed_traffic.send_compressed_sets(system.keys())),
        (25, rewinds(WORKERS, list_owned(system, settings))),
    ]


REWINDS: Final = WorkloadMix(
    "rewinds",
    "members that read again, and commit what they have got done: places in the middle of compressed sets",
    adds=_add_rewinds,
)


def _add_coordinator_changes(system: System, settings: Settings) -> Shares:
    groups = tuple(dict.fromkeys(find_coordinator_partition(group) for group in (MEMBERS, TOOLS)))
    return [(EAGER, stagger(0.7, topic_changes.hand_over(groups, settings.nodes)))]


COORDINATORS: Final = WorkloadMix(
    "coordinators",
    "the groups' coordinators change from broker to broker, and back within seconds",
    adds=_add_coordinator_changes,
)


def strangers(partitions: Sequence[str]) -> Generator:
    """Commits by clients that are not members, for ever."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        argument = {
            "number": number,
            "offset": context.random_below(OFFSETS, salt=51),
            "guise": context.choose(GUISES, salt=52),
        }
        return Operation(STRANGER, f"{MEMBERS}/{context.choose(partitions, salt=53)}", argument), number + 1

    return unfold(step, FOREIGN)


STRANGERS: Final = WorkloadMix(
    "strangers",
    "commits by no one, by members that there are not, and by members of another group",
    adds=lambda system, settings: [(20, strangers(list(system.keys())))],
)


def committers(partitions: Sequence[str], *, closing: bool = False) -> Generator:
    """Commits by long-lived non-members and by newcomers, for ever. ``closing``: uses other numbers."""

    def ask(number: int, key: str, client: str) -> Operation:
        return Operation(COMMIT, key, {"number": number, "offset": number % OFFSETS, "client": client})

    return mixed_traffic.try_as_regular_and_newcomer(
        [f"{TOOLS}/{partition}" for partition in partitions], ask, closing=closing
    )


def _close_with_coordinator_change(system: System, settings: Settings) -> Source:
    """The coordinator changes once more, no client dies, and all have to find the new one."""
    shifts = topic_changes.change_leaders([find_coordinator_partition(TOOLS)], settings.nodes)
    return time_limit(PURSUIT_SECONDS, mix(shifts, stagger(0.05, committers(system.keys(), closing=True))))


COMMITTERS: Final = WorkloadMix(
    "committers",
    "clients that commit without being members, and go on with their connections, next to newcomers",
    adds=lambda system, settings: [(40, committers(system.keys()))],
    closes=_close_with_coordinator_change,
    client={KEEPS: (0.5, 1.0)},
    contract=require_progress,
)


def _add_expiring_groups(system: System, settings: Settings) -> Shares:
    assert isinstance(system, Broker), f"a mix of the broker's workloads, on {system.name}"
    kept = expiring_groups.traffic(list(system.keys())[:2], system.offsets_retention_ms)
    shifts = topic_changes.hand_over([find_coordinator_partition(group) for group in BRIEF], settings.nodes)
    renewed = expiring_groups.renewals(list(system.keys()))
    return [(100, kept), (100, renewed), (EAGER, stagger(1.0, shifts))]


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
    closes=lambda system, settings: expiring_groups.farewell(list(system.keys())[:2]),
    settings={
        "offsets.retention.ms": ("500", "1200"),
        "offsets.retention.check.interval.ms": ("10", "30", "100", "400", "2500"),
    },
    contract=_adapt_contract_to_expiry,
    # Groups whose members may all be absent for a moment must not lose offsets.
    client={RETENTION: (TOOLS_RETENTION,)},
)


SHARES: Final = WorkloadMix(
    "shares", "partitions that are shared out in turn, not in ranges", client={ASSIGNOR: ("roundrobin",)}
)


def _add_pauses(system: System, settings: Settings) -> Shares:
    argument = {"group": WORKERS, "seconds": PAUSE_SECONDS}
    return [(EAGER, stagger(0.2, lambda context: Operation(SILENCE, argument=argument)))]


PAUSES: Final = WorkloadMix(
    "pauses", "members that do nothing for a while, and hold on to partitions that others claim", adds=_add_pauses
)


def _add_leaves(system: System, settings: Settings) -> Shares:
    return [(EAGER, stagger(LEAVING_SECONDS, lambda context: Operation(LEAVE, argument={"group": WORKERS})))]


def _tolerate_split_views(contract: Contract, system: System) -> Contract:
    return contract.tolerate(
        SPLITS.checks[0].anomaly,
        because=(
            "members of the old design agree on nothing: each claims by what it has read of its group, also when that "
            "has changed by then, and others have claimed by what is new"
        ),
    )


CLASSICS: Final = WorkloadMix(
    "classic",
    "members of the old design that let go of everything at each change, claim by what they have read, and often leave",
    adds=_add_leaves,
    client={CLASSIC: (True,)},
    contract=_tolerate_split_views,
)

ZOOKEEPER_MIXES: Final = (PAUSES, CLASSICS)
GROUP_MIXES: Final = (NEIGHBOURS, REWINDS, SHARES)
OFFSETS_MIXES: Final = (COORDINATORS, STRANGERS, COMMITTERS, EXPIRY)
