"""Each mix of the broker's workloads, played for a while: what it is about happens, and the correct broker passes.

Mixes that do not get into each other's way share a run, as those that ``--workload-mix=random`` draws do.
"""

from __future__ import annotations

import collections
import inspect
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.checkers.log.fetches import SLACK_MS
from assay.harness.core.history import HistoryReader
from assay.harness.core.timestamps import NANOSECONDS
from assay.harness.run import command_line
from assay.harness.run.attempt import Attempt
from assay.harness.run.settings import Settings
from assay.system_under_test.client import coordinated
from assay.system_under_test.client.config import ConsumerConfig
from assay.system_under_test.client.connection import NotSent
from assay.system_under_test.client.consumer import SimpleConsumer
from assay.system_under_test.client.membership import Generation, Membership
from assay.system_under_test.client.metadata import Metadata
from assay.system_under_test.clocks import Instant
from assay.system_under_test.groups.group import Group
from assay.system_under_test.groups.records import CommittedOffsets, GroupValue
from assay.system_under_test.network.accepted import AcceptedConnection
from assay.system_under_test.network.limits import FREE_REQUEST_BYTES
from assay.workloads import test_draft_group, test_group, test_log, test_migration, test_offsets, test_zookeeper_group
from assay.workloads.broker.bursts import LONGEST
from assay.workloads.broker.expiring_groups import RENEWED
from assay.workloads.broker.group_member import REBALANCE_SECONDS, SESSION_SECONDS
from assay.workloads.broker.group_mixes import (
    LATE_PARTITIONS,
    LATECOMERS,
    SHARED_TOPICS,
    STAYING,
    find_coordinator_partition,
)
from assay.workloads.broker.group_operations import WORKERS
from assay.workloads.broker.log_operations import GLANCE_BYTES
from assay.workloads.broker.mixed_traffic import SLOW, ValueRange
from assay.workloads.broker.mixes import BROKEN_EACH
from assay.workloads.broker.multi_partition_requests import THOUSAND
from assay.workloads.broker.producer_profiles import PROFILES, SEND_SECONDS, SINGLE, build_config

from helpers.attempts import played

pytestmark = pytest.mark.slow


def judged(root: Path, mix: str, test: object, **chosen: Any) -> Attempt:
    settings = Settings(
        **({"seed": 11, "time_limit": 6.0, "rate": 80.0, "store": root, "workload_mix": tuple(mix.split(","))} | chosen)
    )
    attempt = played(test, settings)
    assert attempt.judgement is not None
    return attempt


def accused(root: Path, mix: str, test: object, **chosen: Any) -> set[str]:
    judgement = judged(root, mix, test, **chosen).judgement
    assert judgement is not None
    return {finding.anomaly for finding in judgement.findings}


def play(root: Path, mix: str, test: object = test_log.test_log, **chosen: Any) -> Attempt:
    attempt = judged(root, mix, test, **chosen)
    assert attempt.judgement is not None
    assert attempt.judgement.verdict is Verdict.PASS, (attempt.judgement.unknown, attempt.judgement.findings)
    return attempt


def table(attempt: Attempt, name: str = "effects") -> list[dict[str, Any]]:
    return HistoryReader(attempt.folder.history).table(name).to_pylist()


def test_backlogs_hold_all_codecs_and_formats_up_to_the_limit_and_are_read_from_their_middle(tmp_path: Path) -> None:
    attempt = play(tmp_path, "backlogs", rate=60.0)
    ops = table(attempt, "ops")
    assert sum(row["f"] == "glance" and row["outcome"] == "ok" for row in ops) > 10
    assert any(row["event"] == "log-rolled" for row in table(attempt, "events"))
    sent = [(json.loads(row["argument"]), row) for row in ops if row["f"] == "send" and "padding" in row["argument"]]
    done = {(argument["codec"], argument["format"]) for argument, row in sent if row["outcome"] == "ok"}
    assert done == {(codec, version) for codec in (0, 1, 2, 3) for version in (0, 1)}
    assert {row["error"].partition(":")[0] for _, row in sent if row["outcome"] == "fail"} == {"message-too-large"}
    shown = {row["value"] for row in table(attempt) if row["kind"] == "observe"}
    assert all(set(argument["values"]) <= shown for argument, row in sent if row["outcome"] == "ok")


