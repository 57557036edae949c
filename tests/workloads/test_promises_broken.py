"""Brokers broken by hand: what a workload makes in passing, by a mix or on the disks alone, fails its run as well."""

from __future__ import annotations

import asyncio
import itertools
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.run.settings import Settings
from assay.system_under_test.client.positions import Positions
from assay.system_under_test.client.zookeeper_groups.connector import ConsumerConnector
from assay.system_under_test.controller import topic_actions
from assay.system_under_test.controller.topic_actions import TopicActions, TopicError
from assay.system_under_test.groups.group import Group, GroupState
from assay.system_under_test.log.log import Log
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import encode
from assay.workloads import (
    test_controller,
    test_draft_group,
    test_group,
    test_log,
    test_migration,
    test_offsets,
    test_zookeeper_group,
)

from helpers.attempts import played
from helpers.nightly import by_night

pytestmark = pytest.mark.slow


def judged(test: object, folder: Path, *mix: str, time_limit: float = 6.0, rate: float = 40.0) -> Judgement:
    """By what is in the history alone: an invariant would end the run as soon as the broker is wrong."""
    settings = Settings(seed=11, time_limit=time_limit, rate=rate, store=folder, workload_mix=mix, invariants="off")
    judgement = played(test, settings).judgement
    assert judgement is not None
    return judgement


def rejects_what_it_changes(patch: pytest.MonkeyPatch) -> None:
    """And lets no setting go back to its default, so that a later look finds it."""
    alter = topic_actions._alter

    async def rejecting(zookeeper: Any, active: Any, topic: str, changes: Mapping[str, str | None], **how: Any) -> None:
        if None not in changes.values():
            await alter(zookeeper, active, topic, changes, **how)
        raise TopicError(ErrorCode.INVALID_CONFIG, "not here")

    patch.setattr(topic_actions, "_alter", rejecting)


