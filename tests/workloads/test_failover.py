"""A group stays correct when its coordinator is killed exactly at each of five points of a rebalance.

Its members rebalance all the time. Each point has one run, or twenty (-m long). So has each of the draft's five points.

In a cluster of containers, three runs for each point::

    for n in 1 2 3 4 5; do pytest workloads/test_offsets.py --cluster=docker --repeat=3 --time-limit=15 --rate=200 \
        --set=zookeeper.session.timeout.ms=1000 --replay=schedules/failover-$n.json; done

and for the draft ``workloads/test_draft_group.py`` with ``schedules/draft-failover-$n.json``.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.engine import Engines
from assay.checkers.judging.verdict import Verdict
from assay.harness.core.generator import Context, Generator, unfold
from assay.harness.core.history import HistoryReader
from assay.harness.core.operation import Operation, Phase
from assay.harness.run.attempt import Attempt
from assay.harness.run.experiment import experiment
from assay.harness.run.settings import Settings
from assay.nemesis.schedule.schedule import FaultSchedule, decode_schedule
from assay.nemesis.schedule.trigger import OnEvent
from assay.system_under_test.groups.kill_points import DRAFT_FAILOVER_POINTS, FAILOVER_POINTS
from assay.workloads import test_draft_group, test_offsets
from assay.workloads.broker.group_operations import WORKERS
from assay.workloads.broker.offsets_client import MEMBERS, Fetch, Leave, OffsetsClient

from helpers.attempts import played
from helpers.nightly import some_by_day

SCHEDULES = Path(__file__).parent.parent.parent / "schedules"
RUNS = 1
MANY = pytest.param(20, marks=pytest.mark.long)
TOGETHER = 2
"""So many members at least commit in one generation once the coordinator is gone."""

Rows = list[dict[str, Any]]


def step(number: int, context: Context) -> tuple[Operation, int]:
    """Operations of ``test_offsets``, and every tenth time a member leaves, to come back for its next commit."""
    return (Operation(Leave.f), number) if not context.random_below(10, salt=9) else test_offsets.step(number, context)


@experiment(system=test_offsets.SYSTEM, client=OffsetsClient, contract=test_offsets.CONTRACT)
def restless(settings: Settings) -> Generator:
    return unfold(step, 1) | [Operation(Fetch.f, key, phase=Phase.DRAIN) for key in test_offsets.KEYS]


@dataclass(frozen=True)
class Point:
    """``schedule`` kills the coordinator of ``group`` at ``event``, while ``test`` has it rebalance."""

    schedule: str
    event: str
    group: str
    test: object
    rate: float


POINTS = [
    *(Point(f"failover-{n}", event, MEMBERS, restless, 30.0) for n, event in enumerate(FAILOVER_POINTS, start=1)),
    *(
        Point(f"draft-failover-{n}", event, WORKERS, test_draft_group.test_draft_group, 100.0)
        for n, event in enumerate(DRAFT_FAILOVER_POINTS, start=1)
    ),
]


@pytest.fixture(scope="module")
def engines() -> Engines:
    return Engines("duckdb", threads=1)


def run(point: Point, seed: int, engines: Engines, store: Path) -> Attempt:
    settings = Settings(
        seed,
        replay=SCHEDULES / f"{point.schedule}.json",
        time_limit=9.0,
        rate=point.rate,
        configuration=("zookeeper.session.timeout.ms=1000",),
        store=store,
    )
    return played(point.test, settings, engines=engines)


def details(rows: Rows, phase: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next(row["detail"] for row in rows if row["phase"] == phase))
    return found


def died_at(history: HistoryReader, point: Point) -> int:
    """When, in the history's nanoseconds; asserts that the process died right there."""
    faults = history.table("faults").to_pylist()
    assert [row["phase"] for row in faults] == ["intended", "injected", "healed", "recovered"], faults
    assert faults[2]["took_effect"] is True
    trigger = details(faults, "injected")["trigger"]
    line = trigger["line"]
    assert trigger["held"] is True, "it was seen stopped, and this was its last line"
    assert (line["event"], line["key"]) == (point.event, point.group)
    node = trigger["origin"]
    assert json.loads(faults[1]["targets"]) == [node]
    assert details(faults, "healed")["evidence"][node]["before"]["state"] == "stopped"
    after = [
        row["event"]
        for row in history.table("events").to_pylist()
        if (row["node"], row["incarnation"]) == (node, line["incarnation"]) and row["seq"] > line["seq"]
    ]
    assert not after, "it wrote something more"
    time: int = faults[1]["time"]
    return time


def together(history: HistoryReader, group: str, since: int) -> int:
    """Returns the largest number of members that committed in a single generation after ``since``."""
    members: dict[int, set[int]] = {}
    for row in history.table("effects").to_pylist():
        if row["kind"] == "commit" and row["group"] == group and row["outcome"] == "ok" and row["call"] > since:
            members.setdefault(row["generation"], set()).add(row["process"])
    return max((len(processes) for processes in members.values()), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [RUNS, MANY])
@pytest.mark.parametrize("point", some_by_day(POINTS, (POINTS[1],)), ids=lambda point: point.schedule)
def test_the_group_is_correct_whenever_its_coordinator_dies(
    point: Point, runs: int, engines: Engines, tmp_path: Path
) -> None:
    for seed in range(runs):
        attempt = run(point, seed, engines, tmp_path)
        assert attempt.judgement is not None
        assert attempt.judgement.verdict is Verdict.PASS, (seed, attempt.judgement)
        history = HistoryReader(attempt.folder.history)
        assert together(history, point.group, died_at(history, point)) >= TOGETHER, seed
        shutil.rmtree(attempt.folder.path)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.schedule)
def test_each_point_has_a_schedule_that_kills_exactly_there(point: Point) -> None:
    path = SCHEDULES / f"{point.schedule}.json"
    schedule = decode_schedule(path.read_bytes(), str(path))
    assert isinstance(schedule, FaultSchedule)
    (step,) = schedule.steps
    assert (step.fault, str(step.target)) == ("kill", "origin")
    assert isinstance(step.trigger, OnEvent)
    assert (step.trigger.event, step.trigger.key, step.trigger.hold) == (point.event, point.group, True)
