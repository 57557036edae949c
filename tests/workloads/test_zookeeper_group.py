"""The workload of groups of the old design: what it does, what it tells, and what its contract says in words."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.harness.core.client import Endpoint
from assay.harness.core.history import HistoryReader
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.run.attempt import Attempt, ReportPolicy
from assay.harness.run.settings import Settings
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, encode_schedule
from assay.nemesis.schedule.target import named_target
from assay.reports.failure_text import EvidenceLines, FailureFooter, describe
from assay.system_under_test.client.zookeeper_groups import view
from assay.system_under_test.client.zookeeper_groups.connector import ChangeKind, OwnershipChange, RebalanceCounters
from assay.system_under_test.client.zookeeper_groups.view import assign_partitions
from assay.system_under_test.defects import DEFECTS
from assay.workloads import test_zookeeper_group
from assay.workloads.broker import connector_client
from assay.workloads.broker.connector_client import ZOOKEEPER, ConnectorClient, ConnectorMember

from helpers.attempts import played

HELD = {"key": "orders-1", "generation": None, "owner": "g_c", "assignment": 4}


def run(root: Path, reports: ReportPolicy = ReportPolicy.NEVER, **chosen: Any) -> Attempt:
    settings = Settings(**({"seed": 1, "time_limit": 12.0, "rate": 100.0, "store": root} | chosen))
    return played(test_zookeeper_group.test_zookeeper_group, settings, reports=reports)


def rows(f: str, result: Any, outcome: Outcome = Outcome.OK) -> list[tuple[Any, ...]]:
    operation = Operation(f, argument={"group": "g", "number": 1, "keys": ["orders-1"]})
    ret = None if outcome is Outcome.INFO else 20
    effects = ConnectorClient.effects(Completed(41, 3, "w3", operation, Completion(outcome, result), 10, ret))
    return [
        (row.kind, row.key, row.position, row.owner, row.generation, row.assignment, row.outcome) for row in effects
    ]


def test_a_hold_has_an_owner_and_no_epoch_and_begins_at_the_group_s_offset() -> None:
    note = {"kind": "acquire", **HELD, "begin": 100, "offset": 100, "number": None}
    assert rows("poll", {"ownership": [note], "reads": [], "commits": []}) == [
        ("acquire", "orders-1", None, "g_c", None, 4, Outcome.OK),
        ("seek", "orders-1", 100, None, None, 4, Outcome.OK),
        ("resume", "g/orders-1", 100, None, None, None, Outcome.OK),
    ]


def test_a_release_is_recorded_whatever_became_of_the_operation_and_of_its_commit() -> None:
    result = {
        "ownership": [{"kind": "release", **HELD}],
        "commits": [{"outcome": "info", "positions": [["orders-1", 7]]}],
    }
    for f, outcome in (("commit", Outcome.INFO), ("poll", Outcome.FAIL), ("leave", Outcome.OK)):
        assert rows(f, result, outcome) == [
            ("release", "orders-1", None, "g_c", None, 4, Outcome.OK),
            ("advance", "g/orders-1", 7, None, None, None, Outcome.INFO),
        ]


def test_a_member_that_owns_nothing_says_so() -> None:
    nothing: dict[str, Any] = {"ownership": [], "commits": [], "claims": [], "over": []}
    for f, recorded in (("poll", {"reads": []}), ("commit", {}), ("leave", {})):
        assert rows(f, nothing | recorded) == [("idle", "g", None, None, None, None, Outcome.OK)]
    assert rows("poll", nothing, Outcome.FAIL) == [("idle", "g", None, None, None, None, Outcome.OK)]
    assert rows("poll", None, Outcome.INFO) == []


def test_a_claim_is_reported_with_all_shares_of_its_view_and_is_none_of_the_member_s_holds() -> None:
    claim = {"owner": "g_c", "seen": 7, "made": 9, "shares": [["orders-0", "g_b"], ["orders-1", "g_c"]]}
    result = {"ownership": [], "reads": [], "commits": [], "claims": [claim]}
    effects = ConnectorClient.effects(
        Completed(41, 3, "w3", Operation("poll", argument={"group": "g"}), Completion(Outcome.OK, result), 10, 20)
    )
    assert [(row.kind, row.key, row.owner, row.version, row.value, row.assignment) for row in effects] == [
        ("idle", "g", None, None, None, None),
        ("share", "orders-0", "g_b", 7, 9, None),
        ("claim", "orders-1", "g_c", 7, 9, None),
    ]


class Letting:
    """A connector that holds orders-1 and takes as long as it is asked to commit."""

    def __init__(self) -> None:
        self.consumer_id = "g_c"
        self.counters = RebalanceCounters()
        self.owned, self.positions = {("orders", 1): "t"}, {("orders", 1): 7}
        self.committed = asyncio.Event()

    async def commit_offsets(self) -> dict[tuple[str, int], int]:
        await self.committed.wait()
        return self.positions


@pytest.mark.parametrize("slow", [False, True])
def test_what_is_let_go_after_the_operation_is_not_reported_as_of_the_next_one(
    slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call would be later than the release and the commit were, and others own the partition by then."""
    if slow:
        monkeypatch.setattr(connector_client, "LEAVING_SECONDS", 0.01)

    async def check() -> None:
        runtime = MagicMock(random=random.Random(1), wall_clock=lambda: 0.0)
        member = ConnectorMember(Endpoint("n1", "a:1", ("a:1",)), "g", ZOOKEEPER, runtime, itertools.count(1))
        connector = Letting()
        member.connector = connector  # type: ignore[assignment]
        async with member.operation():
            member._on_change(OwnershipChange(ChangeKind.ACQUIRED, "orders", 1, "t", 1, 0))
        assert [note["kind"] for note in member.report()["ownership"]] == ["acquire"]

        async def let_go() -> None:
            await member._before_release()
            member._on_change(OwnershipChange(ChangeKind.RELEASED, "orders", 1, "t", 1, 7))

        letting = asyncio.create_task(let_go())
        async with member.operation():
            await asyncio.sleep(0)  # it has begun to commit
            connector.counters.watches = 2
            if not slow:
                connector.committed.set()
        now = member.report()
        connector.committed.set()
        await letting
        connector.counters.watches = 3
        recorded = member.report()
        if slow:
            assert now == {"ownership": [], "commits": [], "claims": [], "over": [], "effort": {"watches": 2}}
            commits = [{"outcome": "info", "positions": [["orders-1", 7]]}]
            assert recorded == {"ownership": [], "commits": commits, "claims": [], "over": [("orders-1", 1)],
                                "effort": {"watches": 1}}  # fmt: skip
        else:
            assert [note["kind"] for note in now["ownership"]] == ["release"]
            assert [commit["outcome"] for commit in now["commits"]] == ["ok"]

    asyncio.run(check())