@pytest.mark.long
@pytest.mark.parametrize(
    ("test", "method", "mixes"),
    [
        (test_group.test_group, "multi_fetch", ("backlogs",)),
        pytest.param(test_draft_group.test_draft_group, "multi_fetch", ("backlogs",), marks=pytest.mark.long),
        (test_zookeeper_group.test_zookeeper_group, "fetch", ("backlogs",)),
    ],
)
def test_members_fetch_as_little_at_a_time_as_other_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: object, method: str, mixes: tuple[str, ...]
) -> None:
    fetch, sizes = getattr(SimpleConsumer, method), set()

    async def noted(self: SimpleConsumer, *about: Any, **more: Any) -> Any:
        sizes.add(inspect.signature(fetch).bind(self, *about, **more).arguments.get("max_bytes"))
        return await fetch(self, *about, **more)

    monkeypatch.setattr(SimpleConsumer, method, noted)
    play(tmp_path, "backlogs", test, workload_mix=mixes)
    assert sizes - {GLANCE_BYTES} == {700}, "as the seed has it"


@pytest.mark.long
@pytest.mark.parametrize("mix", [pytest.param("backlogs", marks=pytest.mark.long), "retention"])
def test_readers_that_poll_seldom_fall_behind_and_read_on(tmp_path: Path, mix: str) -> None:
    attempt = play(tmp_path, mix, time_limit=12.0)
    slow = [row for row in table(attempt, "ops") if SLOW in (row["argument"] or "")]
    calls: dict[tuple[int, str], list[int]] = collections.defaultdict(list)
    for row in slow:
        calls[row["process"], row["key"]].append(row["call"])
    pauses = [later - earlier for times in calls.values() for earlier, later in itertools.pairwise(times)]
    assert sum(pause > NANOSECONDS for pause in pauses) > 10, "seconds lie between two polls of a reader"
    refused = any("out-of-range" in (row["error"] or "") for row in slow)
    assert refused == (mix == "retention"), "what is deleted under a reader that is slow"
    ends = {row["key"]: row["position"] for row in table(attempt) if row["kind"] == "drained"}
    read = {row["op"]: row for row in table(attempt) if row["kind"] == "observe-end"}
    reached = [read[row["index"]] for row in slow if row["outcome"] == "ok"]
    assert sum(row["position"] < ends[row["key"]] // 2 for row in reached) > 5, "and it is far behind"


@pytest.mark.long
@pytest.mark.parametrize(
    "test",
    [
        test_group.test_group,
        pytest.param(test_zookeeper_group.test_zookeeper_group, marks=pytest.mark.long),
        pytest.param(test_migration.test_migration, marks=pytest.mark.long),
    ],
)
def test_a_group_that_begins_far_behind_gets_to_the_end(tmp_path: Path, test: object) -> None:
    rows = table(play(tmp_path, "backlogs", test, time_limit=10.0))
    there = [
        row for row in rows if row["kind"] == "append" and row["value"] >= ValueRange.LOADED and row["outcome"] == "ok"
    ]
    assert len(there) > 400
    (key,) = {row["key"] for row in there}
    assert len({row["position"] for row in rows if row["kind"] == "observe" and row["key"] == key}) > 400
    late = [row for row in rows if row["group"] == LATECOMERS]
    begun = min(row["ret"] for row in late if row["kind"] == "acquire" and row["key"] == key)
    assert sum(row["ret"] < begun for row in there) > 300, "it was there when the group began"
    first = {row["position"] for row in late if row["kind"] == "observe-begin" and row["key"] == key}
    assert 0 in first
    reached = {row["key"] for row in late if row["kind"] == "drained"}
    assert reached == {f"orders-{number}" for number in range(4)}


@pytest.mark.long
def test_look_ups_by_time_find_places_all_over_the_log(tmp_path: Path) -> None:
    rows = table(play(tmp_path, "look-ups", time_limit=8.0))
    found = [row["position"] for row in rows if row["kind"] == "look-up" and row["outcome"] == "ok"]
    assert None in found
    assert len(set(found)) > 15
    ages = [row["timestamp"] for row in rows if row["kind"] == "append" and row["value"] >= ValueRange.STAMPED]
    assert any(later < earlier for earlier, later in itertools.pairwise(ages))


@pytest.fixture(scope="module")
def shrinking(tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """Logs that retention and compaction make smaller, each its own topic, in one run."""
    folder = tmp_path_factory.mktemp("shrinking")
    return play(folder, "retention,compaction", time_limit=8.0)


def test_retention_moves_log_starts_that_readers_see_and_fall_behind(shrinking: Attempt) -> None:
    assert sum(row["event"] == "segment-deleted" for row in table(shrinking, "events")) > 10
    starts = [row["position"] for row in table(shrinking) if row["kind"] == "start"]
    assert len({start for start in starts if start > 0}) > 5
    errors = {row["error"].partition(":")[0] for row in table(shrinking, "ops") if row["f"] == "poll" and row["error"]}
    assert "offset-out-of-range" in errors


def test_compaction_takes_what_has_a_later_value_and_leaves_the_last(shrinking: Attempt) -> None:
    assert any(row["event"] == "log-cleaned" for row in table(shrinking, "events"))
    rows = [row for row in table(shrinking) if row["key"] == "ledger-0"]
    sent = {row["position"]: row for row in rows if row["kind"] == "append" and row["outcome"] == "ok"}
    assert any(row["value"] >= ValueRange.TOMBSTONES for row in sent.values())
    drained = {row["position"] for row in rows if row["kind"] == "observe" and row["phase"] == "drain"}
    assert len(drained) < len(sent), "some were compacted away"
    last = {row["message_key"]: position for position, row in sorted(sent.items())}
    assert {place for place in last.values() if not sent[place]["tombstone"]} <= drained


@pytest.fixture(scope="module")
def administered(tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """Settings change under producers and readers of all habits, in one run."""
    folder = tmp_path_factory.mktemp("administered")
    return play(folder, "habits,settings", time_limit=8.0, rate=60.0)


def test_settings_change_under_load_and_what_is_rejected_is_looked_at(administered: Attempt) -> None:
    rows = table(administered)
    done = {(row["name"], row["value"]) for row in rows if row["kind"] == "setting" and row["outcome"] == "ok"}
    assert {name for name, _ in done} >= {"segment.bytes", "max.message.bytes", "flush.ms"}
    rejected = {row["error"].partition(":")[0] for row in rows if row["kind"] == "setting" and row["outcome"] == "fail"}
    assert rejected == {"invalid-config"}
    drained = [row for row in rows if row["phase"] == "drain"]
    assert {row["value"] for row in drained if row["kind"] == "topic-seen"} == {4}
    assert any(row["kind"] == "setting-seen" for row in drained)


def test_habits_show_in_outcomes_reports_and_reads(administered: Attempt) -> None:
    ops, rows = table(administered, "ops"), table(administered)
    bursts = [json.loads(row["argument"]) for row in ops if row["f"] == "burst" and row["outcome"] == "ok"]
    assert len({one["habit"] for one in bursts}) == 4
    assert {one.get("then") for one in bursts} == {None, "wait", "flush", "close"}
    assert any("message_key" in one for one in bursts)
    informed = {row["source"] for row in rows if row["kind"] == "reported"}
    assert informed >= {"done", "stages"}
    assert not any(row["kind"] == "unreported" for row in rows)
    parts = [
        one["error"]
        for row in ops
        if row["f"] == "wide" and row["result"]
        for one in json.loads(row["result"])["parts"]
    ]
    assert {None, "corrupt-message", "not-leader-for-partition", "invalid-required-acks"} <= set(parts)
    waits = [row for row in rows if row["kind"] == "waited"]
    assert sum(not row["empty"] and row["waited_ms"] < SLACK_MS for row in waits) > 8
    sweeps = [json.loads(row["argument"]) for row in ops if row["f"] == "sweep" and row["outcome"] == "ok"]
    assert {one["version"] for one in sweeps} == {0, 1, 2, 3}


@pytest.mark.long
def test_handovers_end_within_the_second_and_the_log_is_whole(tmp_path: Path) -> None:
    attempt = play(tmp_path, "handovers")
    moves = [row for row in table(attempt) if row["kind"] == "move" and row["outcome"] == "ok"]
    assert len({row["replicas"] for row in moves}) > 3
    events = table(attempt, "events")
    assert sum(row["event"] == "reassignment-ended" for row in events) > 3
    assert len({(row["key"], row["epoch"]) for row in events if row["event"] == "became-leader"}) > 12


@pytest.mark.long
def test_tails_promise_nothing_and_each_replica_leads_and_is_read_nearly_everywhere(tmp_path: Path) -> None:
    attempt = play(tmp_path, "tails", time_limit=8.0)
    rows = table(attempt)
    hasty = [row for row in rows if row["kind"] == "append" and row["value"] >= ValueRange.HASTY]
    assert {row["outcome"] for row in hasty} == {"info"}, "their fate stays unknown"
    begins = [row for row in rows if row["phase"] == "drain" and row["kind"] == "observe-begin"]
    for key in {row["key"] for row in begins}:
        assert {row["node"] for row in begins if row["key"] == key} == {"n1", "n2", "n3"}
        places = sorted({row["position"] for row in begins if row["key"] == key})
        assert len(places) > 0.9 * (places[-1] - places[0])
    led = [row for row in table(attempt, "events") if row["event"] == "became-leader" and 1e9 < row["time"] < 8e9]
    assert len({(row["key"], row["node"]) for row in led}) > 6, "again and again"


@pytest.mark.long
def test_bulk_is_fetched_in_many_parts_by_followers(tmp_path: Path) -> None:
    attempt = play(tmp_path, "bulk")
    rows = [row for row in table(attempt) if row["kind"] == "append" and row["value"] >= ValueRange.BULKY]
    sizes: dict[int, int] = collections.Counter()
    for row in rows:
        sizes[row["request"]] += row["size"]
    assert max(sizes.values()) > 3_000
    assert sum(row["kind"] == "end" and row["outcome"] == "ok" for row in table(attempt)) > 50


@pytest.mark.long
def test_the_fate_of_a_request_that_is_broken_off_is_unknown_and_only_a_whole_one_is_done(tmp_path: Path) -> None:
    attempt = play(tmp_path, "bulk", time_limit=8.0)
    rows, ops = table(attempt), table(attempt, "ops")
    broken = {row["index"]: json.loads(row["argument"]) for row in ops if "broken_off" in (row["argument"] or "")}
    assert len(broken) > 4 * BROKEN_EACH
    assert {row["outcome"] for row in ops if row["index"] in broken} == {"info"}
    assert {one["silent"] for one in broken.values()} == {True, False}
    sent = [row for row in rows if row["op"] in broken]
    assert {(row["kind"], row["outcome"], row["position"]) for row in sent} == {("append", "info", None)}
    shown = {row["value"] for row in rows if row["kind"] == "observe"}
    done = {broken[row["op"]]["broken_off"] for row in sent if row["value"] in shown}
    assert done == {THOUSAND}, "the fate of some is to be appended"
    assert both_kinds(attempt) >= {("large-request", "ok"), ("newcomer", "ok")}


@pytest.mark.long
@pytest.mark.parametrize("concurrency", [6, 18])
def test_a_broker_that_keeps_the_memory_of_requests_that_are_broken_off_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, concurrency: int
) -> None:
    async def keeping(self: AcceptedConnection, size: int) -> None:
        first = await self._reader.read_exactly(FREE_REQUEST_BYTES)
        with self._memory.share(size, self.drop) as share:
            try:
                await self._handle(await self._receive(share, first))
            except BaseException:
                self._memory.free -= share.held
                raise

    monkeypatch.setattr(AcceptedConnection, "_handle_large", keeping)
    assert accused(tmp_path, "bulk", test_log.test_log, concurrency=concurrency) == {"stuck-client"}


@pytest.mark.long
def test_what_is_written_to_seldom_is_left_alone_after_a_gust(tmp_path: Path) -> None:
    attempt = play(tmp_path, "seldom", time_limit=8.0)
    sent = [row for row in table(attempt) if row["kind"] == "append" and row["key"].startswith("seldom-")]
    assert len({row["key"] for row in sent}) > 4
    assert [key for key, _ in itertools.groupby(row["key"] for row in sorted(sent, key=lambda row: row["value"]))] == [
        f"seldom-{number}" for number in range(len({row["key"] for row in sent}))
    ]
    looks = table(attempt, "looks")
    last = max(row["look"] for row in looks)
    flushed = [row for row in looks if row["what"] == "flushed" and row["look"] == last]
    assert {row["key"] for row in sent} <= {row["key"] for row in flushed}
    drained = {row["value"] for row in table(attempt) if row["kind"] == "observe" and row["phase"] == "drain"}
    assert {row["value"] for row in sent if row["outcome"] == "ok"} <= drained
    assert all((row["flushed"], row["unsynced"]) == (row["log_end"], 0) for row in flushed)


@pytest.mark.long
def test_a_topic_lives_again_and_again_and_grows_in_each_life(tmp_path: Path) -> None:
    attempt = play(tmp_path, "lives", time_limit=9.0)
    rows = table(attempt)
    done = [(row["kind"], row["key"]) for row in rows if row["kind"].startswith("topic-") and row["outcome"] == "ok"]
    lives = ["brief1", "brief1#2", "brief1#3"]
    assert done[:5] == [(kind, key) for key in lives for kind in ("topic-create", "topic-delete")][:5], (
        "in turn, each a life of its own"
    )
    for key in lives[:2]:
        sent = {row["value"]: row for row in rows if row["key"] == f"{key}-0" and row["kind"] == "append"}
        shown = {row["value"] for row in rows if row["key"] == f"{key}-0" and row["kind"] == "observe"}
        assert {value for value, row in sent.items() if row["outcome"] == "ok"} <= shown
        assert any(row["key"] == f"{key}-2" and row["kind"] == "append" for row in rows), "grown"
    assert any(row["kind"] == "append" and row["outcome"] == "info" for row in rows), "adrift"
    led = {row["key"] for row in table(attempt, "events") if row["event"] == "became-leader"}
    assert {f"{key}-1" for key in lives} <= led


@pytest.mark.long
@pytest.mark.parametrize(
    "test", [test_log.test_log, pytest.param(test_migration.test_migration, marks=pytest.mark.long)]
)
def test_a_crowd_of_topics_is_served_and_drained(tmp_path: Path, test: object) -> None:
    rows = table(play(tmp_path, "crowd", test))
    drained = {row["key"] for row in rows if row["kind"] == "drained"}
    assert len(drained) == 4 + sum(1 + number % 3 for number in range(1, 9))


SHARED_KEYS = {f"{topic.name}-{number}" for topic in SHARED_TOPICS for number in range(topic.partitions)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("test", "mixes"),
    [
        (test_group.test_group, ("crowd", "neighbours")),
        pytest.param(test_draft_group.test_draft_group, ("crowd", "shares"), marks=pytest.mark.long),
        (test_zookeeper_group.test_zookeeper_group, ("crowd",)),
        pytest.param(test_migration.test_migration, ("crowd",), marks=pytest.mark.long),
    ],
)
def test_members_share_several_topics_commit_them_and_hand_them_over(
    tmp_path: Path, test: object, mixes: tuple[str, ...]
) -> None:
    rows = table(play(tmp_path, "crowd", test, workload_mix=mixes, time_limit=10.0, rate=120.0))
    groups = {row["group"] for row in rows if row["kind"] == "acquire"} - {"drain"}
    assert len(groups) == (2 if "neighbours" in mixes else 1)
    for group in groups:
        owners: dict[str, set[str]] = collections.defaultdict(set)
        for row in rows:
            if row["kind"] == "acquire" and row["group"] == group and row["outcome"] == "ok":
                owners[row["key"]].add(row["owner"])
        assert owners.keys() >= SHARED_KEYS
        assert sum(len(owners[key]) > 1 for key in SHARED_KEYS) > 4, "handed over"
        committed = {row["key"] for row in rows if row["kind"] in ("commit", "advance") and row["outcome"] == "ok"}
        assert committed >= {f"{group}/{key}" for key in SHARED_KEYS}
        begun = {row["key"] for row in rows if row["kind"] in ("fetched", "resume") and (row["position"] or 0) > 0}
        assert begun & {f"{group}/{key}" for key in SHARED_KEYS}
    reached = {(row["group"], row["key"]) for row in rows if row["kind"] == "drained"}
    assert reached >= {("drain", key) for key in SHARED_KEYS}
    if test is test_group.test_group:
        assert reached >= {(group, key) for group in groups for key in SHARED_KEYS}, "from where its members stand"


def test_a_strict_topic_keeps_each_replica_that_goes_eligible_and_takes_it_back(tmp_path: Path) -> None:
    attempt = play(tmp_path, "strict", nemesis=("kill",), nemesis_interval=6.0, time_limit=12.0, rate=30.0)
    states = [
        row
        for row in table(attempt, "events")
        if row["event"] == "partition-state-written" and row["key"].startswith("strict-") and row["min_insync"]
    ]
    assert {state["min_insync"] for state in states} == {3}
    assert any(state["elr"] for state in states)
    rows = [row for row in table(attempt) if row["key"].startswith("strict-")]
    assert any(row["kind"] == "append" and row["outcome"] == "ok" for row in rows)
    assert len({row["key"] for row in rows if row["kind"] == "drained"}) == 3


def test_clients_that_cling_go_on_with_what_they_know_as_other_processes(tmp_path: Path) -> None:
    """Without a seek: the reader's place is one of the things that it knows."""
    chosen: dict[str, Any] = {"nemesis": ("stop",), "nemesis_target": "leader", "time_limit": 16.0, "rate": 30.0}
    rows = table(play(tmp_path, "clinging", **chosen))
    chains = {(row["process"], row["key"], row["assignment"]) for row in rows if row["kind"] == "observe-begin"}
    sought = {(row["process"], row["key"], row["assignment"]) for row in rows if row["kind"] == "seek"}
    assert chains - sought, "begun by a process that had sought nothing"


@pytest.mark.long
@pytest.mark.parametrize(
    "test",
    [
        test_group.test_group,
        pytest.param(test_zookeeper_group.test_zookeeper_group, marks=pytest.mark.long),
        pytest.param(test_migration.test_migration, marks=pytest.mark.long),
    ],
)
def test_members_that_cling_hold_on_as_other_processes(tmp_path: Path, test: object) -> None:
    chosen: dict[str, Any] = {"nemesis": ("stop",), "nemesis_target": "leader", "time_limit": 12.0}
    rows = table(play(tmp_path, "clinging", test, **chosen))
    holds = {(row["owner"], row["process"]) for row in rows if row["kind"] == "acquire"}
    owners = collections.Counter(owner for owner, _ in holds)
    later = {process for owner, process in holds if owners[owner] > 1}
    assert later, "one member is several processes, one after the other"
    assert later & {row["process"] for row in rows if row["kind"] == "observe" and row["assignment"] is not None}


def test_what_a_producer_has_given_up_is_known_before_its_operation_ends() -> None:
    assert build_config(SINGLE).timeout == SEND_SECONDS
    for habit in sorted(PROFILES.keys() - {SINGLE}):
        settings = build_config(habit)
        waiting = LONGEST * (settings.enqueue_timeout or 0.0)
        assert waiting + settings.timeout < float(command_line.select_defaults(["mix"]).operation_timeout)


@pytest.mark.long
def test_members_read_again_and_go_on_within_compressed_sets(tmp_path: Path) -> None:
    attempt = play(tmp_path, "rewinds", test_group.test_group, time_limit=8.0)
    rows = table(attempt)
    sets: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        if row["kind"] == "append" and row["outcome"] == "ok" and row["value"] >= ValueRange.TOGETHER:
            sets.setdefault((row["key"], row["op"]), []).append(row["position"])
    within = {(key, place) for (key, _), places in sets.items() for place in sorted(places)[1:]}
    begun = {(row["key"], row["position"]) for row in rows if row["kind"] == "seek" and row["group"] == WORKERS}
    assert within & begun
    committed = {(row["key"].partition("/")[2], row["position"]) for row in rows if row["kind"] == "fetched"}
    assert within & committed, "and a member began where another had committed it"


@pytest.mark.long
def test_members_stay_while_their_coordinator_changes_and_one_dies(tmp_path: Path) -> None:
    attempt = play(tmp_path, "neighbours", test_group.test_group, time_limit=9.0)
    ops, rows = table(attempt, "ops"), table(attempt)
    assert any(row["f"] == "die" and STAYING in row["argument"] and row["outcome"] == "ok" for row in ops)
    assert {row["key"] for row in rows if row["group"] == STAYING and row["kind"] == "acquire"} > {"orders-0"}
    led = [row for row in table(attempt, "events") if row["event"] == "groups-loaded"]
    assert len({row["node"] for row in led if row["key"] == find_coordinator_partition(STAYING)}) > 1
    gone = {row["process"] for row in ops if "for_good" in row["argument"]}
    assert len(gone) == 4
    last = max(row["ret"] for row in ops if "for_good" in row["argument"])
    left = [row for row in rows if row["group"] == STAYING and row["kind"] == "acquire" and row["call"] > last]
    assert {row["key"] for row in left} >= {f"orders-{number}" for number in range(4)}
    assert not gone & {row["process"] for row in left}


@pytest.mark.long
def test_sessions_that_do_not_begin_at_the_next_coordinator_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Group.load

    def without_sessions(self: Group, value: GroupValue) -> None:
        load(self, value)
        for member in self.members.values():
            self._sessions.stop(member)

    monkeypatch.setattr(Group, "load", without_sessions)
    assert "unsettled-group" in accused(tmp_path, "neighbours", test_group.test_group)


@pytest.mark.long
def test_coordinators_change_from_broker_to_broker(tmp_path: Path) -> None:
    attempt = play(tmp_path, "coordinators", test_offsets.test_offsets, time_limit=9.0)
    loaded = {(row["key"], row["node"]) for row in table(attempt, "events") if row["event"] == "groups-loaded"}
    assert len([node for key, node in loaded if key == find_coordinator_partition(test_offsets.MEMBERS)]) > 1


def both_kinds(attempt: Attempt) -> set[tuple[str, str]]:
    return {(row["client"], row["outcome"]) for row in table(attempt) if row["kind"] == "tried"}


@pytest.mark.long
def test_clients_that_cling_follow_leaders_that_change_and_so_do_committers(tmp_path: Path) -> None:
    for mix, test in (("clinging", test_log.test_log), ("committers", test_offsets.test_offsets)):
        attempt = play(tmp_path / mix, mix, test)
        assert both_kinds(attempt) >= {("regular", "ok"), ("newcomer", "ok")}
        end = max(row["call"] for row in table(attempt) if row["kind"] == "tried")
        assert end > 13 * 10**9, "also after the main phase"


@pytest.mark.long
def test_a_producer_that_goes_on_asking_a_server_that_is_gone_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget = Metadata.forget

    def unless_not_sent(self: Metadata, topic: str, partition: int) -> None:
        if not isinstance(sys.exception(), NotSent):
            forget(self, topic, partition)

    monkeypatch.setattr(Metadata, "forget", unless_not_sent)
    chosen: dict[str, Any] = {"nemesis": ("kill",), "nemesis_interval": 18.0, "time_limit": 20.0}
    chosen |= {"concurrency": 18, "operation_timeout": 2.0, "seed": 1}
    assert "stuck-client" in accused(tmp_path, "clinging", test_log.test_log, **chosen)


@pytest.mark.long
def test_a_committer_that_goes_on_asking_a_former_coordinator_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinated, "STALE_COORDINATOR", frozenset())
    assert "stuck-client" in accused(tmp_path, "committers", test_offsets.test_offsets)


def test_what_strangers_commit_is_rejected_and_never_fetched(tmp_path: Path) -> None:
    attempt = play(tmp_path, "strangers", test_offsets.test_offsets, rate=50.0)
    asked = [row for row in table(attempt, "ops") if row["f"] == "stranger"]
    guises = {json.loads(row["argument"])["guise"] for row in asked if row["outcome"] == "fail"}
    assert guises == {"no-one", "unknown", "neighbour"}
    refused = {json.loads(row["argument"])["number"] for row in asked if row["outcome"] == "fail"}
    assert not refused & {row["value"] for row in table(attempt) if row["kind"] == "fetched"}


@pytest.mark.parametrize("test", [pytest.param(test_log.test_log, marks=pytest.mark.long), test_group.test_group])
def test_partitions_that_come_in_the_middle_are_written_read_and_drained(tmp_path: Path, test: object) -> None:
    rows = table(play(tmp_path, "growth", test, time_limit=8.0, rate=40.0))
    asked = [(row["value"], row["outcome"]) for row in rows if row["kind"] == "partitions-add"]
    assert asked[:4] == [(5, "ok"), (4, "fail"), (6, "ok"), (5, "fail")]
    drained = {row["key"] for row in rows if row["kind"] == "drained"}
    late = LATE_PARTITIONS if test is test_group.test_group else 0
    assert drained == {f"orders-{number}" for number in range(6 + late)}
    if test is test_group.test_group:
        assert "orders-4" in {row["key"] for row in rows if row["kind"] == "acquire" and row["group"] == WORKERS}


@pytest.mark.long
def test_members_that_have_settled_take_up_partitions_that_come_though_none_of_them_goes(tmp_path: Path) -> None:
    for test, group in (
        (test_group.test_group, WORKERS),
        (test_zookeeper_group.test_zookeeper_group, WORKERS),
    ):
        attempt = play(tmp_path / test.__name__, "growth", test, time_limit=8.0)
        ops, rows = table(attempt, "ops"), table(attempt)
        begin = max(row["ret"] for row in rows if row["kind"] == "partitions-add" and row["outcome"] == "ok")
        last = {f"orders-{number}" for number in range(6, 6 + LATE_PARTITIONS)}
        reached = [row for row in rows if row["kind"] == "drained" and row["key"] in last and row["group"] == group]
        assert {row["key"] for row in reached} == last
        end = max(row["ret"] for row in reached)
        assert not [row for row in ops if row["f"] in ("leave", "die", "silence") and begin <= row["call"] <= end]
        assert {row["outcome"] for row in ops if begin <= row["call"] <= end} <= {"ok", "fail"}, "no one is replaced"


def test_the_time_to_take_up_partitions_is_longer_than_two_looks_of_a_leader_at_its_topics() -> None:
    given = test_group.CONTRACT.within("group_deadline")
    assert given > (2 * ConsumerConfig().metadata_age + SESSION_SECONDS + REBALANCE_SECONDS) * NANOSECONDS


@pytest.mark.long
def test_a_leader_that_looks_at_its_topics_only_as_it_joins_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: Membership, generation: Generation) -> None: ...

    monkeypatch.setattr(Membership, "_watch_topics", never)
    assert "unsettled-group" in accused(tmp_path, "growth", test_group.test_group)