def acknowledges_what_it_does_not_change(patch: pytest.MonkeyPatch, *, back: bool) -> None:
    """``back``: what is to go back to its default stays; otherwise every third change is only checked."""
    alter, asked = topic_actions._alter, itertools.count(1)

    async def losing(
        zookeeper: Any, active: Any, topic: str, changes: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        kept = {name: value for name, value in changes.items() if value is not None or not back}
        lost = not back and next(asked) % 3 == 0
        await alter(zookeeper, active, topic, kept, validate_only=validate_only or lost)

    patch.setattr(topic_actions, "_alter", losing)


def forgets(patch: pytest.MonkeyPatch, action: str, topics: str) -> None:
    """Makes the controller acknowledge actions of this kind without doing them, for topics whose name begins so."""
    perform = getattr(TopicActions, action)

    async def idle(self: TopicActions, what: Any, *how: Any, validate_only: bool) -> None:
        forgotten = getattr(what, "topic", what).startswith(topics)
        await perform(self, what, *how, validate_only=validate_only or forgotten)

    patch.setattr(TopicActions, action, idle)


def rebalances_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that has a stable group join again every two seconds; all is read meanwhile."""
    heartbeat, last = Group.heartbeat, dict[int, float]()

    def restless(self: Group, member_id: str, generation: int) -> None:
        now = asyncio.get_running_loop().time()
        if self.state is GroupState.STABLE and now - last.setdefault(id(self), now) > 2.0:
            last[id(self)] = now
            self._prepare("for no reason")
        heartbeat(self, member_id, generation)

    patch.setattr(Group, "heartbeat", restless)


def followers_write_other_times(patch: pytest.MonkeyPatch, partitions: str) -> None:
    """``partitions``: how their names begin."""
    append = Log.append_replicated

    def altered(self: Log, data: bytes) -> int:
        if posixpath.basename(self.directory).startswith(partitions):
            data = b"".join(encode(one._replace(timestamp=7)) for one in message_set.iterate_messages(data))
        return append(self, data)

    patch.setattr(Log, "append_replicated", altered)


def new_owners_skip_a_record(patch: pytest.MonkeyPatch) -> None:
    """Skips a record at each hand-over, in either design. All is acknowledged, read in order, and has one owner."""
    start_from, start = Positions.start_from, ConsumerConnector._read_positions

    def skipping(self: Positions, committed: Mapping[Any, Any]) -> None:
        start_from(self, committed)
        self.offsets.update({one: known.offset + 1 for one, known in committed.items() if known.offset > 0})

    async def sent_beside(self: ConsumerConnector, wanted: Mapping[Any, str]) -> dict[Any, int]:
        return {one: at + 1 if at > 0 else at for one, at in (await start(self, wanted)).items()}

    patch.setattr(Positions, "start_from", skipping)
    patch.setattr(ConsumerConnector, "_read_positions", sent_beside)


@pytest.mark.long
@pytest.mark.parametrize(
    "test",
    [
        test_group.test_group,
        by_night(test_draft_group.test_draft_group),
        by_night(test_zookeeper_group.test_zookeeper_group),
    ],
)
def test_a_record_that_is_skipped_when_a_partition_changes_hands_fails_each_workload_with_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: object
) -> None:
    assert judged(test, tmp_path / "right").verdict is Verdict.PASS
    new_owners_skip_a_record(monkeypatch)
    judgement = judged(test, tmp_path / "broken")
    assert judgement.verdict is Verdict.FAIL
    assert "misplaced-start" in judgement.anomalies


@pytest.mark.long
def test_a_coordinator_that_rebalances_for_ever_fails_though_all_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = judged(test_group.test_group, tmp_path / "right")
    assert right.verdict is Verdict.PASS
    assert {one.check: one.rows for one in right.examined}["restless-group"] > 0, "its members were at rest for long"
    rebalances_for_ever(monkeypatch)
    judgement = judged(test_group.test_group, tmp_path / "broken")
    assert judgement.verdict is Verdict.FAIL
    assert set(judgement.anomalies) == {"restless-group"}


def test_a_setting_that_was_rejected_and_is_there_fails_a_log_whose_settings_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejects_what_it_changes(monkeypatch)
    judgement = judged(test_log.test_log, tmp_path, "settings", time_limit=5.0, rate=20.0)
    assert judgement.verdict is Verdict.FAIL
    assert set(judgement.anomalies) == {"refused-but-done"}


@pytest.mark.parametrize(
    ("test", "back"),
    [
        (test_log.test_log, True),
        by_night(test_log.test_log, False),
        by_night(test_controller.test_controller, True),
        by_night(test_controller.test_controller, False),
    ],
)
def test_a_setting_that_was_acknowledged_and_is_not_there_fails_where_settings_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: object, back: bool
) -> None:
    assert judged(test, tmp_path / "right", "settings").verdict is Verdict.PASS
    acknowledges_what_it_does_not_change(monkeypatch, back=back)
    judgement = judged(test, tmp_path / "broken", "settings")
    assert judgement.verdict is Verdict.FAIL
    assert set(judgement.anomalies) == {"done-but-lost"}


@pytest.mark.parametrize(
    ("test", "action", "topics", "mix"),
    [
        (test_controller.test_controller, "create", "churn-", ()),
        by_night(test_log.test_log, "add_partitions", "orders", ("growth",)),
    ],
    ids=["create", "add_partitions"],
)
def test_topics_and_partitions_that_were_acknowledged_and_are_not_there_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: object, action: str, topics: str, mix: tuple[str, ...]
) -> None:
    forgets(monkeypatch, action, topics)
    judgement = judged(test, tmp_path, *mix)
    assert judgement.verdict is Verdict.FAIL
    assert "done-but-lost" in judgement.anomalies


@pytest.mark.long
@pytest.mark.parametrize(
    ("test", "partitions", "mix"),
    [
        (test_controller.test_controller, "orders-", ()),
        by_night(test_controller.test_moves, "orders-", ()),
        by_night(test_zookeeper_group.test_zookeeper_group, "orders-", ()),
        by_night(test_migration.test_migration, "__consumer_offsets-", ()),
        (test_offsets.test_offsets, "__consumer_offsets-", ()),
        by_night(test_log.test_log, "orders-4", ("growth",)),
        by_night(test_log.test_log, "seldom-", ("seldom",)),
        (test_log.test_log, "brief1-", ("lives",)),
    ],
)
def test_replicas_that_differ_fail_each_workload_whichever_topic_they_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: object, partitions: str, mix: tuple[str, ...]
) -> None:
    followers_write_other_times(monkeypatch, partitions)
    judgement = judged(test, tmp_path, *mix)
    assert judgement.verdict is Verdict.FAIL
    assert all(finding.key.startswith(partitions) for finding in judgement.findings if finding.key)
    assert set(judgement.anomalies) == {"replica-divergence"}
