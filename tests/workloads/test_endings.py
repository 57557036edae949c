"""Brokers that begin things and never end them, each broken by hand in one place: the checks name what did not end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.groups.family import GROUP_CONVERGENCE
from assay.checkers.judging.contract import forbid
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.liveness.family import LIVENESS_ANOMALIES
from assay.checkers.servers.leadership import OWNERSHIP_ANOMALIES
from assay.harness.core.generator import Generator, mix, once, sequence, stagger
from assay.harness.core.operation import Operation
from assay.harness.run.experiment import Experiment
from assay.harness.run.settings import Settings
from assay.system_under_test.assignors import ASSIGNORS, Partition, assign_range
from assay.system_under_test.controller.deletion import TopicDeletions
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.controller.reassignment import Reassignments
from assay.system_under_test.deployment import Broker
from assay.system_under_test.groups.group import Group
from assay.system_under_test.log.log import Log
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import PartitionStateUpdate, UpdateMetadataRequest
from assay.system_under_test.replication.leader import LeaderTerm
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.replica import Replica
from assay.system_under_test.replication.replicas import Replicas
from assay.workloads.broker import group_drain, group_operations
from assay.workloads.broker.controller_churn import ControllerClient
from assay.workloads.broker.group_client import GroupClient
from assay.workloads.broker.group_drain import catch_up
from assay.workloads.broker.group_operations import WORKERS
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import traffic
from assay.workloads.broker.topic_admin import Alter, Create, Delete, Move

from helpers.attempts import played

SYSTEM = Broker(partitions=1, replication=3, min_insync=2)
AGING = (
    SYSTEM.with_setting("segment.bytes", "400")
    .with_setting("retention.ms", "1000")
    .with_setting("log.retention.check.interval.ms", "300")
)
CONTRACT = forbid(*OWNERSHIP_ANOMALIES, *LIVENESS_ANOMALIES, recovery_deadline=5.0)


def come_to_its_end(
    folder: Path, *operations: Operation, system: Broker = SYSTEM, nemesis: tuple[str, ...] = (), seed: int = 2
) -> Judgement:
    """Judges a short run in which these are done once, next to the usual traffic."""

    def body(_: Settings) -> Generator:
        keys = system.keys()
        return mix(traffic(keys), stagger(0.5, sequence(*map(once, operations)))) | drain(keys, seconds=5.0)

    experiment = Experiment("endings", system, ControllerClient, CONTRACT, body)
    settings = Settings(seed=seed, time_limit=10.0, rate=20.0, nodes=4, store=folder, nemesis=nemesis)
    judgement = played(experiment, settings).judgement
    assert judgement is not None
    return judgement


async def nothing(*_: Any, **__: Any) -> None: ...


MADE = Operation(Create.f, "other", {"partitions": 1, "replication": 2})
DELETED = Operation(Delete.f, "other")
CHANGED = Operation(Alter.f, "orders", {"name": "segment.bytes", "value": "4096"})
MOVED = [Operation(Move.f, "orders-0", {"replicas": list(replicas)}) for replicas in ((1, 2, 3), (2, 3, 4), (4, 1, 2))]


def keeps_the_request(patch: pytest.MonkeyPatch) -> None:
    async def clean(*_: Any) -> bool:
        return False

    patch.setattr(Reassignments, "_clean", clean)


def promises_moves_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reassignments, "start", nothing)


def promises_deletions_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopicDeletions, "request", nothing)


def lets_no_one_in_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderTerm, "_consider_expansion", lambda *_: None)


def keeps_the_files(patch: pytest.MonkeyPatch) -> None:
    async def delete(self: Log) -> None:
        await self.close()

    patch.setattr(Log, "delete", delete)


def forgets_to_delete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopicDeletions, "begin_due", nothing)


def knows_topics_for_ever(patch: pytest.MonkeyPatch) -> None:
    update = MetadataCache.update

    def without_deletions(self: MetadataCache, request: UpdateMetadataRequest) -> None:
        request.deleted, request.full = [], False
        update(self, request)

    patch.setattr(MetadataCache, "update", without_deletions)


def is_deaf_to_the_controller(patch: pytest.MonkeyPatch) -> None:
    change = ReplicaManager._change_role

    async def deaf(self: ReplicaManager, update: PartitionStateUpdate, live: Any) -> ErrorCode:
        known = self.replicas.find(update.topic, update.partition)
        if known is not None and known.leader_epoch >= 0 and update.leader != self.config.broker_id:
            return ErrorCode.NONE
        return await change(self, update, live)

    patch.setattr(ReplicaManager, "_change_role", deaf)


def misses_settings(patch: pytest.MonkeyPatch) -> None:
    configure = Replicas.configure

    async def once(self: Replicas, topic: str, settings: Mapping[str, str], zxid: int) -> None:
        if not settings:
            await configure(self, topic, settings, zxid)

    patch.setattr(Replicas, "configure", once)


def keeps_everything(patch: pytest.MonkeyPatch) -> None:
    async def retain(_: Replica) -> int:
        return 0

    patch.setattr(Replica, "apply_retention", retain)


by_night = partial(pytest.param, marks=pytest.mark.long)
"""Marks cases of a check that other cases reach by another clause. The clauses have tests of their own."""


@pytest.mark.parametrize(
    ("breaks", "anomaly", "words", "given"),
    [
        (keeps_the_request, "unfinished-move", "was under way", {"operations": MOVED}),
        by_night(keeps_the_files, "unfinished-move", "had files of orders-0", {"operations": MOVED}),
        by_night(keeps_the_files, "undeleted-topic", "had files of other-0", {"operations": [MADE, DELETED]}),
        by_night(promises_moves_alone, "unfinished-move", "was promised at", {"operations": MOVED}),
        by_night(promises_deletions_alone, "undeleted-topic", "was acknowledged at", {"operations": [MADE, DELETED]}),
        by_night(forgets_to_delete, "undeleted-topic", "Other was to be deleted", {"operations": [MADE, DELETED]}),
        by_night(knows_topics_for_ever, "undeleted-topic", "still knew other", {"operations": [MADE, DELETED]}),
        by_night(lets_no_one_in_again, "no-rejoin", "did not get back", {"nemesis": ("kill",)}),
        by_night(is_deaf_to_the_controller, "disobeyed-state", "is still in epoch", {"nemesis": ("kill",)}),
        (misses_settings, "disobeyed-settings", "did not go by the settings that orders", {"operations": [CHANGED]}),
        (keeps_everything, "retention-undone", "from offset 0 to", {"system": AGING}),
    ],
)
def test_what_is_never_ended_is_found_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    breaks: Callable[[pytest.MonkeyPatch], None],
    anomaly: str,
    words: str,
    given: dict[str, Any],
) -> None:
    operations = given.pop("operations", [])
    breaks(monkeypatch)
    judgement = come_to_its_end(tmp_path, *operations, **given)
    assert judgement.verdict is Verdict.FAIL, judgement.unknown
    assert [finding for finding in judgement.findings if finding.anomaly == anomaly and words in finding.claim], [
        finding.claim for finding in judgement.findings
    ]


GROUP_SYSTEM = Broker(partitions=4, replication=3, min_insync=2, groups=(WORKERS,))
GROUP_CONTRACT = forbid(*GROUP_CONVERGENCE.anomalies, recovery_deadline=20.0)


def settled(folder: Path) -> Judgement:
    """A short run of a group, to its end."""

    def body(_: Settings) -> Generator:
        keys, seconds = GROUP_SYSTEM.keys(), GROUP_CONTRACT.recovery_deadline
        return (
            group_operations.traffic(keys) | group_drain.drain(keys, seconds=seconds) | catch_up(keys, seconds=seconds)
        )

    experiment = Experiment("endings", GROUP_SYSTEM, GroupClient, GROUP_CONTRACT, body)
    judgement = played(experiment, Settings(seed=4, time_limit=8.0, rate=40.0, store=folder)).judgement
    assert judgement is not None
    return judgement


def never_elects_again(patch: pytest.MonkeyPatch) -> None:
    elect = Group._end_joining_if_complete

    def once_only(self: Group) -> None:
        if self.group_id != WORKERS or self.generation < 2:
            elect(self)

    patch.setattr(Group, "_end_joining_if_complete", once_only)


def leaves_one_out(patch: pytest.MonkeyPatch) -> None:
    def without_the_last(subscriptions: Any, partitions: Any) -> dict[str, list[Partition]]:
        given = assign_range(subscriptions, partitions)
        return {member: [one for one in owned if one != ("orders", 3)] for member, owned in given.items()}

    patch.setitem(ASSIGNORS, "range", without_the_last)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("breaks", "words"),
    [by_night(never_elects_again, "workers read orders-"), by_night(leaves_one_out, "drain read orders-3 up to")],
)
def test_a_group_that_does_not_settle_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: Callable[[pytest.MonkeyPatch], None], words: str
) -> None:
    breaks(monkeypatch)
    judgement = settled(tmp_path)
    assert judgement.verdict is Verdict.FAIL, judgement.unknown
    assert any(words in finding.claim for finding in judgement.findings), [one.claim for one in judgement.findings]


@pytest.mark.long
def test_the_correct_group_settles(tmp_path: Path) -> None:
    judgement = settled(tmp_path)
    assert judgement.verdict is Verdict.PASS, (judgement.unknown, [one.claim for one in judgement.findings])


def test_the_correct_broker_ends_all_of_it(tmp_path: Path) -> None:
    operations = [MADE, *MOVED, CHANGED, DELETED]
    judgement = come_to_its_end(tmp_path, *operations, system=AGING, nemesis=("kill",))
    assert judgement.verdict is Verdict.PASS, (judgement.unknown, [one.claim for one in judgement.findings])
