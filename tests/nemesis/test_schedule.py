from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.nemesis.faults.fault import Census
from assay.nemesis.schedule.schedule import (
    Branch,
    FaultSchedule,
    FaultStep,
    ResolvedStep,
    ScheduleError,
    ScheduleRecord,
    decode_schedule,
    encode_schedule,
)
from assay.nemesis.schedule.target import Target, TargetKind, named_target, parse_target

from helpers.nemesis_fakes import FAULTS, draw

CENSUS = Census(5, 3, ("orders-0",), 2, ("members",), spares=1)
SCHEDULES = st.builds(
    lambda seed, names: draw(seed, names, census=CENSUS, time_limit=60),
    st.integers(0, 2**63 - 1),
    st.lists(st.sampled_from(sorted(FAULTS)), max_size=3),
)


@given(SCHEDULES)
def test_a_schedule_survives_json(schedule: FaultSchedule) -> None:
    assert decode_schedule(encode_schedule(schedule)) == schedule


@given(SCHEDULES, st.data())
def test_a_record_survives_json_and_plays_back_both_ways(schedule: FaultSchedule, data: st.DataObject) -> None:
    targets = st.sampled_from([(), ("n1",), ("n1", "n3")])
    resolved = tuple(
        ResolvedStep(step, data.draw(targets), step.at + 0.04, step.until + 0.1, {"note": "x"})
        for step in schedule.steps
    )
    record = ScheduleRecord(schedule, resolved)
    assert decode_schedule(encode_schedule(record)) == record
    assert record.as_planned() == schedule
    again = record.as_resolved()
    assert decode_schedule(encode_schedule(again)) == again
    assert [step.target for step in again.steps] == [named_target(*done.targets) for done in resolved if done.targets]
    for step, done in zip(again.steps, [done for done in resolved if done.targets], strict=True):
        assert (step.at, step.parameters, step.fault) == (done.at, done.step.parameters, done.step.fault)
        assert step.until == pytest.approx(done.healed_at)


def test_what_was_never_healed_is_replayed_for_as_long_as_was_planned() -> None:
    step = FaultStep(2.0, "kill", parse_target("leader"), 5.0)
    record = ScheduleRecord(FaultSchedule(1, (step,)), (ResolvedStep(step, ("n2",), 2.5, None, {}),))
    assert record.as_resolved().steps[0] == msgspec.structs.replace(step, at=2.5, target=named_target("n2"))


GOOD = '{"type":"schedule","seed":1,"steps":[{"at":2,"fault":"kill","target":{"kind":"one"},"duration":5}]}'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"duration"', '"durration"', r"x\.json: .*durration.*steps\[0\]"),
        ('"duration":5', '"duration":0', r"duration"),
        ('"at":2', '"at":-1', r"steps\[0\]\.at"),
        ('"one"', '"won"', r"'won'.*target\.kind"),
        ('{"kind":"one"}', '{"kind":"zookeeper","key":"a"}', "takes no key"),
        ('{"kind":"one"}', '{"kind":"named"}', "has no names"),
        ('"schedule"', '"sched"', "'sched'"),
        ("]}", "", r"x\.json is not JSON"),
        ("}]", '},{"at":1,"fault":"kill","target":{"kind":"one"},"duration":5}]', "order of their times"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(old: str, new: str, message: str) -> None:
    assert isinstance(decode_schedule(GOOD.encode()), FaultSchedule)
    assert old in GOOD
    with pytest.raises(ScheduleError, match=message):
        decode_schedule(GOOD.replace(old, new).encode(), "x.json")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (FaultStep(2, "kill", parse_target("leader:orders-0"), 5), "kill leader of orders-0"),
        (FaultStep(2, "stop", parse_target("leader"), 5), "stop leader of any key"),
        (FaultStep(2, "partition", Target(TargetKind.HALF), 5, {"shape": "halves"}), "partition halves"),
        (FaultStep(2, "partition-halves", Target(TargetKind.HALF), 5, {"shape": "halves"}), "partition-halves"),
        (
            FaultStep(2, "partition", parse_target("leader:o-1"), 5, {"shape": "isolate-leader"}),
            "partition isolate-leader of o-1",
        ),
        (FaultStep(2, "partition", parse_target("n2"), 5, {"shape": "from-zookeeper"}), "partition from-zookeeper n2"),
        (FaultStep(2, "partition", parse_target("one"), 5, {"shape": "one"}), "partition one"),
        (FaultStep(2, "partition-one", parse_target("controller"), 5, {"shape": "one"}), "partition-one controller"),
    ],
)
def test_a_step_is_said_in_words(step: FaultStep, said: str) -> None:
    assert str(step) == said


def test_what_came_of_a_step_is_said_in_words() -> None:
    step = FaultStep(14, "kill", parse_target("leader:orders-0"), 5)
    assert str(ResolvedStep(step, ("n2",), 14.203, 19.31, {})) == "kill leader of orders-0: n2 at 14.203 s to 19.310 s"


def test_branches_survive_json_and_number_their_steps_after_all_others() -> None:
    kill, stop = (FaultStep(at, name, parse_target("n1"), 1.0) for at, name in ((2.0, "kill"), (5.0, "stop")))
    schedule = FaultSchedule(7, (stop,), branches=(Branch(1.0, 3, (kill,)), Branch(4.0, 4)))
    assert decode_schedule(encode_schedule(schedule)) == schedule
    assert schedule.all_steps == (stop, kill)
    assert b"branches" not in encode_schedule(FaultSchedule(7, (kill, stop))), (
        "a schedule without any reads as it always did"
    )


@pytest.mark.parametrize(
    ("branches", "message"),
    [
        ([{"at": 3.0, "seed": 1}, {"at": 2.0, "seed": 1}], "in the order of their times"),
        (
            [{"at": 3.0, "seed": 1, "steps": [FaultStep(2.9, "kill", parse_target("n1"), 1.0)]}],
            "an earlier time .at. than the branch",
        ),
        ([{"at": 3.0}], "seed"),
    ],
)
def test_a_branch_that_cannot_be_is_refused(branches: list[object], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        decode_schedule(msgspec.json.encode({"type": "schedule", "seed": 7, "branches": branches}), "mine.json")


def test_a_step_that_was_healed_before_it_was_injected_is_refused() -> None:
    """No positive duration leads from the one to the other, and a search for one never ended."""
    step = FaultStep(at=14.0, fault="kill", target=Target(TargetKind.ONE), duration=5.0)
    record = encode_schedule(
        ScheduleRecord(FaultSchedule(1, (step,)), (ResolvedStep(step, ("n2",), 44.895, 50.0, {}),))
    )
    with pytest.raises(ScheduleError, match=r"injected at 44.895 s and healed before, at 8.17 s.*resolved\[0\]"):
        decode_schedule(record.replace(b"50.0", b"8.17"))