def test_the_next_process_of_one_that_goes_on_reports_what_it_holds_but_nothing_to_begin_at() -> None:
    async def check() -> dict[str, Any]:
        runtime = MagicMock(random=random.Random(1), wall_clock=lambda: 0.0)
        member = ConnectorMember(Endpoint("n1", "a:1", ("a:1",)), "g", ZOOKEEPER, runtime, itertools.count(1))
        member.connector = Letting()  # type: ignore[assignment]
        member._on_change(OwnershipChange(ChangeKind.ACQUIRED, "orders", 1, "t", 1, 5))
        member.report_holds_again()
        assert [note["offset"] for note in member.report()["ownership"]] == [5], "not reported before, so once"
        member.report_holds_again()
        return member.report()

    result = asyncio.run(check())
    assert rows("poll", result | {"reads": []}) == [
        ("acquire", "orders-1", None, "g_c", None, 2, Outcome.OK),
        ("seek", "orders-1", 7, None, None, 2, Outcome.OK),
    ]


def test_the_contract_says_under_which_faults_the_design_may_fail_and_why() -> None:
    contract = test_zookeeper_group.CONTRACT
    for injected in ((), ("kill",), ("consumer-from-zookeeper",), ("zookeeper-expire",), ("zookeeper-kill",)):
        assert contract.under(injected).forbids("double-ownership")
    for injected in ("stop-consumer", "freeze", "zookeeper-pause"):
        assert contract.under((injected,)).tolerates("double-ownership")
        assert "the old design has no fence" in contract.reasons((injected,))["double-ownership"]
        assert contract.under((injected,)).forbids("orphaned-partition"), "who is gone is asked for nothing"


@pytest.mark.slow
def test_members_share_the_log_and_nothing_is_wrong_with_it(tmp_path: Path) -> None:
    attempt = run(tmp_path, nemesis=("kill",), time_limit=14.0, rate=50.0)
    assert attempt.judgement is not None
    assert attempt.judgement.anomalies == {}
    history = HistoryReader(attempt.folder.history)
    effects = history.table("effects").to_pylist()
    kinds = {kind: sum(row["kind"] == kind for row in effects) for kind in ("acquire", "release", "observe", "drained")}
    assert kinds["acquire"] > 20
    assert kinds["release"] > 20
    assert kinds["observe"] > 500
    assert kinds["drained"] >= 4
    holds = [(row["process"], row["key"], row["assignment"]) for row in effects if row["kind"] == "acquire"]
    assert len(holds) == len(set(holds)), "each has a number of its own"


CUT_OFF: Any = {"nemesis": ("consumer-from-zookeeper",), "seed": 5, "time_limit": 25.0}


@pytest.mark.slow
def test_a_consumer_that_goes_on_after_its_session_is_caught(tmp_path: Path) -> None:
    judgement = run(tmp_path, **CUT_OFF | {"time_limit": 18.0, "rate": 40.0}, defect="zk-owner-overlap").judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.FAIL
    assert "double-ownership" in judgement.anomalies
    assert set(judgement.anomalies) <= set(DEFECTS["zk-owner-overlap"].anomalies)