@pytest.mark.long
def test_offsets_that_are_kept_for_a_moment_go_and_those_of_members_stay(tmp_path: Path) -> None:
    rows = table(play(tmp_path, "expiry", test_offsets.test_offsets, time_limit=9.0))
    found = [row["value"] for row in rows if row["kind"] == "kept"]
    assert None in found
    assert len(set(found)) > 3
    assert {row["owner"] is None for row in rows if row["kind"] == "keep" and row["outcome"] == "ok"} == {True, False}
    renewed = [row for row in rows if row["group"] == RENEWED and row["kind"] == "keep" and row["outcome"] == "ok"]
    assert {row["retention_ms"] for row in renewed} == {300, 600_000}


@pytest.mark.long
def test_a_coordinator_that_forgets_what_is_being_renewed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_old(self: CommittedOffsets, now: Instant) -> list[tuple[str, int]]:
        return [key for key, value in self.values.items() if value.expire_timestamp <= now.wall_ms]

    monkeypatch.setattr(CommittedOffsets, "list_expired", all_old)
    assert "early-expiry" in accused(tmp_path, "expiry", test_offsets.test_offsets, seed=1, time_limit=9.0)


@pytest.mark.long
def test_partitions_shared_in_turn_have_one_owner_each(tmp_path: Path) -> None:
    rows = table(play(tmp_path, "shares", test_group.test_group, time_limit=8.0))
    assert {row["key"] for row in rows if row["kind"] == "acquire"} >= {f"orders-{number}" for number in range(4)}
