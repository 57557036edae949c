"""Delta debugging leaves what is needed and nothing else; probabilities are reported with the interval they have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.core.failure_rate import MOST_REPETITIONS, FailureRate
from assay.harness.run import store
from assay.harness.run.settings import Settings
from assay.harness.search.example import Example, SystemParts
from assay.harness.search.shrink import OutOfTime, delta_debug, minimise, write_shrink_note
from assay.harness.search.shrink_run import _read_example, _Runner, read_parts
from assay.harness.stored.replay import PytestEnd
from assay.nemesis.schedule.schedule import (
    Branch,
    FaultSchedule,
    FaultStep,
    ResolvedStep,
    ScheduleRecord,
    encode_schedule,
)
from assay.nemesis.schedule.target import ONE, TargetKind, named_target, parse_target
from assay.nemesis.schedule.trigger import OnEvent
from assay.reports.files import SHRINKING, Shrinking
from assay.system_under_test.deployment import Broker

from helpers.installed_register import Register


@given(st.integers(0, 25), st.sets(st.integers(0, 24)))
def test_what_is_needed_stays_and_nothing_else(size: int, needed: set[int]) -> None:
    needed = {number for number in needed if number < size}
    assert delta_debug(range(size), lambda kept: needed <= set(kept)) == sorted(needed)


@given(st.sets(st.sampled_from([frozenset(pair) for pair in [(1, 4), (2, 9), (3, 7)]]), min_size=1))
def test_of_several_causes_one_is_left_from_which_nothing_can_be_left_out(causes: set[frozenset[int]]) -> None:
    def fails(kept: Sequence[int]) -> bool:
        return any(cause <= set(kept) for cause in causes)

    kept = delta_debug(range(10), fails)
    assert frozenset(kept) in causes


@pytest.mark.parametrize(
    ("failed", "of", "low", "high"), [(7, 20, 0.181, 0.567), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0)]
)
def test_the_interval_of_a_rate(failed: int, of: int, low: float, high: float) -> None:
    found = FailureRate(failed, of).confidence_interval()
    assert found == (pytest.approx(low, abs=0.001), pytest.approx(high, abs=0.001))


def test_a_rate_is_reported_with_its_interval() -> None:
    assert str(FailureRate(7, 20)) == "7 of 20 times (95 % confidence interval: 18-57 %)"
    assert FailureRate(7, 20).format_brief() == "7 of 20 (18-57 %)"


@given(st.integers(1, 49), st.just(50))
def test_so_many_repetitions_that_one_fails_95_times_of_100(failed: int, of: int) -> None:
    rate = FailureRate(failed, of)
    number = rate.count_repetitions()
    missed = (1 - rate.probability) ** number
    assert missed <= 0.05 + 1e-9 or number == MOST_REPETITIONS
    assert number == 1 or (1 - rate.probability) ** (number - 1) > 0.05 - 1e-9


def example(*steps: FaultStep) -> Example:
    return Example(
        seed=1, schedule=FaultSchedule(0, steps), nodes=5, zookeepers=3, concurrency=10, rate=50.0, time_limit=10.0,
        configuration=("flush.messages=1",),
    )  # fmt: skip


KILL = FaultStep(1.0, "kill", ONE, 3.0, trigger=OnEvent("became-leader", nth=2, delay=0.01, within=2.0))
CUT = FaultStep(2.0, "partition", named_target("n2"), 2.0)
STOP = FaultStep(3.0, "stop", ONE, 2.0)
LAST = FaultStep(4.0, "partition", named_target("n2"), 2.0)


def test_everything_that_can_be_simpler_becomes_simpler() -> None:
    def reproduce(candidate: Example, repetitions: int) -> Example | None:
        return candidate if any(step.fault == "kill" for step in candidate.schedule.steps) else None

    small, finished = minimise(example(KILL, CUT, STOP, LAST), 3, reproduce)
    assert finished
    assert [step.fault for step in small.schedule.steps] == ["kill"]
    step = small.schedule.steps[0]
    assert isinstance(step.trigger, OnEvent)
    assert (step.trigger.nth, step.trigger.delay, step.duration) == (1, 0.0, 0.5)
    assert (small.nodes, small.zookeepers, small.concurrency, small.configuration) == (3, 1, 1, ())
    assert small.time_limit == math.floor(step.until) + 1


def test_a_cluster_is_not_made_smaller_than_a_step_needs() -> None:
    cut = msgspec.structs.replace(CUT, target=named_target("n5"))
    small, _ = minimise(example(cut), 1, lambda candidate, _: candidate if candidate.schedule.steps else None)
    assert small.nodes == 5


def test_unlucky_first_tries_are_tried_again_with_as_many_as_the_probability_asks_for() -> None:
    asked: list[int] = []

    def reproduce(candidate: Example, repetitions: int) -> Example | None:
        asked.append(repetitions)
        kinds = {step.fault for step in candidate.schedule.steps}
        return candidate if repetitions == 7 and "kill" in kinds else None

    small, finished = minimise(example(KILL, CUT, STOP), 7, reproduce)
    assert finished
    assert [step.fault for step in small.schedule.steps] == ["kill"]
    assert sorted(set(asked)) == [1, 7]


def test_when_the_time_is_over_the_best_so_far_stands_and_is_not_called_minimal() -> None:
    left = [3]

    def reproduce(candidate: Example, repetitions: int) -> Example | None:
        left[0] -= 1
        if left[0] < 0:
            raise OutOfTime
        return candidate if any(step.fault == "kill" for step in candidate.schedule.steps) else None

    small, finished = minimise(example(KILL, CUT, STOP, LAST), 1, reproduce)
    assert not finished
    assert any(step.fault == "kill" for step in small.schedule.steps)
    assert len(small.schedule.steps) < 4


def test_settings_of_an_earlier_run_keep_the_number_of_client_nodes(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"settings": {"seed": 1, "workers": 2}}')
    (tmp_path / "schedule.json").write_bytes(encode_schedule(FaultSchedule(0)))
    assert _read_example(tmp_path)[0].client_nodes == 2


FIRST = store.RunInfo(
    test="t.py::t[kill]", status=store.FINISHED, started="", owner="", seed=1, cluster="sim", nemesis="kill",
    command="pytest t.py::t",
)  # fmt: skip


def test_a_run_that_failed_in_another_way_or_has_no_verdict_is_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    runner = _Runner(FIRST, "t.py::t", Settings(seed=1), tmp_path, frozenset({"lost-write"}), said.append, None)

    def made(anomaly: str | None) -> Path:
        run = tmp_path / "t" / (anomaly or "nothing")
        run.mkdir(parents=True)
        if anomaly is not None:
            judgement = Judgement(
                verdict=Verdict.FAIL, anomalies={anomaly: 1}, forbidden=("lost-write", "phantom"), tolerated=(),
                findings=(), examined=(), unknown=(), operations=1, effects=1, seconds=0.0, engine="sqlite",
            )  # fmt: skip
            (run / "verdict.json").write_bytes(msgspec.json.encode(judgement))
        return run

    found, other, tolerated, crashed = (made(one) for one in ("lost-write", "phantom", "duplicate", None))
    for run, fails in ((found, True), (other, False), (tolerated, False), (crashed, False)):
        beside = made("repeated-read")
        monkeypatch.setattr(
            "assay.harness.search.shrink_run.run_pytest",
            lambda *_, run=run, beside=beside, **__: PytestEnd(1, run, "", [beside]),
        )
        assert runner.fails(example(KILL)) is fails
        assert not beside.exists(), "it passed, and is a run of another test of the same function"
    assert said == [
        f"kept: {other}, which failed with phantom, not with lost-write",
        f"kept: {crashed}, which has no verdict",
    ]
    assert [run.exists() for run in (found, other, tolerated, crashed)] == [True, True, False, True]


def test_each_run_of_an_estimate_is_announced_before_it_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    runner = _Runner(FIRST, "t.py::t", Settings(seed=1), tmp_path, frozenset({"lost-write"}), said.append, None)
    verdicts = iter([True, False, True])

    def fails(self: _Runner, example: Example, *, unlimited: bool = False) -> bool:
        said.append("played")
        return next(verdicts)

    monkeypatch.setattr(_Runner, "fails", fails)
    assert runner.estimate_rate(example(KILL), 3).failed == 2
    assert said == [
        "estimating the failure rate: run 1 of 3",
        "played",
        "estimating the failure rate: run 2 of 3, 1 of 1 failed",
        "played",
        "estimating the failure rate: run 3 of 3, 1 of 2 failed",
        "played",
    ]


def test_the_story_names_what_was_left_out_and_what_stayed_also_where_it_became_simpler(tmp_path: Path) -> None:
    first, second, third = (
        FaultStep(at=float(at), fault="kill", target=ONE, duration=4.0, seed=at) for at in (1, 2, 3)
    )
    before = example(first, second, third)
    after = example(msgspec.structs.replace(second, duration=0.5))
    write_shrink_note(tmp_path, before, after, SystemParts(), runs=7, first=None, last="3 of 9", minimal=False)
    assert msgspec.json.decode((tmp_path / SHRINKING).read_bytes(), type=Shrinking) == Shrinking(
        runs=7,
        kept=("2.000 s  kill one, for 0.5 s",),
        left_out=("1.000 s  kill one, for 4 s", "3.000 s  kill one, for 4 s"),
        first=None,
        last="3 of 9",
        minimal=False,
    )


def test_a_system_without_zookeeper_and_controller_is_described_without_them() -> None:
    step = FaultStep(at=2.0, fault="kill", target=parse_target("controller"), duration=4.0, seed=1)
    whole = example(step)
    one = msgspec.structs.replace(whole, nodes=1, zookeepers=1, concurrency=1)
    pace = "50 operations/s, 10 s, flush.messages=1"
    broker = SystemParts.of(Broker())
    assert whole.lines(broker) == [f"5 nodes, 3 ZooKeepers, 10 clients, {pace}", " 2.000 s  kill controller, for 4 s"]
    server = SystemParts.of(Register())
    assert one.lines(server) == [f"1 node, 1 client, {pace}", " 2.000 s  kill one, for 4 s"]


@pytest.mark.parametrize(
    ("fell_back", "missing"),
    [([True], {TargetKind.CONTROLLER}), ([True, False], set()), ([False], set()), ([None], set())],
)
def test_a_controller_that_no_run_found_is_missing(
    tmp_path: Path, fell_back: list[bool | None], missing: set[TargetKind]
) -> None:
    """None: the step struck no node."""
    step = FaultStep(at=2.0, fault="kill", target=parse_target("controller"), duration=4.0, seed=1)
    for number, fell in enumerate(fell_back):
        done = ResolvedStep(step, () if fell is None else ("n1",), 2.0, 6.0, {"fell_back": True} if fell else {})
        run = tmp_path / str(number)
        run.mkdir()
        (run / "schedule.json").write_bytes(encode_schedule(ScheduleRecord(FaultSchedule(0, (step,)), (done,))))
        (run / "settings.json").write_text('{"system": {"roles": ["server"]}}')
    runs = [tmp_path / str(number) for number in range(len(fell_back))]
    assert read_parts(*runs, tmp_path / "none") == SystemParts(zookeeper=False, missing=frozenset(missing))
    assert read_parts(tmp_path / "none") == SystemParts()


def branched() -> Example:
    kill, stop = (FaultStep(at, name, parse_target("n1"), 0.5, seed=1) for at, name in ((1.0, "kill"), (3.5, "stop")))
    plain = Example.of(Settings(1, time_limit=9.0), FaultSchedule(0, (kill,)))
    return plain.with_branch(Branch(2.0, 5)).with_branch(Branch(3.0, 6, (stop,)))


def test_branches_are_left_out_when_the_faults_alone_fail() -> None:
    def fails(example: Example, _: int) -> Example | None:
        return example if len(example.schedule.all_steps) > 1 else None

    small, finished = minimise(branched(), 1, fails)
    assert finished
    assert small.schedule.branches == ()
    assert [step.fault for step in small.schedule.steps] == ["kill", "stop"]


def test_a_branch_that_is_needed_stays_and_all_else_goes() -> None:
    small, finished = minimise(
        branched(), 1, lambda example, _: example if any(one.seed == 6 for one in example.schedule.branches) else None
    )
    assert finished
    assert small.schedule.steps == ()
    assert [(branch.seed, branch.steps) for branch in small.schedule.branches] == [(6, ())]
    assert small.time_limit == 4.0, "the branch is still within the main phase"


def test_lines_say_where_a_run_leaves_and_with_what() -> None:
    lines = branched().lines(SystemParts())
    assert lines[2:] == [
        " 2.000 s  from 2 s on, randomness comes from seed 5",
        " 3.000 s  from 3 s on, randomness comes from seed 6",
        " 3.500 s  stop n1, for 0.5 s",
    ]
    assert branched().keep_steps({2}).schedule == FaultSchedule(0, (branched().schedule.all_steps[1],))