@pytest.mark.long
@pytest.mark.slow
def test_one_that_is_cut_off_and_gives_up_in_time_is_not(tmp_path: Path) -> None:
    judgement = run(tmp_path, **CUT_OFF).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.PASS, judgement
    assert judgement.anomalies == {}


ZOMBIE = (
    FaultStep(at=4.0, fault="stop-consumer", target=named_target("client1"), duration=3.0),
    FaultStep(at=5.0, fault="consumer-from-zookeeper", target=named_target("client1"), duration=8.0),
    FaultStep(at=11.0, fault="kill-consumer", target=named_target("client1"), duration=1.0),
)
"""When the consumer wakes, its session is over, others have its partitions, and it cannot learn of that.

It sleeps for less than an operation may take, or its process would be followed by another, which owns nothing. It is
killed before it is let back to ZooKeeper: it would commit where it stands, and the contract tolerates no offset that
goes back.
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 5])
def test_what_the_design_cannot_help_is_reported_with_the_reason(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here by the defect: without it a member looks at the clock when it wakes, and the simulation stops no step.

    Three members for four partitions, of which one leaves at the start and none later: the one that sleeps owns one.
    """
    monkeypatch.setattr(test_zookeeper_group, "LEAVE_SECONDS", 1e6)
    schedule = tmp_path / "zombie.json"
    schedule.write_bytes(encode_schedule(FaultSchedule(seed=0, steps=ZOMBIE)))
    chosen: Any = {"replay": schedule, "concurrency": 3, "rate": 30.0, "time_limit": 15.0, "seed": seed}
    attempt = run(tmp_path, reports=ReportPolicy.ALL, defect="zk-owner-overlap", **chosen)
    judgement = attempt.judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.PASS, judgement
    assert judgement.anomalies.keys() == {"double-ownership"}
    why = judgement.reasons["double-ownership"]
    assert why.startswith("tolerated in a run with stop-consumer, because the old design has no fence")
    text = describe(judgement, EvidenceLines(), FailureFooter())
    assert "tolerated: double-ownership" in text
    assert "because the old design has no fence" in text
    assert "because the old design has no fence" in (attempt.folder.path / "report.html").read_text()


@pytest.mark.long
@pytest.mark.slow
def test_members_as_they_were_have_split_brains_which_are_reported_with_the_reason(tmp_path: Path) -> None:
    """In most seeds: two changes must be so close that a member claims by the first, after others by the second."""
    runs = [run(tmp_path, reports=ReportPolicy.ALL, workload_mix=("classic",), seed=seed) for seed in (1, 2, 3)]
    judgements = [attempt.judgement for attempt in runs if attempt.judgement is not None]
    assert [judgement.verdict for judgement in judgements] == [Verdict.PASS] * 3
    assert {name for judgement in judgements for name in judgement.anomalies} == {"split-brain"}
    attempt, judgement = next(pair for pair in zip(runs, judgements, strict=True) if pair[1].anomalies)
    why = judgement.reasons["split-brain"]
    assert why.startswith("tolerated because members of the old design agree on nothing")
    text = describe(judgement, EvidenceLines(), FailureFooter())
    assert "tolerated: split-brain" in text
    assert why in text
    assert "members of the old design agree on nothing" in (attempt.folder.path / "report.html").read_text()


@pytest.mark.long
@pytest.mark.slow
def test_members_that_take_care_have_none_in_the_same_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector_client, "CLASSIC", "an option that no mix chooses")
    for seed in (1, 2, 3):
        judgement = run(tmp_path, workload_mix=("classic",), seed=seed).judgement
        assert judgement is not None
        assert judgement.anomalies == {}
        (claims,) = [one.rows for one in judgement.examined if one.check == "split-brain"]
        assert claims > 50


def test_without_the_mix_the_contract_forbids_split_brain() -> None:
    assert test_zookeeper_group.CONTRACT.forbids("split-brain")


@pytest.mark.long
@pytest.mark.slow
def test_a_partition_that_no_member_claims_is_an_orphan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as there are two members their shares leave out the last partition."""

    def short(partitions: Any, threads: Any) -> Any:
        few = {topic: indexes[:-1] if len(threads[topic]) > 1 else indexes for topic, indexes in partitions.items()}
        return assign_partitions(few, threads)

    monkeypatch.setattr(view, "assign_partitions", short)
    judgement = run(tmp_path, time_limit=20.0, seed=3).judgement  # in which the first member owns everything
    assert judgement is not None
    assert judgement.verdict is Verdict.FAIL
    (recorded,) = [finding for finding in judgement.findings if finding.anomaly == "orphaned-partition"]
    assert recorded.claim.startswith("No one of workers owned orders-3 ")
